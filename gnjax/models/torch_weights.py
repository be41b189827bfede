"""Weights that were trained in PyTorch, for the networks of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.models import safetensors
from gnjax.models.resnet import STAGES, ResNet
from gnjax.models.vgg import VGG
from gnjax.models.vit import ViT
from gnjax.numerics.host import on_device

_KINDS = {  # the names of a layer's arrays here and in PyTorch
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
_WRAPPERS = ("module.", "_orig_mod.")  # prefixes of DataParallel and of torch.compile
_COUNTERS = ("num_batches_tracked",)  # no output depends on these
_NAMED = 8  # how many names of each kind a message lists

_State = Mapping[str, Any] | str | PathLike[str]

TorchNames = dict[str, tuple[str, ...]]
"""By the name of each layer here, such as "block1.dense1", the names it may have in PyTorch."""


def load_torch(model: nnx.Module, state: _State) -> nnx.Module:
    """A copy of the model with weights from PyTorch, in evaluation mode.

    On the same images (channels last here, first in PyTorch) it returns what the PyTorch module
    returns after ``module.eval()``, up to rounding. Kernels (out, in, height, width) are turned to
    (height, width, in, out), matrices (out, in) to (in, out), and the columns of a layer that reads
    a flattened image from channels first to channels last. BatchNorm's running statistics come too.

    Args:
      model: a ResNet, VGG or ViT of this package, of the sizes of the PyTorch module.
      state: what ``module.state_dict()`` returned, with PyTorch tensors or numpy arrays, or the
        path of a ``.safetensors`` file. A ResNet for CIFAR calls its layers conv1, bn1,
        layer1.0.conv1, .., layer2.0.shortcut.0, .., linear (or fc, and downsample for shortcut); a
        VGG calls them features.0, features.1, .., classifier, with a convolution, a BatchNorm, a
        ReLU and a pooling in turn. The names in the code that paper A used are known as well, and
        for the ViT these alone. The ViT of timm is another function (exact GELU, epsilon 1e-6, a
        last normalisation) and is not read. One size is not checked, because no array shows it:
        the number of heads of a ViT whose projections are stacked.

    Every array of the model must be found and every one of the state be used, with the right shape;
    otherwise one error says which are not, and the model stays as it was.

    >>> model = gnjax.models.VGG(4, 2, filters=(3,), channels=1, key=jax.random.key(0))
    >>> shapes = {"features.0.weight": (3, 1, 3, 3), "features.0.bias": 3, "features.1.weight": 3}
    >>> shapes |= {"features.1.bias": 3, "features.1.running_mean": 3, "features.1.running_var": 3}
    >>> shapes |= {"classifier.weight": (2, 12), "classifier.bias": 2}
    >>> state = {name: np.random.default_rng(0).random(shape) for name, shape in shapes.items()}
    >>> model = gnjax.models.load_torch(model, state)
    >>> np.allclose(model.layer1.conv.kernel[:, :, 0, 1], state["features.0.weight"][1, 0])
    True
    """
    torch_names = _torch_names(model)
    arrays = _separated(model, _arrays(state))
    loaded = nnx.clone(model)
    missing, wrong, names_used = [], [], set()
    for path, value in nnx.to_flat_state(nnx.state(loaded, (nnx.Param, nnx.BatchStat))):
        name = ".".join(map(str, path))
        if name in torch_names:  # an array that belongs to no layer, such as the class token
            candidates = list(torch_names[name])
        else:  # "head.kernel" is "linear.weight" or "fc.weight"
            layer, _, kind = name.rpartition(".")
            candidates = [f"{torch_layer}.{_KINDS[kind]}" for torch_layer in torch_names[layer]]
        torch_name = next((candidate for candidate in candidates if candidate in arrays), None)
        if torch_name is None:
            missing.append(candidates[0])
            continue
        names_used.add(torch_name)
        array = arrays[torch_name]
        torch_shape = _shape_in_torch(model, name, value.shape)
        if array.shape != torch_shape:
            wrong.append(f"{torch_name} has shape {array.shape} in place of {torch_shape}")
        elif not missing and not wrong:  # after a mistake the rest is looked through for more
            value[...] = on_device(_from_torch(model, name, array, value.shape), value.dtype)
    _check(model, missing, sorted(arrays.keys() - names_used), wrong)
    loaded.eval()
    return loaded


def _torch_names(model: nnx.Module) -> TorchNames:
    """The names that public PyTorch code gives to each layer, the most common one first."""
    if isinstance(model, ResNet):
        return dict(_of_resnet(model))
    if isinstance(model, VGG):
        return dict(_of_vgg(model))
    if isinstance(model, ViT):
        return dict(_of_vit(model))
    msg = (
        f"load_torch fills ResNet, VGG and ViT of gnjax.models, not {type(model).__name__}; set "
        "the parameters of other models yourself"
    )
    raise ValueError(msg)


def _of_resnet(model: ResNet) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of a layer here, its names in PyTorch) for every layer of a ResNet."""
    yield "stem.conv", ("conv1", "conv1.0")
    yield "stem.norm", ("bn1", "conv1.1")
    for stage in range(1, STAGES + 1):
        for block in range(1, model.blocks + 1):
            here, torch = f"stage{stage}_block{block}", f"layer{stage}.{block - 1}"
            # Public code has two layers, or one nn.Sequential with both as its members 0 and 1.
            for part, conv, norm, both in (
                ("first", "conv1", "bn1", "conv_bn_relu1"),
                ("second", "conv2", "bn2", "conv_bn2"),
            ):
                yield f"{here}.{part}.conv", (f"{torch}.{conv}", f"{torch}.{both}.0")
                yield f"{here}.{part}.norm", (f"{torch}.{norm}", f"{torch}.{both}.1")
            for part, index in (("conv", 0), ("norm", 1)):
                shortcuts = ("shortcut", "downsample", "down_sampler")
                torch_names = tuple(f"{torch}.{shortcut}.{index}" for shortcut in shortcuts)
                yield f"{here}.shortcut.{part}", torch_names
    yield "head", ("linear", "fc")


