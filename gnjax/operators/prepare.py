"""The fastest way at hand to multiply many times with one operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.operators.base import Dense, Factored, Operator, SumOfKroneckers
from gnjax.operators.linearised import Prepared, linearised
from gnjax.operators.network import NetworkGram
from gnjax.operators.stored_jacobian import WithJacobian, products_before, with_jacobian


def prepared_product(op: Operator) -> Callable[[Any], Any]:
    """v -> A v on vectors and blocks of columns: compiled, and networks linearised once.

    An operator of the caller's may state its own as ``prepared()``.
    """
    if isinstance(op, Dense | Factored | SumOfKroneckers):  # networks compile batches
        return partial(_compiled_product, op)
    own = getattr(op, "prepared", None)
    if own is not None:
        product: Callable[[Any], Any] = own()
        return product
    ready = linearised(op)
    network = ready.op if isinstance(ready, Prepared) else ready
    if isinstance(network, NetworkGram) and not isinstance(ready, WithJacobian):
        before = products_before(network)
        if before < np.inf:
            return _storing(ready, network, before)
    return _of_any(ready)


def _of_any(op: Operator) -> Callable[[Any], Any]:
    return op.mv if isinstance(op, Prepared) else lambda v: op.mv(jnp.asarray(v))


def _storing(ready: Operator, op: NetworkGram, before: float) -> Callable[[Any], Any]:
    """Products without J until they have cost as much as making it, then with J stored.

    Whatever their number, they take at most about twice as long as had it been known.
    """
    held = [_of_any(ready)]
    del ready

    def multiply(v: Any) -> Any:
        nonlocal before
        if before <= 0:
            held.clear()  # its memory first
            held.append(with_jacobian(op).mv)
            before = np.inf
        before -= 1 if v.ndim == 1 else v.shape[1]
        return held[0](v)

    return multiply


@jax.jit
def _compiled_product(op: Operator, block: jax.Array) -> jax.Array:
    return op.mv(block)
