"""What the paper says of a figure, as functions of the saved table, with the number behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.table import Columns

HOLDS, FAILS, NOT_TESTABLE = "holds", "fails", "not testable"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in a table, and the number or regime that says so."""

    status: str
    number: float
    text: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about one figure, and its test."""

    figure: str
    statement: str
    check: Callable[[Columns], Verdict]


def verdict(holds: bool, number: float, text: str) -> Verdict:
    return Verdict(HOLDS if holds else FAILS, float(number), text)


def not_testable(why: str) -> Verdict:
    return Verdict(NOT_TESTABLE, float("nan"), why)


def where(table: Columns, **wanted: object) -> Columns:
    """The rows whose columns equal the given values."""
    keep = np.ones(len(next(iter(table.values()))), bool)
    for name, value in wanted.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


def length(table: Columns) -> int:
    return len(next(iter(table.values())))


def means(table: Columns, over: str, of: str) -> tuple[NDArray, NDArray]:
    """The distinct values of ``over``, and the mean over seeds of ``of`` at each."""
    points = np.unique(table[over])
    return points, np.array([table[of][table[over] == point].mean() for point in points])


def r_squared(y: NDArray, fitted: NDArray) -> float:
    """1 - residual over total sum of squares; 1 for a constant met exactly."""
    total = float(((y - y.mean()) ** 2).sum())
    residual = float(((y - fitted) ** 2).sum())
    return 1.0 if total == 0 else 1 - residual / total


def polynomial_fit(x: NDArray, y: NDArray, degree: int) -> NDArray:
    return np.polyval(np.polyfit(x, y, degree), x)


def exponential_fit(x: NDArray, y: NDArray) -> NDArray:
    """a exp(b x) by least squares on log y."""
    return np.exp(polynomial_fit(x, np.log(y), 1))


def growth_exponent(x: NDArray, y: NDArray) -> float:
    """The slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def worst(values: Sequence[float]) -> float:
    return float(np.max(values))
