"""The pseudo-condition number lambda_max / lambda_r of a positive semidefinite operator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.linalg
from jax.typing import ArrayLike

from gnjax.numerics.rounding import spectral_error
from gnjax.operators.base import Dense, Factored, Operator, SumOfKroneckers, dense
from gnjax.operators.closed_form.staircase import analytic_rank
from gnjax.operators.network import NetworkGram
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra import kronecker as structured
from gnjax.spectra import lanczos as krylov
from gnjax.spectra.host_products import beside_xla, host_product, most_rows

_METHODS = ("auto", "closed_form", "krylov", "inverse", "factored", "dense")
_CERTIFICATES = ("ritz", "inertia")
_MISSED = 1e-3
_CLEAR_GAP = 1e3
_INDEFINITE = 100.0  # errors below zero
_SMALL = 600
_FACTORED_UP_TO = 4000
_DENSE_UP_TO = 1500
_BLOCK = 4
_TOP_BLOCK = 8  # a stored matrix is read once for all rows: eight cost little more than four


@dataclass(frozen=True)
class ConditionNumber:
    """kappa = lambda_max / lambda_rank, with everything needed to trust it or not.

    Attributes:
      value: kappa; where ``resolved`` is False a lower bound of it (nan for the zero matrix).
      interval: encloses kappa with probability ``confidence`` (1.0: no randomness involved).
      rank: the number of non-zero eigenvalues, and ``rank_source`` how it is known: "given",
        "analytic" (:mod:`gnjax.operators.closed_form.staircase`), "full" (every eigenvalue is
        proved to be non-zero), "gap" (the next eigenvalue lies 1000 times lower, at the floor) or "floor"
        (eigenvalues reach down into the floor, so the count is not the rank).
      resolved: lambda_rank is proved to be non-zero, so that the interval is finite.
      floor: the smallest eigenvalue that this computation could have told from zero.
      method: "closed_form", "krylov", "inverse", "factored" or "dense".
      certificate: what the interval rests on: "weyl" (perturbation bounds), "ritz" (Ritz values
        from inside, the chance of a random start from outside), "inertia" (Cholesky).
      products: operator applications, 0 for methods that need none.
    """

    value: float
    lambda_max: float
    lambda_min: float
    interval: tuple[float, float]
    confidence: float
    rank: int
    rank_source: str
    resolved: bool
    floor: float
    method: str
    certificate: str
    size: int
    products: int = 0

    @property
    def log10(self) -> float:
        return math.log10(self.value) if self.value > 0 else math.nan

    def __str__(self) -> str:
        low, high = self.interval
        relation = "=" if self.resolved else ">="
        sure = "" if self.confidence == 1 else f" with confidence {_confidence(self.confidence)}"
        note = "" if self.resolved else ", NOT RESOLVED: lambda_min is below the floor"
        return (
            f"kappa {relation} {self.value:.6g} in [{low:.6g}, {high:.6g}]{sure} "
            f"(rank {self.rank} of {self.size}, {self.rank_source}; "
            f"{self.method}, {self.certificate}){note}"
        )


@dataclass(frozen=True)
class _Enclosure:
    """An eigenvalue: its best value, and bounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class _Ends:
    """What every method returns: both ends of the non-zero spectrum and how they are known."""

    largest: _Enclosure
    smallest: _Enclosure
    rank: int
    rank_source: str
    floor: float
    method: str
    certificate: str = "weyl"
    confidence: float = 1.0
    products: int = 0


def condition_number(
    op: Operator | ArrayLike,
    *,
    rank: int | None = None,
    rtol: float = 1e-3,
    method: str = "auto",
    certify: str = "ritz",
    seed: int = 0,
) -> ConditionNumber:
    """kappa = lambda_max / (smallest non-zero lambda), with a certified interval.

    Args:
      op: an operator, or a symmetric positive semidefinite matrix.
      rank: the number of non-zero eigenvalues, where you know better than the library.
      rtol: the relative width of the interval that iterative methods work towards.
      method: "auto" takes the fastest that reaches rtol; see the README for the others.
      certify: what bounds an iterative answer from outside: "ritz", the chance of the random
        start (see :mod:`gnjax.spectra.lanczos`), or "inertia", two Cholesky factorisations.
      seed: of the random start.
    """
    operator = op if isinstance(op, Operator) else dense(op)
    _check_arguments(operator, rank, rtol, method, certify)
    ends = _ends(operator, rank, rtol, method, seed)
    if ends is None:
        return _zero(operator, method)
    if certify == "inertia" and ends.certificate == "ritz":
        ends = _inertia(operator, ends, rtol)
    return _assemble(ends, operator.shape[0])


