"""Eigenvalues, ranks and condition numbers in many digits, from the exact values of floats.

Every matrix of float64 entries is a matrix of rational numbers, and it is taken as such. The
arithmetic is that of Arb (balls of numbers, through python-flint), which shares no code with JAX,
with LAPACK or with this library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np

MATRIX_DIGITS = 80
FACTOR_DIGITS = 320  # eigenvalues of J J^T are squares of singular values

_GUARD = 20  # digits more than are asked for
_ZERO = 1e-240  # of the largest eigenvalue, for spectra computed with FACTOR_DIGITS


def exact(matrix: np.ndarray) -> flint.arb_mat:
    """The matrix of the exact values of floats, or of balls that are there already."""
    rows = np.asarray(matrix).tolist()
    return flint.arb_mat(len(rows), len(rows[0]), [entry for row in rows for entry in row])


def eigenvalues(matrix: np.ndarray | flint.arb_mat, digits: int) -> list[flint.arb]:
    """All eigenvalues of a symmetric matrix, from the largest down, as exact numbers.

    The QR algorithm is backward stable: the values differ from the true ones by a modest multiple
    of 10^-digits times the norm, repeated eigenvalues too. It works with more digits than it is
    asked for, because it does not always end where the last one has to come out right. The trace
    and the sum of squares, which ball arithmetic gives with proved errors, must agree with it.
    """
    with flint.ctx.workdps(digits + _GUARD):
        balls = matrix if isinstance(matrix, flint.arb_mat) else exact(matrix)
        size = balls.nrows()
        pairs = ((i, j) for i in range(size) for j in range(i))
        if any((balls[i, j] - balls[j, i]).abs_lower() > 0 for i, j in pairs):
            msg = "the matrix of a reference is not symmetric"
            raise ArithmeticError(msg)
        tolerance = flint.arb(10) ** (-digits - 5)
        complex_balls = flint.acb_mat(balls)
        found = [v.real.mid() for v in complex_balls.eig(algorithm="approx", tol=tolerance)]
        trace = sum((balls[i, i] for i in range(size)), flint.arb(0))
        squares = sum((entry * entry for entry in balls.entries()), flint.arb(0))
        _check_moment(sum(found, flint.arb(0)) - trace, squares.sqrt(), digits)
        _check_moment(sum((v * v for v in found), flint.arb(0)) - squares, squares, digits)
        return sorted(found, reverse=True)


def _check_moment(difference: flint.arb, scale: flint.arb, digits: int) -> None:
    allowed = scale.mid() * flint.arb(10) ** (10 - digits)
    if not abs(difference.mid()) <= allowed:
        msg = f"a reference of {digits} digits misses a moment by {difference.str(5)}"
        raise ArithmeticError(msg)


def rank(matrix: np.ndarray) -> int:
    """The rank of the exact values, by integer arithmetic."""
    fractions = [[Fraction(entry) for entry in row] for row in np.asarray(matrix).tolist()]
    scale = math.lcm(*(entry.denominator for row in fractions for entry in row))
    return flint.fmpz_mat([[int(entry * scale) for entry in row] for row in fractions]).rank()


def below(matrix: np.ndarray, shift: float) -> int:
    """How many eigenvalues lie below ``shift``: the negative pivots of M - shift I (Sylvester).

    It is the road to an eigenvalue that shares nothing with the QR algorithm. Symmetric
    elimination with the largest diagonal pivot, for a shift at which no pivot is zero.
    """
    with flint.ctx.workdps(MATRIX_DIGITS):
        rows = [[flint.arb(entry) for entry in row] for row in np.asarray(matrix).tolist()]
        for i, row in enumerate(rows):
            row[i] -= flint.arb(shift)
        negative = 0
        while rows:
            pick = max(range(len(rows)), key=lambda i: abs(float(rows[i][i].mid())))
            pivot = rows[pick][pick]
            if not (pivot > 0 or pivot < 0):
                msg = f"the sign of the pivot {pivot.str(5)} cannot be told: choose another shift"
                raise ArithmeticError(msg)
            negative += bool(pivot < 0)
            others = [i for i in range(len(rows)) if i != pick]
            rows = [
                [rows[i][j] - rows[i][pick] * rows[pick][j] / pivot for j in others] for i in others
            ]
        return negative


@dataclass(frozen=True)
class Truth:
    """The spectrum of a symmetric matrix, and what follows from it.

    Attributes:
      values: eigenvalues from the largest down; those of the null space are exactly zero, and may
        be more or fewer than those of an operator with the same non-zero spectrum.
      rank: the number of non-zero eigenvalues.
      hidden: the arithmetic cannot tell whether further eigenvalues are zero or only very small,
        below 10^-240 of the largest. The rank is then a lower bound, and so is kappa.
      semidefinite: no eigenvalue is negative.
    """

    values: tuple[flint.arb, ...]
    rank: int
    hidden: bool = False
    semidefinite: bool = True

    def padded(self, size: int) -> list[flint.arb]:
        """The spectrum of an operator of this size with the same non-zero eigenvalues."""
        nonzero = [v for v in self.values if v != 0]
        if len(nonzero) > size:
            msg = f"{len(nonzero)} non-zero eigenvalues do not fit an operator of size {size}"
            raise ValueError(msg)
        return sorted(nonzero + [flint.arb(0)] * (size - len(nonzero)), reverse=True)

    def kappa(self, rank: int | None = None) -> flint.arb | None:
        """lambda_max / lambda_rank; infinite where lambda_rank is zero; None for the zero matrix.

        A matrix that rounding has made slightly indefinite has the smallest absolute non-zero
        eigenvalue in the place of the smallest eigenvalue.
        """
        if self.rank == 0:
            return None
        largest = self.values[0]
        if rank is None:
            smallest = min(abs(v) for v in self.values if v != 0)
        else:
            smallest = self.values[rank - 1] if rank <= len(self.values) else flint.arb(0)
        with flint.ctx.workdps(FACTOR_DIGITS):
            return (largest / smallest).mid() if smallest > 0 else flint.arb(math.inf)


def of_matrix(matrix: np.ndarray) -> Truth:
    """The truth about a stored symmetric matrix; its rank by integer arithmetic."""
    values, known = eigenvalues(matrix, MATRIX_DIGITS), rank(matrix)
    nonzero = set(sorted(range(len(values)), key=lambda i: abs(values[i]), reverse=True)[:known])
    kept = tuple(v if i in nonzero else flint.arb(0) for i, v in enumerate(values))
    return Truth(kept, known, semidefinite=bool(kept[-1] >= 0))


def of_factor(factor: flint.arb_mat, known: int | None = None, *, hidden: bool = False) -> Truth:
    """The truth about F F^T, from the smaller of F F^T and F^T F."""
    with flint.ctx.workdps(FACTOR_DIGITS):
        tall = factor.nrows() > factor.ncols()
        gram = factor.transpose() * factor if tall else factor * factor.transpose()
        middle = flint.arb_mat(gram.nrows(), gram.ncols(), [e.mid() for e in gram.entries()])
        values = eigenvalues(middle, FACTOR_DIGITS)
        counted = sum(bool(v > values[0] * _ZERO) for v in values) if values[0] > 0 else 0
        if known is not None and counted != known:
            msg = f"{counted} non-zero eigenvalues, but the rank of the exact factor is {known}"
            raise ArithmeticError(msg)
        kept = (v if i < counted else flint.arb(0) for i, v in enumerate(values))
        return Truth(tuple(kept), counted, hidden)


def of_stored_factor(factor: np.ndarray) -> Truth:
    with flint.ctx.workdps(FACTOR_DIGITS):
        return of_factor(exact(factor), rank(factor))


def linear_network(
    weights: Sequence[np.ndarray], covariance: np.ndarray | None = None, skip: float = 0.0
) -> Truth:
    """sum_l (S_l S_l^T) (x) (T_l T_l^T), the Gauss-Newton matrix of a linear or residual network.

    S_l = W_L .. W_{l+1} and T_l = Sigma^{1/2} (W_{l-1} .. W_1)^T, with W + skip I in place of W. A
    Cholesky factor of Sigma stands for its root: only T_l T_l^T enters, up to a rotation.
    """
    with flint.ctx.workdps(FACTOR_DIGITS):
        layers = [_shifted(w, skip) for w in weights]
        lefts = [_identity(weights[-1].shape[0])]
        for layer in layers[:0:-1]:
            lefts.append(lefts[-1] * layer)
        inputs = weights[0].shape[1]
        rights = [_identity(inputs) if covariance is None else _upper_root(exact(covariance))]
        for layer in layers[:-1]:
            rights.append(rights[-1] * layer.transpose())
        blocks = [_kron(s, t) for s, t in zip(lefts[::-1], rights, strict=True)]
        return of_factor(_side_by_side(blocks))


def sum_of_kroneckers(lefts: Iterable[np.ndarray], rights: Iterable[np.ndarray]) -> Truth:
    """sum_l A_l (x) B_l of stored matrices whose products and sums are exact rational numbers."""
    total = None
    for left, right in zip(lefts, rights, strict=True):
        a, b = (np.vectorize(Fraction, otypes=[object])(side) for side in (left, right))
        total = np.kron(a, b) if total is None else total + np.kron(a, b)
    scale = math.lcm(*(entry.denominator for entry in total.ravel()))
    integers = flint.fmpz_mat([[int(entry * scale) for entry in row] for row in total.tolist()])
    with flint.ctx.workdps(FACTOR_DIGITS):
        values = eigenvalues(flint.arb_mat(integers), FACTOR_DIGITS)
        known = integers.rank()
        nonzero = set(sorted(range(len(values)), key=lambda i: -abs(values[i]))[:known])
        kept = [v / scale if i in nonzero else flint.arb(0) for i, v in enumerate(values)]
        return Truth(tuple(v.mid() for v in kept), known, semidefinite=bool(kept[-1] >= 0))


def _identity(size: int) -> flint.arb_mat:
    return exact(np.eye(size))


def _shifted(weight: np.ndarray, skip: float) -> flint.arb_mat:
    layer = exact(weight)
    for i in range(min(weight.shape)):
        layer[i, i] += flint.arb(skip)
    return layer


def _upper_root(sigma: flint.arb_mat) -> flint.arb_mat:
    """R with R^T R = Sigma positive definite, by Cholesky."""
    size = sigma.nrows()
    root = flint.arb_mat(size, size)
    for i in range(size):
        left = sigma[i, i] - sum((root[m, i] ** 2 for m in range(i)), flint.arb(0))
        root[i, i] = left.sqrt()
        for j in range(i + 1, size):
            inner = sum((root[m, i] * root[m, j] for m in range(i)), flint.arb(0))
            root[i, j] = (sigma[i, j] - inner) / root[i, i]
    return root


def _kron(left: flint.arb_mat, right: flint.arb_mat) -> flint.arb_mat:
    a, b = (np.array(side.tolist(), dtype=object) for side in (left, right))
    return exact(np.kron(a, b))


def _side_by_side(blocks: Sequence[flint.arb_mat]) -> flint.arb_mat:
    return exact(np.concatenate([np.array(b.tolist(), dtype=object) for b in blocks], axis=1))
