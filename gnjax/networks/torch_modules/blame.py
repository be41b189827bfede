"""The first operator of a graph whose rule here computes something else than PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.refusals import RAISED, first_line
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
    """The floating results of an operator with the Jacobian J, and u^T J for one u.

    Their sizes, and how much they change, have the same form.
    """

    results: list[Any]
    derivatives: list[Any]  # by the operands that float


def blamed(
    exported: Any,
    steps: Sequence[Step],
    paths: Mapping[str, str],
    parameters: Mapping[str, Any],
    leaves: Sequence[Any],
) -> str:
    """A sentence about the first operator that JAX computes otherwise than PyTorch, or "".

    Every operator of the exported graph is also computed by its translation to JAX, from the
    operands that PyTorch has computed, so that no difference reaches a later operator.

    Args:
      exported: the program of ``torch.export``.
      steps: the operators of its translation.
      paths: for each name of a parameter or buffer the path of the array that it stands for.
      parameters: arrays by their paths, which are used in place of the program's own.
      leaves: the arrays of x, the samples.
    """
    steps_by_name = {step.name: step for step in steps}
    values: dict[str, Any] = {}  # what PyTorch has computed, by the names of the graph's nodes
    blames: list[str] = []  # at most one sentence

    class Compared(torch().fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = values[node.name] = super().run_node(node)
            step = steps_by_name.get(node.name)
            if step and not blames and (difference := _difference(step, node, values)):
                blames.append(f"The operator {step.operator} (in {step.module}) {difference}")
            return value

    with torch().no_grad(), jax.numpy_rank_promotion("allow"):
        Compared(exported.graph_module).run(*_inputs(exported, paths, parameters, leaves))
    return blames[0] if blames else ""


def _inputs(
    exported: Any, paths: Mapping[str, str], parameters: Mapping[str, Any], leaves: Sequence[Any]
) -> Iterator[Any]:
    """Yield the tensors that the exported graph is run with, in the order of its signature.

    Samples come from ``leaves`` in turn, floats in the common precision of ``parameters``. Other
    inputs are the program's own tensors, or in their types the ``parameters`` at their paths.
    """
    own_tensors, remaining = {**exported.constants, **exported.state_dict}, iter(leaves)
    floating = getattr(torch(), jnp.result_type(*parameters.values()).name)
    samples = torch().export.graph_signature.InputKind.USER_INPUT
    for spec in exported.graph_signature.input_specs:
        if spec.kind == samples:
            yield tensor_of(next(remaining), floating)
            continue
        own = own_tensors[spec.target]
        # The module was exported as the attribute ``module`` of a wrapper; constants have no path.
        path = paths.get(spec.target.removeprefix("module."), "")
        yield tensor_of(parameters[path], own.dtype) if path in parameters else own


def _difference(step: Step, node: Any, values: Mapping[str, Any]) -> str:
    """How the operator of a step differs from the one of PyTorch's node, in words, or "".

    Both get the same operands from ``values``, the results of PyTorch's nodes by their names. Their
    results, and the products u^T J of their Jacobians J with one random u, are compared. A
    difference beyond rounding counts only if it also exceeds what PyTorch's own results change by
    when all numbers inside of the operator move (:func:`moved`).
    """
    names = [operand.name for operand in node.all_input_nodes]
    if too_large := _integers_too_large(values[name] for name in (*names, node.name)):
        return too_large
    floating = [name for name in names if _floats(values[name])]
    operands = {name: jax.tree.map(_to_jax, values[name]) for name in names}

    def by_jax(floating_operands: Mapping[str, Any]) -> list[Any]:
        """The floating results of the translated operator, as a function of such operands."""
        all_operands = {**operands, **floating_operands}
        args, kwargs = filled((step.args, dict(step.kwargs)), all_operands)
        results = typed(OPERATORS[step.operator](*args, **kwargs), step.dtype)
        return [
            array
            for array in jax.tree.leaves(results)
            if jnp.issubdtype(jnp.result_type(array), jnp.floating)
        ]

    try:
        results, pullback = jax.vjp(by_jax, {name: operands[name] for name in floating})
    except RAISED as error:
        return f"raises {type(error).__name__}: {first_line(error)}; {_REMEDY}"
    rng = np.random.default_rng(0)
    directions = [rng.standard_normal(array.shape) for array in results]
    try:
        expected = _by_torch(node, values, floating, directions)
    except RuntimeError:  # PyTorch takes an operand as a constant, such as a running mean
        floating = []
        expected = _by_torch(node, values, floating, directions)
    pairs = zip(directions, results, strict=True)
    (product,) = pullback([jnp.asarray(u, result.dtype) for u, result in pairs])
    computed = _Product(results, [product[name] for name in floating])
    dtypes = [array.dtype for array in (*computed.results, *computed.derivatives)]
    eps = max([step.eps, *(float(jnp.finfo(dtype).eps) for dtype in dtypes)])  # of the coarsest
    sizes = jax.tree.map(largest, expected)
    if not _beyond(computed, expected, sizes, eps):
        return ""

    def beyond_changes(changes: _Product) -> str:
        """The difference beyond rounding, where PyTorch's operator amplifies that by change / h."""
        amplified = jax.tree.map(lambda change: largest(change) / step_of(eps), changes)
        return _beyond(computed, expected, jax.tree.map(max, sizes, amplified), eps)

    changes = moved(
        lambda: _by_torch(node, values, floating, directions),
        expected,
        eps,
        explains=lambda changes: not beyond_changes(changes),
    )
    return beyond_changes(changes)


