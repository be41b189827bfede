"""The first operator of a graph whose rule here computes something else than PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.refusals import RAISED, told
from gnjax.networks.torch_modules.arrays import (
    as_float64,
    differ,
    from_tensor,
    tensor_of,
    torch,
)
from gnjax.networks.torch_modules.operators import OPERATORS
from gnjax.networks.torch_modules.original import gradients
from gnjax.networks.torch_modules.program import Step, filled, typed

_ROUNDINGS = 1e4  # of one operator, in units of eps
_NO_OPERATOR = (
    "Each operator of the graph alone agrees with PyTorch, so that torch.export has not written "
    "down what forward does: a hook of a tensor, detach_(), torch.inference_mode(), numbers that "
    "are changed under torch.no_grad() and read afterwards, a derivative written by hand, or a "
    "composite function that it takes apart. Write this part with other operators, as in "
    "x.detach() and torch.where, or write apply(params, x) with jax.numpy"
)


def blamed(
    exported: Any,
    steps: Sequence[Step],
    paths: Mapping[str, str],
    parameters: Mapping[str, Any],
    leaves: Sequence[Any],
) -> str:
    """The words for the first operator that differs, or for there being none.

    Each operator is given what PyTorch has computed before it, so that no difference is handed on.

    Args:
      exported: the program of ``torch.export``.
      steps: its translation.
      paths: for each name of a parameter or buffer the path of the array that it stands for.
      parameters: arrays by their paths, in place of those of the program.
      leaves: the leaves of x.
    """
    known, values = {step.name: step for step in steps}, dict[str, Any]()
    found: list[str] = []

    class Compared(torch().fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = values[node.name] = super().run_node(node)
            step = known.get(node.name)
            if step and not found and (what := _difference(step, node, values)):
                found.append(f"The operator {step.operator} (in {step.module}) {what}")
            return value

    with torch().no_grad(), jax.numpy_rank_promotion("allow"):
        Compared(exported.graph_module).run(*_inputs(exported, paths, parameters, leaves))
    return f"{found[0]}; put another in its place" if found else _NO_OPERATOR


def _inputs(
    exported: Any, paths: Mapping[str, str], parameters: Mapping[str, Any], leaves: Sequence[Any]
) -> Iterator[Any]:
    """What the graph is given, in the order of its signature."""
    kept, remaining = {**exported.constants, **exported.state_dict}, iter(leaves)
    floating = getattr(torch(), jnp.result_type(*parameters.values()).name)
    samples = torch().export.graph_signature.InputKind.USER_INPUT
    for spec in exported.graph_signature.input_specs:
        if spec.kind == samples:
            yield tensor_of(next(remaining), floating)
            continue
        own = kept[spec.target]
        path = paths.get(spec.target.removeprefix("module."), "")
        yield tensor_of(parameters[path], own.dtype) if path in parameters else own


def _difference(step: Step, node: Any, values: Mapping[str, Any]) -> str:
    """How the rule of a step differs from PyTorch's operator, or nothing."""
    names = [before.name for before in node.all_input_nodes]
    floats = [name for name in names if _floats(values[name])]
    given = {name: jax.tree.map(_to_jax, values[name]) for name in names}

    def rule(moved: Mapping[str, Any]) -> list[Any]:
        args, kwargs = filled((step.args, dict(step.kwargs)), {**given, **moved})
        results = typed(OPERATORS[step.operator](*args, **kwargs), step.dtype)
        return [array for array in jax.tree.leaves(results) if _inexact(array)]

    try:
        ours, pull = jax.vjp(rule, {name: given[name] for name in floats})
    except RAISED as error:
        return f"raises {type(error).__name__}: {told(error)}"
    moved = {name: values[name].detach().requires_grad_() for name in floats}
    try:
        theirs = _by_torch(node, {**values, **moved})[: len(ours)]
    except RuntimeError:  # PyTorch takes an operand as a constant, such as a running mean
        moved = {}
        theirs = _by_torch(node, values)[: len(ours)]
    formats = [float(jnp.finfo(given[name].dtype).eps) for name in floats]
    formats += [float(jnp.finfo(array.dtype).eps) for array in ours]
    tolerance = _ROUNDINGS * max([step.eps, *formats])
    if any(differ(a, as_float64(b), tolerance) for a, b in zip(ours, theirs, strict=True)):
        return "computes something else than PyTorch's"
    rng = np.random.default_rng(0)
    directions = [rng.standard_normal(tuple(tensor.shape)) for tensor in theirs]
    (product,) = pull([jnp.asarray(u, a.dtype) for u, a in zip(directions, ours, strict=True)])
    expected = gradients(theirs, list(moved.values()), directions)
    if any(differ(product[n], e, tolerance) for n, e in zip(moved, expected, strict=True)):
        return "has another derivative than PyTorch's"
    return ""


def _by_torch(node: Any, values: Mapping[str, Any]) -> list[Any]:
    """The results of PyTorch's operator that float."""
    args, kwargs = torch().fx.node.map_arg(
        (node.args, node.kwargs), lambda before: values[before.name]
    )
    with torch().enable_grad():
        value = node.target(*args, **kwargs)
    return [leaf for leaf in jax.tree.leaves(value) if _floats(leaf)]


def _floats(value: Any) -> bool:
    return isinstance(value, torch().Tensor) and value.is_floating_point()


def _inexact(array: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(array), jnp.floating))


def _to_jax(value: Any) -> Any:
    return jnp.asarray(from_tensor(value)) if isinstance(value, torch().Tensor) else value
