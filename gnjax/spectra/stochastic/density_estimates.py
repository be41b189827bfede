"""A spectral density as Gauss quadratures, and what is computed from it, each with its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate, unknown
from gnjax.numerics.scale import exponent_of, values_in_units
from gnjax.spectra.stochastic.probes import spread_of_mean, student

_FINEST = 100  # the default width is at least the range of the spectrum divided by this
_LEAST_DECADES = 0.01
_UNCERTIFIED = certificate(unknown("no run stated its errors"))
_GAUSSIAN = (2 / math.pi) ** 0.5  # ||f(A) - f(B)|| <= this ||A - B|| for f = exp(-x^2 / 2)
_TAILS = 4.0  # a grid ends so many widths beyond the nodes: all but 6e-5 of a Gaussian


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """A mean over probes with its errors.

    Attributes:
      value: the mean.
      standard_error: of the mean, from the spread over probes; infinite for one probe.
      quadrature: a proved bound on the mean error of the quadratures of these probes; 0 where they
        are exact.
      certificate: the largest quadrature error over all points, the largest 95% half-width of
        Student's distribution for the spread, and the certificate of the density. Where eigenvalues
        are counted up to a point, the point itself is uncertain by ``floor``.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> share = density.cdf([0.5, 10.0])
    >>> share.value.round(12).tolist()
    [0.0, 1.0]
    >>> share.standard_error.shape
    (2,)
    """

    _rows = ("value", "standard_error", "quadrature")

    value: np.ndarray
    standard_error: np.ndarray
    quadrature: np.ndarray = field(default_factory=lambda: np.zeros(0))
    certificate: Certificate = _UNCERTIFIED


@dataclass(frozen=True, repr=False)
class SpectralDensity(Result):
    """The density mu = (1/n) sum_i delta(lambda_i), as one Gauss quadrature for each probe.

    Attributes:
      nodes, weights: (probes, m), ascending. A probe whose Krylov space was exhausted may have
        fewer than m nodes; its largest node is then repeated with weight 0. The weights of a probe
        sum to 1.
      n: the size of the operator. steps: the number of Lanczos steps that was asked for, or made
      before an interruption. floor: an eigenvalue this small cannot be distinguished from zero, nor
      two eigenvalues this close from
        each other.
      products: how many products with the operator were made, without those that found ``floor``.
      exact: for each probe, whether its Krylov space was exhausted. Its quadrature is then mu_v
        itself, and the only error is rounding.
      certificate: how far the nodes can be from those of exact arithmetic. The parts are the
        rounding of products ("measured"), entries of T that were set to zero because they are no
        larger than rounding, and the operator's own error.
      finished: False where the work was interrupted; there are then fewer probes, or fewer steps.
      converged: whether the ``rtol`` that was asked for was reached. True where none was.
      looks: how often it was asked whether there are enough probes; half-widths of estimates hold
        with 95% at all of them together.

    >>> density = gnjax.spectral_density(np.diag([1.0, 2.0, 3.0]), probes=4, steps=3)
    >>> density.nodes.shape, density.weights.sum(axis=1).round(12).tolist()
    ((4, 3), [1.0, 1.0, 1.0, 1.0])
    >>> density.pdf(np.linspace(0, 4, 50), width=0.2).value.shape
    (50,)
    """

    _rows = ("nodes", "weights")

    nodes: np.ndarray
    weights: np.ndarray
    n: int
    steps: int
    floor: float
    products: int
    exact: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    certificate: Certificate = _UNCERTIFIED
    finished: bool = True
    converged: bool = True
    looks: int = 1

    def __str__(self) -> str:
        """The number of eigenvalues, the extreme nodes, and what the density rests on."""
        return (
            f"density of {self.n} eigenvalues between {self.nodes.min():.6g} and "
            f"{self.nodes.max():.6g} ({len(self.nodes)} probes of {self.steps} steps; "
            f"{self.certificate.brief}{'' if self.finished else ', INTERRUPTED'}"
            f"{'' if self.converged else ', NOT CONVERGED'})"
        )

    def pdf(self, points: ArrayLike, width: float | None = None, log: bool = False) -> Estimate:
        """The density at ``points``, smoothed by a Gaussian of standard deviation ``width``.

        With ``log`` this is the density of log10(lambda) over the positive eigenvalues. ``points``
        are then positive eigenvalues, not logarithms, and ``width`` is in decades. Eigenvalues up
        to ``floor`` are left out, so the density integrates to the share of positive eigenvalues.
        An error of the matrix moves that edge as well, by as much.
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
        included = self.nodes > self.floor if log else np.ones(self.nodes.shape, bool)
        nodes = np.log10(np.where(included, self.nodes, 1.0)) if log else self.nodes
        height = self._height(width)
        weights = np.where(included, self.weights, 0.0) * height
        values = [
            np.exp(-(((at[..., None] - theta) / width) ** 2) / 2) @ w
            for theta, w in zip(nodes, weights, strict=True)
        ]
        # For the error, the nodes that are left out lie at the edge where the axis begins. A probe
        # whose quadrature is exact has no such error.
        edge = math.log10(self.floor) if log and self.floor > 0 else -math.inf
        nodes = np.where(included, nodes, edge)
        bounds = [
            np.zeros(at.shape) if exact else height * _variation(at, theta, w, width, edge)
            for theta, w, exact in zip(nodes, self.weights, self._exact, strict=True)
        ]
        # A change of A by e in norm changes exp(-(A - t)^2 / (2 width^2)) by at most
        # (2 / pi)^{1/2} e / width in norm. So the density changes by at most e times the product of
        # these factors, which :meth:`_estimate` multiplies one by one.
        slopes = [_GAUSSIAN * height, 1 / width]
        if log:
            slopes = [height, 1 / width, _steepest_in_decades(at, width, edge)]
        return self._estimate(values, bounds, *slopes)

    def cdf(self, points: ArrayLike) -> Estimate:
        """The share of eigenvalues that are not larger than each point."""
        at = np.asarray(points, float) + self.floor  # a node that rounding moved still counts
        values = [
            (theta <= at[..., None]) @ w for theta, w in zip(self.nodes, self.weights, strict=True)
        ]
        return self._estimate(values, self._weights_next_to(at))

    def count(self, low: float, high: float) -> Estimate:
        """The number of eigenvalues in [low - floor, high + floor].

        Eigenvalues up to ``floor`` in size cannot be distinguished from zero. So they count in
        count(low, 0) as well as in count(0, high), and n - count(0, inf) is the number of negative
        ones.
        """
        if not low <= high:
            msg = f"low={low} must not exceed high={high}"
            raise ValueError(msg)
        low, high = low - self.floor, high + self.floor
        inside = (self.nodes >= low) & (self.nodes <= high)
        # The quadrature error at low and at high.
        bounds = self._weights_next_to(np.asarray(low)) + self._weights_next_to(np.asarray(high))
        return self._estimate(self.n * (self.weights * inside).sum(axis=1), self.n * bounds)

    def moment(self, q: int) -> Estimate:
        """(1/n) tr A^q, without quadrature error up to q = 2 steps - 1."""
        if not isinstance(q, int | np.integer) or q < 0:
            msg = f"q={q!r} is not 0, 1, 2, .."
            raise ValueError(msg)
        # The moments are those of A / scale times scale^q, as powers of A itself may overflow.
        scale = 2.0 ** ((exponent_of(float(np.abs(self.nodes).max())) or 1) - 1)
        scaled = self.nodes / scale  # whose powers underflow only where they do not count
        values, power = (self.weights * scaled**q).sum(axis=1), q * int(math.log2(scale))
        values, lost = values_in_units(values, 0.0, power)  # times 2^power, and what underflows
        is_exact = q < 2 * self.steps or bool(self._exact.all())
        # A change e of A changes A^q by up to q ||A||^(q - 1) e, which is the product of slopes.
        slopes = [q * float(np.abs(scaled).max()) ** max(q - 1, 0)] + [scale] * max(q - 1, 0)
        bounds = lost if is_exact else np.full(len(values), np.inf)
        return self._estimate(values, bounds, *(slopes if q else []))

    def grid(self, points: int = 400, log: bool = False) -> np.ndarray:
        """Points (points,) at which to draw :meth:`pdf` at its default width, ascending.

        They are evenly spaced, or with ``log`` evenly spaced in log10. They reach a few widths
        beyond the nodes, where the smoothed density is nearly zero.
        """
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

    def _height(self, width: float) -> float:
        """1 / (width (2 pi)^{1/2}), the largest value of the density of N(0, width^2)."""
        spread = width * math.sqrt(2 * math.pi)
        if spread * float(np.finfo(float).max) < 1:
            msg = f"the density at width={width} is beyond the largest float; use log=True, or cdf"
            raise ValueError(msg)
        return 1 / spread

    @property
    def _exact(self) -> np.ndarray:
        """``exact`` for each probe, and False for a density made without it."""
        return self.exact if len(self.exact) else np.zeros(len(self.nodes), bool)

    def _weights_next_to(self, points: np.ndarray) -> np.ndarray:
        """For every probe, the larger weight of the two nodes next to each point; 0 where it is
        exact.
        """
        bounds = [
            _larger(w)[np.searchsorted(theta, points, side="right")] * (not exact)
            for theta, w, exact in zip(self.nodes, self.weights, self._exact, strict=True)
        ]
        return np.asarray(bounds)

    def _estimate(
        self,
        samples: Sequence[np.ndarray] | np.ndarray,
        quadrature: Sequence[np.ndarray] | np.ndarray,
        *slopes: float,
    ) -> Estimate:
        """The mean over probes of ``samples`` (probes, ..), with the errors of this mean.

        ``quadrature`` has a bound on the error of each sample. A change of the matrix by e in norm
        changes the value by at most e times the product of ``slopes``. They are given one by one,
        as their product may overflow where e times it does not. There are none for counts, where
        such a change moves the points up to which eigenvalues are counted.
        """
        stacked, bounds = np.asarray(samples), np.asarray(quadrature).mean(axis=0)
        value, count = stacked.mean(axis=0), len(stacked)
        spread, half_width = np.full_like(value, np.inf), unknown("one probe has no spread")
        if count > 1:
            spread = spread_of_mean(stacked)
            largest_half = float(spread.max(initial=0.0)) * student(count, self.looks)
            half_width = Error(largest_half, MEASURED, reason=f"the spread of {count} probes")
        largest = Error(float(bounds.max(initial=0.0)), reason="Gauss quadrature")
        if math.isinf(largest.value):
            largest = unknown("the quadrature has no error bound for moments from 2 steps on")
        moved = [reduce(Error.scaled, slopes or (0.0,), part) for part in self.certificate.parts]
        return Estimate(value, spread, bounds, certificate(largest, half_width, *moved))

    def _width(self, log: bool) -> float:
        """The default width of the Gaussian in :meth:`pdf`: the mean distance between nodes.

        It is in decades with ``log``. If all nodes are equal up to the floor, it is a hundredth of
        their size.
        """
        intervals = min(self.steps, _FINEST)
        if log:
            decades = self._positive_decades()
            return max(float(np.ptp(decades)) / intervals if decades.size else 0.0, _LEAST_DECADES)
        width = float(np.ptp(self.nodes)) / intervals
        width_of_one_point = (float(np.abs(self.nodes).max()) or 1.0) / _FINEST
        return width if width > self.floor else width_of_one_point

    def _positive_decades(self) -> np.ndarray:
        """log10 of all nodes above the floor."""
        return np.log10(self.nodes[self.nodes > self.floor])


