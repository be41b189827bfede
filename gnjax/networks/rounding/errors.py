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

What loops of many steps may lose in one direction counts as well, by the number of their steps.

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

from gnjax.networks.alike import found_for_alike
from gnjax.networks.arguments.samples import sample_count, take
from gnjax.networks.equations.rewritten import is_widened
from gnjax.networks.jacobians import SMALL, jacobian
from gnjax.networks.jaxprs import most_bytes, narrowest
from gnjax.networks.network import Network, backward, forward
from gnjax.networks.rounding.chosen_samples import samples_looked_at
from gnjax.networks.rounding.few_samples import (
    in_small_batches,
    plain_backward,
    total_rounding,
)
from gnjax.networks.rounding.formed import (
    SAFETY,
    Forms,
    direction,
    forms_of_images,
    probe_rows,
    root_mean_square,
)
from gnjax.networks.rounding.looks import SecondLook, first_look, some_samples
from gnjax.networks.rounding.monte_carlo import products_and_changes
from gnjax.networks.rounding.random_signs import Loops
from gnjax.numerics.certificate import MEASURED, Error, unknown
from gnjax.numerics.evidence import THOROUGH, evidence
from gnjax.numerics.host import dot, length, on_device, on_host
from gnjax.numerics.memory.free import free_memory
from gnjax.numerics.rounding import unit_roundoff

_MOST, _FEWEST = 16, 3  # the largest and the smallest number of draws
_WORK = 3e6  # if all draws together write more numbers than this, fewer are made
_FEW_OUTPUTS = 256.0  # so many draws times rows of the matrix are enough, if they take much work
_LARGE = 1e8  # for vectors of more bytes the free memory is checked
_COPIES = 2  # of the arrays of an evaluation: as they are and with random roundings
_SEED = 0
_SAFETY_OF_FEW = 16.0  # three draws of one direction are smaller than so with probability 3e-4
_UNLIKE_OTHERS = 2.0  # by so much more samples that are not looked at may err
_SHARED = 4.0  # an error up to this times that of backward products is shared among parts
_FEW_SAMPLES = 32  # whose sums err by less than is measured
_NETWORK = "rounding of the network, by Monte Carlo arithmetic"
_COARSE = (
    "most of it of parts that compute in 16 bits; with the same weights computed in float32 the "
    "error is far smaller"
)
_SUMS = "rounding of sums over many samples"
_LOOPS = "rounding of loops of many steps"
_WIDENED = f"{_NETWORK}, where float32 inside of the network is computed in float64"

_Scaling = Callable[[jax.Array], jax.Array]
"""v -> S v for vectors (p,) and a symmetric S."""


def with_sums(error: Error, net: Network, norm: float) -> Error:
    """The error of a matrix of this norm, which covers sums over a batch of many samples as well.

    A CPU adds m equal terms one after the other, with an error of at most m u / 3 of their sum,
    where u is the relative error of one rounding: the half of the terms that are added last lose
    u / 2 of the sum each, the quarter before them half of that, and so on. Random vectors do not
    show this error, as they make terms of either sign, whose roundings average out.
    """
    of_sums = net.batch * unit_roundoff(net.dtype) / 3 * norm
    if net.batch <= _FEW_SAMPLES or not error.value < of_sums:
        return error
    return error + Error(of_sums - error.value, MEASURED, reason=_SUMS)


class MeasuredProduct(NamedTuple):
    """A measured bound on the error of a matrix, and an estimate of its own Frobenius norm.

    ``images`` (n, j) are the products with :func:`product_probes` by which it was measured.
    """

    error: Error
    size: float
    images: np.ndarray | None = None

    def scaled(self, factor: float) -> MeasuredProduct:
        """The same for ``factor`` times the matrix."""
        images = None if self.images is None else factor * self.images
        return MeasuredProduct(self.error.scaled(factor), factor * self.size, images)

    def error_beside(self, others: Iterable[np.ndarray]) -> Error:
        """A bound on the error that also holds for other programs that multiply by this matrix.

        ``others`` are the products (n, j) of such programs with the same j random vectors as
        ``images``. Where their distances are larger than the measured error explains, they become
        the error, times a larger factor of safety, because few vectors estimate it.
        """
        if self.images is None:
            return self.error
        # (j, n) for each program, by as many vectors as it has multiplied
        differences = ((other - self.images[:, : other.shape[1]]).T for other in others)
        largest = max(
            (root_mean_square([length(v) for v in vectors]) for vectors in differences),
            default=0.0,
        )
        if not math.isfinite(largest):
            return unknown(f"{self.error.reason}: a product of a compiled program is not finite")
        if SAFETY * largest <= self.error.value:
            return self.error
        reason = f"{self.error.reason}, and more between programs that compute the same product"
        return replace(self.error, value=_SAFETY_OF_FEW * largest, reason=reason)


