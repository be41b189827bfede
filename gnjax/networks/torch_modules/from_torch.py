"""A torch.nn.Module as a pair (apply, params)."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jax.tree_util import Partial
from jax.typing import DTypeLike

from gnjax.networks.arguments import frameworks
from gnjax.networks.arguments.batches import tree_digest
from gnjax.networks.arguments.frameworks import Apply, Params
from gnjax.networks.arguments.refusals import first_line
from gnjax.networks.equations.rewritten import rewritten_alike
from gnjax.networks.torch_modules.arrays import from_tensor, tensor_of, torch, type_name
from gnjax.networks.torch_modules.blame import blamed
from gnjax.networks.torch_modules.comparison import compare, noticed, noticing
from gnjax.networks.torch_modules.export import exported
from gnjax.networks.torch_modules.original import (
    Original,
    in_format,
    same_numbers_afterwards,
)
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
    to call. PyTorch comes with ``pip install torch``, and nothing else here imports it.

    ``params`` is a nested dict by the path of the module, such as
    ``params["layer1"]["0"]["conv1"]["weight"]``, with the entries in the order of
    ``module.parameters()``: a vector of this library lists them as
    ``torch.nn.utils.parameters_to_vector`` does. A parameter that modules share is there once,
    under its first name. Buffers, and parameters with ``requires_grad=False``, are held fixed.

    ``apply`` computes in the precision of the parameters. As in PyTorch, the row of an embedding's
    ``padding_idx`` and what is detached have no derivative. An operator that is not known, a
    decision by the values of tensors, and random numbers are refused by name. When an operator of
    this library, such as ``gnjax.ntk``, is made of the model, the translation is compared with the
    module at the first samples, by the outputs and by one product u^T J with their Jacobian J. A
    difference beyond rounding is refused.

    Args:
      module: any ``torch.nn.Module``. Inputs x reach it as they reach a module of Flax: a tuple as
        several arguments; a dict as keywords, where its forward has such names, else as one.
      output: which of several outputs counts: a name, an index, or a function of what the module
        returns, tensors of PyTorch, to one of them or a dict or tuple of them. Without it the one
        tensor, or ``logits``.
      dtype: of the parameters, such as ``jnp.float64``; that of the module if it is None. Matrices
        of a network are computed in 64 bits after ``gnjax.enable_x64()`` either way.

    Returns:
      The function apply(params, x) -> outputs, and the parameters.

    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> model = gnjax.from_torch(module)
    >>> x = np.random.default_rng(0).standard_normal((5, 3))
    >>> gnjax.condition_number(gnjax.ntk(model, x)).rank
    10
    """
    _check_module(module)
    try:
        module_copy = copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        msg = f"the module cannot be copied: {first_line(error).split('.')[0]}; {_remedy(module)}"
        raise ValueError(msg) from error
    module_copy.cpu().eval()
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
    first_names: dict[int, str] = {}  # by the id of a tensor, which layers may share
    paths = {
        name: first_names.setdefault(id(tensor), name)
        for name, tensor in (
            *module_copy.named_parameters(remove_duplicate=False),
            *module_copy.named_buffers(remove_duplicate=False),
        )
    }
    return Partial(_TorchCall(module_copy, paths, tuple(trained), output), fixed), params


def _nested(flat: Mapping[str, Any]) -> Params:
    """A dict of dicts in the same order: "layers.0.weight" is at ["layers"]["0"]["weight"].

    Its dicts are ordered, as JAX would sort the keys of others.
    """
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, own_name = name.split(".")
        innermost = nested
        for module in modules:
            innermost = innermost.setdefault(module, OrderedDict())
        innermost[own_name] = value
    return nested


def _check_module(module: Any) -> None:
    """Refuse what is no module of PyTorch, and a module that has no derivatives as a function."""
    if not frameworks.is_torch(module):
        msg = f"gnjax.from_torch takes a torch.nn.Module; got {type(module).__name__}"
        raise ValueError(msg)
    for name, submodule in module.named_modules():
        path_and_type = f"{name or 'the module'} ({type(submodule).__name__})"
        if isinstance(submodule, torch().jit.ScriptModule):
            msg = f"{path_and_type} is a program of torch.jit; give the module that it was made of"
            raise ValueError(msg)
        if ".quantized." in type(submodule).__module__:
            msg = (
                f"{path_and_type} has weights of few bits; give the module from before its "
                "quantisation"
            )
            raise ValueError(msg)
    for name, parameter in module.named_parameters():
        if problem := _problem(parameter):
            msg = f"the parameter {name} {problem}"
            raise ValueError(msg)


