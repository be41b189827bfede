"""What the paper says of a figure, as functions of the saved table, with the number behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from sweeps.table import Columns

HOLDS, FAILS, NOT_TESTABLE = "holds", "fails", "not testable"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in a table, and the number or regime that says so."""

    status: str
    number: float
    text: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about one figure, its test, and the paper's number if it has one."""

    figure: str
    statement: str
    check: Callable[[Columns], Verdict]
    paper: str = ""


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


def rank_correlation(x: NDArray, y: NDArray) -> float:
    """Spearman's: the correlation of the ranks, ties sharing their mean rank; nan for constants."""
    ranks = scipy.stats.rankdata(x), scipy.stats.rankdata(y)
    if min(np.ptp(rank) for rank in ranks) == 0:
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def worst(values: Sequence[float]) -> float:
    return float(np.max(values))


def bound_holds(**wanted: object) -> Callable[[Columns], Verdict]:
    """kappa_low <= bound_convex <= bound_maximum in the wanted rows where the theorem applies."""

    def check(table: Columns) -> Verdict:
        bounded = where(table, **wanted, bound_applicable=True)
        if not length(bounded):
            return not_testable("no cell where the bound applies")
        ratios = bounded["bound_convex"] / bounded["kappa_low"]
        ordered = (bounded["bound_maximum"] >= bounded["bound_convex"]).all()
        text = f"smallest bound / kappa {ratios.min():.4f} over {len(ratios)} cells"
        return verdict(bool(ratios.min() >= 1 and ordered), ratios.min(), text)

    return check


def crossovers(first: Columns, second: Columns, over: str, of: str) -> NDArray:
    """For each seed, where ``of`` of the first rows rises above that of the second; nan if never.

    Interpolated between the values of ``over`` on log-log axes, where a power is a line; the first
    place, if there are several.
    """
    seeds = np.intersect1d(first["seed"], second["seed"])
    return np.array(
        [_crossover(where(first, seed=s), where(second, seed=s), over, of) for s in seeds]
    )


def _crossover(first: Columns, second: Columns, over: str, of: str) -> float:
    x, y = means(first, over, of)
    _, other = means(second, over, of)
    gap, x = np.log(y / other), np.log(x)
    rises = np.flatnonzero((gap[:-1] <= 0) & (gap[1:] > 0))
    if not rises.size:
        return float("nan")
    i = rises[0]
    share = gap[i] / (gap[i] - gap[i + 1])
    return float(np.exp(x[i] + share * (x[i + 1] - x[i])))


def trend(rows: Columns, over: str, symbol: str, *, rises: bool) -> Verdict:
    """Whether mean kappa rises, or falls, from every value of ``over`` to the next."""
    if not length(rows) or not rows["resolved"].all() or len(np.unique(rows[over])) < 2:
        return not_testable("fewer than 2 points, or a kappa that is not resolved")
    x, kappa = means(rows, over, "kappa")
    steps = kappa[1:] / kappa[:-1]
    holds = steps > 1 if rises else steps < 1
    against = [f"{a} to {b}" for (a, b), fine in zip(pairwise(x), holds, strict=True) if not fine]
    text = f"kappa {points(symbol, x, kappa)}"
    text += f"; not from {symbol}={', '.join(against)}" if against else ""
    return verdict(bool(holds.all()), steps.min() if rises else steps.max(), text)


def points(symbol: str, x: Iterable[float], y: Iterable[float]) -> str:
    """What a curve is at each of its places, in words."""
    return ", ".join(f"{value:.3g} at {symbol}={place}" for place, value in zip(x, y, strict=True))


def regime(symbol: str, values: NDArray, holds: NDArray) -> str:
    """Where a claim that fails somewhere does hold; nothing where it holds everywhere."""
    if holds.all():
        return ""
    yes, no = (", ".join(str(value) for value in values[at]) for at in (holds, ~holds))
    return f"; fails at {symbol}={no}, holds at {f'{symbol}={yes}' if yes else f'no {symbol}'}"