def reason_of(net: Network) -> str:
    """What an error comes from, in words; they tell a network whose float32 became float64.

    Of one that computes in bfloat16 or float16 they say what makes the error smaller.
    """
    reason = _WIDENED if is_widened(net.apply) else _NETWORK
    coarse = net.coarsest > float(jnp.finfo(jnp.float32).eps)
    return f"{reason}, {_COARSE}" if coarse else reason


def jacobian_error(net: Network, **options: Any) -> Error:
    """A measured bound on ||computed J - exact J||_F, see :func:`measure_jacobian`."""
    return measure_jacobian(net, **options).whole


@dataclass(frozen=True)
class JacobianErrors:
    """Measured bounds on the error of J and of groups of its columns, and probes of J J^T."""

    whole: Error  # a bound on ||computed J - exact J||_F
    parts: tuple[Error, ...]  # the same for the columns of each group
    forms: Forms  # u^T J J^T w for pairs of the random vectors of ``probe_rows``
    forms_of_parts: tuple[Forms, ...]  # the same with the columns of each group in place of J
    size: float  # an estimate of ||J||_F


def measure_jacobian(
    net: Network,
    parts: Sequence[np.ndarray] = (),
    *,
    seed: int = 0,
    scaling: _Scaling | None = None,
) -> JacobianErrors:
    """Measured bounds on the error E of the computed J = R^T dF/dtheta (n r, p), and of columns.

    Of all measurements only products J^T u show how much of the error is in each column. Where the
    largest measurement of ||E||_F is up to four times theirs it is divided among groups of columns
    in their proportions. Elsewhere every group gets the error of the whole J.

    Args:
      net: the network.
      parts: for each group of columns of J their indices, which are those of parameters.
      seed: chooses the random signs and vectors.
      scaling: v -> S v with a symmetric matrix S (p, p); all bounds are then about J S.
    """
    chosen, rows = samples_looked_at(net), net.samples * net.rows
    # the Frobenius norm of J over that of its rows for which there are probes
    raised = 1.0 if chosen is None else math.sqrt(net.samples / len(chosen))
    probes_of_all = probe_rows(net).reshape(-1, net.samples, net.rows)
    of_all = True
    if chosen is None or evidence() == THOROUGH:
        net = in_small_batches(net)
    else:
        of_all = False
        x, target = take((net.x, net.target), chosen)
        net = replace(net, x=x, target=target, batch=len(chosen))
        probes_of_all = probes_of_all[:, chosen]
    count = draws(net.written * min(net.batch, net.samples), rows)
    rng = np.random.default_rng(seed)
    sums = _SumsOverBatches(np.zeros(net.parameters if parts else 0))
    # an estimate of ||E||_F
    total, unmeasured = total_rounding(
        net,
        probes_of_all,
        lambda batch, probes: _batch_error(net, batch, rng, count, scaling, probes, sums),
        rng,
    )
    for batch, probes in unmeasured:  # J^T u is a sum over all samples
        if not probes.any():
            continue
        for index, product in enumerate(plain_backward(net, *batch, on_device(probes))):
            sums.images[index] += on_host(_scaled(scaling, product))
    images = np.stack(list(sums.images.values()))
    of_chosen = root_mean_square([length(image) for image in images])
    by_backward = raised * of_chosen  # ||J||_F
    size = max(by_backward, sums.size if of_all else raised * sums.size)
    backward_error, part_errors = length(sums.columns), []  # ||E||_F by products J^T u
    error_of_chosen = total
    if not of_all:
        total *= _UNLIKE_OTHERS * raised
    reason = reason_of(net)
    for part in parts:
        located = 0 < error_of_chosen <= _SHARED * backward_error < math.inf
        share = length(sums.columns[part]) / backward_error if located else 1.0
        # Two products alone may be much shorter than most are; those with parts are alike in that.
        part_size = root_mean_square([length(image[part]) for image in images])
        in_whole = part_size / of_chosen * size if of_chosen else size
        entries = rows * len(part)
        error = _bound(share * total, entries, net.narrowest, reason, sums.loops, in_whole)
        part_errors.append(error)
    return JacobianErrors(
        _bound(total, rows * net.parameters, net.narrowest, reason, sums.loops, size),
        tuple(part_errors),
        forms_of_images(images),
        tuple(forms_of_images(images[:, part]) for part in parts),
        by_backward,
    )


