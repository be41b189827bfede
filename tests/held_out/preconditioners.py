"""Held-out trials of the caller's own preconditioners, from near the matrix to useless.

A bad preconditioner costs time and never truth. So kappa of a stored matrix is asked for with
positive definite preconditioners that are near it, far from it, nearly singular where the matrix is
large, ill conditioned, and badly aligned. The smallest eigenvalues are asked for by the rows of a
factor, whose preconditioner the library makes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import gnjax
from tests.held_out import many_digits
from tests.held_out.verdicts import Row, asked, kappa_judge, spectrum_judge

_ROWS = (8, 16, 28)
_DECADES = 24.0  # of a spectrum; a matrix that is singular to working precision is one of them

Rng = np.random.Generator


def _graded(rng: Rng, n: int) -> np.ndarray:
    return np.geomspace(1.0, 10.0 ** -rng.uniform(0, _DECADES / 2), n)


def _scattered(rng: Rng, n: int) -> np.ndarray:
    return np.sort(10.0 ** -rng.uniform(0, rng.uniform(0, _DECADES / 2), n))[::-1]


def _isolated(rng: Rng, n: int) -> np.ndarray:
    """A few eigenvalues at the lower end that stand alone below the others."""
    values = rng.uniform(0.5, 1.0, n)
    values[: rng.integers(1, 4)] *= 10.0 ** -rng.uniform(2, _DECADES)
    return np.sort(values)[::-1]


def _clustered(rng: Rng, n: int) -> np.ndarray:
    values = _graded(rng, n)
    values[n // 2 :] = values[-1] * (1 + 1e-6 * rng.random(n - n // 2))
    return values


SPECTRA: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "graded": _graded,
    "scattered": _scattered,
    "isolated": _isolated,
    "clustered": _clustered,
}


def _rotation(rng: Rng, n: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def _small_rotation(rng: Rng, n: int) -> np.ndarray:
    skew = rng.standard_normal((n, n)) * 10.0 ** -rng.uniform(0, 8)
    return np.linalg.qr(np.eye(n) + skew - skew.T)[0]


def _near(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A with every eigenvalue up to 30% wrong, in nearly its own eigenvectors."""
    return _of(q @ _small_rotation(rng, len(q)), values * rng.uniform(0.7, 1.3, len(q)))


def _congruent(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A^{1/2} N A^{1/2} for an N near the identity, or ill conditioned."""
    middle = _of(_rotation(rng, len(q)), 10.0 ** -rng.uniform(0, rng.uniform(0, 6), len(q)))
    root = q * values**0.5
    return root @ middle @ root.T


def _far(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A random matrix of a condition number from 10 to 1e12."""
    return _of(_rotation(rng, len(q)), np.geomspace(1.0, 10.0 ** -rng.uniform(1, 12), len(q)))


def _singular_where_large(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Nearly singular in the directions in which A is largest."""
    wrong = values.copy()
    wrong[: rng.integers(1, len(q) // 2)] *= 10.0 ** -rng.uniform(2, 14)
    return _of(q @ _small_rotation(rng, len(q)), wrong)


def _large_where_small(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Large in the directions in which A is smallest."""
    wrong = values.copy()
    wrong[-rng.integers(1, len(q) // 2) :] *= 10.0 ** rng.uniform(2, 14)
    return _of(q @ _small_rotation(rng, len(q)), wrong)


def _misaligned(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The eigenvalues of A in a wrong order of its eigenvectors."""
    return _of(q, rng.permutation(values) if rng.random() < 0.7 else values[::-1])


def _diagonal(rng: Rng, q: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.diag(np.diagonal(_of(q, values)))


PRECONDITIONERS: dict[str, Callable[[Rng, np.ndarray, np.ndarray], np.ndarray]] = {
    "near": _near,
    "congruent": _congruent,
    "far": _far,
    "singular where A is large": _singular_where_large,
    "large where A is small": _large_where_small,
    "misaligned": _misaligned,
    "diagonal": _diagonal,
}


def _of(q: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Nearly the matrix with these eigenvectors, the columns of q, and these eigenvalues."""
    matrix = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def preconditioners(seed: int, count: int) -> list[Row]:
    """kappa of ``count`` stored matrices, each with a preconditioner of every kind."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = list(SPECTRA)[index % len(SPECTRA)]
        q, values = _rotation(rng, n := int(rng.choice(_ROWS))), SPECTRA[name](rng, n)
        matrix, rtol = _of(q, values), float(10.0 ** -rng.uniform(1, 8))
        judge = kappa_judge(many_digits.of_matrix(matrix))
        scale = 2.0 ** int(rng.integers(-40, 40))
        for kind, make in PRECONDITIONERS.items():
            question = partial(
                gnjax.condition_number,
                gnjax.dense(scale * matrix),
                preconditioner=10.0 ** rng.uniform(-6, 6) * make(rng, q, values),
                rtol=rtol,
                seed=index,
            )
            row = Row("preconditioners", kind, f"{seed}:{index}", f"kappa, {name}", "sketched")
            rows.append(asked(row, question, judge))
    return rows


def smallest(seed: int, count: int) -> list[Row]:
    """A few of the smallest eigenvalues of ``count`` stored factors, whole spectra beside them."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = list(SPECTRA)[index % len(SPECTRA)]
        n = int(rng.choice(_ROWS[1:]))
        values = SPECTRA[name](rng, n)
        columns = int(n * rng.choice([1, 1.5, 4]))
        left, right = _rotation(rng, n), np.linalg.qr(rng.standard_normal((columns, n)))[0]
        factor = 2.0 ** int(rng.integers(-40, 40)) * ((left * values**0.5) @ right.T)
        truth = many_digits.of_stored_factor(factor)
        memory = float(rng.choice([1e9, 5.0 * factor.size]))
        question = partial(
            gnjax.eigenvalues,
            gnjax.factored(factor),
            k=int(rng.integers(1, 6)),
            which="smallest",
            rtol=float(10.0 ** -rng.uniform(3, 12)),
            limits=gnjax.Limits(whole_rows=5, rows_bytes=memory),
        )
        row = Row("preconditioners", name, f"{seed}:{index}", "eigenvalues", "smallest")
        rows.append(asked(row, question, spectrum_judge(truth.padded(n), "smallest")))
    return rows
