"""Products of an operator with rows of host memory, where the Krylov methods keep their bases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from gnjax.operators.base import Dense, Factored, Operator, SumOfKroneckers
from gnjax.operators.linearised import Prepared, linearised
from gnjax.operators.network import NetworkGram
from gnjax.operators.stored_jacobian import WithJacobian, products_before, with_jacobian
from gnjax.spectra import lanczos as krylov

BASIS_BYTES = 2e9


class NotFinite(ValueError):
    """A product has NaN or Inf in it."""


def most_rows(size: int) -> int:
    """How many vectors of a length a Krylov basis may hold."""
    return int(min(size, BASIS_BYTES / (8 * size)))


def host_product(op: Operator) -> krylov.Apply:
    """The operator on rows of host memory: compiled, networks linearised once.

    A row by itself goes as a vector, and without a copy by jax before the compiled call makes its
    own: that is a quarter of the time of a small network's product.
    """
    multiply = _multiplication(op)

    def apply(rows: np.ndarray) -> np.ndarray:
        block = rows.astype(op.dtype, copy=False)
        images = multiply(block[0])[None] if len(block) == 1 else multiply(block.T).T
        images = np.asarray(images, np.float64)
        if not np.isfinite(images).all():
            msg = "the operator returns NaN or Inf; remove them from its weights and data"
            raise NotFinite(msg)
        return images

    return apply


def _multiplication(op: Operator) -> Callable[[Any], Any]:
    """Products of the operator with arrays in host memory."""
    if isinstance(op, Dense | Factored | SumOfKroneckers):  # networks compile batches
        return partial(_compiled_product, op)
    prepared = linearised(op)
    network = prepared.op if isinstance(prepared, Prepared) else prepared
    if isinstance(network, NetworkGram) and not isinstance(prepared, WithJacobian):
        before = products_before(network)
        if before < np.inf:
            return _storing(prepared, network, before)
    return _of_any(prepared)


def _of_any(op: Operator) -> Callable[[Any], Any]:
    return op.mv if isinstance(op, Prepared) else lambda v: op.mv(jnp.asarray(v))


def _storing(prepared: Operator, op: NetworkGram, before: float) -> Callable[[Any], Any]:
    """Products without J until they have cost as much as making it, then with J stored.

    Whatever their number, they take at most about twice as long as had it been known.
    """
    held = [_of_any(prepared)]
    del prepared

    def multiply(v: Any) -> Any:
        nonlocal before
        if before <= 0:
            held.clear()  # its memory first
            held.append(with_jacobian(op).mv)
            before = np.inf
        before -= 1 if v.ndim == 1 else v.shape[1]
        return held[0](v)

    return multiply


def beside_xla() -> AbstractContextManager[object]:
    """One thread for BLAS where the host's small products and XLA's large ones alternate.

    Those of a second pool spin for a while after each product, on the cores that XLA needs.
    """
    on_cpu = jax.default_backend() == "cpu"
    return threadpool_limits(1, user_api="blas") if on_cpu else nullcontext()


@jax.jit
def _compiled_product(op: Operator, block: jax.Array) -> jax.Array:
    return op.mv(block)
