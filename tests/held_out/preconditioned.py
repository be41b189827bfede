"""Held-out trials of kappa and of the smallest eigenvalues from the rows of a factor.

The spectra are hard for the method: clusters and tiny gaps at the lower end, singular and nearly
singular matrices, kappa up to 1e14 and beyond; J is from half as wide as tall to a hundred times,
and is held in float64 or in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

import gnjax
from gnjax.spectra.preconditioned_ends import Enclosed, Products, certified
from gnjax.spectra.preconditioned_ends.cholesky_ends import (
    Matrix,
    MatrixEnd,
    largest_end,
    smallest_end,
)
from gnjax.spectra.preconditioned_ends.triangle import Triangle
from tests.held_out import campaigns, many_digits
from tests.held_out import matrices as drawn
from tests.held_out.verdicts import Row, asked, kappa_judge, spectrum_judge

_ROWS = (16, 20, 28)
_RAISED = 0.5  # the chance at which wrong bounds are common enough to be counted
_ROUNDING = 1e-12  # of the products of a run
_WIDTHS = (0.5, 1.0, 1.3, 2.0, 10.0, 100.0)

Rng = np.random.Generator


def _geometric(rng: Rng, m: int) -> np.ndarray:
    return np.geomspace(1.0, 10.0 ** -rng.uniform(0, 14), m)


def _cluster(rng: Rng, m: int) -> np.ndarray:
    """Half of the eigenvalues lie at the lower end, within 1e-6 of each other."""
    values = _geometric(rng, m)
    values[m // 2 :] = values[-1] * (1 + 1e-6 * rng.random(m - m // 2))
    return values


def _pair(rng: Rng, m: int) -> np.ndarray:
    values = _geometric(rng, m)
    values[-2] = values[-1] * (1 + 1e-6)
    return values


def _two_levels(rng: Rng, m: int) -> np.ndarray:
    values = np.full(m, 10.0 ** -rng.uniform(0, 12))
    values[: rng.integers(1, m)] = 1.0
    return values


def _singular(rng: Rng, m: int) -> np.ndarray:
    values = _geometric(rng, m)
    values[-rng.integers(1, 4) :] = 0.0
    return values


SPECTRA: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "geometric": _geometric,
    "cluster below": _cluster,
    "pair below": _pair,
    "two levels": _two_levels,
    "singular": _singular,
}


def factors(seed: int, count: int) -> list[Row]:
    """``count`` factors J (m, q) with a prescribed spectrum: kappa, and four smallest values."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = list(SPECTRA)[index % len(SPECTRA)]
        m = int(rng.choice(_ROWS))
        factor = _with_spectrum(rng, SPECTRA[name](rng, m), int(m * rng.choice(_WIDTHS)))
        factor *= 2.0 ** int(rng.integers(-40, 40))
        truth = many_digits.of_stored_factor(factor)
        memory = float(rng.choice([1e9, 40.0 * factor.size, 5.0 * factor.size]))
        limits = gnjax.Limits(whole_rows=5, rows_bytes=memory)
        row = Row("preconditioned", name, f"{seed}:{index}", "kappa", "sketched")
        op, rtol = gnjax.factored(factor), float(10.0 ** rng.uniform(-6, -1))
        about = {"method": "sketched", "seed": index, "limits": limits, "rtol": rtol}
        question = partial(gnjax.condition_number, op, **about)
        rows.append(asked(row, question, kappa_judge(truth)))
        row = Row("preconditioned", name, f"{seed}:{index}", "eigenvalues", "smallest")
        question = partial(gnjax.eigenvalues, op, k=4, which="smallest", limits=limits)
        rows.append(asked(row, question, spectrum_judge(truth.padded(m), "smallest")))
    return rows


def _with_spectrum(rng: Rng, values: np.ndarray, columns: int) -> np.ndarray:
    """J (m, q) whose J J^T has these eigenvalues, or as many of them as q allows."""
    m = len(values)
    left = np.linalg.qr(rng.standard_normal((m, m)))[0]
    right = np.linalg.qr(rng.standard_normal((columns, min(m, columns))))[0]
    return (left * np.sqrt(values))[:, : min(m, columns)] @ right.T