def _problem(parameter: Any) -> str:
    """Why there is no derivative by a parameter, for a message about it; "" if there is one."""
    if parameter.is_meta:
        return (
            'has no numbers yet, as it is on the device "meta"; call module.to_empty(device="cpu") '
            "and load a state dict"
        )
    if parameter.is_complex():
        return "is complex; keep its real and its imaginary part as two parameters"
    if parameter.requires_grad and parameter._backward_hooks:  # no public attribute lists hooks
        return (
            "has a hook (register_hook), which changes its derivative to that of no function; "
            "remove it, and hold entries fixed by mask= where it did"
        )
    return ""


def _remedy(module: Any) -> str:
    """What to do with a module that cannot be copied, for the end of a message.

    It keeps a tensor computed from its parameters. Hooks that run before forward often do that, and
    their types say which remedy fits.
    """
    hooks = {
        type(hook).__name__
        for submodule in module.modules()
        for hook in submodule._forward_pre_hooks.values()  # nothing public lists them
        if hasattr(hook, "__dict__")
    }
    if hooks & {"WeightNorm", "SpectralNorm"}:
        return (
            "it has the old torch.nn.utils.weight_norm or spectral_norm; use that of "
            "torch.nn.utils.parametrizations, or make the weight one parameter by "
            "torch.nn.utils.remove_weight_norm or remove_spectral_norm"
        )
    if any(hasattr(torch().nn.utils.prune, name) for name in hooks):
        return (
            'it is pruned; call torch.nn.utils.prune.remove(layer, "weight") for each pruned '
            "layer, and hold the zeros fixed by mask="
        )
    return (
        "a tensor that it keeps is a result of others, so compute it in forward, or keep "
        "module.state_dict() and build it anew"
    )


def _array(tensor: Any, dtype: DTypeLike | None) -> jax.Array:
    """A tensor as an array of JAX in ``dtype``, or in its own dtype where that is None."""
    values = from_tensor(tensor)
    return on_device(values, jax.dtypes.canonicalize_dtype(dtype or values.dtype))


class _Translation(NamedTuple):
    """A module translated for inputs of certain shapes."""

    program: Program  # evaluated by JAX
    results: Any  # the pytree structure of its results
    any_size: bool  # it takes any number of samples
    exported: Any  # what PyTorch has written down


