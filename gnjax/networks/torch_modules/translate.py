"""An exported program of PyTorch as a :class:`Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax

from gnjax.networks.torch_modules.arrays import from_tensor, torch, type_name
from gnjax.networks.torch_modules.program import Program, Ref, Step, check_operators

_IGNORED = frozenset(
    str.split("device dtype implicit layout memory_format non_blocking pin_memory requires_grad")
)
"""Keywords that do not change a result, or that its stated type says already."""


def translated(exported: Any, names: Mapping[str, str], parameters: Sequence[str]) -> Program:
    """The program that ``torch.export`` has made of a module, as one that JAX evaluates.

    Operators without a translation are refused.

    Args:
      exported: the program of PyTorch, an ``ExportedProgram``.
      names: for each name of a parameter or buffer the path of the array that it stands for; an
        array that modules share has several names.
      parameters: the paths of the parameters that are differentiated; all other arrays are fixed.
    """
    # What each input of the graph stands for: a parameter, a buffer, a constant, or an array of x.
    inputs = torch().export.graph_signature.InputKind
    arrays, constants, samples = {}, {}, []
    for spec in exported.graph_signature.input_specs:
        if spec.kind in (inputs.PARAMETER, inputs.BUFFER):
            arrays[spec.arg.name] = names[spec.target.removeprefix("module.")]
        elif spec.kind == inputs.CONSTANT_TENSOR:
            constants[spec.arg.name] = from_tensor(exported.constants[spec.target])
        elif spec.kind == inputs.USER_INPUT:
            samples.append(spec.arg.name)
    results = [Ref(name) for name in exported.graph_signature.user_outputs]
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    steps = _needed([_step(node) for node in nodes], results)
    check_operators(steps)
    # Inputs that no needed operator reads, such as those of checks of shapes, are left out.
    names_used = {ref.name for step in steps for ref in _refs((step.args, dict(step.kwargs)))}
    names_used.update(ref.name for ref in results)
    arrays_used = {name: path for name, path in arrays.items() if name in names_used}
    return Program(
        parameters={name: path for name, path in arrays_used.items() if path in parameters},
        fixed={name: path for name, path in arrays_used.items() if path not in parameters},
        constants={name: array for name, array in constants.items() if name in names_used},
        samples=tuple(samples),
        steps=steps,
        results=results,
    )


def _step(node: Any) -> Step:
    """One operator of PyTorch's graph, with its arguments and the dtype of its result.

    The derivative of clamp(x, min, max) at x = min and x = max differs between releases of PyTorch,
    and for bounds that are tensors. So the step gets that of this release as ``at_ends``.
    """
    kwargs = {key: _argument(v) for key, v in node.kwargs.items() if key not in _IGNORED}
    value = node.meta.get("val")
    dtype = type_name(value.dtype) if isinstance(value, torch().Tensor) else None
    args = tuple(_argument(v) for v in node.args)
    operator = _operator(node.target)
    if operator == "clamp":
        bounds = (*args[1:], *kwargs.values())
        of_tensors = any(isinstance(bound, Ref) for bound in bounds)
        kwargs["at_ends"] = _share_at_ends(of_tensors=of_tensors)
    return Step(node.name, operator, args, kwargs, dtype, _module(node))


@cache
def _share_at_ends(*, of_tensors: bool) -> float:
    """The derivative of PyTorch's clamp(x, min) by x at x = min, a number or a tensor."""
    with torch().inference_mode(mode=False), torch().enable_grad():
        x = torch().ones((), requires_grad=True)
        low = torch().ones(()) if of_tensors else 1.0
        (derivative,) = torch().autograd.grad(torch().clamp(x, min=low), x)
    return float(derivative)


def _operator(target: Any) -> str:
    """The name of a node's operator in our table: "add" for aten::add.Tensor.

    Functions of Python get the prefix "python.", and operators that take functions "torch.".
    """
    if isinstance(target, torch()._ops.HigherOrderOperator):
        return f"torch.{target.__name__}"
    if not isinstance(target, torch()._ops.OpOverload):
        return f"python.{getattr(target, '__name__', str(target))}"
    namespace, _, name = target.name().partition("::")
    name = name.partition(".")[0]  # without the overload
    return name if namespace in ("aten", "prims") else f"{namespace}.{name}"


def _module(node: Any) -> str:
    """The path and class of the submodule that calls an operator, such as "layers.0, Linear"."""
    # the pairs (path, class) of the modules around the operator, from the outermost on
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = getattr(kind, "__qualname__", str(kind)).rpartition(".")[2]
    path = path.removeprefix("module").removeprefix(".")
    return f"{path}, {kind}" if path else kind or "the module"


def _argument(value: Any) -> Any:
    """An argument in PyTorch's graph as the JAX program takes it: a node as a :class:`Ref` to it.

    None stands for what JAX does not have, such as a device.
    """
    if isinstance(value, torch().fx.Node):
        return Ref(value.name)
    if isinstance(value, list | tuple):
        return [_argument(entry) for entry in value]
    if isinstance(value, torch().dtype):
        return type_name(value)
    return value if isinstance(value, bool | int | float | str) else None


def _refs(tree: Any) -> list[Ref]:
    """The references in a tree of arguments."""
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Ref)]


def _needed(steps: Sequence[Step], results: Sequence[Ref]) -> tuple[Step, ...]:
    """The operators that the results depend on, in order, without checks and unused results."""
    names_read, needed = {ref.name for ref in results}, []
    for step in reversed(steps):
        if step.name in names_read:
            names_read.update(ref.name for ref in _refs((step.args, dict(step.kwargs))))
            needed.append(step)
    return tuple(needed[::-1])
