"""The fastest way at hand to multiply many times with one operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device
from gnjax.numerics.precision import x64
from gnjax.operators.algebra import LinearCombination
from gnjax.operators.base import Dense, Factored, Operator
from gnjax.operators.function_hessian import FunctionHessian
from gnjax.operators.of_networks.linearised import Linearised, Prepared, linearised
from gnjax.operators.of_networks.network import NetworkGram, NetworkHessian
from gnjax.operators.of_networks.stored_jacobian import WithJacobian, products_before, with_jacobian
from gnjax.operators.of_networks.streamed import Streamed


def prepared_product(op: Operator) -> Callable[[Any], Any]:
    """v -> A v on vectors and blocks of columns: compiled, and networks linearised once.

    An operator of the caller's own may state this function as ``prepared()``.
    """
    if isinstance(op, Dense | Factored):  # networks compile batches
        return partial(_compiled_product, op)
    if isinstance(op, LinearCombination):
        products = [prepared_product(part) for part in op.parts]
        return lambda v: op.combined([product(v) for product in products], v)
    prepare = getattr(op, "prepared", None)
    if prepare is not None:
        product: Callable[[Any], Any] = prepare()
        return product
    ready = linearised(op)
    network = ready.op if isinstance(ready, Prepared) else ready
    if isinstance(network, NetworkGram) and not isinstance(ready, WithJacobian):
        before = products_before(network)
        if before < np.inf:
            return _storing(ready, network, before)
    return _of_any(ready)


def _of_any(op: Operator) -> Callable[[Any], Any]:
    return op.mv if isinstance(op, Prepared) else lambda v: op.mv(on_device(v, v.dtype))


def _storing(ready: Operator, op: NetworkGram, before: float) -> Callable[[Any], Any]:
    """Multiply without J until that has cost as much as making J; then store J and use it.

    Whatever the number of products, this takes at most about twice as long as if their number had
    been known beforehand.
    """
    multiplications = [_of_any(ready)]
    del ready

    def multiply(v: Any) -> Any:
        nonlocal before
        if before <= 0:
            multiplications.clear()  # free its memory first
            multiplications.append(with_jacobian(op).mv)
            before = np.inf
        before -= 1 if v.ndim == 1 else v.shape[1]
        return multiplications[0](v)

    return multiply


@jax.jit
def _compiled_product(op: Operator, block: jax.Array) -> jax.Array:
    return op.mv(block)


def narrows(op: Operator) -> TypeGuard[NetworkGram | NetworkHessian]:
    """Whether the operator is a network's, and so may have products in float32."""
    return isinstance(op, NetworkGram | NetworkHessian)


def in_float32(op: Operator) -> Linearised | None:
    """The operator of a network linearised in float32, or None where float64 stays inside."""
    if not narrows(op):
        return None
    with float32_rules():
        light = linearised(_narrowed(op))
    wide = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(light))
    return light if isinstance(light, Linearised) and not wide else None


def in_float64(op: Operator) -> Operator | None:
    """An operator in float32 with its numbers in float64, or None where that is not possible.

    Its matrix in exact arithmetic is the same. Use it only inside of :func:`gnjax.x64`. Where a
    model computes in float32 whatever the dtype of its parameters is, it still does so, and the
    error that the operator states includes that.
    """
    if op.dtype != jnp.float32:
        return None
    with x64():
        wide: Operator
        if isinstance(op, NetworkGram | NetworkHessian | FunctionHessian):
            wide = part = _widened(op)
        elif isinstance(op, Streamed):
            wide = replace(op, first=_widened(op.first))
            part = next(wide.parts())
        else:
            return None
        try:
            image = jax.eval_shape(part.mv, jax.ShapeDtypeStruct(op.shape[:1], jnp.float64))
        except TypeError:  # such as that of a loop whose carry has a dtype of its own
            return None
    return wide if image.dtype == jnp.float64 else None


@bounded_jit
def _widened(op: Any) -> Any:
    """The same operator with its numbers in float64."""

    def widen(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf

    return jax.tree.map(widen, op)


@contextmanager
def float32_rules() -> Iterator[None]:
    """Matrix products in full float32 precision, and the usual promotion of types."""
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        yield


@bounded_jit
def _narrowed(op: NetworkGram | NetworkHessian) -> NetworkGram | NetworkHessian:
    """The same operator with its numbers in float32."""

    def narrow(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf

    return jax.tree.map(narrow, op)
