"""Shared by Figures B3 and B4: one panel for each data set, and an axis of epochs."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from pandas import DataFrame

from figures.shared import captions
from figures.shared.series import distinct
from sweeps.rows import where

PANELS = ("a", "b", "c")


def panels(axes: Sequence[Axes], frame: DataFrame) -> Iterator[tuple[Axes, DataFrame]]:
    """Each panel with its rows, titled by the data set."""
    for one, panel in zip(axes, PANELS, strict=True):
        shown = where(frame, panel=panel)
        (name,) = distinct(shown, "data")
        one.set_title(f"({panel}) {captions.short_title(name)}")
        yield one, shown


def epoch_axis(axes: Axes, epochs: Any) -> None:
    """An x axis of epochs: linear up to the first checkpoint after the start, then logarithmic."""
    after = np.unique(epochs)[1:]
    if len(after) == 0:
        axes.xaxis.set_major_locator(FixedLocator([0]))
    else:
        first, last = float(after[0]), float(after[-1])
        axes.set_xscale("symlog", linthresh=first, linscale=0.5)
        decades = 10.0 ** np.arange(np.ceil(np.log10(first)), np.floor(np.log10(last)) + 1)
        axes.xaxis.set_major_locator(FixedLocator([0.0, *decades]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(-0.15 * first, last * 1.25)
    axes.set_xlabel("epoch")
