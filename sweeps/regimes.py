"""The ratios of sizes that decide a claim: a smaller table can test it if they are the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps.rows import where

FACTOR = 2.0  # how far a ratio may be from the paper's

Rows = tuple[tuple[str, str, float, float], ...]
"""How a config states the paper's own ratios: (figure, name, lowest, highest)."""


@dataclass(frozen=True)
class Ratio:
    """The smallest and the largest value of a ratio of sizes in one figure of the paper.

    Configs state ratios as rows (figure, name, low, high).
    """

    figure: str
    name: str
    low: float
    high: float


def _column(name: str) -> Callable[[DataFrame], NDArray]:
    return lambda frame: frame[name].to_numpy(float)


def _quotient(above: str, *below: str) -> Callable[[DataFrame], NDArray]:
    def ratio(frame: DataFrame) -> NDArray:
        return frame[above].to_numpy(float) / np.prod([frame[name] for name in below], axis=0)

    return ratio


RATIOS: Mapping[str, Callable[[DataFrame], NDArray]] = {
    "d": _column("inputs"),
    "k": _column("outputs"),
    "d/k": _quotient("inputs", "outputs"),
    "m/d": _quotient("width", "inputs"),
    "m/n": _quotient("width", "samples"),
    "n/d": _quotient("samples", "inputs"),
    "p/(k n)": _quotient("parameters", "outputs", "samples"),
    "batch/n": _quotient("batch", "samples"),
    "epochs x rate": lambda frame: frame["epoch"].max() * frame["rate"].to_numpy(float),
}
"""Every ratio that a claim may name, from the columns of a table."""


def outside(
    frame: DataFrame,
    figure: str,
    names: Sequence[str],
    panel: Sequence[tuple[str, object]],
    paper: Rows,
) -> str:
    """The named ratios that leave the paper's range by more than a factor of 2, as text, or ""."""
    shown = where(frame, **dict(panel))
    ratios = [Ratio(*row) for row in paper]
    known = {ratio.name: ratio for ratio in ratios if ratio.figure == figure}
    missing = [name for name in names if name not in known]
    if missing:
        msg = f"the config states no paper ratio {', '.join(missing)} of figure {figure}"
        raise ValueError(msg)
    if shown.empty:
        return no_row(panel)
    return "; ".join(filter(None, (_mismatch(known[name], shown) for name in names)))


def no_row(panel: Sequence[tuple[str, object]]) -> str:
    """The text that a table has no row of a panel, with what such a row would have."""
    wanted = " and ".join(f"{name} {value}" for name, value in panel)
    return f"the table has no row with {wanted}" if wanted else "the table has no row"


def _mismatch(ratio: Ratio, frame: DataFrame) -> str:
    here = RATIOS[ratio.name](frame)
    low, high = float(here.min()), float(here.max())
    if ratio.low / FACTOR <= low and high <= ratio.high * FACTOR:
        return ""
    return (
        f"{ratio.name} is {_range(low, high)} where the paper has {_range(ratio.low, ratio.high)}"
    )


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if np.isclose(low, high) else f"{low:.3g} to {high:.3g}"
