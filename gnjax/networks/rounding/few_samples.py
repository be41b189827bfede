"""Samples on which the rounding of a large network is measured, and what stands for the others.

Monte Carlo arithmetic costs several products with every sample. Where there are many samples it is
made on a few: those that float32 changes most, and some at random. Rounding grows in float64 as it
does in float32, only 2^29 times smaller. So an unmeasured sample counts as the largest quotient of
the measured rounding and the change by float32 among samples drawn at random, times its own change
by float32. A unit at a kink that float32 switches changes a sample far more than rounding does; all
samples that change so much are measured. Where float32 does not predict what is measured, or a
model cannot be computed in it, all samples are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.samples import take, windows
from gnjax.networks.jaxprs import equations, floats
from gnjax.networks.network import Network, backward, forward, sample_batches
from gnjax.networks.rounding.formed import probe_vectors
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_host

_WORST, _RANDOM = 2, 2  # batches: of samples that float32 changes most, and of any others
_FEWEST = 2 * (_WORST + _RANDOM)  # for fewer batches nothing is gained
_WORK = 5e7  # numbers written for one product with all samples, from which on it pays
_UNLIKE = 30.0  # float32 predicts rounding where the quotients differ by less than this factor


_Measure = Callable[[Sequence[Any], np.ndarray], float]
"""||E_b||_F of a batch: its samples and targets, and vectors u."""


def total_rounding(
    net: Network,
    measure: _Measure,
    leave: Callable[[Sequence[Any], np.ndarray], None],
    rng: np.random.Generator,
) -> float:
    """||E||_F: the root of the sum of squares of ``measure`` over all samples.

    A small problem is measured whole. Of a large one the ``worst`` batches and some at ``random``
    are, and the ``rest`` counts as the largest quotient of a random batch times its change by
    float32, unless the quotients differ so much that float32 predicts nothing. ``leave`` is called
    for every batch that is not measured. Both are given the vectors u of
    :func:`gnjax.networks.rounding.formed.probe_vectors` for the samples of the batch.
    """
    batches = list(zip(sample_batches(net, net.target), probe_vectors(net), strict=True))
    changes = None
    if len(batches) >= _FEWEST and net.written * net.samples >= _WORK:
        changes = _changes(net, rng)
    groups = None if changes is None else _groups(changes, net.batch, rng)
    if changes is None or groups is None:
        return math.hypot(*(measure(*batch) for batch in batches))
    vectors = np.concatenate([batch[1] for batch in batches], axis=1)

    def batch(places: np.ndarray) -> tuple[Any, np.ndarray]:
        return take((net.x, net.target), places), vectors[:, places]

    sizes = [measure(*batch(places)) for places in (*groups.worst, *groups.random)]
    sizes_and_places = zip(sizes[-_RANDOM:], groups.random, strict=True)
    quotients = [size / float(np.linalg.norm(changes[places])) for size, places in sizes_and_places]
    other_batches = np.split(groups.rest, range(net.batch, len(groups.rest), net.batch))
    if not 0 < max(quotients) <= _UNLIKE * min(quotients):
        return math.hypot(*sizes, *(measure(*batch(places)) for places in other_batches))
    for places in other_batches:
        leave(*batch(places))
    return math.hypot(*sizes, max(quotients) * float(np.linalg.norm(changes[groups.rest])))


@dataclass(frozen=True)
class _Groups:
    """Samples that are measured, a batch of them in each row, and those that are not."""

    worst: np.ndarray
    random: np.ndarray
    rest: np.ndarray


def _groups(changes: np.ndarray, size: int, rng: np.random.Generator) -> _Groups | None:
    """The samples that float32 changes most, and some random batches of others, by ``changes``.

    A batch has ``size`` samples. None where no sample would be left unmeasured.
    """
    order = np.argsort(-changes)
    typical = float(np.median(changes))
    if typical == 0:
        return None
    many = int((changes > _UNLIKE * typical).sum())
    worst = max(_WORST, -(-many // size)) * size
    if worst + _RANDOM * size >= len(order):
        return None
    others = rng.permutation(order[worst:])
    random, rest = np.split(others, [_RANDOM * size])
    return _Groups(order[:worst].reshape(-1, size), random.reshape(-1, size), np.sort(rest))


def _changes(net: Network, rng: np.random.Generator) -> np.ndarray | None:
    """|J_i v in float32 - J_i v| for one random v and every sample i; None without a float32."""
    if net.dtype != jnp.float64:
        return None
    v = rng.standard_normal(net.parameters)
    v *= math.sqrt(v.size) / np.linalg.norm(v)
    wide, narrow = jnp.asarray(v), jnp.asarray(v, jnp.float32)
    light = _narrowed(net)
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        batches = list(windows((net.x, net.target), net.batch))
        first = _narrowed(batches[0][0])
        try:
            closed = plain_forward.of(light).trace(light, *first, narrow).jaxpr
        except TypeError:  # such as that of a loop whose carry has a dtype of its own
            return None
        results = (v for eqn in equations(closed.jaxpr) for v in eqn.outvars if floats(v))
        if any(v.aval.dtype == jnp.float64 for v in results):
            return None
        images = [on_host(plain_forward(light, *_narrowed(b), narrow)) for b, _ in batches]
    changes = []
    for (batch, before), image in zip(batches, images, strict=True):
        difference = on_host(plain_forward(net, *batch, wide)) - image
        changes.append(np.linalg.norm(difference.reshape(len(difference), -1), axis=1)[before:])
    norms = np.concatenate(changes)
    return norms if np.isfinite(norms).all() else None


@bounded_jit
def plain_forward(net: Network, x: Any, target: Any, v: jax.Array) -> jax.Array:
    """J_b v, as one compiled program."""
    return forward(net, x, target, v)


@bounded_jit
def plain_backward(net: Network, x: Any, target: Any, u: jax.Array) -> jax.Array:
    """J_b^T u for several u (m, n_b, r), as one compiled program."""
    return jax.vmap(partial(backward, net, x, target))(u)


@bounded_jit
def _narrowed(tree: Any) -> Any:
    def narrow(leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf

    return jax.tree.map(narrow, tree)