@dataclass
class _SumsOverBatches:
    """What the measurements of all batches add to, beside the error."""

    columns: np.ndarray  # the length of every column of E; empty where no group asks for it
    # J^T u for each vector u of ``probe_rows``, by its number
    images: defaultdict[int, Any] = field(default_factory=lambda: defaultdict(float))
    size: float = 0.0  # an estimate of ||J||_F by forward products with the measured batches
    loops: Loops = field(default_factory=Loops)


def product_probes(size: int, dtype: jnp.dtype, most: int = _FEWEST) -> jax.Array:
    """The first j random vectors (n, j) by which :func:`measured_product` multiplies a matrix.

    Of vectors of 1e8 bytes or more there is one, and else ``most``. ``size`` is n.
    """
    rng = np.random.default_rng(_SEED)
    first = direction(rng, (size,), dtype)
    count = min(most, _compared_count(first))
    others = (direction(rng, (size,), dtype) for _ in range(count - 1))
    return on_device(np.stack([first, *others], axis=1))


def _compared_count(v: np.ndarray) -> int:
    """How many products with vectors as large as v are compared with those of other programs."""
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

    A v is the sum of ``product(v, *batch)`` over the batches. Each product is computed twice, as it
    is and with random roundings, and their distance is measured. If forward and reverse mode
    disagree, the computed A is not symmetric, so that the gap <x, A y> - <A x, y> counts as well.
    Where the evaluations would not fit into the memory that is left, the error is unknown.

    Args:
      product: a JAX function; one that is a pytree (``jax.tree_util.Partial``) is compiled once.
      size: the number of rows of A.
      dtype: that of the vectors v.
      batches: the other arguments of the product, one sequence for each batch.
      work: about how many numbers a product of a batch writes; if many, fewer vectors v are drawn.
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
    images, change_sizes = [], []  # A v, and how far other roundings move it
    loops, work_of_all = Loops(), (work + size) * count
    for pair in products_and_changes(function, rng, scaled, parts, work=work_of_all, loops=loops):
        image, change = (on_host(_scaled(scaling, array)) for array in pair)
        images.append(image)
        change_sizes.append(length(change))
    products = np.array([[dot(on_host(v), image) for image in images] for v in vectors])  # <x, A y>
    asymmetries = (products - products.T)[~np.eye(count, dtype=bool)]
    # the mean of |E v|^2 is ||E||_F^2 for a v of random direction and squared length ``size``
    largest = max(root_mean_square(change_sizes), root_mean_square(asymmetries))
    image_size = root_mean_square([length(image) for image in images])
    error = _bound(largest, size**2, narrowest(equations), reason, loops, image_size)
    compared = np.stack(images[: _compared_count(vectors[0])], axis=1)
    return MeasuredProduct(error, image_size, compared)


def product_by_looks(
    net: Network,
    images: np.ndarray,
    moved_product: Callable[[jax.Array], jax.Array],
    *,
    name: str,
    second_look: Callable[[], SecondLook],
) -> MeasuredProduct:
    """The usual evidence for a symmetric matrix A of a network, see :mod:`.looks`.

    Args:
      net: the network, whose parameters the matrix is about.
      images: the products (p, j) of A with the first of :func:`product_probes`, by the program
        that the answer uses.
      moved_product: multiplies with the matrix of :func:`.looks.moved_network`, by the same one.
      name: which matrix of the network it is; what the second look saw is remembered by it.
      second_look: makes the second look.
    """
    size = root_mean_square([length(image) for image in images.T])
    if not math.isfinite(size):
        return MeasuredProduct(unknown("a product is not finite"), size, images)
    probes = on_host(product_probes(net.parameters, net.dtype, images.shape[1]))
    first = first_look(images, moved_product, probes)
    products = probes.T.astype(np.float64) @ images.astype(np.float64)  # <x, A y>
    asymmetry = root_mean_square((products - products.T)[~np.eye(len(products), dtype=bool)])
    second: SecondLook = found_for_alike(name, net, second_look)
    loops = Loops(lost=second.loops)  # what loops may round in one direction
    # few vectors estimate a norm, so that the factor is _SAFETY_OF_FEW; _bound multiplies by SAFETY
    largest = _SAFETY_OF_FEW / SAFETY * max(first, second.of_all(size), asymmetry)
    reason = f"{reason_of(net)} of some samples and by products at numbers moved by one rounding"
    error = _bound(largest, net.parameters**2, net.narrowest, reason, loops, size)
    return MeasuredProduct(error, size, images)


