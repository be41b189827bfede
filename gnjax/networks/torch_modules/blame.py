"""The first operator of a graph whose rule here computes something else than PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.refusals import RAISED, told
from gnjax.networks.torch_modules.arrays import (
    apart,
    as_float64,
    from_tensor,
    largest,
    tensor_of,
    torch,
)
from gnjax.networks.torch_modules.operators import OPERATORS
from gnjax.networks.torch_modules.original import gradients
from gnjax.networks.torch_modules.program import Step, filled, typed
from gnjax.networks.torch_modules.torch_rounding import moved, step_of

_ROUNDINGS = 1e4  # of one operator, in units of eps
_REMEDY = "put another in its place"


class _Product(NamedTuple):
    """The results of an operator, and u^T J by its operands; or their sizes."""

    results: list[Any]
    derivatives: list[Any]


def blamed(
    exported: Any,
    steps: Sequence[Step],
    paths: Mapping[str, str],
    parameters: Mapping[str, Any],
    leaves: Sequence[Any],
) -> str:
    """The words for the first operator that differs, or none.

    Each operator is given what PyTorch has computed before it, so that no difference is handed on.

    Args:
      exported: the program of ``torch.export``.
      steps: its translation.
      paths: for each name of a parameter or buffer the path of the array that it stands for.
      parameters: arrays by their paths, in place of those of the program.
      leaves: the leaves of x.
    """
    known, values = {step.name: step for step in steps}, dict[str, Any]()
    blames: list[str] = []

    class Compared(torch().fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = values[node.name] = super().run_node(node)
            step = known.get(node.name)
            if step and not blames and (what := _difference(step, node, values)):
                blames.append(f"The operator {step.operator} (in {step.module}) {what}")
            return value

    with torch().no_grad(), jax.numpy_rank_promotion("allow"):
        Compared(exported.graph_module).run(*_inputs(exported, paths, parameters, leaves))
    return blames[0] if blames else ""


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
    if wrapped := _wrapped(values[name] for name in (*names, node.name)):
        return wrapped
    floats = [name for name in names if _floats(values[name])]
    given = {name: jax.tree.map(_to_jax, values[name]) for name in names}

    def rule(moved: Mapping[str, Any]) -> list[Any]:
        args, kwargs = filled((step.args, dict(step.kwargs)), {**given, **moved})
        results = typed(OPERATORS[step.operator](*args, **kwargs), step.dtype)
        return [array for array in jax.tree.leaves(results) if _inexact(array)]

    try:
        ours, pull = jax.vjp(rule, {name: given[name] for name in floats})
    except RAISED as error:
        return f"raises {type(error).__name__}: {told(error)}; {_REMEDY}"
    rng = np.random.default_rng(0)
    directions = [rng.standard_normal(array.shape) for array in ours]
    try:
        theirs = _by_torch(node, values, floats, directions)
    except RuntimeError:  # PyTorch takes an operand as a constant, such as a running mean
        floats = []
        theirs = _by_torch(node, values, floats, directions)
    (product,) = pull([jnp.asarray(u, a.dtype) for u, a in zip(directions, ours, strict=True)])
    computed = _Product(ours, [product[name] for name in floats])
    formats = [array.dtype for array in (*computed.results, *computed.derivatives)]
    eps = max([step.eps, *(float(jnp.finfo(dtype).eps) for dtype in formats)])
    sizes = jax.tree.map(largest, theirs)
    if not _beyond(computed, theirs, sizes, eps):
        return ""

    def beyond_changes(changes: _Product) -> str:
        amplified = jax.tree.map(lambda change: largest(change) / step_of(eps), changes)
        return _beyond(computed, theirs, jax.tree.map(max, sizes, amplified), eps)

    def compute() -> _Product:
        return _by_torch(node, values, floats, directions)

    return beyond_changes(moved(compute, theirs, eps, lambda changes: not beyond_changes(changes)))


def _wrapped(values: Iterable[Any]) -> str:
    """What integers are no integers of JAX in its mode, or nothing."""
    for value in values:
        if not isinstance(value, torch().Tensor) or value.dtype != torch().int64:
            continue
        exact, held = from_tensor(value), jax.dtypes.canonicalize_dtype(np.int64)
        if (exact.astype(held) != exact).any():
            return (
                f"takes or gives integers from {exact.min()} to {exact.max()}, which {held} does "
                "not hold; call gnjax.enable_x64() before making arrays"
            )
    return ""


def _beyond(computed: _Product, exact: _Product, sizes: _Product, eps: float) -> str:
    """How two products differ by more than rounding that is relative to these sizes."""

    def differ(ours: Any, theirs: np.ndarray, size: Any) -> bool:
        """Whether shapes differ, or numbers by more than rounding does at this magnitude."""
        if ours.shape != theirs.shape:
            return True
        return bool(apart(ours, theirs).max(initial=0.0) > _ROUNDINGS * eps * size)

    if any(map(differ, computed.results, exact.results, sizes.results)):
        return f"computes something else than PyTorch's; {_REMEDY}"
    if any(map(differ, computed.derivatives, exact.derivatives, sizes.derivatives)):
        return f"has another derivative than PyTorch's; {_REMEDY}"
    return ""


def _by_torch(
    node: Any, values: Mapping[str, Any], names: Sequence[str], directions: Sequence[np.ndarray]
) -> _Product:
    """PyTorch's results that float, and their u^T J by the operands of these names."""
    operands = {name: values[name].detach().clone().requires_grad_() for name in names}
    args, kwargs = torch().fx.node.map_arg(
        (node.args, node.kwargs), lambda before: {**values, **operands}[before.name]
    )
    with torch().enable_grad():
        value = node.target(*args, **kwargs)
    results = [leaf for leaf in jax.tree.leaves(value) if _floats(leaf)][: len(directions)]
    derivatives = gradients(results, list(operands.values()), directions)
    return _Product([as_float64(tensor) for tensor in results], derivatives)


def _floats(value: Any) -> bool:
    return isinstance(value, torch().Tensor) and value.is_floating_point()


def _inexact(array: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(array), jnp.floating))


def _to_jax(value: Any) -> Any:
    return jnp.asarray(from_tensor(value)) if isinstance(value, torch().Tensor) else value
