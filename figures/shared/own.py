"""The picture of a sweep of one's own: a measured column over a setting, a curve for each group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import style
from figures.shared.series import Series, distinct, over_seeds
from sweeps.table import TableError

_FEW = 12  # places at most, each of which has a number at the axis


def curves(x: str, y: str, by: str | None = None) -> Callable[[DataFrame], Figure]:
    """A function from a table to the figure of the column ``y`` over the column ``x``.

    Each point is the geometric mean over the rows that agree in x, which are the seeds, or the
    arithmetic mean where some y is not positive. The bar is its interval of 95% from three seeds
    on, and reaches from one to the other of two. Where a column ``resolved`` is false, an open
    marker under an arrow says that the truth may be larger.

    Args:
      x: the column along the horizontal axis.
      y: that along the vertical one.
      by: the column with one curve for each of its values; without it there is one curve.
    """

    def draw(frame: DataFrame) -> Figure:
        for name in filter(None, (x, y, by)):
            if name not in frame:
                msg = f"the table has no column {name!r}; it has {', '.join(frame.columns)}"
                raise TableError(msg)
        groups = {y: frame}
        if by is not None:
            groups = {f"{by} {group}": frame[frame[by] == group] for group in distinct(frame, by)}
        series = {label: over_seeds(rows, x, y) for label, rows in groups.items()}
        with style.paper_style():
            figure = style.new_figure(style.COLUMN_WIDTH, 2.6)
            axes = figure.subplots()
            for (label, curve), look in zip(series.items(), style.looks(len(series)), strict=True):
                style.bars(axes, curve, look, label)
            _scale(axes, list(series.values()))
            axes.set(xlabel=x, ylabel=y)
            if by is not None:
                axes.legend()
        return figure

    return draw


def _scale(axes: Axes, series: list[Series]) -> None:
    """Logarithmic axes for what is positive, with a number at each x where these are few."""
    places = np.unique(np.concatenate([curve.x for curve in series]))
    values = np.concatenate([curve.mean for curve in series])
    if np.issubdtype(places.dtype, np.number) and len(places) > 1 and places[0] > 0:
        axes.set_xscale("log")
    if len(values) and values.min() > 0:
        axes.set_yscale("log")
    if len(places) <= _FEW:
        axes.set_xticks(places, labels=[str(place) for place in places])
        axes.set_xticks([], minor=True)