@dataclass(frozen=True, eq=False)
class _TorchCall:
    """The call of a module, with the programs of the shapes that it has met."""

    module: Any  # a copy, in evaluation mode
    paths: Mapping[str, str]  # of each name of a parameter or buffer the first name of the tensor
    trained: tuple[str, ...]  # the paths of the parameters that are differentiated
    output: Output  # which of several outputs counts
    programs: dict[Any, _Translation] = field(default_factory=dict)
    compared: dict[bytes, list[np.ndarray]] = field(default_factory=dict)  # outputs of the last

    def __call__(self, fixed: dict[str, jax.Array], params: Params, x: Any) -> Any:
        """The outputs of the module's translation to JAX, at the samples x, a pytree of (n, ...).

        Everything is computed in the dtype of ``params``. Only if the parameters have several
        dtypes, the same as in the module, does each keep its own. Where a comparison is asked for
        (:func:`noticed`), and nothing is traced, the outputs are those of the module itself.
        ``fixed`` are buffers, and parameters that are not differentiated, by their paths.
        """
        arrays = flatten_dict(params, sep=".")
        dtype = jnp.result_type(*arrays.values())
        own = {name: type_name(p.dtype) for name, p in self.module.named_parameters()}
        keeps_types = len({value.dtype for value in arrays.values()}) > 1 and all(
            own[name] == value.dtype.name for name, value in arrays.items()
        )
        if not keeps_types:  # everything is computed in one dtype
            arrays = {name: jnp.asarray(value, dtype) for name, value in arrays.items()}
            fixed = frameworks.like(arrays, fixed)
        leaves, structure = jax.tree.flatten(x)
        leaves = [
            array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array
            for array in map(jnp.asarray, leaves)
        ]
        translation = self._translation(leaves, structure, dtype, keeps_types)
        numbers = [*arrays.values(), *leaves]
        traced = any(isinstance(number, jax.core.Tracer) for number in numbers)
        rewritten_model = noticed(any_size=translation.any_size)
        if rewritten_model is not None and not traced:
            return self._compared(
                translation, fixed, params, x, rewritten_model, keeps_types=keeps_types
            )
        outputs = translation.program(arrays, fixed, leaves)
        return jax.tree.unflatten(translation.results, outputs)

    def _compared(
        self,
        translation: _Translation,
        fixed: Any,
        params: Params,
        x: Any,
        rewritten_model: Apply,
        *,
        keeps_types: bool,
    ) -> Any:
        """The outputs by PyTorch itself, after a comparison with those of the translation.

        The arguments are those of :meth:`__call__`, and ``rewritten_model``, with some equations
        replaced; the same replacements are made in the translation before it is compared. The last
        outputs are kept, so that a second call with the same numbers compares nothing.
        """
        key = tree_digest((params, x))
        if key not in self.compared:
            arrays = flatten_dict(params, sep=".")
            leaves, structure = jax.tree.flatten(x)
            forward = _Forward(structure, self.output)
            original = Original(self.module, arrays, leaves, forward, widens=not keeps_types)
            with noticing():  # calls of this module inside are not compared again
                function = rewritten_alike(Partial(self, fixed), rewritten_model)
                steps = translation.program.steps
                blame = partial(blamed, translation.exported, steps, self.paths, arrays, leaves)
                eps_of_parameters = [float(jnp.finfo(v.dtype).eps) for v in arrays.values()]
                eps = max([*eps_of_parameters, *(step.eps for step in steps)])
                expected = compare(function, params, x, original, eps, blame)
            self.compared.clear()
            self.compared[key] = expected
        outputs = [jnp.asarray(array) for array in self.compared[key]]
        return jax.tree.unflatten(translation.results, outputs)

    def _translation(
        self, leaves: Sequence[Any], structure: Any, dtype: Any, keeps_types: bool
    ) -> _Translation:
        """The translation for inputs of the shapes and dtypes of the arrays ``leaves`` of x.

        It is made once and kept. One that takes any number of samples serves all inputs that differ
        in the length n of their first axis alone.
        """
        shapes = tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves)
        count = leaves[0].shape[0] if leaves and leaves[0].ndim else None
        key = (dtype, keeps_types, structure, shapes)
        for known_key in ((*key, None), (*key, count)):  # None: for any number of samples
            if known_key in self.programs:
                return self.programs[known_key]
        translation = self._translated(leaves, structure, dtype, keeps_types)
        new_key = (*key, None if translation.any_size else count)
        return self.programs.setdefault(new_key, translation)

    def _translated(
        self, leaves: Sequence[Any], structure: Any, dtype: Any, keeps_types: bool
    ) -> _Translation:
        """The translation for inputs like the arrays ``leaves`` of x, with this pytree structure.

        PyTorch exports the module's operators at example inputs, and each operator is translated to
        JAX. The module computes in ``dtype``, or in its own types if ``keeps_types``.
        """
        floating = getattr(torch(), jnp.dtype(dtype).name)
        module = self.module if keeps_types else in_format(self.module, floating)
        forward = _Forward(structure, self.output)

        def examples(count: int | None) -> list[Any]:
            """Tensors like the arrays of x for ``count`` samples; None: as many as x has."""
            shapes = [leaf.shape if count is None else (count, *leaf.shape[1:]) for leaf in leaves]
            arrays = [  # integers are zeros, which are valid tokens
                np.full(shape, 0 if jnp.issubdtype(leaf.dtype, jnp.integer) else 1, leaf.dtype)
                for shape, leaf in zip(shapes, leaves, strict=True)
            ]
            return [tensor_of(array, floating) for array in arrays]

        with same_numbers_afterwards():
            exported_program, any_size = exported(module, forward, examples)
        program = translated(exported_program, self.paths, self.trained)
        return _Translation(program, forward.results, any_size, exported_program)


class _Forward:
    """A function of a module and the tensors of x to the list of tensors that count as outputs.

    After a call ``results`` is the pytree structure of these outputs.
    """

    def __init__(self, structure: Any, output: Output) -> None:
        self._structure, self._output, self.results = structure, output, None

    def __call__(self, module: Any, tensors: Sequence[Any]) -> list[Any]:
        """The outputs that count, of one call of the module."""
        returned = _call(module, jax.tree.unflatten(self._structure, list(tensors)))
        outputs, self.results = jax.tree.flatten(choose_output(returned, self._output))
        return list(outputs)


def _call(module: Any, x: Any) -> Any:
    """What ``module`` returns for x: a tuple is several arguments, a dict keywords of forward's."""
    if type(x) is dict:
        names = inspect.signature(module.forward).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in names.values())
        if all(isinstance(key, str) and (takes_any or key in names) for key in x):
            return module(**x)
    return module(*frameworks.positional(x))