def _larger(weights: np.ndarray) -> np.ndarray:
    """For each of the m + 1 gaps around m nodes, the larger weight of the nodes at its ends."""
    padded = np.concatenate([[0.0], weights, [0.0]])
    return np.maximum(padded[:-1], padded[1:])


def _variation(
    at: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float, edge: float
) -> np.ndarray:
    """A bound on the error of a Gauss quadrature of a Gaussian, at each point t of ``at``.

    Integrated by parts, the error is at most the sum over the gaps between nodes of the larger
    weight of the two times the variation of f(x) = exp(-((t - x) / width)^2 / 2) in the gap. The
    axis begins at ``edge``, where the value of f counts as variation, too.
    """
    larger = _larger(weights)
    ends = np.concatenate([[edge], nodes, [math.inf]])
    # (x - t) / width for the ends x of every gap: (points, gaps).
    left, right = ((ends[side] - at[..., None]) / width for side in (slice(-1), slice(1, None)))
    f_left, f_right = np.exp(-(left**2) / 2), np.exp(-(right**2) / 2)
    is_peak_inside = (left < 0) & (right > 0)  # f rises to 1 and falls again inside this gap
    variation = np.where(is_peak_inside, 2 - f_left - f_right, np.abs(f_right - f_left))
    at_edge = larger[np.searchsorted(nodes, edge, side="right")]
    return variation @ larger + at_edge * np.exp(-(((edge - at) / width) ** 2) / 2)


def _steepest_in_decades(points: np.ndarray, width: float, edge: float) -> float:
    """The largest derivative by lambda of width f(lambda), for the Gaussians f around ``points``.

    f = exp(-t^2 / 2) with t = (log10(lambda) - x) / width, for lambda above 10^edge and a point x,
    both in decades. Times ``width`` the derivative is |t| exp(-t^2 / 2 - a t) 10^-x / log(10) with
    a = width log(10), which is largest at t = (-a +- (a^2 + 4)^(1/2)) / 2, or at the edge where
    that lies between the two.
    """
    a = width * math.log(10)
    root = math.sqrt(a**2 + 4)
    below = np.maximum(-(a + root) / 2, np.minimum((edge - points) / width, 0.0))
    above = (root - a) / 2
    sides = [np.abs(t) * np.exp(-(t**2) / 2 - a * t) for t in (below, above)]
    with np.errstate(over="ignore"):
        slopes = np.maximum(*sides) * 10.0**-points / math.log(10)
    return float(np.minimum(slopes, np.finfo(float).max).max(initial=0.0))
