"""Shared by Figures 8 and C3: kappa of linear CNNs over the kernel size and the filters."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds
from sweeps.rows import where

COLUMNS = (
    *captions.CERTIFICATE,
    *("figure", "kernel", "filters", "seed", "side", "inputs", "outputs", "data", "samples"),
    "gain",
)


@dataclass(frozen=True)
class Axis:
    """The column along x with its label, and the column that curves differ in with its symbol."""

    over: str
    label: str
    by: str
    symbol: str
    rises: bool  # whether the paper says that kappa rises along it


KERNEL = Axis("kernel", "kernel size $K$", "filters", "F", rises=False)
FILTERS = Axis("filters", "number of filters $F$", "kernel", "K", rises=True)


def draw_curves(axes: Axes, frame: DataFrame, axis: Axis) -> None:
    """One curve along the axis for each value of the other size."""
    values = distinct(frame, axis.by)
    lines = [
        style.band(
            axes,
            kappa_over_seeds(where(frame, **{axis.by: value}), axis.over),
            look,
            f"${axis.symbol} = {value}$",
        )
        for value, look in zip(values, style.ordered_looks(len(values)), strict=True)
    ]
    side = distinct(frame, "side")[0]
    axes.set_title(f"{side} x {side} pixels" if axis is KERNEL else "")
    ticks(axes, frame, axis)
    style.label_curves(axes, lines)


def ticks(axes: Axes, frame: DataFrame, axis: Axis, along: str = "x") -> None:
    """The values that were measured, on a logarithmic axis for the filters."""
    places = distinct(frame, axis.over)
    written = places if len(places) < 8 else places[::2]
    if axis is FILTERS:
        axes.set_xscale("log", base=2)
    one = axes.xaxis if along == "x" else axes.yaxis
    one.set_ticks(written, [str(place) for place in written])
    one.set_minor_locator(NullLocator())
    one.set_label_text(axis.label)
