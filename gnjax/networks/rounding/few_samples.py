"""Samples on which the rounding of a large network is measured, and what stands for the others.

Rounding grows in float64 as it does in float32, only 2^29 times smaller, so that the change of a
sample by float32 says which samples count. A unit at a kink changes far more than rounding does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.samples import take, windows
from gnjax.networks.jaxprs import equations, floats
from gnjax.networks.network import Network, backward, forward, sample_batches
from gnjax.networks.rounding.formed import direction
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_host

_WORST, _RANDOM = 2, 2  # batches: of samples that float32 changes most, and of any others
_FEWEST = 2 * (_WORST + _RANDOM)  # for fewer batches nothing is gained
_SAMPLES = 8  # the most in a batch of a large network
_WORK = 5e7  # numbers written for one product with all samples, from which on it pays
_UNLIKE = 30.0  # float32 predicts rounding where the quotients differ by less than this factor

_Batch = tuple[Any, np.ndarray]
"""The samples and targets of a batch, and its part (m, n_b, r) of the vectors of ``probe_rows``."""
_Measure = Callable[[Any, np.ndarray], float]
"""Such a batch to an estimate of ||E_b||_F, the error of its rows of J."""


def total_rounding(
    net: Network, vectors: np.ndarray, measure: _Measure, rng: np.random.Generator
) -> tuple[float, Iterable[_Batch]]:
    """An estimate of ||E||_F for the computed J + E of a network, and the batches left unmeasured.

    ``vectors`` (m, n, r) are those of ``probe_rows``.

    ``measure`` gives ||E_b||_F for the rows E_b of a batch b. Of a large problem those samples are
    measured that float32 changes most, and some batches that ``rng`` draws. For the others, with
    changes c by float32, q |c| stands for the error, with the largest q = ||E_b||_F / |c_b| of a
    random batch. All samples are measured where these quotients differ by a factor above 30.
    """
    starts = range(0, net.samples, net.batch)
    vectors_of_batches = [vectors[:, start : start + net.batch] for start in starts]
    batches = list(zip(sample_batches(net, net.target), vectors_of_batches, strict=True))
    changes = None
    if len(batches) >= _FEWEST and net.written * net.samples >= _WORK:
        changes = _changes(net, rng)
    groups = None if changes is None else _groups(changes, net.batch, rng)
    if changes is None or groups is None:
        return math.hypot(*(measure(*batch) for batch in batches)), []

    def batch_of(indices: np.ndarray) -> _Batch:
        return take((net.x, net.target), indices), vectors[:, indices]

    errors = [measure(*batch_of(indices)) for indices in (*groups.worst, *groups.random)]
    random_batches = zip(errors[-_RANDOM:], groups.random, strict=True)
    quotients = [
        error / float(np.linalg.norm(changes[indices])) for error, indices in random_batches
    ]
    other_indices = np.split(groups.rest, range(net.batch, len(groups.rest), net.batch))
    others = map(batch_of, other_indices)
    if not 0 < max(quotients) <= _UNLIKE * min(quotients):
        return math.hypot(*errors, *(measure(*batch) for batch in others)), []
    of_others = max(quotients) * float(np.linalg.norm(changes[groups.rest]))
    return math.hypot(*errors, of_others), others


def in_small_batches(net: Network) -> Network:
    """The network, if it is large with batches of at most 8 samples.

    Four batches are measured where there are 8 or more, so that small ones are few samples.
    """
    if net.coupled or net.written * net.samples < _WORK:
        return net
    return replace(net, batch=min(net.batch, _SAMPLES))


@dataclass(frozen=True)
class _Groups:
    """Indices of samples that are measured, a batch of them in each row, and of all others."""

    worst: np.ndarray  # (batches, samples of a batch): those that float32 changes most
    random: np.ndarray  # (batches, samples of a batch), drawn from the others
    rest: np.ndarray  # (samples,), not measured


def _groups(changes: np.ndarray, size: int, rng: np.random.Generator) -> _Groups | None:
    """The samples to measure, from the ``changes`` (n,) by float32; a batch has ``size`` samples.

    All that change more than 30 times the median are among the worst, as those with a unit at its
    kink. None if no sample would be left unmeasured, or the median is zero.
    """
    order = np.argsort(-changes)  # the largest change first
    typical = float(np.median(changes))
    if typical == 0:
        return None
    outliers = int((changes > _UNLIKE * typical).sum())
    worst_count = max(_WORST, -(-outliers // size)) * size  # whole batches
    if worst_count + _RANDOM * size >= len(order):
        return None
    others = rng.permutation(order[worst_count:])
    random, rest = np.split(others, [_RANDOM * size])
    return _Groups(order[:worst_count].reshape(-1, size), random.reshape(-1, size), np.sort(rest))


def _changes(net: Network, rng: np.random.Generator) -> np.ndarray | None:
    """|J_i v in float32 - J_i v| for the rows J_i of J of every sample i, as (n,), and a random v.

    None where the network is not in float64, cannot be computed in float32 throughout, or overflows
    there.
    """
    if net.dtype != jnp.float64:
        return None
    v = direction(rng, (net.parameters,), net.dtype)
    v_in_float64, v_in_float32 = jnp.asarray(v), jnp.asarray(v, jnp.float32)
    net_in_float32 = _narrowed(net)
    # "highest": matrix products in float32, and in no shorter format, on an accelerator too
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        batches = list(windows((net.x, net.target), net.batch))
        first_batch = _narrowed(batches[0][0])
        try:
            program = plain_forward.of(net_in_float32)
            closed_jaxpr = program.trace(net_in_float32, *first_batch, v_in_float32).jaxpr
        except TypeError:  # such as that of a loop whose carry has a dtype of its own
            return None
        # a constant of the model in float64 would make what follows it float64 again
        results = (v for eqn in equations(closed_jaxpr.jaxpr) for v in eqn.outvars if floats(v))
        if any(v.aval.dtype == jnp.float64 for v in results):
            return None
        images = [
            on_host(plain_forward(net_in_float32, *_narrowed(batch), v_in_float32))
            for batch, _ in batches
        ]
    changes = []
    for (batch, seen_before), image in zip(batches, images, strict=True):
        difference = on_host(plain_forward(net, *batch, v_in_float64)) - image
        norms_of_batch = np.linalg.norm(difference.reshape(len(difference), -1), axis=1)
        changes.append(norms_of_batch[seen_before:])  # the last batch overlaps the one before it
    norms = np.concatenate(changes)
    return norms if np.isfinite(norms).all() else None


@bounded_jit
def plain_forward(net: Network, x: Any, target: Any, v: jax.Array) -> jax.Array:
    """J_b v (n_b, r) for v (p,), at a batch of samples x, as one compiled program."""
    return forward(net, x, target, v)


@bounded_jit
def plain_backward(net: Network, x: Any, target: Any, u: jax.Array) -> jax.Array:
    """J_b^T u (m, p) for several u (m, n_b, r), at a batch of samples x, as one program."""
    return jax.vmap(partial(backward, net, x, target))(u)


@bounded_jit
def _narrowed(tree: Any) -> Any:
    """A pytree with its float64 arrays in float32."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf, tree
    )
