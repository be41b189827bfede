"""Directions in which no output of a network moves: the null space of J that its structure causes.

The rank of J is at most p minus the number of independent directions v with J v = 0. These causes
are looked for:

- Parameters that no output depends on here: their columns of J are zero
  (see :mod:`gnjax.networks.null_space.zeros`).
- Shifts. A normalisation behind a layer subtracts what is added to all of its outputs (or, over a
  batch, to any one of them), and the softmax of the cross-entropy what is added to all logits:
  v = c (x) 1 in a kernel, and v in a bias.
- Scales. relu(a z) = a relu(z) for a > 0: what the parameters into a unit gain, those out of it
  can lose. Between two layers with nothing in between, any invertible matrix A takes the place of
  a, and W_2 A^{-1} A W_1 = W_2 W_1.
- BatchNorm behind a layer: what a unit's weights and bias do, its scale and shift can undo.

A candidate is a family of transformations T_t of the parameters, T_0 the identity, whose derivative
at t = 0 is v. It counts where F(T_t(theta)) = F(theta) holds up to rounding for several random t,
many orders of magnitude apart, at all samples, and where J v is zero up to rounding as well. For
BatchNorm, v is a combination of four directions; it counts where J has one at random other
parameters too. All this is evidence of the kind "measured".

The numerical rank of J at other parameters, however many, is no evidence. For inputs 1e8 + N(0, 1)
a network of full rank has singular values near 1, 1e-8, 1e-16, .. of the largest wherever its
parameters are, and rounding hides all but the first two groups every time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jaxprs import pushforward
from gnjax.networks.network import Network, backward_products, restricted, sample_batches, scatter
from gnjax.networks.null_space.families import (
    MOST_DIRECTIONS,
    Family,
    as_vector,
    families,
    tolerance,
    unit,
)
from gnjax.networks.null_space.normalised import normalised_units
from gnjax.networks.null_space.zeros import columns_stay_zero, nonzero_columns
from gnjax.networks.outputs.hessians import has_root
from gnjax.networks.parameters import indices_of
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_device

_DECADES = 8.0, 100.0, 100.0, 30.0  # decades of the factors in each trial; an eighth in float32
_INDEPENDENT = 1e-6  # singular values of the directions below this times the largest are 0
_APART = 100.0  # a direction with u^T J v above this times the tolerance is no candidate
_MOST_PARAMETERS = 10_000


@dataclass(frozen=True)
class _Part:
    """Some of the chosen parameters of a network, and its outputs and products with J.

    Products are those of the whole network, so that all parts use the same compiled programs.
    """

    whole: Network
    plain: list[jax.Array]  # the outputs, for each batch
    products: np.ndarray  # J^T u (p, 2) for random u
    places: Sequence[int]  # indices of the part's leaves among the chosen ones

    @cached_property
    def net(self) -> Network:
        """The network with only the parameters of the part."""
        return restricted(self.whole, self.places)

    @cached_property
    def indices(self) -> np.ndarray:
        """The indices of the part's entries in the vector of all parameters."""
        return indices_of(self.whole.counts, self.places)

    @cached_property
    def lengths(self) -> list[float]:
        """The largest entry of J w for each batch, where the entries of w are random signs."""
        w = np.random.default_rng(2).choice([-1.0, 1.0], size=len(self.indices))
        return self.images(w)

    def images(self, v: np.ndarray) -> list[float]:
        """The largest entry of J v for each batch."""
        direction = self.embedded(v)
        return [float(_tangent(self.whole, x, direction)) for (x,) in sample_batches(self.whole)]

    def embedded(self, v: np.ndarray) -> jax.Array:
        """Extend a vector of the part's parameters by zeros to a vector (p,) of all parameters."""
        vector = np.zeros(self.whole.parameters, self.whole.dtype)
        vector[self.indices] = v
        return on_device(vector)


def null_dimensions(
    net: Network, groups: Sequence[Sequence[int]], most: float = math.inf
) -> list[int]:
    """For every group of chosen leaves, how many independent directions v have J v = 0.

    The directions move no other leaves, and are those that structure causes. The number is zero if
    none was found, and also if none was looked for: in groups of which more than ``most`` columns
    are not zero, and for samples that are spread over several processes. In groups of more than
    10,000 parameters, and for losses without a root R, only columns that are zero are counted.
    """
    if not in_one_process(net):
        return [0] * len(groups)
    parts = [indices_of(net.counts, group) for group in groups]
    columns = _columns(net, parts, most)
    zeros = [int(columns.zero[indices].sum()) for indices in parts]
    nonzero = ~columns.zero
    searched = [
        len(indices) <= _MOST_PARAMETERS
        and nonzero[indices].sum() <= most
        and nonzero[indices].any()
        for indices in parts
    ]
    if not any(searched) or not has_root(net.target):
        return zeros
    plain = [_outputs_up_to_the_loss(net, tuple(net.leaves), x) for (x,) in sample_batches(net)]
    u = np.random.default_rng(0).standard_normal((net.samples * net.rows, 2))
    products = np.asarray(backward_products(net, on_device(u.astype(net.dtype))))
    return [
        count + _dimension(_Part(net, plain, products, group), columns) if search else count
        for group, count, search in zip(groups, zeros, searched, strict=True)
    ]


def zero_counts(net: Network, parts: Sequence[np.ndarray], most: float) -> list[int]:
    """How many columns of J are zero in each part; see :func:`null_dimensions`."""
    if not in_one_process(net):
        return [0] * len(parts)
    zero = _columns(net, parts, most).zero
    return [int(zero[indices].sum()) for indices in parts]


