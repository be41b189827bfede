"""A torch.nn.Module as a pair (apply, params)."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jax.typing import DTypeLike

from gnjax.networks.forms import frameworks
from gnjax.networks.forms.frameworks import Apply, Params
from gnjax.networks.forms.refusals import told
from gnjax.networks.torch_modules.arrays import example, from_tensor, torch, type_name
from gnjax.networks.torch_modules.export import exported
from gnjax.networks.torch_modules.outputs import Output, choose_output
from gnjax.networks.torch_modules.program import Program
from gnjax.networks.torch_modules.translate import translated
from gnjax.numerics.host import on_device


def from_torch(
    module: Any, *, output: Output = None, dtype: DTypeLike | None = None
) -> tuple[Apply, Params]:
    """(apply, params) of a ``torch.nn.Module``, for every function that takes a model.

    The module is copied and the copy put into evaluation mode; the module itself stays as it is.
    The graph of its operators (``torch.export``) is translated to JAX when ``apply`` first sees the
    shape of an input, and again for every other shape; the number of samples may differ from call
    to call. ``pip install 'gnjax[torch]'`` installs PyTorch, which nothing else here imports.

    ``params`` is a nested dict by the path of the module, such as
    ``params["layer1"]["0"]["conv1"]["weight"]``, with the entries in the order of
    ``module.parameters()``: a vector of ours is one of ``torch.nn.utils.parameters_to_vector``. A
    parameter that modules share is there once, under its first name. Buffers, and parameters with
    ``requires_grad=False``, are held fixed.

    ``apply`` computes in the precision of the parameters. As in PyTorch, the row of an embedding's
    ``padding_idx`` and what is detached have no derivative. An operator that is not known, a
    decision by the values of tensors, random numbers, and derivatives that are written by hand
    (``torch.autograd.Function``) are refused by name.

    Args:
      module: any ``torch.nn.Module``. Inputs x reach it as they reach a module of Flax: a tuple as
        several arguments; a dict as keywords, where its forward has such names, else as one.
      output: which of several outputs counts: a name, an index, or a function of what the module
        returns, tensors of PyTorch, to one of them or a dict or tuple of them. Without it the one
        tensor, or ``logits``.
      dtype: of the parameters, such as ``jnp.float64``; that of the module if it is None. Matrices
        of a network are computed in 64 bits after ``gnjax.enable_x64()`` either way.

    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> model = gnjax.from_torch(module)
    >>> x = np.random.default_rng(0).standard_normal((5, 3))
    >>> gnjax.condition_number(gnjax.ntk(model, x)).rank
    10
    """
    _check_module(module)
    module_copy = _copied(module)
    paths = _paths(module_copy)
    trained = [name for name, p in module_copy.named_parameters() if p.requires_grad]
    if not trained:
        msg = (
            "no parameter of the module requires a gradient, so there is nothing to differentiate "
            "by; call module.requires_grad_(True), or set requires_grad for those that count"
        )
        raise ValueError(msg)
    arrays = {**dict(module_copy.named_parameters()), **dict(module_copy.named_buffers())}
    params = _nested({name: _array(arrays[name], dtype) for name in trained})
    fixed = {name: _array(t, None) for name, t in arrays.items() if name not in trained}
    return Partial(_TorchCall(module_copy, paths, tuple(trained), output), fixed), params


def _check_module(module: Any) -> None:
    if not frameworks.is_torch(module):
        msg = f"gnjax.from_torch takes a torch.nn.Module; got {type(module).__name__}"
        raise ValueError(msg)
    torch()


def _copied(module: Any) -> Any:
    """A copy on the CPU in evaluation mode."""
    try:
        module_copy = copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        msg = (
            f"the module cannot be copied: {told(error)}; a tensor that it keeps is a result of "
            "others, so compute it in forward, or keep module.state_dict() and build it anew"
        )
        raise ValueError(msg) from error
    return module_copy.cpu().eval()


def _paths(module: Any) -> dict[str, str]:
    """For every name of a parameter or buffer the first name of the same tensor."""
    first: dict[int, str] = {}
    everything = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: first.setdefault(id(tensor), name) for name, tensor in everything}


def _array(tensor: Any, dtype: DTypeLike | None) -> jax.Array:
    values = from_tensor(tensor)
    return on_device(values, jax.dtypes.canonicalize_dtype(dtype or values.dtype))


def _nested(flat: Mapping[str, Any]) -> Params:
    """A dict of dicts by the parts of the names, in their order."""
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, last = name.split(".")
        place = nested
        for part in modules:
            place = place.setdefault(part, OrderedDict())
        place[last] = value
    return nested


def _flat(nested: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(nested, Mapping):
        return {before: nested}
    parts = (_flat(value, f"{before}.{key}" if before else key) for key, value in nested.items())
    return {name: value for part in parts for name, value in part.items()}


@dataclass(frozen=True, eq=False)
class _TorchCall:
    """The call of a module, with the programs of the shapes that it has met."""

    module: Any
    paths: Mapping[str, str]
    trained: tuple[str, ...]
    output: Output
    programs: dict[Any, tuple[Program, Any]] = field(default_factory=dict)

    def __call__(self, fixed: dict[str, jax.Array], params: Params, x: Any) -> Any:
        flat = _flat(params)
        dtype = jnp.result_type(*flat.values())
        keeps_types = len({value.dtype for value in flat.values()}) > 1 and self._has_types_of(flat)
        if not keeps_types:
            flat = {name: jnp.asarray(value, dtype) for name, value in flat.items()}
            fixed = frameworks.like(flat, fixed)
        leaves, structure = jax.tree.flatten(x)
        leaves = [_as_floats(leaf, dtype) for leaf in leaves]
        program, results = self._program(leaves, structure, dtype, keeps_types)
        return jax.tree.unflatten(results, program(flat, fixed, leaves))

    def _has_types_of(self, flat: Mapping[str, Any]) -> bool:
        """Whether the arrays have the types that these parameters have in the module."""
        parameters = dict(self.module.named_parameters())
        return all(
            type_name(parameters[name].dtype) == value.dtype.name for name, value in flat.items()
        )

    def _program(self, leaves: Sequence[Any], structure: Any, dtype: Any, keeps_types: bool) -> Any:
        """The program for inputs of these shapes, and the structure of its results; made once."""
        shapes = tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
        count = leaves[0].shape[0] if leaves and leaves[0].ndim else None
        key = (dtype, keeps_types, structure, shapes)
        for known_key in ((*key, None), (*key, count)):
            if known_key in self.programs:
                return self.programs[known_key]
        translation = self._translated(leaves, structure, dtype, keeps_types)
        return self.programs.setdefault((*key, None if translation[2] else count), translation[:2])

    def _translated(
        self, leaves: Sequence[Any], structure: Any, dtype: Any, keeps_types: bool
    ) -> tuple[Program, Any, bool]:
        """The program, the structure of its results, and whether it takes any number of samples."""
        floating = getattr(torch(), jnp.dtype(dtype).name)
        module = self.module if keeps_types else copy.deepcopy(self.module).to(floating)
        results: list[Any] = []

        def forward(module: Any, tensors: Sequence[Any]) -> list[Any]:
            returned = _call(module, jax.tree.unflatten(structure, list(tensors)))
            outputs, structure_of_outputs = jax.tree.flatten(choose_output(returned, self.output))
            results.append(structure_of_outputs)
            return list(outputs)

        def of_size(count: int | None) -> list[Any]:
            shapes = [leaf.shape if count is None else (count, *leaf.shape[1:]) for leaf in leaves]
            return [
                example(shape, leaf.dtype, floating)
                for shape, leaf in zip(shapes, leaves, strict=True)
            ]

        program, any_size = exported(module, forward, of_size)
        return translated(program, self.paths, self.trained), results[-1], any_size


def _as_floats(leaf: Any, dtype: Any) -> jax.Array:
    """A leaf of x, where it is of floats in the precision of the parameters."""
    array = jnp.asarray(leaf)
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _call(module: Any, x: Any) -> Any:
    """A tuple is several arguments, and a dict keywords where the module has them."""
    if type(x) is dict:
        names = inspect.signature(module.forward).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in names.values())
        if all(isinstance(key, str) and (takes_any or key in names) for key in x):
            return module(**x)
    return module(*frameworks.positional(x))