def networks(seed: int, count: int) -> list[Row]:
    """kappa of kernels and Gauss-Newton matrices of ``count`` networks from the rows of J."""
    rows: list[Row] = []
    for draw, case in campaigns.network_cases(seed, count):
        rows += campaigns.asked_network(draw, case, ("sketched",), hessians=False)
    return rows


def chances(seed: int, count: int) -> list[Row]:
    """``count`` runs with a matrix of the caller's that hides both ends of the spectrum."""
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        size, rtol = int(rng.choice([60, 120])), float(rng.choice([0.05, 0.2, 0.5]))
        name = list(drawn.HARD)[index % len(drawn.HARD)]
        values = drawn.HARD[name](rng, size, rtol)
        near = np.clip(values, *np.quantile(values, [0.02, 0.98]))
        question = partial(
            gnjax.condition_number,
            gnjax.dense(np.diag(values)),
            preconditioner=np.diag(near),
            rtol=rtol,
            seed=int(rng.integers(2**31)),
        )
        row = Row("chances", name, f"{seed}:{index}", "kappa", "sketched")
        rows.append(asked(row, question, kappa_judge(campaigns.diagonal_truth(values))))
    return rows


def raised_chances(seed: int, count: int) -> list[Row]:
    """``count`` runs at each end with the chance raised to a half, the end hidden from the search.

    Answers of the library state chances so small that 20,000 of them are not expected to hold one
    that is wrong. Here some are, and the rows are broken where they are more than stated. The
    search begins at vectors that are orthogonal to the eigenvector of the end, so that only the
    random start of the run can find it.
    """
    rows: list[Row] = []
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        size, rtol = int(rng.choice([24, 60, 120])), float(rng.choice([0.05, 0.2, 0.5]))
        name, block = list(drawn.HARD)[index % len(drawn.HARD)], int(rng.choice([1, 1, 2, 4]))
        for end, true in _hidden_ends(drawn.HARD[name](rng, size, rtol), block):
            what = f"bound, sign {end.sign:.0f}"
            row = Row("chances", name, f"{seed}:{index}", what, "certified")
            question = partial(certified, end, rtol, _RAISED, int(rng.integers(2**31)))
            rows.append(asked(row, question, partial(_bounded, end.sign, true)))
    return rows


def _hidden_ends(values: np.ndarray, block: int) -> Iterator[tuple[MatrixEnd, float]]:
    """Both ends of a diagonal matrix, hidden from the preconditioner and from the search."""

    def products(rows: np.ndarray) -> Products:
        return Products(rows * values, (rows * values) @ rows.T)

    near = np.clip(values, *np.quantile(values, [0.02, 0.98]))

    def lost(longest: float, inverse: float, energy: float, norm: float) -> float:
        return _ROUNDING * inverse * norm * longest

    matrix = Matrix(len(values), products, lambda rows: rows * values, True, lost)
    top = largest_end(matrix, block)
    ends = smallest_end(matrix, Triangle(np.diag(near**0.5)), block, top.norm), top
    for end, place in zip(ends, (values.argmin(), values.argmax()), strict=True):
        without = np.where(np.arange(len(values)) == place, 0.0, end.rows)
        yield replace(end, rows=np.linalg.qr(without.T)[0].T), float(values[place])


def _bounded(sign: float, true: float, row: Row, answer: Enclosed) -> Row:
    """Whether the bound lies outside of the true end, and the chance that is stated."""
    return replace(
        row,
        truth=repr(true),
        lower=min(answer.bound, answer.ritz),
        upper=max(answer.bound, answer.ritz),
        inside=sign * (true - answer.bound) >= -_ROUNDING * true,
        kind="probable" if answer.missed else "proved",
        failure=answer.missed,
        resolved=0 < answer.bound < np.inf,
        relative_width=abs(answer.ritz - answer.bound) / true,
    )
