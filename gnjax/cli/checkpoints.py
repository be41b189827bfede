"""A model at a checkpoint: folders of orbax, ``.safetensors``, and files of PyTorch."""

from __future__ import annotations

import copy
import hashlib
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.cli.factories import MistakeError
from gnjax.data.archives import MALFORMED
from gnjax.models import safetensors
from gnjax.networks.forms.frameworks import is_torch
from gnjax.networks.model import functional
from gnjax.networks.parameters import paths
from gnjax.networks.torch_modules.from_torch import from_torch
from gnjax.numerics.extras import optional

_TORCH = (".pt", ".pth", ".bin")
_READ = "a folder that orbax wrote, or a .safetensors file; for a torch.nn.Module also .pt and .pth"
_ALONE = "let the factory take the path and load it"
_WRAPPERS = {"params", "value", "raw_value"}  # parts of names that differ between frameworks
_STATES = ("state_dict", "model", "model_state_dict")
_OF_MODELS = {"model", "module", "net", "network", "state", "state_dict", "train_state"}
"""Names below which trainers keep a model; below any other one the arrays may be an optimiser's."""
_SHOWN = 3
_PART = 2**22  # bytes that are read at once


def at_checkpoint(model: Any, path: Path) -> Any:
    """The model with the arrays of the checkpoint in place of its own; of a torch module a pair."""
    if is_torch(model):
        return _torch_module(model, path)
    arrays = _arrays(path)
    if isinstance(model, nnx.Module):
        state = nnx.state(model, nnx.Not(nnx.RngState))
        moved = nnx.clone(model)
        nnx.update(moved, _filled(state, arrays, path))
        return moved
    first, params = model if type(model) is tuple else functional(model)
    return first, _filled(params, arrays, path)


def file_digest(path: Path) -> str:
    """A digest of every byte of the file, or of all files of the folder and their names."""
    whole = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        whole.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while part := opened.read(_PART):
                whole.update(part)
    return whole.hexdigest()


def numbers_of_steps(checkpoints: list[Path]) -> list[int]:
    """The last number in the name of each; their places where those are not all different."""
    in_names = [re.findall(r"\d+", path.name) for path in checkpoints]
    steps = [int(numbers[-1]) for numbers in in_names if numbers]
    whole = len(set(steps)) == len(checkpoints)
    return steps if whole else list(range(len(checkpoints)))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path."""
    if path.is_dir():
        return _arrays_of_orbax(path)
    if path.suffix == ".safetensors":
        return safetensors.read_tensors(path)
    msg = f"{path} is no checkpoint that is read here, which is {_READ}; or {_ALONE}"
    raise MistakeError(msg)


def _arrays_of_orbax(path: Path) -> dict[str, np.ndarray]:
    orbax = optional("orbax.checkpoint", "a folder of orbax")
    folders = [path] if (path / "_METADATA").exists() else list(_metadata_below(path))
    if len(folders) != 1:
        msg = f"{path} holds {len(folders)} checkpoints of orbax; name the folder of one"
        raise MistakeError(msg)
    try:
        tree = orbax.StandardCheckpointer().restore(folders[0].absolute())
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(path, error) from error
    return dict(zip(paths(tree), map(np.asarray, jax.tree.leaves(tree)), strict=True))


def _damaged(path: Path, error: Exception) -> MistakeError:
    """The refusal of a file or folder that a reader of its format does not take."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    msg = f"{path} is damaged, or no checkpoint of this form ({reason}); save it again, or {_ALONE}"
    return MistakeError(msg)


def _metadata_below(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.iterdir()) if (folder / "_METADATA").exists()]


def _plain(name: str) -> str:
    """The name with slashes, and without what frameworks wrap parameters in."""
    return "/".join(part for part in re.split(r"[./]", name) if part not in _WRAPPERS)