def _check_arguments(
    op: Operator, rank: int | None, rtol: float, method: str, certify: str
) -> None:
    size = op.shape[0]
    if rank is not None and not 1 <= rank <= size:
        msg = f"rank={rank} is not between 1 and the size of the operator, {size}"
        raise ValueError(msg)
    if not 0 < rtol < 1:
        msg = f"rtol={rtol} is not between 0 and 1; 1e-3 is the default"
        raise ValueError(msg)
    for name, value, allowed in (
        ("method", method, _METHODS),
        ("certify", certify, _CERTIFICATES),
    ):
        if value not in allowed:
            msg = f"{name}={value!r} is not one of {', '.join(allowed)}"
            raise ValueError(msg)


def _ends(op: Operator, rank: int | None, rtol: float, method: str, seed: int) -> _Ends | None:
    """Both ends by the method asked for; None for the zero operator."""
    if method == "auto":
        return _automatic(op, rank, rtol, seed)
    if method == "krylov":
        return _krylov(op, rank, rtol, seed)
    if method == "inverse":
        return _inverse(op, rank, rtol, seed)
    compute = {
        "closed_form": spectrum.closed_form_spectrum,
        "factored": spectrum.factored_spectrum,
        "dense": spectrum.dense_spectrum,
    }[method]
    return _from_spectrum(op, compute(op), rank)


def _automatic(op: Operator, rank: int | None, rtol: float, seed: int) -> _Ends | None:
    """The fastest method that can answer; a factor's singular values where the matrix cannot."""
    size = op.shape[0]
    if isinstance(op, SumOfKroneckers):
        factors = op.factors
        if factors is not None and len(factors.lefts) <= 2 and (factors.whitened or size <= _SMALL):
            return _ends(op, rank, rtol, "closed_form", seed)
        if factors is None or size <= _SMALL or rank not in (None, analytic_rank(factors)):
            return _ends(op, rank, rtol, "dense" if factors is None else "factored", seed)
        ends = _krylov(op, rank, rtol, seed)
        if ends is None or ends.smallest.low > 0 or size > _FACTORED_UP_TO:
            return ends
        return _ends(op, rank, rtol, "factored", seed)
    if isinstance(op, Factored) and spectrum.fits_factored(op):
        return _ends(op, rank, rtol, "factored", seed)
    if isinstance(op, NetworkGram):
        return _ends(op, rank, rtol, _for_network(op), seed)
    if size <= _DENSE_UP_TO:
        return _ends(op, rank, rtol, "dense", seed)
    return _ends(op, rank, rtol, "inverse" if isinstance(op, Dense) else "krylov", seed)


def _for_network(op: NetworkGram) -> str:
    """Singular values of the Jacobian while they are cheap; the matrix while it fits."""
    if min(op.factor_shape) <= _FACTORED_UP_TO and spectrum.fits_factored(op):
        return "factored"
    return "inverse" if op.shape[0] <= spectrum.LARGEST_MATRIX else "krylov"


def _known_rank(op: Operator, rank: int | None) -> tuple[int | None, str]:
    if rank is not None:
        return rank, "given"
    if isinstance(op, SumOfKroneckers) and op.factors is not None:
        return analytic_rank(op.factors), "analytic"
    return None, ""


def _from_spectrum(op: Operator, whole: spectrum.Spectrum, rank: int | None) -> _Ends | None:
    """Both ends of a whole spectrum; the rank counts what exceeds its error, unless known."""
    _check_semidefinite(whole.values[-1], whole.values[0], whole.errors[-1])
    if whole.values[0] <= whole.errors[0]:
        return None
    known, source = _known_rank(op, rank)
    if known == 0:
        return None
    counted = int((whole.values > whole.errors).sum())
    if known is None:
        known, source = counted, _source(whole, counted)
    enclosures = [
        _Enclosure(max(value, 0.0), max(value - error, 0.0), value + error)
        for value, error in zip(
            whole.values[[0, known - 1]], whole.errors[[0, known - 1]], strict=True
        )
    ]
    if source == "floor":
        enclosures[1] = replace(enclosures[1], low=0.0)
    floor = float(whole.errors[-1])
    return _Ends(enclosures[0], enclosures[1], known, source, floor, whole.method)


def _check_semidefinite(least: float, largest: float, error: float) -> None:
    if least < -_INDEFINITE * error:
        msg = (
            f"the operator is not positive semidefinite: its eigenvalues run from {least:.3g} to "
            f"{largest:.3g}, and kappa is defined for Gauss-Newton matrices and kernels; "
            "gnjax.eigenvalues gives the spectrum of a Hessian"
        )
        raise ValueError(msg)


def _source(whole: spectrum.Spectrum, counted: int) -> str:
    if counted == len(whole.values):
        return "full"
    following = max(abs(whole.values[counted]), whole.errors[counted])
    return "gap" if whole.values[counted - 1] >= _CLEAR_GAP * following else "floor"


