"""Columns and rows of the Jacobian J that are zero, at these parameters and in exact arithmetic.

Columns are zero for parameters that no output depends on here: those in front of a factor that is
zero (LoRA at its usual start, a last layer or a residual branch that starts at zero), those of dead
units, rows of an embedding that no sample looks up. Rows are zero where an output depends on no
parameter. For a random u an entry of J^T u is zero exactly where the column is, and one of J v
where the row is.

A zero may also be due to rounding: a tanh that is 1, a GELU or a softmax that underflows. Therefore
the parameters that seem idle are multiplied by numbers that bring them to the size of 1, and then
by powers of ten: some layers are made larger and the others smaller, such that every two layers go
in different directions at least once. What was zero must stay zero each time. This is evidence of
the kind "measured". J is that of the outputs alone: the factor R of a loss can underflow, too, and
leaves out only what has the weight zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.network import Network, backward_parts, forward_products, scatter
from gnjax.networks.null_space.families import layers_of
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device

_DECADES = 8.0  # powers of ten from the size of 1 in the trials
_FAR = 30.0  # and of one trial that makes all layers small: a layer may read huge inputs
_BELOW = {"float32": 20.0, "float64": 200.0}  # decades by which all layers together may be below 1

Batches = Callable[[], Iterable[Network]]
"""The networks at all batches of samples; their parameters are the same."""


def nonzero_columns(
    batches: Batches, parts: Sequence[np.ndarray], most: float = math.inf
) -> np.ndarray:
    """Which columns of J, of all batches together, are computed as numbers other than zero.

    A column is not zero as soon as it is not zero for one sample. Samples are read only until every
    part has more than ``most`` columns that are not zero; all others then count as zero.
    """
    nonzero = np.zeros((), bool)
    for sizes in _column_sizes(batches):
        nonzero = nonzero | (sizes != 0)
        if all(np.count_nonzero(nonzero[columns]) > most for columns in parts):
            break
    return nonzero


def columns_stay_zero(batches: Batches, idle: np.ndarray) -> bool:
    """Whether the columns of J that ``idle`` names stay zero when their parameters change."""
    net = next(iter(batches()))

    def images(leaves: Sequence[jax.Array]) -> np.ndarray:
        return reduce(np.add, _column_sizes(batches, leaves))[idle]

    return _stay_zero(net, idle, images)


def nonzero_rows(net: Network, columns: np.ndarray, enough: int) -> int:
    """A bound on the rank of the chosen ``columns`` of J from the rows in which they are zero.

    It is the number of rows that are not zero; for a loss with fewer rows than outputs, at most as
    many for each sample. Trials are made only if the number is below ``enough``.
    """
    nonzero = _rows(net, columns) != 0
    bound = int(np.minimum(nonzero.reshape(net.samples, -1).sum(axis=1), net.rows).sum())
    all_parameters = np.ones(net.parameters, bool)

    def zero_rows(leaves: Sequence[jax.Array]) -> np.ndarray:
        return _rows(net, columns, leaves)[~nonzero]

    return bound if bound < enough and _stay_zero(net, all_parameters, zero_rows) else enough


def _column_sizes(
    batches: Batches, leaves: Sequence[jax.Array] | None = None
) -> Iterator[np.ndarray]:
    """Yield |J_b^T u| (p,) for each batch b of samples, summed over two random u.

    u is zero where an output has the weight zero. Products with two vectors are those that the
    search for directions makes as well.
    """
    rng = np.random.default_rng(0)
    for net in batches():
        plain = replace(net, target=None, leaves=tuple(leaves or net.leaves))
        u = rng.standard_normal((net.samples * net.k, 2)) * _weighted_outputs(net).reshape(-1, 1)
        for part in backward_parts(plain, on_device(u.astype(net.dtype))):
            yield np.abs(np.asarray(part, np.float64)).sum(axis=1)  # so that nothing cancels


def _rows(
    net: Network, columns: np.ndarray, leaves: Sequence[jax.Array] | None = None
) -> np.ndarray:
    """J v (n k,) for a random v that is zero beyond the chosen ``columns``."""
    plain = replace(net, target=None, leaves=tuple(leaves or net.leaves))
    v = np.zeros(net.parameters, net.dtype)
    v[columns] = np.random.default_rng(0).standard_normal(len(v[columns]))
    images = np.asarray(forward_products(plain, on_device(v)), np.float64)
    return images * _weighted_outputs(net).reshape(-1)


def _weighted_outputs(net: Network) -> np.ndarray:
    """Zero for the outputs (n, k) whose terms of the loss have the weight zero, else one."""
    weights = None if net.target is None else net.target.weights
    if net.target is None or weights is None:
        return np.ones((net.samples, net.k))
    terms = (np.asarray(weights) != 0).reshape(net.samples, -1)
    if callable(net.target.loss) or net.k % terms.shape[1]:
        terms = terms.any(axis=1, keepdims=True)
    return np.repeat(terms, net.k // terms.shape[1], axis=1).astype(float)


def _stay_zero(
    net: Network, changed: np.ndarray, images: Callable[[Sequence[jax.Array]], np.ndarray]
) -> bool:
    """Whether images that are zero stay zero in all trials, which scale the entries ``changed``.

    The first trial brings every layer to the size of 1, and must be finite. In the others, powers
    of ten away, what overflows says nothing, and what is finite must be zero.
    """
    if _may_underflow(net):
        return False
    places = on_device(changed.astype(net.dtype))
    for trial, factors in enumerate(_trials(net, changed)):
        image = images(_scaled(net, places, factors))
        finite = np.isfinite(image)
        if image[finite].any() or (trial == 0 and not finite.all()):
            return False
    return True


def _trials(net: Network, changed: np.ndarray) -> Iterator[list[float]]:
    """Yield the factors of all leaves for each trial; the first brings all layers to size 1."""
    leaves, layers = layers_of(net)
    places = scatter(net, on_device(changed.astype(net.dtype)))
    parts = [leaf[np.asarray(place) != 0] for leaf, place in zip(leaves, places, strict=True)]
    sizes = [float(np.abs(part).max(initial=0.0)) for part in parts]
    owners = np.zeros(len(leaves), int)
    scales = np.ones(len(leaves))
    idle = [members for members in layers.values() if any(sizes[i] for i in members)]
    for number, members in enumerate(idle):
        owners[members] = number
        scales[members] = 1 / max(sizes[i] for i in members)
    ups = [np.zeros(len(leaves)), *(np.full(len(leaves), d) for d in (-_DECADES, _DECADES, -_FAR))]
    for bit in range(max(0, len(idle) - 1).bit_length()):
        apart = _DECADES * (2.0 * (owners >> bit & 1) - 1)
        ups += [apart, -apart]
    with np.errstate(over="ignore"):
        for decades in ups:
            yield (scales * 10.0**decades).tolist()


def _may_underflow(net: Network) -> bool:
    """Whether the layers are so small that a product of all of them may underflow to zero."""
    decades = 0.0  # how far a product of the largest entries is below one
    for leaf in net.leaves:
        size = float(jnp.abs(leaf).max()) if leaf.ndim > 1 and leaf.size else 0.0
        decades += max(0.0, -math.log10(size)) if size else 0.0
    return decades > _BELOW["float64" if net.dtype == jnp.float64 else "float32"]


@bounded_jit
def _scaled(net: Network, changed: jax.Array, factors: Sequence[float]) -> list[jax.Array]:
    """The leaves, whose entries are multiplied by a factor where ``changed`` is not zero."""
    return [
        jnp.where(place != 0, factor * leaf, leaf)
        for place, leaf, factor in zip(scatter(net, changed), net.leaves, factors, strict=True)
    ]
