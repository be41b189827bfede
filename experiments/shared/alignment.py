"""How well the diagonal blocks of a matrix stand for it, each number with both ends of an interval.

A is symmetric and known up to an error e in the 2-norm, and B is its block diagonal, which is then
known to e as well: taking diagonal blocks does not increase the 2-norm. g is a vector as computed,
M = A + d I and N = B + d I for a damping d > 0, and A is positive semidefinite where steps are
taken, so that ||M^{-1}|| and ||N^{-1}|| are at most 1 / d.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

import gnjax
from gnjax.numerics.rounding import gamma
from gnjax.operators import Dense

Matrix = NDArray[np.float64]
_FLOAT64 = jnp.dtype(jnp.float64)


class Interval(NamedTuple):
    """A number as computed, and a lower and an upper end of where the exact one is."""

    value: float
    low: float
    high: float


class Step(NamedTuple):
    """A solution s of (A + d) s = g, ||A s + d s - g|| for the exact A, and the error of s."""

    vector: Matrix
    residual: float
    error: float


def relative_error(matrix: Matrix, blocks: Matrix, error: float) -> Interval:
    """||A - B||_F / ||A||_F.

    It is the root of E ||(A - B) v||^2 / E ||A v||^2 for Gaussian vectors v, and the cosine of A
    and B in Frobenius' product is (1 - its square)^{1/2}. An error e in the 2-norm is at most
    p^{1/2} e in Frobenius' norm.
    """
    off, whole = (float(np.linalg.norm(one)) for one in (matrix - blocks, matrix))
    e = len(matrix) ** 0.5 * error + gamma(matrix.size + 2, _FLOAT64) * whole
    low, high = max(0.0, off - e) / (whole + e), (off + e) / (whole - e) if e < whole else math.inf
    return Interval(off / whole, low, min(high, 1.0))


def of_top_eigenvectors(first: gnjax.answers.Spectrum, second: gnjax.answers.Spectrum) -> Interval:
    """The cosine, without its sign, of the eigenvectors of two largest eigenvalues."""
    (one, one_angle), (other, other_angle) = _top(first), _top(second)
    cosine = abs(float(one @ other))
    found = _cosine(cosine, one_angle + other_angle, gamma(2 * len(one) + 4, _FLOAT64))
    return found._replace(low=max(0.0, found.low))


def _top(spectrum: gnjax.answers.Spectrum) -> tuple[Matrix, float]:
    """The unit eigenvector of the largest eigenvalue, and a bound on its angle with the truth."""
    vectors, angles = spectrum.vectors, spectrum.angles
    assert vectors is not None
    assert angles is not None
    return vectors[0], float(angles[0])


def stored(matrix: Matrix, error: gnjax.Error) -> Dense:
    """The symmetric matrix with the error that is known of it."""
    return Dense(
        jnp.asarray(matrix),
        jnp.asarray(error.value),
        error.kind,
        error.failure,
        reason=error.reason,
    )


def step(matrix: Matrix, damping: float, gradient: Matrix, error: float) -> Step:
    """(A + d)^{-1} g for the positive semidefinite A that is within ``error`` of ``matrix``."""
    damped = matrix + damping * np.eye(len(matrix))
    vector = scipy.linalg.solve(damped, gradient, assume_a="pos")
    size = float(np.linalg.norm(vector))
    norm = float(np.linalg.norm(matrix)) + damping
    rounding = gamma(len(matrix) + 4, _FLOAT64) * (norm * size + float(np.linalg.norm(gradient)))
    residual = float(np.linalg.norm(damped @ vector - gradient)) + rounding + error * size
    return Step(vector, residual, residual / damping)


def of_steps(first: Step, second: Step) -> Interval:
    """The cosine of two steps. An error e turns a vector s by at most arcsin(e / ||s||)."""
    lengths = [float(np.linalg.norm(one.vector)) for one in (first, second)]
    cosine = float(first.vector @ second.vector) / math.prod(lengths)
    sines = [one.error / length for one, length in zip((first, second), lengths, strict=True)]
    angle = sum(math.asin(sine) if sine < 1 else math.pi for sine in sines)
    return _cosine(cosine, angle, gamma(3 * len(first.vector) + 8, _FLOAT64))


def decrease(
    matrix: Matrix, damping: float, gradient: Matrix, error: float, steps: tuple[Step, Step]
) -> Interval:
    """What the best multiple of the blocks' step gains, over what the step of all of A gains.

    Of the model q(s) = g^T s - s^T M s / 2, the best multiple of t = N^{-1} g gains
    (g^T t)^2 / (2 t^T M t), and s = M^{-1} g gains g^T M^{-1} g / 2. Their quotient is the squared
    cosine of s and t in the inner product of M. It is that of the t which was computed.

    With r = M s - g for the s which was computed, g^T M^{-1} g = 2 g^T s - s^T M s + r^T M^{-1} r.
    """
    whole, blocks = steps
    damped = matrix + damping * np.eye(len(matrix))
    (along_whole, whole_error), (along, along_error) = (
        _form(damped, one.vector, error) for one in (whole, blocks)
    )
    g = float(np.linalg.norm(gradient))
    units = gamma(len(gradient) + 8, _FLOAT64)
    slope = abs(float(gradient @ blocks.vector))
    slope_error = units * g * float(np.linalg.norm(blocks.vector))
    gain = 2 * float(gradient @ whole.vector) - along_whole
    gain_error = whole_error + 2 * units * g * float(np.linalg.norm(whole.vector))
    low = max(slope - slope_error, 0) ** 2 / (
        (along + along_error) * (gain + gain_error + whole.residual**2 / damping)
    )
    high = (slope + slope_error) ** 2 / ((along - along_error) * (gain - gain_error))
    return Interval(slope**2 / (along * gain), low, min(high, 1.0))


def _form(damped: Matrix, vector: Matrix, error: float) -> tuple[float, float]:
    """s^T M s, and a bound on its error."""
    square = float(vector @ vector)
    rounding = 2 * gamma(len(vector) + 4, _FLOAT64) * float(np.linalg.norm(damped))
    return float(vector @ damped @ vector), (rounding + error) * square


def _cosine(cosine: float, angle: float, rounding: float) -> Interval:
    """The cosines of all angles that are within ``angle`` of that of ``cosine``."""
    nearest = math.acos(min(1.0, cosine + rounding))
    furthest = math.acos(max(-1.0, cosine - rounding))
    low = math.cos(min(math.pi, furthest + angle))
    return Interval(cosine, low, math.cos(max(0.0, nearest - angle)))
