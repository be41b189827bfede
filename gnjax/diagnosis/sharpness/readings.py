"""A few numbers that a network gives, with their rounding by Monte Carlo arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.network import gather
from gnjax.networks.rounding import SAFETY
from gnjax.networks.rounding.gaps import gaps
from gnjax.numerics.host import on_device
from gnjax.operators.of_networks.hessian import HESSIAN, NetworkHessian, product_of_batch

_DRAWS = 3


def read(
    function: Callable[..., jax.Array],
    op: NetworkHessian,
    v: Any = (0.0,),
    batches: Sequence[Sequence[Any]] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of ``function(op, v, x, target)`` (m,) over batches, and a bound on its rounding.

    Without ``batches`` all samples are one. The bound is a measurement: four times the root mean
    square of the change by random rounding.
    """
    net = op.net
    parts = [(net.x, net.target)] if batches is None else batches
    vectors = [on_device(np.asarray(v), net.dtype)] * _DRAWS
    work = _DRAWS * (HESSIAN * net.written * net.samples + net.parameters * len(parts))
    pairs = list(gaps(Partial(function, op), np.random.default_rng(0), vectors, parts, work=work))
    changes = np.array([change for _, change in pairs], np.float64)
    return np.asarray(pairs[0][0], np.float64), SAFETY * np.sqrt(np.square(changes).mean(axis=0))


def gradient_and_hessian(
    op: NetworkHessian, x: Any, target: Any
) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """The gradient (p,) of the summed loss of a batch, and v -> H v."""
    gradient = jax.grad(partial(op.objective, x, target))(list(op.net.leaves))
    return gather(op.net, gradient), lambda v: product_of_batch(op, v, x, target)


def ratio(values: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """a / b for b > 0 and a bound on its error; both are nan where b may be zero."""
    (a, b), (da, db) = values, errors
    if not b > db:
        return float("nan"), float("nan")
    return float(a / b), float((da + abs(a / b) * db) / (b - db))
