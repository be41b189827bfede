"""Eigenvalues of operators, each with a bound on its error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.rank_bound import SHAPES
from gnjax.numerics.rounding import spectral_error
from gnjax.numerics.stages import beside
from gnjax.numerics.validation import is_count
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import factorisation_of, facts_of, symmetry_of, twin_of, unshifted_of
from gnjax.operators.near_one import check_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.eigenvectors import angles
from gnjax.spectra.krylov import lanczos
from gnjax.spectra.krylov.few import OuterRitzPairs, outer_ritz_pairs
from gnjax.spectra.krylov.few_on_device import bytes_on_device, few_on_device, why_unfinished
from gnjax.spectra.krylov.host_products import beside_xla, host_product, singly
from gnjax.spectra.preconditioned_ends.smallest import smallest_of_factor
from gnjax.spectra.spectrum import (
    Spectrum,
    part_of,
    shifted_spectrum,
    with_zeros,
)
from gnjax.spectra.watch import Progress, Watch, watching
from gnjax.spectra.whole import check_whole, dense_error, spectrum_with_vectors, whole_spectrum

_WHICH = ("all", "largest", "smallest")
_NORM_BLOCK = 4
_NORM_STEPS = 8
NORM_PRODUCTS = _NORM_BLOCK * _NORM_STEPS  # the most that operator_norm makes
_FIRST_PRODUCTS, _PRODUCTS_EACH = 100, 10  # that a few eigenvalues take, and more for each
_FEWER = "ask for k of them, or for their density by gnjax.spectral_density(op)"
_FORMED = 4  # products that form a matrix, many at once, in the time of one product by itself


@one_operator
def eigenvalues(
    op: Operator | ArrayLike,
    *,
    k: int | None = None,
    which: str | None = None,
    rtol: float = 1e-10,
    vectors: bool = False,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> Spectrum:
    """All eigenvalues, or the k largest or smallest, from the largest down.

    All of them are computed from the singular values of a factor if one is known and small enough,
    else from the dense matrix. A few of a large operator, or of one whose matrix would take far
    more products (a Hessian of some 500 rows), are computed by Lanczos, with repeated eigenvalues
    as often as they occur. Their errors are residual norms: some eigenvalue is that
    close to each value. If a residual is above rtol times the norm of the operator, ``converged``
    is False. The smallest ones of a Gauss-Newton matrix or kernel of full rank are computed from
    the rows of its Jacobian, where these fit in memory, to a tolerance relative to each value
    (method "sketched").

    Args:
      op: an operator, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      k: how many eigenvalues; by default all.
      which: "largest" (the default with a k), "smallest", or "all".
      rtol: the tolerance of the residuals of Lanczos.
      vectors: whether to compute eigenvectors, as unit rows with bounds on their angles. They are
        computed from the operator itself; eigenvalues alone may be computed from a smaller operator
        with the same non-zero eigenvalues.
      seed: the seed of the random starts of Lanczos in host memory, and of the rows' sketch.
      progress: True for a bar on stderr with the time and the products made, or a function of the
        products made and expected (None). Ctrl-C then ends Lanczos with the best values so far, and
        ``converged`` is False.
      limits: the limits of memory and work.

    >>> gnjax.eigenvalues(np.diag([4.0, 2.0, 1.0]), k=2, which="largest").values.round(12).tolist()
    [4.0, 2.0]
    """
    operator = as_operator(op, limits=limits)
    size = operator.shape[0]
    which = which or ("all" if k is None else "largest")
    _check_arguments(size, k, which, rtol, seed)
    unshifted, shift = unshifted_of(operator)
    if shift:
        of_unshifted = eigenvalues(
            unshifted,
            k=k,
            which=which,
            rtol=rtol,
            vectors=vectors,
            seed=seed,
            progress=progress,
            limits=limits,
        )
        return shifted_spectrum(of_unshifted, shift)
    with watching(progress, stoppable=True, op=operator, seconds=limits.seconds) as watch:
        is_stated = facts_of(operator).eigenvalues is not None and not vectors
        if k is not None and not is_stated and _takes_few(operator, k, limits):
            # Called for its ValueError where no basis fits in memory, before any work is done.
            bytes_on_device(twin_of(operator), k, rtol, limits)
            check_near_one(operator)
            few = _few_vectors if vectors else _few_of_twin
            return few(operator, k, which, rtol, seed, limits, watch)
        check_whole(operator if vectors else twin_of(operator), limits, _FEWER, vectors=vectors)
        if not is_stated:
            check_near_one(operator)
        if vectors:
            whole = spectrum_with_vectors(operator, limits)
        else:  # the twin, J J^T for J^T J, has the same non-zero eigenvalues
            whole = with_zeros(whole_spectrum(twin_of(operator), limits), size)
        # The values descend, so that the smallest are the last ones.
        return part_of(whole, slice(size - k, size) if which == "smallest" and k else slice(0, k))


def _takes_few(op: Operator, k: int, limits: Limits) -> bool:
    """Whether k eigenvalues are computed alone, by products with the operator, and not all n.

    So they are for more than ``limits.whole_rows`` rows. For fewer rows, too, if that takes less
    time than to form the matrix. k eigenvalues take about 100 + 10 k products, one after the other
    (half as many more at the smallest end of a Hessian). Where no factor or formula gives the
    matrix, it is formed by n products with unit vectors, many at once, and ``_FORMED`` of these
    take the time of one product by itself.
    """
    size = op.shape[0]
    if size > limits.whole_rows:
        return True
    factor = factorisation_of(op)
    # A whole spectrum needs the matrix, unless the operator states its eigenvalues or has a factor
    # J that fits in memory.
    needs_matrix = facts_of(op).eigenvalues is None and (
        factor is None or factor.size_in_bytes > limits.factor_bytes
    )
    products = _FIRST_PRODUCTS + _PRODUCTS_EACH * k
    return needs_matrix and facts_of(op).formed_by_products and size > _FORMED * products


def _few_of_twin(
    op: Operator, k: int, which: str, rtol: float, seed: int, limits: Limits, watch: Watch
) -> Spectrum:
    """k eigenvalues from one end, computed from the twin of ``op``.

    The twin has the same non-zero eigenvalues, J J^T for J^T J, and may be smaller. Then ``op`` has
    some zeros more, which are among its smallest eigenvalues, since both are semidefinite.
    """
    twin = twin_of(op)
    added_zeros = op.shape[0] - twin.shape[0]
    if which == "smallest" and added_zeros >= k:
        return Spectrum(np.zeros(k), np.zeros(k), "shape", certificate(SHAPES), zeros=k)
    count = min(k, twin.shape[0]) if which == "largest" else k - added_zeros
    width = bytes_on_device(twin, count, rtol, limits)  # 0 for a basis in host memory
    if which == "smallest" and not added_zeros:
        preconditioned = smallest_of_factor(twin, k, rtol, seed, limits, watch)
        if preconditioned is not None:
            return preconditioned
    if width:
        spectrum = few_on_device(twin, count, which, rtol, limits, watch, width=width)
    else:
        spectrum, _ = _few(twin, count, which, rtol, seed, limits, watch)
    return with_zeros(spectrum, k)  # k - count zeros, which are not eigenvalues of the twin


def operator_norm(op: Operator, limits: Limits = LIMITS) -> float:
    """An estimate of ||A||_2 to a few per cent, to estimate the size of rounding errors.

    It is the largest absolute Ritz value of a few steps of block Lanczos from a random start. The
    basis has 32 vectors in 8 blocks. Where ``limits.density_bytes`` has no room for them, the
    blocks are single vectors, at most 8 of them.
    """
    most_vectors = int(limits.density_bytes / (8 * op.shape[0]))  # of 8 bytes a number
    block = _NORM_BLOCK if most_vectors >= _NORM_BLOCK * _NORM_STEPS else 1
    start = lanczos.random_rows(op.shape[0], block, seed=1)
    steps = min(_NORM_STEPS, max(1, most_vectors // block))
    multiply, done = host_product(op), 0

    def counted(rows: np.ndarray) -> np.ndarray:
        nonlocal done
        images = multiply(rows)
        done += len(rows)
        beside(done, steps * block, "products for the norm")
        return images

    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        # noise=0.0: no entry of the recurrence counts as rounding, so that all steps are made
        run = lanczos.lanczos(singly(op, counted), start, max_steps=steps, noise=0.0)
    return float(np.abs(np.linalg.eigvalsh(run.projection)).max())


def _few(
    op: Operator, k: int, which: str, rtol: float, seed: int, limits: Limits, watch: Watch
) -> tuple[Spectrum, OuterRitzPairs]:
    """k eigenvalues from one end by Lanczos, as a spectrum and as the Ritz pairs of the run."""
    size = op.shape[0]
    sign = -1.0 if which == "largest" else 1.0
    product, most_rows = watch(host_product(op)), limits.basis_rows(size)
    with beside_xla():  # BLAS on one thread, so that XLA has the cores
        pairs = outer_ritz_pairs(
            product,
            size,
            k,
            sign=sign,
            rtol=rtol,
            noise=spectral_error(size, op.dtype),
            most=most_rows,
            seed=seed,
            stop=watch.is_stopped,
        )
    if watch.stopped and len(pairs.values) < k:
        raise KeyboardInterrupt  # stopped before k values were known
    rounding = dense_error(op, pairs.scale)  # of the products, by the norm of A
    # Errors are finite where it was decided that no eigenvalue further out is missing.
    all_counted = np.isfinite(pairs.errors).all() and len(pairs.errors) == len(pairs.values)
    errors = pairs.errors if all_counted else pairs.residuals
    converged = pairs.converged and not watch.stopped
    why = [] if converged else [why_unfinished(pairs.products, most_rows, watch)]
    spectrum = Spectrum(
        pairs.values,
        errors + rounding.value,
        "krylov",
        certificate(rounding, pairs.count, symmetry_of(op), *why),
        converged,
    )
    return spectrum, pairs


def _few_vectors(
    op: Operator, k: int, which: str, rtol: float, seed: int, limits: Limits, watch: Watch
) -> Spectrum:
    """k Ritz pairs from one end, with bounds on the angles of the vectors.

    One more than k is computed, for the distance to the neighbouring eigenvalues. The bounds are
    infinite if it was not decided whether eigenvalues are missing, and where the basis is on the
    device.
    """
    size = op.shape[0]
    width = bytes_on_device(op, k, rtol, limits, neighbours=1)  # 0 for a basis in host memory
    if width:
        return few_on_device(op, k, which, rtol, limits, watch, width=width, vectors=True)
    spectrum, pairs = _few(op, min(k + 1, size), which, rtol, seed, limits, watch)
    vectors, images = pairs.vectors, pairs.images
    without_vector = len(spectrum) - len(vectors)
    if without_vector:
        # Lanczos has found that the operator is zero outside of its basis, so that any vectors
        # orthogonal to the given ones belong to the last zeros among the values.
        zeros = np.flatnonzero(spectrum.values == 0)[-without_vector:] - np.arange(without_vector)
        null_rows = lanczos.random_rows(size, without_vector, seed=2, orthogonal_to=vectors)
        vectors = np.insert(vectors, zeros, null_rows, axis=0)  # counted before the insertion
        images = host_product(op)(vectors)
    residuals = np.linalg.norm(images - spectrum.values[:, None] * vectors, axis=1)
    residuals = np.maximum(residuals, pairs.residuals) + dense_error(op, pairs.scale).value
    errors = spectrum.errors if np.isfinite(pairs.errors).all() else np.full(len(spectrum), np.inf)
    bounds = angles(spectrum.values, residuals, errors)
    places = slice(0, k) if which == "largest" else slice(len(spectrum) - k, len(spectrum))
    return part_of(replace(spectrum, vectors=vectors, angles=bounds), places)


def _check_arguments(size: int, k: Any, which: str, rtol: float, seed: Any) -> None:
    """Refuse arguments of :func:`eigenvalues` that do not fit an operator of ``size`` rows."""
    if which not in _WHICH:
        msg = f"which={which!r} is not one of {', '.join(_WHICH)}"
        raise ValueError(msg)
    if not isinstance(rtol, int | float | np.floating) or not 0 < rtol < 1:
        msg = f"rtol={rtol!r} is not a number between 0 and 1; 1e-10 is the default"
        raise ValueError(msg)
    if which == "all" and k is not None:
        msg = f"k={k} needs which='largest' or which='smallest'"
        raise ValueError(msg)
    if not is_count(seed):
        msg = f"seed={seed!r} is not an integer"
        raise ValueError(msg)
    if which != "all" and (not is_count(k) or not 1 <= k <= size):
        msg = f"which={which!r} needs an integer k between 1 and {size}, got k={k!r}"
        raise ValueError(msg)
