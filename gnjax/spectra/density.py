"""Spectral density of any symmetric operator, by stochastic Lanczos quadrature.

A unit vector v sees the spectrum through the measure mu_v, which has the mass (u_i^T v)^2 at each
eigenvalue lambda_i with eigenvector u_i. For v uniform on the sphere its mean is the spectral
density mu = (1/n) sum_i delta(lambda_i). After m steps of Lanczos from v, the eigenvalues
theta_j of the tridiagonal T and the squared first entries w_j of its eigenvectors are the
Gauss quadrature of mu_v (Golub and Welsch, 1969):

    sum_j w_j theta_j^q = v^T A^q v,  q = 0 .. 2 m - 1,

and the distribution functions of both differ at t by at most the larger of the weights on either
side of t (Chebyshev, Markov, Stieltjes). The average over probes estimates mu; the spread over
probes is the reported error, which does not know of the quadrature's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.operators.base import Operator, dense
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra import lanczos as krylov
from gnjax.spectra.host_products import BASIS_BYTES, beside_xla, host_product
from gnjax.spectra.trace import check_products, probe_stream

_LARGEST_BASIS_BYTES = 16e9
_BREAKDOWN = 16.0  # floors: the directions before amplify the rounding of a product
_FINEST = 100  # widths in the range of the spectrum, at most, unless the caller asks for more
_LEAST_DECADES = 0.01
_TOGETHER = 10  # probes in one product
_TAILS = 4.0  # widths beyond the outermost nodes: all but 6e-5 of a Gaussian


@dataclass(frozen=True)
class Estimate:
    """A mean over probes, with its standard error (infinite for one probe, which has no spread)."""

    value: np.ndarray
    standard_error: np.ndarray


@dataclass(frozen=True)
class SpectralDensity:
    """mu = (1/n) sum_i delta(lambda_i), as one Gauss quadrature for each probe.

    Attributes:
      nodes, weights: (probes, m), ascending; a probe that needs fewer than m nodes, because its
        Krylov space is exhausted, repeats its largest one with weight 0. Weights sum to 1.
      n: the size of the operator.
      steps: of Lanczos, as asked for.
      floor: an eigenvalue this small cannot be told from zero, nor two this close from each other.
      products: operator applications, without those that found ``floor``.
    """

    nodes: np.ndarray
    weights: np.ndarray
    n: int
    steps: int
    floor: float
    products: int

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
        weights = np.where(kept, self.weights, 0.0) / (width * math.sqrt(2 * math.pi))
        return _estimate(
            [
                np.exp(-(((at[..., None] - theta) / width) ** 2) / 2) @ w
                for theta, w in zip(nodes, weights, strict=True)
            ]
        )

    def cdf(self, points: ArrayLike) -> Estimate:
        """The share of eigenvalues up to each point, included."""
        at = np.asarray(points, float)[..., None] + self.floor
        return _estimate(
            [(theta <= at) @ w for theta, w in zip(self.nodes, self.weights, strict=True)]
        )

    def count(self, low: float, high: float) -> Estimate:
        """The number of eigenvalues in [low, high]; both ends are widened by ``floor``.

        Zero therefore belongs to [low, 0], and the negative ones are n - count(0, inf).
        """
        if not low <= high:
            msg = f"low={low} must not exceed high={high}"
            raise ValueError(msg)
        inside = (self.nodes >= low - self.floor) & (self.nodes <= high + self.floor)
        return _estimate(self.n * (self.weights * inside).sum(axis=1))

    def moment(self, q: int) -> Estimate:
        """(1/n) tr A^q, without quadrature error up to q = 2 steps - 1."""
        if not isinstance(q, int | np.integer) or q < 0:
            msg = f"q={q!r} is not 0, 1, 2, .."
            raise ValueError(msg)
        return _estimate((self.weights * self.nodes**q).sum(axis=1))

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
    op: Operator | ArrayLike, *, probes: int = 10, steps: int = 100, seed: int = 0
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
      seed: of the starts. More probes under the same seed extend fewer.
    """
    operator = op if isinstance(op, Operator) else dense(op)
    size = operator.shape[0]
    _check_arguments(size, probes, steps)
    product = host_product(operator)
    check_products(product(np.ones((1, size))))
    floor = spectrum.dense_error(operator, spectrum.operator_norm(operator)).value
    with beside_xla():
        found = _quadratures(product, size, probes, steps, _BREAKDOWN * floor, seed)
    longest = max(len(nodes) for nodes, _, _ in found)
    return SpectralDensity(
        nodes=np.stack([np.pad(t, (0, longest - len(t)), mode="edge") for t, _, _ in found]),
        weights=np.stack([np.pad(w, (0, longest - len(w))) for _, w, _ in found]),
        n=size,
        steps=steps,
        floor=floor,
        products=sum(products for _, _, products in found),
    )


def _check_arguments(size: int, probes: int, steps: int) -> None:
    for name, number in (("probes", probes), ("steps", steps)):
        if not isinstance(number, int | np.integer) or number < 1:
            msg = f"{name}={number!r} is not a positive whole number"
            raise ValueError(msg)
    if 8.0 * min(steps, size) * size > _LARGEST_BASIS_BYTES:
        msg = (
            f"steps={steps} vectors of length {size} need {8e-9 * min(steps, size) * size:.0f} GB; "
            f"use steps={int(_LARGEST_BASIS_BYTES / (8 * size))} or fewer"
        )
        raise ValueError(msg)


def _exhausted(run: krylov.Run) -> bool:
    """No new direction: beyond lies what the start does not see, at another weight than its own."""
    return len(run.remainder) == 0


def _quadratures(
    product: krylov.Apply, size: int, probes: int, steps: int, noise: float, seed: int
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Nodes, weights and products of every probe.

    As many at a time as fit in memory, the rest one by one: a product of fewer would round its
    columns differently, and more probes would not extend fewer to the bit.
    """
    rng = probe_stream(seed)
    found: list[tuple[np.ndarray, np.ndarray, int]] = []
    together = int(np.clip(BASIS_BYTES / (8 * steps * size), 1, _TOGETHER))
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
        found += [(*_gauss_quadrature(run), run.products) for run in runs]
    return found


def _gauss_quadrature(run: krylov.Run) -> tuple[np.ndarray, np.ndarray]:
    """Nodes theta_j and weights w_j = (e_1^T y_j)^2 for the eigenpairs (theta_j, y_j) of T."""
    nodes, _, vectors = krylov.ritz(run)
    return nodes, vectors[0] ** 2


def _estimate(samples: np.ndarray | list[np.ndarray]) -> Estimate:
    """The mean over the first axis."""
    stacked = np.asarray(samples)
    value = stacked.mean(axis=0)
    if len(stacked) == 1:
        return Estimate(value, np.full_like(value, np.inf))
    return Estimate(value, stacked.std(axis=0, ddof=1) / math.sqrt(len(stacked)))
