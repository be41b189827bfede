"""Rows of a saved table: pick them, average them, fit a curve through them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps.table import Columns


def where(table: Columns, **wanted: object) -> Columns:
    """The rows whose columns equal the given values."""
    keep = np.ones(length(table), bool)
    for name, value in wanted.items():
        keep &= np.asarray(table[name] == value)
    return kept(table, keep)


def kept(table: Columns, keep: NDArray) -> Columns:
    """The rows for which ``keep`` is true."""
    if isinstance(table, DataFrame):
        return table[np.asarray(keep)].reset_index(drop=True)
    return {name: column[keep] for name, column in table.items()}


def by_seed(table: Columns) -> list[Columns]:
    """The rows of each seed, seeds in increasing order."""
    return [where(table, seed=seed) for seed in np.unique(table["seed"])]


def length(table: Columns) -> int:
    return len(table) if isinstance(table, DataFrame) else len(next(iter(table.values())))


def means(table: Columns, over: str, of: str) -> tuple[NDArray, NDArray]:
    """The distinct values of ``over``, and the mean over seeds of ``of`` at each."""
    points = np.unique(table[over])
    values, places = np.asarray(table[of], float), np.asarray(table[over])
    return points, np.array([values[places == point].mean() for point in points])


def geometric_means(table: Columns, over: str, of: str) -> tuple[NDArray, NDArray]:
    """The distinct values of ``over``, and the geometric mean over seeds of ``of`` at each."""
    points, logs = means({over: table[over], of: np.log(np.asarray(table[of]))}, over, of)
    return points, np.exp(logs)


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


def points(symbol: str, x: Iterable[float], y: Iterable[float]) -> str:
    """The points of a curve as text: "1.2 at m=3, 1.5 at m=4"."""
    return ", ".join(f"{value:.3g} at {symbol}={place}" for place, value in zip(x, y, strict=True))