def product_error(product: Callable[..., jax.Array], *args: Any, **options: Any) -> Error:
    """The bound of :func:`measured_product`."""
    return measured_product(product, *args, **options).error


def look_at_both(net: Network, products: Sequence[Partial], evaluations: int) -> SecondLook:
    """The second look at several ways to multiply with the same matrix of a network.

    Their rounding counts, and if it does not explain how far their products are apart, that
    distance counts. Every ``product(v, x, target)`` is that with the part of samples x.
    """
    batch, share = some_samples(net, evaluations, np.random.default_rng(_SEED))
    work = evaluations * net.written * sample_count(batch[0])
    measured_products = [
        measured_product(product, net.parameters, net.dtype, batches=[batch], work=work)
        for product in products
    ]
    error = error_of_all(measured_products)
    size = max(product.size for product in measured_products)
    return SecondLook(size, error.value / SAFETY, share, 0.0)


def error_of_all(products: Sequence[MeasuredProduct]) -> Error:
    """The largest error of several ways to multiply with one matrix, or how far they are apart.

    Products that had no room in memory have no ``images``.
    """
    *others, worst = sorted(products, key=lambda product: product.error.value)
    return worst.error_beside([p.images for p in others if p.images is not None])


def _lacks_memory(count: int, equations: Any, v: np.ndarray) -> str:
    """Why ``count`` products with vectors as large as v do not fit in the memory left, or ""."""
    if v.nbytes < _LARGE or jax.default_backend() != "cpu":
        return ""  # an accelerator refuses by itself what it has no memory for
    free_bytes, _ = free_memory()
    # all vectors and their images are held beside the values of one evaluation
    size_in_bytes = _COPIES * most_bytes(equations) + 2 * count * v.nbytes
    if free_bytes is None or size_in_bytes <= free_bytes:
        return ""
    return (
        f"measuring it takes {size_in_bytes / 1e9:.3g} GB, and {free_bytes / 1e9:.3g} GB are left"
    )


def draws(work: float, rows: int) -> int:
    """How many random vectors, from 3 to 16, estimate ||E||_F^2 for an error E of ``rows`` rows.

    There are 16 where all of them write at most 3e6 numbers together (each writes ``work``), or
    where E has at most 16 rows. Elsewhere there are fewer, as many as make draws times rows 256,
    but 3 at least.

    The worst case is an E of rank one with a single cause, where |E v|^2 is a product of two
    squared Gaussians. Of two means over 16 draws, of J v and of J^T u, the larger is below 1/16 of
    the expectation with probability below 1e-6 (the tests compute it).
    """
    by_work = _WORK / max(work, 1.0)  # so many draws are cheap
    by_rows = _FEW_OUTPUTS / rows  # so many are made even if they are not cheap
    return int(min(max(by_work, by_rows, _FEWEST), _MOST))


def _bound(
    size: float, entries: int, smallest: jnp.dtype, reason: str, loops: Loops, norm: float
) -> Error:
    """The bound 4 (size + sqrt(entries) tiny) on ||E||_F, from its estimate ``size``, or a larger.

    In each entry underflow may hide tiny, the smallest normal number of the format ``smallest``.

    What ``loops`` may lose of a matrix of the Frobenius norm ``norm`` is covered as well. A loop of
    T steps that adds nearly equal terms may round all of its T sums in one direction, and errs by
    up to T u of the exact result, where u is the relative error of one rounding. Random signs
    average out, as if it erred by sqrt(T) u. The exact result may be 1 / (1 - T u) times as large
    as what was computed. From T u = 1 on nothing of it need be left: terms that are smaller than
    half a unit in the last place of the sum change it no more.
    """
    if not math.isfinite(size):
        return unknown(
            f"{reason}: an evaluation with perturbed roundings is not finite, or the model refuses "
            "it"
        )
    if loops.lost >= 1:
        return unknown(f"{_LOOPS}: as many steps may round all of a result away")
    hidden = math.sqrt(entries) * float(jnp.finfo(smallest).tiny)
    measured_size, of_loops = SAFETY * (size + hidden), loops.lost / (1 - loops.lost) * norm
    if not of_loops > measured_size:
        return Error(measured_size, MEASURED, reason=reason)
    return Error(of_loops, MEASURED, reason=f"{reason}; {_LOOPS}")


