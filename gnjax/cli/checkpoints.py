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
from gnjax.networks.arguments.frameworks import is_torch
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
    """The model with the arrays of a checkpoint in place of its own; the model itself stays.

    An NNX module gives an NNX module. Any other model, also a module of PyTorch, gives a pair
    (function or Linen module, parameters).
    """
    if is_torch(model):
        return _at_torch_checkpoint(model, path)
    arrays = _arrays(path)
    if isinstance(model, nnx.Module):
        state = nnx.state(model, nnx.Not(nnx.RngState))
        copied = nnx.clone(model)
        nnx.update(copied, _filled(state, arrays, path))
        return copied
    apply, params = model if type(model) is tuple else functional(model)
    return apply, _filled(params, arrays, path)


def file_digest(path: Path) -> str:
    """A digest of every byte of the file, or of all files of the folder and their names."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        # The size says where a file ends, so that no other files have the same bytes in a row.
        digest.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while part := opened.read(_PART):
                digest.update(part)
    return digest.hexdigest()


def numbers_of_steps(checkpoints: list[Path]) -> list[int]:
    """The step of each checkpoint: the last number in its name.

    Where a name has no number, or two have the same, the steps are 0, 1, .. in the given order.
    """
    numbers_in_names = [re.findall(r"\d+", path.name) for path in checkpoints]
    steps = [int(numbers[-1]) for numbers in numbers_in_names if numbers]
    all_differ = len(set(steps)) == len(checkpoints)
    return steps if all_differ else list(range(len(checkpoints)))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array by its path: of a file, or of the one checkpoint of orbax in a folder."""
    if path.suffix == ".safetensors" and not path.is_dir():
        return _of_safetensors(path, "numpy")
    if not path.is_dir():
        msg = f"{path} is no checkpoint that is read here, which is {_READ}; or {_ALONE}"
        raise MistakeError(msg)
    orbax = optional("orbax.checkpoint", "a folder of orbax")
    candidates = [path] if (path / "_METADATA").exists() else sorted(path.iterdir())
    folders = [folder for folder in candidates if (folder / "_METADATA").exists()]
    if len(folders) != 1:
        msg = f"{path} holds {len(folders)} checkpoints of orbax; name the folder of one"
        raise MistakeError(msg)
    try:
        tree = orbax.StandardCheckpointer().restore(folders[0].absolute())
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(path, error) from error
    return dict(zip(paths(tree), map(np.asarray, jax.tree.leaves(tree)), strict=True))


def _of_safetensors(path: Path, kind: str) -> dict[str, Any]:
    """Every array of a ``.safetensors`` file, for the library ``kind``: "numpy" or "torch"."""
    reader = optional(f"safetensors.{kind}", "a .safetensors file")
    try:
        arrays: dict[str, Any] = reader.load_file(path)
    except (*MALFORMED, optional("safetensors", "a .safetensors file").SafetensorError) as error:
        raise _damaged(path, error) from error
    return arrays


def _damaged(path: Path, error: Exception) -> MistakeError:
    """The error for a file or folder that the reader of its format refuses with ``error``."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    msg = f"{path} is damaged, or no checkpoint of this form ({reason}); save it again, or {_ALONE}"
    return MistakeError(msg)


def _plain(name: str) -> str:
    """A parameter's path without parts of frameworks: "params.dense.value" becomes "dense"."""
    return "/".join(part for part in re.split(r"[./]", name) if part not in _WRAPPERS)