def _filled(tree: Any, arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The tree with the arrays of the same names, which may all stand below one more name."""
    own = paths(tree)
    chosen = own if all(name in arrays for name in own) else _chosen(own, arrays, path)
    leaves = []
    for name, place, leaf in zip(own, chosen, jax.tree.leaves(tree), strict=True):
        array = arrays[place]
        if array.shape != leaf.shape:
            msg = f"{path}: {_plain(name)} has shape {array.shape}, and {leaf.shape} in the model"
            raise MistakeError(msg)
        if jnp.issubdtype(array.dtype, jnp.floating) != jnp.issubdtype(leaf.dtype, jnp.floating):
            msg = (
                f"{path}: {_plain(name)} is {array.dtype}, and {leaf.dtype} in the model; "
                "weights that are quantised must be turned into floats first"
            )
            raise MistakeError(msg)
        leaves.append(jnp.asarray(array, jnp.promote_types(array.dtype, leaf.dtype)))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _chosen(own: list[str], arrays: dict[str, np.ndarray], path: Path) -> list[str]:
    """The names in the checkpoint of the model's parameters, where they are not all the same."""
    places = _by_plain_name(list(arrays))
    names = list(_by_plain_name(own))
    below = _below(names, list(places), path)
    collisions = [
        group for name in names for group in (places[below + name],) if len(group) > 1
    ] + [group for group in _by_plain_name(own).values() if len(group) > 1]
    if collisions:
        msg = (
            f"{' and '.join(collisions[0])} differ only by how frameworks wrap their names, so "
            f"that {path} does not say which is which; {_ALONE}"
        )
        raise MistakeError(msg)
    return [places[below + name][0] for name in names]


def _by_plain_name(names: list[str]) -> dict[str, list[str]]:
    """Names by what is left of them without slashes, dots and wrappers."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_plain(name), []).append(name)
    return groups


def _below(names: list[str], held: list[str], path: Path) -> str:
    """What stands before all names in the checkpoint: nothing, or "model/" or the like."""
    ends = {name.removesuffix(names[0]) for name in held if f"/{name}".endswith(f"/{names[0]}")}
    whole = [end for end in sorted(ends) if all(end + name in held for name in names)]
    for end in ("", "model/"):
        if end in whole:
            return end
    if len(whole) == 1 and set(whole[0].strip("/").split("/")) <= _OF_MODELS:
        return whole[0]
    if len(whole) == 1:
        msg = (
            f"{path} holds arrays of the names of the parameters below {whole[0]} alone, which may "
            f"be an optimiser's; {_ALONE}"
        )
    elif whole:
        msg = f"{path} holds the parameters {len(whole)} times, below {_listed(whole)}; {_ALONE}"
    else:
        missing = [name for name in names if name not in held]
        msg = f"{path} does not hold {_listed(missing)} of the model; it holds {_listed(held)}"
    raise MistakeError(msg)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _torch_module(module: Any, path: Path) -> Any:
    """(apply, params) of a torch module with a state dict in place of its own."""
    moved = copy.deepcopy(module)
    state = _state_dict(path)
    own = moved.state_dict()
    for name, value in state.items():
        if name in own and own[name].is_floating_point() != value.is_floating_point():
            msg = f"{path}: {name} is {value.dtype}, and {own[name].dtype} in the module"
            raise MistakeError(msg)
    try:
        moved.load_state_dict(state)
    except RuntimeError as error:
        msg = f"{path} does not fit the module: {error}"
        raise MistakeError(msg) from error
    return from_torch(moved)


def _state_dict(path: Path) -> dict[str, Any]:
    """The tensors of a file by their names."""
    if not (path.is_file() and path.suffix in (".safetensors", *_TORCH)):
        kinds = ", ".join((".safetensors", *_TORCH))
        msg = f"{path} is no file with a state dict, which is one of {kinds}; or {_ALONE}"
        raise MistakeError(msg)
    if path.suffix == ".safetensors":
        torch = optional("torch", "a module of PyTorch")
        return {
            name: torch.from_numpy(array) for name, array in safetensors.read_tensors(path).items()
        }
    torch = optional("torch", "a file of PyTorch")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(path, error) from error
    if isinstance(state, dict):
        inner = [state[name] for name in _STATES if isinstance(state.get(name), dict)]
        state = inner[0] if inner else state
    if not isinstance(state, dict) or "param_groups" in state:
        kind = "the state of an optimiser" if isinstance(state, dict) else type(state).__name__
        msg = f"{path} holds {kind}, and not what module.state_dict() returns; {_ALONE}"
        raise MistakeError(msg)
    wrong = [name for name, value in state.items() if not _is_named_tensor(torch, name, value)]
    if wrong:
        msg = (
            f"{path} holds {_listed([str(name) for name in wrong])} beside or in place of named "
            f"tensors, and so is no state dict of a module; {_ALONE}"
        )
        raise MistakeError(msg)
    return state


def _is_named_tensor(torch: Any, name: Any, value: Any) -> bool:
    return isinstance(name, str) and isinstance(value, torch.Tensor)
