"""Spectral density of any symmetric operator, by stochastic Lanczos quadrature.

A unit vector v sees the spectrum through the measure mu_v, which has the mass (u_i^T v)^2 at each
eigenvalue lambda_i with eigenvector u_i. For v uniform on the sphere its mean is the spectral
density mu = (1/n) sum_i delta(lambda_i). After m steps of Lanczos from v, the eigenvalues
theta_j of the tridiagonal T and the squared first entries w_j of its eigenvectors are the
Gauss quadrature of mu_v (Golub and Welsch, 1969):

    sum_j w_j theta_j^q = v^T A^q v,  q = 0 .. 2 m - 1,

and the distribution functions of both differ at t by at most the larger of the weights on either
side of t (Chebyshev, Markov, Stieltjes). For a smooth g, integration by parts turns this into

    | int g d mu_v - sum_j w_j g(theta_j) | <= sum of (the larger weight) (the variation of g)

over the gaps between nodes. Both are theorems about the run. The average over probes estimates mu,
and its spread over probes is an error of its own, which has no theorem: samples are not normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import (
    MEASURED,
    UNKNOWN,
    Certificate,
    Error,
    certificate,
    unknown,
)
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.result import Result
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.base import Operator, dense
from gnjax.spectra.eigenvalues import operator_norm
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import beside_xla, check_products, host_product
from gnjax.spectra.trace import probe_stream, student
from gnjax.spectra.watch import Progress, watching
from gnjax.spectra.whole import dense_error

_BREAKDOWN = 16.0  # floors: the directions before amplify the rounding of a product
_FINEST = 100  # widths in the range of the spectrum, at most, unless the caller asks for more
_LEAST_DECADES = 0.01
_TOGETHER = 10  # probes in one product
_UNCERTIFIED = certificate(unknown("no run stated its errors"))
_GAUSSIAN = (2 / math.pi) ** 0.5  # ||f(A) - f(B)|| <= this ||A - B|| for f = exp(-x^2 / 2)
_TAILS = 4.0  # widths beyond the outermost nodes: all but 6e-5 of a Gaussian


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """A mean over probes, and what it rests on.

    Attributes:
      value: the mean.
      standard_error: over the probes; infinite for one probe, which has no spread.
      quadrature: a proved bound on what the quadratures of these probes, taken together, are off;
        0 where they are exact.
      certificate: the largest of these errors over all points, Student's 95% half-width for the
        spread, and what the density rests on. Where eigenvalues are counted up to a point, the
        point itself is uncertain by ``floor``.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> share = density.cdf([0.5, 10.0])
    >>> share.value.round(12).tolist()
    [0.0, 1.0]
    >>> share.standard_error.shape
    (2,)
    """

    value: np.ndarray
    standard_error: np.ndarray
    quadrature: np.ndarray = field(default_factory=lambda: np.zeros(0))
    certificate: Certificate = _UNCERTIFIED


@dataclass(frozen=True, repr=False)
class SpectralDensity(Result):
    """mu = (1/n) sum_i delta(lambda_i), as one Gauss quadrature for each probe.

    Attributes:
      nodes, weights: (probes, m), ascending; a probe that needs fewer than m nodes, because its
        Krylov space is exhausted, repeats its largest one with weight 0. Weights sum to 1.
      n: the size of the operator.
      steps: of Lanczos, as asked for.
      floor: an eigenvalue this small cannot be told from zero, nor two this close from each other.
      products: operator applications, without those that found ``floor``.
      exact: for each probe, whether its Krylov space was exhausted, so that its quadrature is mu_v
        itself and no error but rounding is left.
      certificate: how far the nodes can be from those of exact arithmetic: rounding of products
        ("measured"), couplings that were dropped as rounding, and the operator's own error.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> density.nodes.shape, density.weights.sum(axis=1).round(12).tolist()
    ((4, 3), [1.0, 1.0, 1.0, 1.0])
    >>> density.pdf(np.linspace(0, 4, 50), width=0.2).value.shape
    (50,)
    """

    nodes: np.ndarray
    weights: np.ndarray
    n: int
    steps: int
    floor: float
    products: int
    exact: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    certificate: Certificate = _UNCERTIFIED

    def __str__(self) -> str:
        """How many eigenvalues, between which nodes, and what the density rests on."""
        return (
            f"density of {self.n} eigenvalues between {self.nodes.min():.6g} and "
            f"{self.nodes.max():.6g} ({len(self.nodes)} probes of {self.steps} steps; "
            f"{self.certificate.brief})"
        )

    def pdf(self, points: ArrayLike, width: float | None = None, log: bool = False) -> Estimate:
        """The density at ``points``, smoothed by a Gaussian of standard deviation ``width``.

        With ``log`` it is the density of log10(lambda) over the positive eigenvalues, at positive
        points (eigenvalues, not logarithms) and with a width in decades; what is at most
        ``floor`` is left out, so that it integrates to the share of positive eigenvalues.
        """
        at = np.asarray(points, float)
        if log and not (at > 0).all():
            msg = f"log=True needs positive points, got {at.min()}; see grid(log=True)"
            raise ValueError(msg)
        width = self._width(log) if width is None else float(width)
        if not 0 < width < math.inf:
            msg = f"width={width} is not a positive number"
            raise ValueError(msg)
        at = np.log10(at) if log else at
        kept = self.nodes > self.floor if log else np.ones(self.nodes.shape, bool)
        nodes = np.log10(np.where(kept, self.nodes, 1.0)) if log else self.nodes
        height = 1 / (width * math.sqrt(2 * math.pi))
        weights = np.where(kept, self.weights, 0.0) * height
        values = [
            np.exp(-(((at[..., None] - theta) / width) ** 2) / 2) @ w
            for theta, w in zip(nodes, weights, strict=True)
        ]
        edge = math.log10(self.floor) if log and self.floor > 0 else -math.inf
        nodes = np.where(kept, nodes, edge)
        bounds = [
            np.zeros(at.shape) if exact else height * _variation(at, theta, w, width, edge)
            for theta, w, exact in zip(nodes, self.weights, self._exact, strict=True)
        ]
        return self._estimate(values, bounds, 0.0 if log else _GAUSSIAN * height / width)

    def cdf(self, points: ArrayLike) -> Estimate:
        """The share of eigenvalues up to each point, included."""
        at = np.asarray(points, float) + self.floor
        values = [
            (theta <= at[..., None]) @ w for theta, w in zip(self.nodes, self.weights, strict=True)
        ]
        return self._estimate(values, self._beside(at))

    def count(self, low: float, high: float) -> Estimate:
        """The number of eigenvalues in [low, high]; both ends are widened by ``floor``.

        Zero therefore belongs to [low, 0], and the negative ones are n - count(0, inf).
        """
        if not low <= high:
            msg = f"low={low} must not exceed high={high}"
            raise ValueError(msg)
        low, high = low - self.floor, high + self.floor
        inside = (self.nodes >= low) & (self.nodes <= high)
        ends = self._beside(np.asarray(low)) + self._beside(np.asarray(high))
        return self._estimate(self.n * (self.weights * inside).sum(axis=1), self.n * ends)

    def moment(self, q: int) -> Estimate:
        """(1/n) tr A^q, without quadrature error up to q = 2 steps - 1."""
        if not isinstance(q, int | np.integer) or q < 0:
            msg = f"q={q!r} is not 0, 1, 2, .."
            raise ValueError(msg)
        values = (self.weights * self.nodes**q).sum(axis=1)
        known = q < 2 * self.steps or bool(self._exact.all())
        slope = q * float(np.abs(self.nodes).max()) ** max(q - 1, 0)
        return self._estimate(values, np.full(len(values), 0.0 if known else np.inf), slope)

    def grid(self, points: int = 400, log: bool = False) -> np.ndarray:
        """Points that cover what :meth:`pdf` draws at its default width, evenly or in log10."""
        if points < 2:
            msg = f"a grid needs at least 2 points, got {points}"
            raise ValueError(msg)
        nodes = self._positive_decades() if log else self.nodes
        if nodes.size == 0:
            msg = f"no eigenvalue above the floor {self.floor:.3g}; use log=False"
            raise ValueError(msg)
        tail = _TAILS * self._width(log)
        even = np.linspace(nodes.min() - tail, nodes.max() + tail, points)
        return 10.0**even if log else even

    @property
    def _exact(self) -> np.ndarray:
        return self.exact if len(self.exact) else np.zeros(len(self.nodes), bool)

    def _beside(self, points: np.ndarray) -> np.ndarray:
        """For every probe, the larger of the weights on either side of each point."""
        bounds = [
            _larger(w)[np.searchsorted(theta, points, side="right")] * (not exact)
            for theta, w, exact in zip(self.nodes, self.weights, self._exact, strict=True)
        ]
        return np.asarray(bounds)

    def _estimate(
        self,
        samples: Sequence[np.ndarray] | np.ndarray,
        quadrature: Sequence[np.ndarray] | np.ndarray,
        slope: float = 0.0,
    ) -> Estimate:
        """The mean over the first axis, and the mean of the bounds.

        A change of the matrix by e changes the number by at most ``slope`` e; 0 where it moves the
        points at which eigenvalues are counted instead.
        """
        stacked, bounds = np.asarray(samples), np.asarray(quadrature).mean(axis=0)
        value, count = stacked.mean(axis=0), len(stacked)
        spread, half = np.full_like(value, np.inf), unknown("one probe has no spread")
        if count > 1:
            spread = stacked.std(axis=0, ddof=1) / math.sqrt(count)
            width = float(spread.max(initial=0.0)) * student(count)
            half = Error(width, MEASURED, reason=f"the spread of {count} probes")
        largest = Error(float(bounds.max(initial=0.0)), reason="Gauss quadrature")
        if math.isinf(largest.value):
            largest = unknown("the quadrature has no error bound for moments from 2 steps on")
        moved = (part.scaled(slope) for part in self.certificate.parts)
        return Estimate(value, spread, bounds, certificate(largest, half, *moved))

    def _width(self, log: bool) -> float:
        """The mean distance between nodes, below which smoothing would draw single nodes."""
        finest = min(self.steps, _FINEST)
        if log:
            decades = self._positive_decades()
            return max(float(np.ptp(decades)) / finest if decades.size else 0.0, _LEAST_DECADES)
        width = float(np.ptp(self.nodes)) / finest
        one_point = (float(np.abs(self.nodes).max()) or 1.0) / _FINEST
        return width if width > self.floor else one_point

    def _positive_decades(self) -> np.ndarray:
        return np.log10(self.nodes[self.nodes > self.floor])


def spectral_density(
    op: Operator | ArrayLike,
    *,
    probes: int = 10,
    steps: int = 100,
    seed: int = 0,
    limits: Limits = LIMITS,
    progress: Progress = None,
) -> SpectralDensity:
    """Stochastic Lanczos quadrature of a symmetric operator, indefinite ones included.

    It takes ``probes * steps`` products, less where the Krylov space of a probe is exhausted
    (then its quadrature is mu_v itself), plus 33 for checks and the norm. Each ten probes go
    together where ``steps`` vectors of all fit in 2 GB.

    Args:
      op: an operator, or a symmetric matrix.
      probes: random starts; errors fall with their square root.
      steps: of Lanczos for each, fully reorthogonalised; details finer than about the range over
        ``steps`` are not seen.
      progress: True for a bar on stderr, or a function of the products made and expected.
      seed: of the starts. More probes under the same seed extend fewer.
      limits: of memory.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> float(density.cdf(10.0).value.round(12)), density.products
    (1.0, 12)
    """
    operator = op if isinstance(op, Operator) else dense(op)
    size = operator.shape[0]
    _check_arguments(size, probes, steps, limits)
    product = host_product(operator)
    check_products(product(np.ones((1, size))))
    norm = operator_norm(operator)
    error = dense_error(operator, norm)
    floor = error.value if error.kind != UNKNOWN else spectral_error(size, operator.dtype) * norm
    with watching(progress, probes * min(steps, size)) as watch, beside_xla():
        found = _quadratures(watch(product), size, probes, steps, _BREAKDOWN * floor, seed, limits)
    longest = max(len(nodes) for nodes, _, _ in found)
    return SpectralDensity(
        nodes=np.stack([np.pad(t, (0, longest - len(t)), mode="edge") for t, _, _ in found]),
        weights=np.stack([np.pad(w, (0, longest - len(w))) for _, w, _ in found]),
        n=size,
        steps=steps,
        floor=floor,
        products=sum(run.products for _, _, run in found),
        exact=np.array([_exhausted(run) or run.complete for _, _, run in found]),
        certificate=certificate(
            error,
            Error(max(run.dropped for _, _, run in found), reason="couplings dropped as rounding"),
        ),
    )


def _check_arguments(size: int, probes: int, steps: int, limits: Limits) -> None:
    for name, number in (("probes", probes), ("steps", steps)):
        if not isinstance(number, int | np.integer) or number < 1:
            msg = f"{name}={number!r} is not a positive whole number"
            raise ValueError(msg)
    if 8.0 * min(steps, size) * size > limits.density_bytes:
        msg = (
            f"steps={steps} vectors of length {size} need {8e-9 * min(steps, size) * size:.0f} GB; "
            f"use steps={int(limits.density_bytes / (8 * size))} or fewer"
        )
        raise ValueError(msg)


def _exhausted(run: krylov.Run) -> bool:
    """No new direction: beyond lies what the start does not see, at another weight than its own."""
    return len(run.remainder) == 0


def _quadratures(
    product: krylov.Apply,
    size: int,
    probes: int,
    steps: int,
    noise: float,
    seed: int,
    limits: Limits,
) -> list[tuple[np.ndarray, np.ndarray, krylov.Run]]:
    """Nodes, weights and the run of every probe, without its basis.

    As many at a time as fit in memory, the rest one by one: a product of fewer would round its
    columns differently, and more probes would not extend fewer to the bit.
    """
    rng = probe_stream(seed)
    found: list[tuple[np.ndarray, np.ndarray, krylov.Run]] = []
    together = int(np.clip(limits.basis_bytes / (8 * steps * size), 1, _TOGETHER))
    while len(found) < probes:
        count = together if probes - len(found) >= together else 1
        starts = [rng.standard_normal((1, size)) for _ in range(count)]
        runs = krylov.side_by_side(
            product,
            [start / np.linalg.norm(start) for start in starts],
            max_steps=steps,
            noise=noise,
            enough=_exhausted,
            check_every=1,
        )
        found += [(*_gauss_quadrature(run), _light(run)) for run in runs]
    return found


def _light(run: krylov.Run) -> krylov.Run:
    """A run without its basis."""
    none = np.empty((0, run.basis.shape[1]))
    return replace(run, basis=none, following=none)


def _gauss_quadrature(run: krylov.Run) -> tuple[np.ndarray, np.ndarray]:
    """Nodes theta_j and weights w_j = (e_1^T y_j)^2 for the eigenpairs (theta_j, y_j) of T."""
    nodes, _, vectors = krylov.ritz(run)
    return nodes, vectors[0] ** 2


def _larger(weights: np.ndarray) -> np.ndarray:
    """For every gap between nodes, before the first and behind the last, the larger neighbour."""
    padded = np.concatenate([[0.0], weights, [0.0]])
    return np.maximum(padded[:-1], padded[1:])


def _variation(
    at: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float, edge: float
) -> np.ndarray:
    """sum over gaps of the larger weight times the variation of exp(-((t - x) / width)^2 / 2).

    The axis begins at ``edge``, where nodes before it are put: the curve's value there counts, too.
    """
    larger = _larger(weights)
    ends = np.concatenate([[edge], nodes, [math.inf]])
    left, right = ((ends[some] - at[..., None]) / width for some in (slice(-1), slice(1, None)))
    low, high = np.exp(-(left**2) / 2), np.exp(-(right**2) / 2)
    peaked = (left < 0) & (right > 0)
    inside = np.where(peaked, 2 - low - high, np.abs(high - low)) @ larger
    start = larger[np.searchsorted(nodes, edge, side="right")]
    return inside + start * np.exp(-(((edge - at) / width) ** 2) / 2)