def _filled(tree: Any, arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The tree of parameters with the arrays of the checkpoint ``path`` as its leaves.

    Names may differ as :func:`_names_in_checkpoint` says. Shapes must agree, and so must whether an
    array is of floating-point numbers.
    """
    names = paths(tree)
    all_there = all(name in arrays for name in names)
    names_there = names if all_there else _names_in_checkpoint(names, arrays, path)
    leaves = []
    for name, name_there, leaf in zip(names, names_there, jax.tree.leaves(tree), strict=True):
        array = arrays[name_there]
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


def _names_in_checkpoint(names: list[str], arrays: dict[str, np.ndarray], path: Path) -> list[str]:
    """The name in the checkpoint of each parameter of the model, where not all are the same.

    Names are compared as :func:`_plain` writes them, and all of those in the checkpoint may begin
    with one prefix, such as "model/". Where two names are the same in this form, none is chosen.
    """
    names_there = _by_plain_name(list(arrays))
    own_names = _by_plain_name(names)
    prefix = _prefix(list(own_names), list(names_there), path)
    groups = [*(names_there[prefix + name] for name in own_names), *own_names.values()]
    collisions = [group for group in groups if len(group) > 1]
    if collisions:
        msg = (
            f"{' and '.join(collisions[0])} differ only by how frameworks wrap their names, so "
            f"that {path} does not say which is which; {_ALONE}"
        )
        raise MistakeError(msg)
    return [names_there[prefix + name][0] for name in own_names]


def _by_plain_name(names: list[str]) -> dict[str, list[str]]:
    """The names in groups, by the form that :func:`_plain` gives them."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_plain(name), []).append(name)
    return groups


def _prefix(names: list[str], names_there: list[str], path: Path) -> str:
    """The prefix that all parameters have in the checkpoint: "", "model/" or the like.

    "" and "model/" are taken before others. One other prefix is taken where all of its parts are
    usual names for a model, as other arrays of the same names may be an optimiser's.
    """
    possible = {
        name.removesuffix(names[0]) for name in names_there if f"/{name}".endswith(f"/{names[0]}")
    }
    prefixes = [
        prefix for prefix in sorted(possible) if all(prefix + name in names_there for name in names)
    ]
    for prefix in ("", "model/"):
        if prefix in prefixes:
            return prefix
    if len(prefixes) == 1 and set(prefixes[0].strip("/").split("/")) <= _OF_MODELS:
        return prefixes[0]
    if len(prefixes) == 1:
        msg = (
            f"{path} holds arrays of the names of the parameters below {prefixes[0]} alone, which "
            f"may be an optimiser's; {_ALONE}"
        )
    elif prefixes:
        times = f"{len(prefixes)} times, below {_listed(prefixes)}"
        msg = f"{path} holds the parameters {times}; {_ALONE}"
    else:
        missing = [name for name in names if name not in names_there]
        held = _listed(names_there)
        msg = f"{path} does not hold {_listed(missing)} of the model; it holds {held}"
    raise MistakeError(msg)


def _listed(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _at_torch_checkpoint(module: Any, path: Path) -> Any:
    """(apply, params) of a torch module with the state dict of a file in place of its own."""
    copied = copy.deepcopy(module)
    state = _state_dict(path)
    own_state = copied.state_dict()
    for name, value in state.items():
        if name in own_state and own_state[name].is_floating_point() != value.is_floating_point():
            msg = f"{path}: {name} is {value.dtype}, and {own_state[name].dtype} in the module"
            raise MistakeError(msg)
    try:
        copied.load_state_dict(state)
    except RuntimeError as error:
        msg = f"{path} does not fit the module: {error}"
        raise MistakeError(msg) from error
    return from_torch(copied)


def _state_dict(path: Path) -> dict[str, Any]:
    """The state dict of a file, which may have it under a usual name; no code of it is run."""
    if not (path.is_file() and path.suffix in (".safetensors", *_TORCH)):
        kinds = ", ".join((".safetensors", *_TORCH))
        msg = f"{path} is no file with a state dict, which is one of {kinds}; or {_ALONE}"
        raise MistakeError(msg)
    if path.suffix == ".safetensors":
        return _of_safetensors(path, "torch")
    torch = optional("torch", "a file of PyTorch")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (*MALFORMED, RuntimeError) as error:
        raise _damaged(path, error) from error
    if isinstance(state, dict):
        inner_states = [state[name] for name in _STATES if isinstance(state.get(name), dict)]
        state = inner_states[0] if inner_states else state
    if not isinstance(state, dict) or "param_groups" in state:
        kind = "the state of an optimiser" if isinstance(state, dict) else type(state).__name__
        msg = f"{path} holds {kind}, and not what module.state_dict() returns; {_ALONE}"
        raise MistakeError(msg)
    others = [
        name
        for name, value in state.items()
        if not (isinstance(name, str) and isinstance(value, torch.Tensor))
    ]
    if others:
        msg = (
            f"{path} holds {_listed([str(name) for name in others])} beside or in place of named "
            f"tensors, and so is no state dict of a module; {_ALONE}"
        )
        raise MistakeError(msg)
    return state
