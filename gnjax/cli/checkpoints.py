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
_SHOWN = 3
_PART = 2**22  # bytes that are read at once


def at_checkpoint(model: Any, path: Path) -> Any:
    """The model with the arrays of the checkpoint in place of its own; of a torch module a pair."""
    if is_torch(model):
        return _torch_module(model, path)
    arrays = {_plain(name): array for name, array in _arrays(path).items()}
    if isinstance(model, nnx.Module):
        state = nnx.state(model, nnx.Not(nnx.RngState))
        moved = nnx.clone(model)
        nnx.update(moved, _filled(state, arrays, path))
        return moved
    first, params = model if type(model) is tuple else functional(model)
    return first, _filled(params, arrays, path)


def digest(path: Path) -> str:
    """A digest of every byte of the file, or of all files of the folder and their names."""
    whole = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        whole.update(f"{file.relative_to(path)}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as opened:
            while part := opened.read(_PART):
                whole.update(part)
    return whole.hexdigest()


def steps_of(checkpoints: list[Path]) -> list[int]:
    """The last number in the name of each; their places where those are not all different."""
    found = [re.findall(r"\d+", path.name) for path in checkpoints]
    steps = [int(numbers[-1]) for numbers in found if numbers]
    whole = len(set(steps)) == len(checkpoints)
    return steps if whole else list(range(len(checkpoints)))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of a checkpoint by its path."""
    if path.is_dir():
        orbax = optional("orbax.checkpoint", "a folder of orbax")
        folders = [path] if (path / "_METADATA").exists() else list(_metadata_below(path))
        if len(folders) != 1:
            msg = f"{path} holds {len(folders)} checkpoints of orbax; name the folder of one"
            raise MistakeError(msg)
        tree = orbax.StandardCheckpointer().restore(folders[0].absolute())
        return dict(zip(paths(tree), map(np.asarray, jax.tree.leaves(tree)), strict=True))
    if path.suffix == ".safetensors":
        return safetensors.read(path)
    msg = f"{path} is no checkpoint that is read here, which is {_READ}; or {_ALONE}"
    raise MistakeError(msg)


def _metadata_below(path: Path) -> list[Path]:
    return [folder for folder in sorted(path.iterdir()) if (folder / "_METADATA").exists()]


def _plain(name: str) -> str:
    """The name with slashes, and without what frameworks wrap parameters in."""
    return "/".join(part for part in re.split(r"[./]", name) if part not in _WRAPPERS)


def _filled(tree: Any, arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The tree with the arrays of the same names, which may all stand below one more name."""
    names = [_plain(name) for name in paths(tree)]
    below = _below(names, arrays, path)
    leaves = []
    for name, leaf in zip(names, jax.tree.leaves(tree), strict=True):
        array = arrays[below + name]
        if array.shape != leaf.shape:
            msg = f"{path}: {name} has shape {array.shape}, and {leaf.shape} in the model"
            raise MistakeError(msg)
        leaves.append(jnp.asarray(array, leaf.dtype))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _below(names: list[str], arrays: dict[str, np.ndarray], path: Path) -> str:
    """What stands before all names in the checkpoint: nothing, or "model/" or the like."""
    ends = {name.removesuffix(names[0]) for name in arrays if f"/{name}".endswith(f"/{names[0]}")}
    whole = [end for end in sorted(ends) if all(end + name in arrays for name in names)]
    for end in ("", "model/"):
        if end in whole:
            return end
    if len(whole) == 1:
        return whole[0]
    if whole:
        msg = f"{path} holds the parameters {len(whole)} times, below {_listed(whole)}; {_ALONE}"
    else:
        missing = [name for name in names if name not in arrays]
        msg = (
            f"{path} does not hold {_listed(missing)} of the model; it holds "
            f"{_listed(list(arrays))}"
        )
    raise MistakeError(msg)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _torch_module(module: Any, path: Path) -> Any:
    """(apply, params) of a torch module with a state dict in place of its own."""
    if path.suffix == ".safetensors":
        torch = optional("torch", "a module of PyTorch")
        state = {name: torch.from_numpy(array) for name, array in safetensors.read(path).items()}
    elif path.suffix in _TORCH and path.is_file():
        torch = optional("torch", "a file of PyTorch")
        state = torch.load(path, map_location="cpu", weights_only=True)
    else:
        kinds = ", ".join((".safetensors", *_TORCH))
        msg = f"{path} is no file with a state dict, which is one of {kinds}; or {_ALONE}"
        raise MistakeError(msg)
    for wrapper in _STATES:
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    moved = copy.deepcopy(module)
    try:
        moved.load_state_dict(state)
    except RuntimeError as error:
        msg = f"{path} does not fit the module: {error}"
        raise MistakeError(msg) from error
    return from_torch(moved)