def _integers_too_large(values: Iterable[Any]) -> str:
    """A message if an integer of these tensors is too large for JAX's 32-bit mode, else ""."""
    for value in values:
        if not isinstance(value, torch().Tensor) or value.dtype != torch().int64:
            continue
        exact, jax_type = from_tensor(value), jax.dtypes.canonicalize_dtype(np.int64)
        if (exact.astype(jax_type) != exact).any():
            return (
                f"takes or gives integers from {exact.min()} to {exact.max()}, which {jax_type} "
                "does not hold; call gnjax.enable_x64() before making arrays"
            )
    return ""


def _beyond(computed: _Product, exact: _Product, sizes: _Product, eps: float) -> str:
    """Whether JAX's results or derivatives differ from the exact ones, in words; "" if not.

    An error of up to 10,000 eps times the size of an array counts as rounding.
    """

    def differ(array: Any, exact_array: np.ndarray, size: Any) -> bool:
        if array.shape != exact_array.shape:
            return True
        return bool(apart(array, exact_array).max(initial=0.0) > _ROUNDINGS * eps * size)

    if any(map(differ, computed.results, exact.results, sizes.results)):
        return f"computes something else than PyTorch's; {_REMEDY}"
    if any(map(differ, computed.derivatives, exact.derivatives, sizes.derivatives)):
        return f"has another derivative than PyTorch's; {_REMEDY}"
    return ""


def _by_torch(
    node: Any, values: Mapping[str, Any], names: Sequence[str], directions: Sequence[np.ndarray]
) -> _Product:
    """The floating results of PyTorch's node, and u^T J with their Jacobian J.

    J is by the operands ``names`` among the ``values``, and ``directions`` is u, an array for each
    result.
    """
    operands = {name: values[name].detach().clone().requires_grad_() for name in names}
    args, kwargs = torch().fx.node.map_arg(
        (node.args, node.kwargs), lambda operand: {**values, **operands}[operand.name]
    )
    with torch().enable_grad():
        value = node.target(*args, **kwargs)
    # PyTorch's operator may have more results, such as statistics, than its translation computes
    results = [leaf for leaf in jax.tree.leaves(value) if _floats(leaf)][: len(directions)]
    derivatives = gradients(results, list(operands.values()), directions)
    return _Product([as_float64(tensor) for tensor in results], derivatives)


def _floats(value: Any) -> bool:
    """Whether this is a tensor of real floating numbers."""
    return isinstance(value, torch().Tensor) and value.is_floating_point()


def _to_jax(value: Any) -> Any:
    """A tensor as an array of JAX; other values come back as they are."""
    return jnp.asarray(from_tensor(value)) if isinstance(value, torch().Tensor) else value
