"""From rows of a table to the curves of a figure: select rows, then average over the seeds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects
from sweeps.table import Columns


@dataclass(frozen=True)
class Series:
    """One curve: at each x the geometric mean over the seeds with its 95% interval.

    ``low`` and ``high`` are the mean itself where there is one seed. Where `resolved` is false the
    mean includes lower bounds, and so is a lower bound itself.
    """

    x: NDArray
    mean: NDArray
    low: NDArray
    high: NDArray
    resolved: NDArray


def rows(table: Columns) -> int:
    """How many rows the table has."""
    return len(table) if isinstance(table, DataFrame) else len(next(iter(table.values()), ()))


def select(table: Columns, **wanted: Any) -> Columns:
    """The rows whose columns have the given value, or one of the given values."""
    keep = np.ones(rows(table), dtype=bool)
    for name, values in wanted.items():
        keep &= np.isin(table[name], values)
    if isinstance(table, DataFrame):
        return table[keep].reset_index(drop=True)
    return {name: column[keep] for name, column in table.items()}


def distinct(table: Columns, name: str) -> list[Any]:
    """The different values of a column, sorted."""
    return np.unique(table[name]).tolist()


def of_first_seed(table: Columns) -> Columns:
    """The rows of the first seed, which is not 0 in a run on other draws."""
    return select(table, seed=min(distinct(table, "seed")))


def over_seeds(table: Columns, x: str, *factors: str, arithmetic: bool = False) -> Series:
    """The geometric mean at each x of a column, or of the product of several, and its interval.

    Unbiased estimates keep their ``arithmetic`` mean, as does a column that is not positive.
    Rows where it is not finite (a bound that does not apply) are left out.
    """
    values = np.prod([table[name] for name in factors], axis=0)
    known = np.ones(rows(table), dtype=bool)
    return _aggregate(np.asarray(table[x]), values, known, arithmetic=arithmetic)


def kappa_over_seeds(table: Columns, x: str) -> Series:
    """`over_seeds` of kappa, with its certified lower end where the value is unresolved."""
    resolved = np.asarray(table["resolved"], bool)
    values = np.where(resolved, table["kappa"], table["kappa_low"])
    return _aggregate(np.asarray(table[x]), values, resolved)


def _aggregate(x: NDArray, y: NDArray, resolved: NDArray, *, arithmetic: bool = False) -> Series:
    """The mean of y over the seeds at each x, with its interval, of the rows where y is finite."""
    finite = np.isfinite(y)
    x, y, resolved = x[finite], y[finite], resolved[finite]
    places = np.unique(x)
    into, back = (np.log, np.exp) if (y > 0).all() and not arithmetic else (np.asarray, np.asarray)
    found = [effects.mean(into(y[x == place])) for place in places]
    known = [(e.value, e.low, e.high) if np.isfinite(e.low) else (e.value,) * 3 for e in found]
    mean, low, high = back(np.array(known).reshape(-1, 3).T)
    return Series(
        x=places,
        mean=mean,
        low=low,
        high=high,
        resolved=np.array([np.all(resolved[x == place]) for place in places], dtype=bool),
    )