def _krylov(op: Operator, rank: int | None, rtol: float, seed: int) -> _Ends | None:
    known, source = _known_rank(op, rank)
    if not isinstance(op, SumOfKroneckers) or op.factors is None:
        return _lanczos(op, known, source, rtol, seed)
    analytic = analytic_rank(op.factors)
    if known != analytic:
        msg = (
            f"method='krylov' finds the end of the range, which has rank {analytic}; "
            f"for an assumed rank of {known} use method='factored' or 'dense'"
        )
        raise ValueError(msg)
    if analytic == 0:
        return None
    reduced = structured.reduce(op)
    error = float(reduced.operator.error) + structured.product_error(reduced.operator)
    top, bottom = structured.ends(reduced, rtol=rtol, missed=_MISSED / 2, seed=seed)
    if top.ritz <= error:
        return None
    return _Ends(
        _Enclosure(top.ritz, top.ritz - error, top.bound + error),
        _Enclosure(bottom.ritz, max(bottom.bound - error, 0.0), bottom.ritz + error),
        analytic,
        source,
        error,
        "krylov",
        "ritz",
        1 - top.missed - bottom.missed,
        top.products + bottom.products,
    )


def _lanczos(op: Operator, known: int | None, source: str, rtol: float, seed: int) -> _Ends | None:
    """Block Lanczos on any operator: to the end of the range, or until the ends are certified."""
    size = op.shape[0]
    norm = spectrum.operator_norm(op)
    error = spectrum.dense_error(op, norm)
    if norm <= error:
        return None
    steps = max(2, most_rows(size) // _BLOCK + 1)
    with beside_xla():
        run = krylov.lanczos(
            host_product(op),
            krylov.random_rows(size, _BLOCK, seed),
            max_steps=steps,
            noise=error,
            enough=partial(_both_certain, rtol=rtol, error=error),
            check_every=8,
            seed=seed,
        )
    values, residuals, _ = krylov.ritz(run)
    _check_semidefinite(values[0], values[-1], error)
    if run.complete:
        whole = spectrum.Spectrum(
            np.pad(values[::-1], (0, size - len(values))),
            np.pad(residuals[::-1] + error, (0, size - len(values)), constant_values=error),
            "krylov",
        )
        ends = _from_spectrum(op, whole, known if source == "given" else None)
        return None if ends is None else replace(ends, products=run.products)
    return _certified(run, values, residuals, known, source, error)


def _both_certain(run: krylov.Run, *, rtol: float, error: float) -> bool:
    """Nothing hides further out than a share of rtol beyond either end."""
    values = np.linalg.eigvalsh(run.projection)
    bottom = values[0] * (1 - rtol / 2)
    if bottom <= error:
        return False
    chances = krylov.missed_probability(run, np.array([bottom, values[-1] * (1 + rtol / 3)]))
    return bool((chances <= _MISSED / 2).all())


def _certified(
    run: krylov.Run,
    values: np.ndarray,
    residuals: np.ndarray,
    known: int | None,
    source: str,
    error: float,
) -> _Ends:
    """Ends of an incomplete run; the smallest is resolved only if the whole space is positive."""
    size, top, bottom = run.size, values[-1], values[0]
    ceiling = krylov.beyond(run, top, top, _MISSED / 2)
    below = krylov.beyond(run, bottom, -max(bottom, error), _MISSED / 2)
    if below > error and known in (None, size):
        smallest = _Enclosure(bottom, below - error, bottom + error)
        known, source = size, source or "full"
    else:
        nonzero = values - residuals > error  # an eigenvalue lies within each residual
        index = int(np.argmax(nonzero))
        reached = values[index] + residuals[index] if nonzero.any() else top
        smallest = _Enclosure(values[index], 0.0, reached + error)
        known, source = known or int(nonzero.sum()), source or "floor"
    largest = _Enclosure(top, top - error, ceiling + error)
    return _Ends(
        largest, smallest, known, source, error, "krylov", "ritz", 1 - _MISSED, run.products
    )


def _inverse(op: Operator, rank: int | None, rtol: float, seed: int) -> _Ends | None:
    """Cholesky, then Lanczos on the inverse for lambda_min and on the matrix for lambda_max.

    A matrix that is singular to working precision goes to the dense method instead.
    """
    known, source = _known_rank(op, rank)
    if known == 0:
        return None
    matrix, stored = _positive_matrix(op)
    size = len(matrix)
    factor = _cholesky(matrix) if known in (None, size) else None
    if factor is None:
        return _ends(op, rank, rtol, "dense", seed)
    top = _top(lambda rows: rows @ matrix, size, rtol / 4, seed)
    inverse = _top(lambda rows: _solve(factor, rows), size, rtol / 2, seed)
    if not np.isfinite([top.high, inverse.high]).all():
        return _ends(op, rank, rtol, "dense", seed)
    error = spectral_error(size, op.dtype) * top.high
    error += spectrum.formation_error(stored, top.high)
    return _Ends(
        _Enclosure(top.value, top.low - error, top.high + error),
        _Enclosure(1 / inverse.value, max(1 / inverse.high - error, 0.0), 1 / inverse.low + error),
        size,
        source or "full",
        error,
        "inverse",
        "ritz",
        1 - _MISSED,
    )


def _cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """The lower factor, or None where the matrix is not positive definite."""
    try:
        # transposed, which changes nothing but the layout that LAPACK would copy it to
        return scipy.linalg.cho_factor(matrix.T, lower=True, check_finite=False)[0]
    except np.linalg.LinAlgError:
        return None


def _solve(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return scipy.linalg.cho_solve((factor, True), rows.T, check_finite=False).T


def _positive_matrix(op: Operator) -> tuple[np.ndarray, Operator]:
    """The matrix on its range where that is known, and the operator that it is of."""
    if isinstance(op, SumOfKroneckers):
        reduced = structured.reduce(op)
        return structured.packed_matrix(reduced), reduced.operator
    return spectrum.host_matrix(op), op


def _top(apply: krylov.Apply, size: int, rtol: float, seed: int) -> _Enclosure:
    """The largest eigenvalue of a positive definite operator, to rtol with the usual chance."""

    def enough(run: krylov.Run) -> bool:
        top = float(np.linalg.eigvalsh(run.projection)[-1])
        return bool(krylov.missed_probability(run, top * (1 + rtol))[0] <= _MISSED / 2)

    run = krylov.lanczos(
        apply,
        krylov.random_rows(size, _TOP_BLOCK, seed),
        max_steps=size,
        noise=0.0,
        enough=enough,
        check_every=2,
    )
    top = float(np.linalg.eigvalsh(run.projection)[-1])
    ceiling = top if run.complete else krylov.beyond(run, top, top * rtol, _MISSED / 2)
    return _Enclosure(top, top, ceiling)


def _inertia(op: Operator, ends: _Ends, rtol: float) -> _Ends:
    """Prove both bounds: M - low I and high I - M have Cholesky factors (Sylvester's law).

    Where a factorisation fails, an eigenvalue was missed, and the dense method finds it.
    """
    matrix, stored = _positive_matrix(op)
    if len(matrix) != ends.rank:
        return _dense_instead(op, ends)
    low = ends.smallest.value * (1 - rtol / 4)
    high = ends.largest.value * (1 + rtol / 4)
    identity = np.eye(len(matrix))
    proved = _cholesky(matrix - low * identity) is not None
    if not proved or _cholesky(high * identity - matrix) is None:
        return _dense_instead(op, ends)
    error = spectral_error(len(matrix), op.dtype) * high + spectrum.formation_error(stored, high)
    return replace(
        ends,
        largest=replace(ends.largest, high=high + error),
        smallest=replace(ends.smallest, low=max(low - error, 0.0)),
        certificate="inertia",
        confidence=1.0,
    )


def _dense_instead(op: Operator, ends: _Ends) -> _Ends:
    whole = _from_spectrum(op, spectrum.dense_spectrum(op), ends.rank)
    return ends if whole is None else replace(whole, rank_source=ends.rank_source)


def _assemble(ends: _Ends, size: int) -> ConditionNumber:
    resolved = ends.smallest.low > 0
    low = max(ends.largest.low / ends.smallest.high, 1.0)
    high = ends.largest.high / ends.smallest.low if resolved else math.inf
    value = max(ends.largest.value / ends.smallest.value, 1.0) if resolved else low
    return ConditionNumber(
        value=float(value),
        lambda_max=float(ends.largest.value),
        lambda_min=float(ends.smallest.value),
        interval=(float(low), float(high)),
        confidence=float(ends.confidence),
        rank=ends.rank,
        rank_source=ends.rank_source,
        resolved=bool(resolved),
        floor=float(ends.floor),
        method=ends.method,
        certificate=ends.certificate,
        size=size,
        products=ends.products,
    )


def _zero(op: Operator, method: str) -> ConditionNumber:
    """No eigenvalue can be told from zero, so there is nothing to divide by."""
    return ConditionNumber(
        value=math.nan,
        lambda_max=0.0,
        lambda_min=0.0,
        interval=(math.nan, math.nan),
        confidence=1.0,
        rank=0,
        rank_source="floor",
        resolved=False,
        floor=0.0,
        method="dense" if method == "auto" else method,
        certificate="weyl",
        size=op.shape[0],
    )


def _confidence(probability: float) -> str:
    """Rounded down, so that it never claims more."""
    return f"{math.floor(probability * 1e4) / 1e4:.4f}"
