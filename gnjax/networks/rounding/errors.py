"""Measured bounds on the rounding of a network's Jacobian, or of any symmetric product.

The Jacobian J = R^T dF/dtheta is computed with rounding, so that a spectrum belongs to another
matrix J + E. The size ||E||_F is measured in three ways, and the largest counts:

- Monte Carlo arithmetic (:mod:`gnjax.networks.rounding.monte_carlo`) on forward products J v and on
  backward products J^T u. It sees what both share: saturated units, a softmax that is nearly
  one-hot, sums that cancel, layers in low precision. R is a function of the outputs, and moves with
  them.
- The gap u^T (J v) - (J^T u)^T v between forward and backward products as they are.
- The gap between J v and the rows of J as ``gnjax.networks.jacobians`` forms them, sample by
  sample, for small networks. Whether kernels and larger Jacobians agree with products is seen where
  they are formed (:mod:`gnjax.networks.rounding.formed`).

For a vector v of random direction and squared length p, the mean of |E v|^2 is ||E||_F^2.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.networks.equations.rewritten import is_widened
from gnjax.networks.forms.samples import sample_count
from gnjax.networks.jacobians import SMALL, jacobian
from gnjax.networks.jaxprs import most_bytes, narrowest
from gnjax.networks.network import Network, backward, forward
from gnjax.networks.rounding.few_samples import plain_backward, total_rounding
from gnjax.networks.rounding.formed import SAFETY, Forms, direction, forms_of_images
from gnjax.networks.rounding.monte_carlo import products_and_changes
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.host import dot, length, on_device, on_host
from gnjax.numerics.memory.free import free_memory

_MOST, _FEWEST = 16, 3  # the largest and the smallest number of draws
_WORK = 3e6  # if all draws together write more numbers than this, fewer are made
_FEW_OUTPUTS = 256.0
_LARGE = 1e8  # for vectors of more bytes the free memory is checked
_COPIES = 2  # of the arrays of an evaluation: as they are and with random roundings
_SEED = 0
_SAFETY_OF_FEW = 16.0  # three draws of one direction are smaller than so with probability 3e-4
_SHARED = 4.0  # an error up to this times that of backward products is shared among parts
_NETWORK = "rounding of the network, by Monte Carlo arithmetic"
_WIDENED = f"{_NETWORK}, where float32 inside of the network is computed in float64"

_Scaling = Callable[[jax.Array], jax.Array]
"""v -> S v for vectors (p,) and a symmetric S."""


class MeasuredProduct(NamedTuple):
    """A measured bound on the error of a matrix, and an estimate of its own Frobenius norm.

    ``images`` (n, j) are the products with :func:`product_probes` by which it was measured.
    """

    error: Error
    size: float
    images: np.ndarray | None = None

    def error_beside(self, others: Iterable[np.ndarray]) -> Error:
        """The error that also holds for other programs, from their products with the probes.

        Where rounding does not explain how far one of them is away, the distance is the error. See
        :mod:`gnjax.networks.rounding.formed`.
        """
        if self.images is None:
            return self.error
        apart = ((other - self.images).T for other in others)
        largest = max((_root_mean_square([length(v) for v in rows]) for rows in apart), default=0.0)
        if not math.isfinite(largest):
            return unknown(f"{self.error.reason}: a product of a compiled program is not finite")
        if SAFETY * largest <= self.error.value:
            return self.error
        reason = f"{self.error.reason}, and more between programs that compute the same product"
        return replace(self.error, value=_SAFETY_OF_FEW * largest, reason=reason)


def reason_of(net: Network) -> str:
    """What a measured error of the network is, and of which network where it was widened."""
    return _WIDENED if is_widened(net.apply) else _NETWORK


def jacobian_error(net: Network, **options: Any) -> Error:
    """A measured bound on ||computed J - exact J||_F, see :func:`measured`."""
    return measured(net, **options).whole


@dataclass(frozen=True)
class JacobianErrors:
    """Measured bounds on the error of J and of some columns, and what products say of J J^T.

    Attributes:
      whole: a bound on ||computed J - exact J||_F.
      parts: the same for the columns of each part.
      forms: those of J for the vectors of :func:`gnjax.networks.rounding.formed.probe_vectors`.
      forms_of_parts: those of the columns of each part.
      size: an estimate of ||J||_F.
    """

    whole: Error
    parts: tuple[Error, ...]
    forms: Forms
    forms_of_parts: tuple[Forms, ...]
    size: float


def measured(
    net: Network,
    parts: Sequence[np.ndarray] = (),
    *,
    seed: int = 0,
    scaling: _Scaling | None = None,
) -> JacobianErrors:
    """Measured bounds on the error of J = R^T dF/dtheta (n r, p), and of some of its columns.

    The exact J is that of the stored parameters and inputs in exact arithmetic. If a model has only
    a reverse mode, forward products are computed from it too, and only Monte Carlo arithmetic shows
    the rounding of the model's own rule. ``seed`` chooses the random signs and vectors. With a
    ``scaling`` S, a symmetric matrix that multiplies vectors (p,), all of it is about J S.

    Backward products show how much of the error is in each part. If the other measurements find a
    larger error, it is divided among the parts in the same proportion. If that error is more than
    four times as large, backward products do not show where it comes from, and every part gets the
    error of the whole J.
    """
    together = min(net.batch, net.samples)
    work = net.written * together
    rows = net.samples * net.rows
    count = draws(work, rows)
    rng = np.random.default_rng(seed)
    backward_sums = _BackwardSums(np.zeros(net.parameters if parts else 0))
    total = total_rounding(
        net,
        lambda batch, first: _batch_size(net, batch, rng, count, scaling, first, backward_sums),
        lambda batch, first: _add_images(net, batch, scaling, first, backward_sums),
        rng,
    )
    backward_error, part_errors = length(backward_sums.columns), []
    reason = reason_of(net)
    for part in parts:
        divided = 0 < total <= _SHARED * backward_error < math.inf
        share = length(backward_sums.columns[part]) / backward_error if divided else 1.0
        part_errors.append(_bound(share * total, rows * len(part), net.narrowest, reason))
    images = np.stack(list(backward_sums.images.values()))
    return JacobianErrors(
        _bound(total, rows * net.parameters, net.narrowest, reason),
        tuple(part_errors),
        forms_of_images(images),
        tuple(forms_of_images(images[:, part]) for part in parts),
        _root_mean_square([length(image) for image in images]),
    )


@dataclass
class _BackwardSums:
    """What backward products show, added up over the batches.

    Attributes:
      columns: the length of every column of E; empty where no columns are measured.
      images: J^T u for the vectors of :func:`probe_vectors`, by their numbers.
    """

    columns: np.ndarray
    images: defaultdict[int, Any] = field(default_factory=lambda: defaultdict(float))


def product_probes(size: int, dtype: jnp.dtype) -> jax.Array:
    """The first vectors (n, j) that :func:`measured_product` multiplies: one, if it is large."""
    rng = np.random.default_rng(_SEED)
    first = direction(rng, (size,), dtype)
    more = (direction(rng, (size,), dtype) for _ in range(_compared(first) - 1))
    return on_device(np.stack([first, *more], axis=1))


def _compared(v: np.ndarray) -> int:
    """How many products with vectors like v are compared with those of other programs."""
    return _FEWEST if v.nbytes < _LARGE else 1


def measured_product(
    product: Callable[..., jax.Array],
    size: int,
    dtype: jnp.dtype,
    *,
    batches: Iterable[Sequence[Any]] = ((),),
    work: float = 0.0,
    scaling: _Scaling | None = None,
    reason: str = "rounding of the product, by Monte Carlo arithmetic",
) -> MeasuredProduct:
    """A measured bound on ||computed A - A||_F for a symmetric A (size, size) in exact arithmetic.

    A v is the sum of ``product(v, *batch)`` over the batches. Where one mode computes what the
    other does not, the computed A is not symmetric: the gap <x, A y> - <A x, y> counts as well.
    Where the evaluations would not fit into the memory that is left, the error is unknown.

    Args:
      product: a JAX function; one that is a pytree (``jax.tree_util.Partial``) is compiled once.
      size: of A.
      dtype: of the vectors.
      batches: the other arguments of the product, one sequence for each batch.
      work: about how many numbers a product of a batch writes; many make fewer draws.
      scaling: v -> S v with a symmetric S; the bound then is that of S A S, but for the rounding of
        S v itself.
      reason: what the error comes from, in words.
    """
    function = product if isinstance(product, Partial) else Partial(product)
    rng, count, parts = np.random.default_rng(_SEED), draws(work, size), list(batches)
    vectors = [direction(rng, (size,), dtype)]
    equations = jax.make_jaxpr(function)(vectors[0], *parts[0]).jaxpr
    lacking = _lacks_memory(count, equations, vectors[0])
    if lacking:
        return MeasuredProduct(unknown(f"{reason}: {lacking}"), math.nan)
    vectors += [direction(rng, (size,), dtype) for _ in range(count - 1)]
    scaled = [_scaled(scaling, v) for v in vectors]
    images, change_sizes = [], []
    for both in products_and_changes(function, rng, scaled, parts, work=(work + size) * count):
        image, change = (on_host(_scaled(scaling, one)) for one in both)
        images.append(image)
        change_sizes.append(length(change))
    products = np.array([[dot(on_host(v), image) for image in images] for v in vectors])
    differences = (products - products.T)[~np.eye(count, dtype=bool)]
    largest = max(_root_mean_square(change_sizes), _root_mean_square(differences))
    image_size = _root_mean_square([length(image) for image in images])
    error = _bound(largest, size**2, narrowest(equations), reason)
    compared = np.stack(images[: _compared(vectors[0])], axis=1)
    return MeasuredProduct(error, image_size, compared)


def product_error(product: Callable[..., jax.Array], *args: Any, **options: Any) -> Error:
    """The bound of :func:`measured_product`."""
    return measured_product(product, *args, **options).error


def _lacks_memory(count: int, equations: Any, v: np.ndarray) -> str:
    """Why vectors as large as v cannot be compared in the memory that is left, or ""."""
    if v.nbytes < _LARGE or jax.default_backend() != "cpu":
        return ""  # an accelerator refuses by itself what it has no memory for
    room, _ = free_memory()
    size_in_bytes = _COPIES * most_bytes(equations) + 2 * count * v.nbytes
    if room is None or size_in_bytes <= room:
        return ""
    return f"measuring it takes {size_in_bytes / 1e9:.3g} GB, and {room / 1e9:.3g} GB are left"


def draws(work: float, rows: int) -> int:
    """How many independent evaluations estimate a squared norm.

    An error that sits in a single direction and has a single cause makes every squared estimate a
    product of two squared Gaussians. The larger of the means over 16 draws of both modes then is
    below 1/16 of the expectation, an underestimate by more than 4, with probability below 1e-6
    (the tests compute it). Networks with many outputs have many directions: three draws are enough.
    """
    by_work = _WORK / max(work, 1.0)
    by_rows = _FEW_OUTPUTS / rows
    return int(min(max(by_work, by_rows, _FEWEST), _MOST))


def _bound(size: float, entries: int, smallest: jnp.dtype, reason: str) -> Error:
    """The estimate of ||E||_F times the safety factor, and no less than underflow can hide."""
    if not math.isfinite(size):
        return unknown(f"{reason}: an evaluation with perturbed roundings is not finite")
    hidden = math.sqrt(entries) * float(jnp.finfo(smallest).tiny)
    return Error(SAFETY * (size + hidden), MEASURED, reason=reason)


def _batch_size(
    net: Network,
    batch: Sequence[Any],
    rng: np.random.Generator,
    count: int,
    scaling: _Scaling | None,
    first: np.ndarray,
    backward_sums: _BackwardSums,
) -> float:
    """The estimate of ||E_b||_F for the rows of J of one batch.

    What backward products show is added to ``backward_sums``; ``first`` are the first vectors u of
    the batch. A vector of parameters may be large, so that of all draws together only the vectors
    v, their images J v, and the images of the first u stay in memory.
    """
    shape = (sample_count(batch[0]), net.rows)
    vectors = [direction(rng, (net.parameters,), net.dtype) for _ in range(count)]
    is_small = net.samples * net.rows * net.parameters <= SMALL
    scaled = [_scaled(scaling, v) for v in vectors]
    work = (net.written * shape[0] + net.parameters) * count
    images, pushed, pulled, differences = [], [], [], []
    for image, change in products_and_changes(
        Partial(_forward, net), rng, scaled, [batch], work=work
    ):
        images.append(image)
        pushed.append(length(change))
    others = [direction(rng, shape, net.dtype) for _ in range(count)]
    others[: len(first)] = first
    pulls = products_and_changes(Partial(_backward, net), rng, others, [batch], work=work)
    for place, (u, both) in enumerate(zip(others, pulls, strict=True)):
        pull, change = (on_host(_scaled(scaling, one)) for one in both)
        if place < len(first):
            backward_sums.images[place] = backward_sums.images[place] + pull
        pulled.append(length(change))
        pairs = zip(vectors, images, strict=True)
        differences += [dot(on_host(u), image) - dot(pull, on_host(v)) for v, image in pairs]
        if backward_sums.columns.size:
            root_mean = change.astype(np.float64) / math.sqrt(count)
            np.hypot(
                backward_sums.columns, root_mean, out=backward_sums.columns
            )  # without underflow
    apart = _from_rows(net, batch, scaled, images) if is_small else []
    return max(map(_root_mean_square, (pushed, pulled, differences, apart)))


def _add_images(
    net: Network,
    batch: Sequence[Any],
    scaling: _Scaling | None,
    first: np.ndarray,
    backward_sums: _BackwardSums,
) -> None:
    """Add J_b^T u to ``backward_sums`` for the first vectors u of a batch that is not measured."""
    for place, pull in enumerate(plain_backward(net, *batch, on_device(first))):
        image = on_host(_scaled(scaling, pull))
        backward_sums.images[place] = backward_sums.images[place] + image


def _forward(net: Network, v: jax.Array, x: Any, target: Any) -> jax.Array:
    return forward(net, x, target, v)


def _backward(net: Network, u: jax.Array, x: Any, target: Any) -> jax.Array:
    return backward(net, x, target, u)


def _scaled(scaling: _Scaling | None, v: Any) -> Any:
    return v if scaling is None else scaling(jnp.asarray(v))


def _from_rows(
    net: Network, batch: Sequence[Any], vectors: Sequence[Any], images: Sequence[np.ndarray]
) -> list[float]:
    """|J_b v - image| for the rows of J_b as the kernels form them, and each v with its image."""
    x, target = batch
    part = net if x is net.x else replace(net, x=x, target=target)
    rows = jacobian(part).astype(np.float64)
    products = [rows @ on_host(v).astype(np.float64) for v in vectors]
    pairs = zip(products, images, strict=True)
    return [length(product - image.astype(np.float64).ravel()) for product, image in pairs]


def _root_mean_square(values: Sequence[float] | np.ndarray) -> float:
    """The root of the mean of the squares, without underflow; nan where one is."""
    if not np.isfinite(values).all():
        return math.nan
    return math.hypot(*values) / math.sqrt(max(len(values), 1))