def _of_vgg(model: VGG) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of a layer here, its names in PyTorch) for every layer of a VGG."""
    for layer in range(model.depth):
        for part, index in (("conv", 4 * layer), ("norm", 4 * layer + 1)):
            yield f"layer{layer + 1}.{part}", (f"features.{index}", f"layers.{index}")
    yield "head", ("classifier", "fc1")


def _of_vit(model: ViT) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of a layer or array here, its names in PyTorch) for every one of a ViT."""
    yield "patches", ("embedding.patch_embeddings.projection",)
    yield "token", ("embedding.cls_token",)
    yield "positions", ("embedding.position_embeddings",)
    for block in range(1, model.depth + 1):
        torch = f"encoder.blocks.{block - 1}"
        for number in (1, 2):
            yield f"block{block}.norm{number}", (f"{torch}.layernorm_{number}",)
            yield f"block{block}.dense{number}", (f"{torch}.mlp.dense_{number}",)
        for part in ("query", "key", "value"):
            yield f"block{block}.attention.{part}", (f"{torch}.attention.{part}",)
        yield f"block{block}.attention.out", (f"{torch}.attention.output_projection",)
    yield "head", ("classifier",)


def _arrays(state: _State) -> dict[str, np.ndarray]:
    """The floating-point arrays of a state dict, or of the file that has it, by their names.

    Names lose the prefixes that wrappers of modules add, and counters of batches are left out.
    """
    if isinstance(state, str | PathLike):
        if not fspath(state).endswith(".safetensors"):
            msg = (
                f"{state} does not end in .safetensors; pass the path of such a file, or what "
                "torch.load(path, map_location='cpu') returned"
            )
            raise ValueError(msg)
        state = safetensors.read_tensors(state)
    if not isinstance(state, Mapping):
        msg = (
            f"state is {type(state).__name__}; pass module.state_dict() or the path of a "
            ".safetensors file"
        )
        raise ValueError(msg)
    arrays: dict[str, np.ndarray] = {}
    for name, value in state.items():
        plain = name
        while plain.startswith(_WRAPPERS):
            plain = plain.partition(".")[2]
        if plain in arrays:
            msg = f"{plain} comes twice, once as {name}; leave one of the two out of state"
            raise ValueError(msg)
        if plain.rpartition(".")[2] not in _COUNTERS:
            arrays[plain] = _numbers(name, value)
    return arrays


