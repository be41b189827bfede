"""Batches on which the rounding of a large network is measured, and what stands for the others.

Monte Carlo arithmetic costs several products with every batch. Where there are many batches it is
made on a few: those that float32 changes most, and some at random. Rounding grows in float64 as it
does in float32, only 2^29 times smaller. So an unmeasured batch counts as the largest quotient of
the measured rounding and the change by float32, times its own change by float32. Where float32
does not predict the measured batches, or a model cannot be computed in it, all are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jaxprs import equations, floats
from gnjax.networks.network import Network, backward, forward
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import length, on_host

_MEASURED = 6  # batches: half of them those that float32 changes most
_FEWEST = 4 * _MEASURED  # for fewer batches nothing is gained
_WORK = 5e7  # numbers written for one product with all batches, from which on it pays
_UNLIKE = 30.0  # float32 predicts rounding where the quotients differ by less than this factor


Batch = tuple[Sequence[Any], np.ndarray]
"""The samples and targets of a batch, and the vectors u with which J_b^T u is always computed."""


def total_rounding(
    net: Network,
    batches: Sequence[Batch],
    measure: Callable[[Sequence[Any], np.ndarray], float],
    leave: Callable[[Sequence[Any], np.ndarray], None],
    rng: np.random.Generator,
) -> float:
    """The root of the sum of squares of ``measure`` over all batches.

    ``leave`` is called for every batch that is not measured.
    """
    changes = None
    if len(batches) >= _FEWEST and net.written * net.samples >= _WORK:
        changes = _changes(net, [batch for batch, _ in batches], rng)
    if changes is None:
        return math.hypot(*(measure(*batch) for batch in batches))
    order = np.argsort(-changes)
    worst = _MEASURED // 2
    some = [*order[:worst], *rng.choice(order[worst:], _MEASURED - worst, replace=False)]
    seen = {int(index): measure(*batches[index]) for index in some}
    quotients = [seen[index] / changes[index] for index in seen]
    predicts = 0 < max(quotients) <= _UNLIKE * min(quotients)
    rest = [batch for index, batch in enumerate(batches) if index not in seen]
    if not predicts:
        return math.hypot(*seen.values(), *(measure(*batch) for batch in rest))
    for batch in rest:
        leave(*batch)
    others = np.delete(changes, list(seen))
    return math.hypot(*seen.values(), max(quotients) * float(np.linalg.norm(others)))


def _changes(
    net: Network, batches: Sequence[Sequence[Any]], rng: np.random.Generator
) -> np.ndarray | None:
    """|J_b v in float32 - J_b v| for one random v and every batch; None where there is no float32.

    They have to be finite and positive.
    """
    if net.dtype != jnp.float64:
        return None
    v = rng.standard_normal(net.parameters)
    v *= math.sqrt(v.size) / np.linalg.norm(v)
    wide, narrow = jnp.asarray(v), jnp.asarray(v, jnp.float32)
    light = _narrowed(net)
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        first = _narrowed(batches[0])
        try:
            closed = plain_forward.of(light).trace(light, *first, narrow).jaxpr
        except TypeError:  # such as that of a loop whose carry has a dtype of its own
            return None
        results = (v for eqn in equations(closed.jaxpr) for v in eqn.outvars if floats(v))
        if any(v.aval.dtype == jnp.float64 for v in results):
            return None
        images = [on_host(plain_forward(light, *_narrowed(batch), narrow)) for batch in batches]
    exact = (on_host(plain_forward(net, *batch, wide)) for batch in batches)
    changes = np.array([length(a - b) for a, b in zip(exact, images, strict=True)])
    return changes if np.isfinite(changes).all() and (changes > 0).all() else None


@bounded_jit
def plain_forward(net: Network, x: Any, target: Any, v: jax.Array) -> jax.Array:
    """J_b v, as one compiled program."""
    return forward(net, x, target, v)


@bounded_jit
def plain_backward(net: Network, x: Any, target: Any, u: jax.Array) -> jax.Array:
    """J_b^T u, as one compiled program."""
    return backward(net, x, target, u)


@bounded_jit
def _narrowed(tree: Any) -> Any:
    def narrow(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf

    return jax.tree.map(narrow, tree)