def in_one_process(net: Network) -> bool:
    """Whether this process has all parameters and samples, so that trials see all of them."""
    arrays = jax.tree.leaves((net.leaves, net.x))
    return all(array.is_fully_addressable for array in arrays)


@dataclass(frozen=True)
class _Columns:
    """Which columns of J are zero, and which rounding alone makes zero: nobody knows these."""

    zero: np.ndarray
    doubtful: np.ndarray


def _columns(net: Network, parts: Sequence[np.ndarray], most: float) -> _Columns:
    """The columns that are zero; trials are made where a part has at most ``most`` others."""
    zero, none = ~nonzero_columns(lambda: (net,), parts, most), np.zeros(net.parameters, bool)
    if not any(zero[indices].any() and (~zero[indices]).sum() <= most for indices in parts):
        return _Columns(none, none)
    exact = columns_stay_zero(lambda: (net,), zero)
    return _Columns(zero, none) if exact else _Columns(none, zero)


def _dimension(part: _Part, columns: _Columns) -> int:
    """The directions that move parameters whose columns are not zero.

    A direction that moves a parameter whose column is doubtful may seem to leave all outputs
    unchanged because rounding hides it.
    """
    nonzero, doubtful = ~columns.zero[part.indices], columns.doubtful[part.indices]
    rows: list[np.ndarray] = []
    for family in families(part.net):
        vectors = [as_vector(part.net, direction) for direction in family.directions]
        possible = [v for v in vectors if v is not None and v[nonzero].any()]
        fits = len(rows) + len(possible) <= MOST_DIRECTIONS
        beyond_doubt = not any(v[doubtful].any() for v in possible)
        if possible and fits and beyond_doubt and _invariant(part, family, possible):
            rows += [unit(v[nonzero]) for v in possible]
    normalised = normalised_units(part.net)
    certain = [v for v in normalised if v[nonzero].any() and not v[doubtful].any()]
    rows += [v[nonzero] for v in certain[:MOST_DIRECTIONS]]
    return _rank(rows)


def _rank(rows: list[np.ndarray]) -> int:
    if not rows:
        return 0
    values = np.linalg.svd(np.stack(rows), compute_uv=False)
    return int((values > _INDEPENDENT * values[0]).sum())


def _decades(net: Network) -> list[float]:
    """By how many powers of ten the parameters are changed in each trial.

    A unit that seems linear at its own parameters may be non-linear 8 decades away, and shows it at
    100.
    """
    return [d if net.dtype == jnp.float64 else d / 8 for d in _DECADES]


def _invariant(part: _Part, family: Family, directions: list[np.ndarray]) -> bool:
    """Whether random transformations of the family leave all outputs unchanged up to rounding."""
    if not _orthogonal(part, directions):
        return False
    rng, net = np.random.default_rng(1), part.whole
    for decades in _decades(net):
        transformed = family.transform(rng, decades)
        leaves = list(net.leaves)
        for i, leaf in transformed.items():
            leaves[i] = jnp.asarray(leaf, net.dtype)
        if not _equal_outputs(part, leaves):
            return False
    v = rng.standard_normal(len(directions)) @ np.stack(directions)
    return _no_tangent(part, v)


def _equal_outputs(part: _Part, leaves: list[jax.Array]) -> bool:
    net = part.whole
    for (x,), before in zip(sample_batches(net), part.plain, strict=True):
        after = _outputs_up_to_the_loss(net, tuple(leaves), x)
        gap, scale = map(float, _gap(before, after))
        if not gap <= tolerance(net) * scale:  # also where something is not finite
            return False
    return True


def _orthogonal(part: _Part, directions: list[np.ndarray]) -> bool:
    """Whether u^T J v may be zero up to rounding, for all directions v.

    J^T u is known, so that this costs no evaluation of the network.
    """
    products = part.products[part.indices]
    level = _APART * tolerance(part.whole) * np.linalg.norm(products, axis=0)
    return all((np.abs(v @ products) <= level * np.linalg.norm(v)).all() for v in directions)


def _no_tangent(part: _Part, v: np.ndarray) -> bool:
    """Whether J v is zero up to rounding, compared with J w for random w of the same size."""
    level = tolerance(part.whole) * float(np.abs(v).max())
    pairs = zip(part.images(v), part.lengths, strict=True)
    return all(image <= level * length for image, length in pairs)


@jax.jit
def _gap(before: jax.Array, after: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest difference, and the largest entry before."""
    return jnp.abs(before - after).max(), jnp.abs(before).max()


@bounded_jit
def _outputs_up_to_the_loss(net: Network, leaves: Sequence[jax.Array], x: Any) -> jax.Array:
    return _as_the_loss_sees(net, net.outputs(list(leaves), x))


def _as_the_loss_sees(net: Network, outputs: jax.Array) -> jax.Array:
    """The outputs; for the cross-entropy logits minus their mean, as it ignores their mean."""
    if net.target is None or net.target.loss != "cross_entropy":
        return outputs
    logits = outputs.reshape(len(outputs), *net.shapes.shape)
    return logits - logits.mean(axis=-1, keepdims=True)


@bounded_jit
def _tangent(net: Network, x: Any, v: jax.Array) -> jax.Array:
    """The largest entry of J v, as the loss sees it."""
    f = partial(net.outputs, x=x)
    _, image = pushforward(f, list(net.leaves), scatter(net, v), forward=net.forward)
    return jnp.abs(_as_the_loss_sees(net, image)).max()
