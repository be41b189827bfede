"""From rows of a table to the curves of a figure: select rows, then average over the seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects


@dataclass(frozen=True)
class Series:
    """One curve: at each x the geometric mean over the seeds with its 95% interval.

    ``starts`` are the values at each x that it is the mean of, and ``low`` and ``high`` the ends of
    its interval, or the mean itself where there is one seed. A curve of two seeds is a `pair`,
    whose interval would say nothing: its ends are then the two. Where `resolved` is false the mean
    includes lower bounds, and so is a lower bound itself.
    """

    x: NDArray
    mean: NDArray
    low: NDArray
    high: NDArray
    resolved: NDArray
    starts: tuple[NDArray, ...]

    @property
    def pair(self) -> NDArray | None:
        """The values of two seeds as two curves, (2, x); None of one seed and of more.

        The only value at an x stands for both.
        """
        return _pair(self.starts)


def distinct(frame: DataFrame, name: str) -> list[Any]:
    """The different values of a column, sorted."""
    return np.unique(frame[name]).tolist()


def of_first_seed(frame: DataFrame) -> DataFrame:
    """The rows of the first seed, which is not 0 in a run on other draws."""
    return frame[frame["seed"] == frame["seed"].min()].reset_index(drop=True)


def over_seeds(frame: DataFrame, x: str, *factors: str, arithmetic: bool = False) -> Series:
    """The geometric mean at each x of a column, or of the product of several, and its interval.

    Unbiased estimates keep their ``arithmetic`` mean, as does a column that is not positive.
    Rows where it is not finite (a bound that does not apply) are left out. kappa alone, in a table
    that says which values are resolved, is that of :func:`kappa_over_seeds`.
    """
    if factors == ("kappa",) and "resolved" in frame:
        return kappa_over_seeds(frame, x)
    values = np.prod([frame[name] for name in factors], axis=0)
    known = np.ones(len(frame), dtype=bool)
    return _aggregate(frame[x].to_numpy(), values, known, arithmetic=arithmetic)


def kappa_over_seeds(frame: DataFrame, x: str) -> Series:
    """The mean of kappa, with its certified lower end, if the table has it, where unresolved."""
    resolved = frame["resolved"].to_numpy(bool)
    least = frame["kappa_low"] if "kappa_low" in frame else frame["kappa"]
    values = np.where(resolved, frame["kappa"], least)
    return _aggregate(frame[x].to_numpy(), values, resolved)


def _aggregate(x: NDArray, y: NDArray, resolved: NDArray, *, arithmetic: bool = False) -> Series:
    """The mean of y over the seeds at each x, with its interval, of the rows where y is finite."""
    finite = np.isfinite(y)
    x, y, resolved = x[finite], y[finite], resolved[finite]
    places = np.unique(x)
    into, back = (np.log, np.exp) if (y > 0).all() and not arithmetic else (np.asarray, np.asarray)
    starts = tuple(y[x == place] for place in places)
    found = [effects.mean(into(values)) for values in starts]
    known = [(e.value, e.low, e.high) if np.isfinite(e.low) else (e.value,) * 3 for e in found]
    mean, low, high = back(np.array(known).reshape(-1, 3).T)
    if (pair := _pair(starts)) is not None:
        low, high = pair.min(axis=0), pair.max(axis=0)
    return Series(
        x=places,
        mean=mean,
        low=low,
        high=high,
        resolved=np.array([np.all(resolved[x == place]) for place in places], dtype=bool),
        starts=starts,
    )


def _pair(starts: Sequence[NDArray]) -> NDArray | None:
    if max(map(len, starts), default=0) != 2:
        return None
    return np.array([np.resize(values, 2) for values in starts]).T