def _batch_error(
    net: Network,
    batch: Sequence[Any],
    rng: np.random.Generator,
    count: int,
    scaling: _Scaling | None,
    probes: np.ndarray,
    sums: _SumsOverBatches,
) -> float:
    """An estimate of ||E_b||_F for the computed rows J_b + E_b of J of one batch.

    It is the largest of four root mean squares over random vectors v and u: of the changes of J_b v
    and of J_b^T u by other roundings, of the gaps u^T (J_b v) - (J_b^T u)^T v, and of the distances
    of J_b v from products with the rows of a small J. The first u are the ``probes`` (m, n_b, r),
    whose images J_b^T u are added to ``sums``, as are the columns of E_b. ``count`` is the
    number of v, and of u. With a ``scaling`` S all of it is about J_b S.
    """
    shape = (sample_count(batch[0]), net.rows)  # (n_b, r)
    vectors = [direction(rng, (net.parameters,), net.dtype) for _ in range(count)]
    is_small = net.samples * net.rows * net.parameters <= SMALL
    scaled = [_scaled(scaling, v) for v in vectors]
    work = (net.written * shape[0] + net.parameters) * count
    forward_images, forward_changes, backward_changes, gaps = [], [], [], []
    for image, change in products_and_changes(
        Partial(_forward, net), rng, scaled, [batch], work=work, loops=sums.loops
    ):
        forward_images.append(image)
        forward_changes.append(length(change))
    sums.size = math.hypot(sums.size, root_mean_square([length(i) for i in forward_images]))
    us = [direction(rng, shape, net.dtype) for _ in range(count)]
    # matrices formed from J are compared at these vectors, which are zero for some samples
    us[: len(probes)] = [probe if probe.any() else u for probe, u in zip(probes, us, strict=False)]
    backward_pairs = products_and_changes(
        Partial(_backward, net), rng, us, [batch], work=work, loops=sums.loops
    )
    for index, (u, pair) in enumerate(zip(us, backward_pairs, strict=True)):
        image, change = (on_host(_scaled(scaling, array)) for array in pair)
        if index < len(probes) and probes[index].any():
            sums.images[index] = sums.images[index] + image
        backward_changes.append(length(change))
        gaps += [
            dot(on_host(u), forward_image) - dot(image, on_host(v))
            for v, forward_image in zip(vectors, forward_images, strict=True)
        ]
        if sums.columns.size:
            # the mean of the squared changes of (J^T u)_c is |E_b e_c|^2, for a column c
            share_of_draw = change.astype(np.float64) / math.sqrt(count)
            columns = sums.columns
            np.hypot(columns, share_of_draw, out=columns)  # the root of a sum of squares
    row_gaps = _gaps_to_rows(net, batch, scaled, forward_images) if is_small else []
    return max(map(root_mean_square, (forward_changes, backward_changes, gaps, row_gaps)))


def _forward(net: Network, v: jax.Array, x: Any, target: Any) -> jax.Array:
    """J_b v, with the vector first, as Monte Carlo arithmetic takes it."""
    return forward(net, x, target, v)


def _backward(net: Network, u: jax.Array, x: Any, target: Any) -> jax.Array:
    """J_b^T u, with the vector first, as Monte Carlo arithmetic takes it."""
    return backward(net, x, target, u)


def _scaled(scaling: _Scaling | None, v: Any) -> Any:
    """S v, or v without a ``scaling``."""
    return v if scaling is None else scaling(jnp.asarray(v))


def _gaps_to_rows(
    net: Network, batch: Sequence[Any], vectors: Sequence[Any], images: Sequence[np.ndarray]
) -> list[float]:
    """|J_b v - image| for each v and its image J_b v by differentiation, with J_b from the layers.

    A mistake in what is known about a layer, or in a derivative rule of the model, shows here.
    """
    x, target = batch
    net_of_batch = net if x is net.x else replace(net, x=x, target=target)
    rows = jacobian(net_of_batch).astype(np.float64)
    products = [rows @ on_host(v).astype(np.float64) for v in vectors]
    pairs = zip(products, images, strict=True)
    return [length(product - image.astype(np.float64).ravel()) for product, image in pairs]
