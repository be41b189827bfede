"""Rows of a saved table: pick them, average them, fit a curve through them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame


def where(frame: DataFrame, **wanted: object) -> DataFrame:
    """The rows whose columns have the given value, or one of several.

    They are numbered anew, from 0 on.
    """
    keep = np.ones(len(frame), dtype=bool)
    for name, value in wanted.items():
        column, several = frame[name], isinstance(value, list | tuple)
        keep &= (column.isin(value) if several else column == value).to_numpy()
    return frame[keep].reset_index(drop=True)


def means(frame: DataFrame, over: str, of: str) -> tuple[NDArray, NDArray]:
    """The distinct values of ``over``, and the mean over seeds of ``of`` at each."""
    places, values = frame[over].to_numpy(), frame[of].to_numpy(float)
    points = np.unique(places)
    return points, np.array([values[places == point].mean() for point in points])


def geometric_means(frame: DataFrame, over: str, of: str) -> tuple[NDArray, NDArray]:
    """The distinct values of ``over``, and the geometric mean over seeds of ``of`` at each."""
    points, logs = means(frame.assign(**{of: np.log(frame[of])}), over, of)
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