def _numbers(name: str, value: Any) -> np.ndarray:
    """A PyTorch tensor or array of a state dict as a floating-point array; others are refused."""
    if isinstance(value, Mapping):
        msg = f"{name} holds more names, so state is a checkpoint; pass state[{name!r}] itself"
        raise ValueError(msg)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # numpy has no bfloat16, and float64 holds every other floating-point type
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = np.asarray(value)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        msg = f"{name} is {array.dtype}, not a floating-point array; pass the weights alone"
        raise ValueError(msg)
    return array


def _separated(model: nnx.Module, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays from PyTorch, for a ViT with one query, key and value for each block.

    The state may have the three of a block stacked in this order, as ``qkv_projection``, or one of
    each for every head, as ``heads.0.query``, whose rows follow one another in the arrays here.
    """
    if not isinstance(model, ViT):
        return arrays
    arrays = dict(arrays)
    for block in range(model.depth):
        attention = f"encoder.blocks.{block}.attention"
        heads = getattr(model, f"block{block + 1}").attention.heads
        for kind in ("weight", "bias"):
            names = [f"{attention}.{part}.{kind}" for part in ("query", "key", "value")]
            stacked = f"{attention}.qkv_projection.{kind}"
            if stacked in arrays and arrays[stacked].ndim and len(arrays[stacked]) % 3 == 0:
                arrays |= zip(names, np.split(arrays.pop(stacked), 3), strict=True)
                continue
            for name in names:
                part = name.removeprefix(f"{attention}.")
                names_of_heads = [f"{attention}.heads.{head}.{part}" for head in range(heads)]
                if all(name_of_head in arrays for name_of_head in names_of_heads):
                    arrays[name] = np.concatenate([arrays.pop(one) for one in names_of_heads])
    return arrays


def _shape_in_torch(model: nnx.Module, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in PyTorch of the array ``name`` of the model, which has ``shape`` here."""
    if name in ("token", "positions"):  # of a ViT: there (1, 1, width) and (1, tokens, width)
        return (1,) * (3 - len(shape)) + shape
    if name == "patches.kernel" and isinstance(model, ViT):
        # Here a matrix (pixels of a patch, width), and there a convolution with stride ``patch``.
        _, width = shape
        _, _, channels = model.shape
        return (width, channels, model.patch, model.patch)
    if len(shape) == 1:
        return shape
    *height_width, inputs, outputs = shape
    return (outputs, inputs, *height_width)


def _from_torch(
    model: nnx.Module, name: str, array: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """An array from PyTorch with its axes in the order of ``name`` in the model, of this shape."""
    if name == "head.kernel" and isinstance(model, VGG):
        # Its inputs are a flattened image: channels first there, and channels last here.
        side = model.shape[0] // 2**model.depth
        array = array.reshape(len(array), -1, side, side)
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0).reshape(shape)
    return array.T if array.ndim == 2 else array.reshape(shape)


def _check(model: nnx.Module, missing: list[str], unused: list[str], wrong: list[str]) -> None:
    """Refuse weights that do not fit the model, with one message that says all that is wrong."""
    problems_and_words = [
        (missing, "not found in state: "),
        (unused, "in state and not used: "),
        (wrong, "of another shape: "),
    ]
    problems = []
    for names, words in problems_and_words:
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            problems.append(words + ", ".join(names[:_NAMED]) + more)
    if problems:
        msg = (
            f"these weights are not those of this {type(model).__name__}: {'; '.join(problems)}. "
            "Make the model with the sizes and the shortcut of the PyTorch module, or rename keys"
        )
        raise ValueError(msg)
