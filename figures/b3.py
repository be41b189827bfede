"""Figure B3: the trace of the Hessian over training, by random products and by Eq 7."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, epochs, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "trace_path"
COLUMNS = (
    *captions.CELL,
    *("panel", "epoch", "samples", "probes", "estimate", "standard_error", "exact", "predicted"),
)
LIMIT = 4.0  # standard errors
EXACT: dict[str, Any] = {
    "marker": "x",
    "linestyle": "",
    "color": "black",
    "markersize": 3.5,
    "markeredgecolor": "black",
    "markeredgewidth": 0.8,
    "zorder": 3,
}


def draw(frame: DataFrame) -> Figure:
    """The trace (top), and the distance of the estimate from Eq 7 in standard errors (bottom)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.3)
        grid = figure.subplots(
            2, len(epochs.PANELS), sharex="col", sharey="row", height_ratios=(2, 1)
        )
        for axes, shown in epochs.panels(grid[0], frame):
            _draw_traces(axes, shown)
        for axes, panel in zip(grid[1], epochs.PANELS, strict=True):
            _draw_distances(axes, where(frame, panel=panel))
        grid[0, 0].set_ylabel("trace of the Hessian")
        grid[1, 0].set_ylabel("(estimate $-$ Eq 7)\n/ standard error")
        style.shared_legend(figure, grid[0, 0])
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    depth, probes = (captions.listed(distinct(frame, name)) for name in ("depth", "probes"))
    widths = captions.listed(distinct(frame, "width"))
    known = np.isfinite(frame["exact"])
    return captions.paragraph(
        f"Figure B3. Trace of the full Hessian of linear networks of {depth} layers and width"
        f" m = {widths} over training by gradient descent.",
        f"Top: Eq 7 (lines), Hutchinson's estimate from {probes} products (markers, with one"
        " standard error)"
        + (" and, where it was computed, the exact trace (crosses)." if known.any() else "."),
        "Products are with the Hessian on the inputs that the first layer and the labels span; its"
        " trace on the others, which does not mix with it, is added exactly.",
        "Bottom: the distance of the estimate from Eq 7, in its standard errors; dashed lines at"
        f" {LIMIT:g} of them.",
        captions.seeds(frame),
        captions.data(frame, provenance),
    )


def _by_width(frame: DataFrame) -> list[tuple[DataFrame, style.Look, int]]:
    widths = sorted(distinct(frame, "width"), reverse=True)
    return [
        (where(frame, width=width), look, width)
        for width, look in zip(widths, style.looks(len(widths)), strict=True)
    ]


def _draw_traces(axes: Axes, frame: DataFrame) -> None:
    style.logarithmic(axes)
    for shown, look, width in _by_width(frame):
        predicted = over_seeds(shown, "epoch", "predicted", arithmetic=True)
        axes.plot(predicted.x, predicted.mean, color=look.colour, label=f"Eq 7, $m = {width}$")
        estimate = over_seeds(shown, "epoch", "estimate", arithmetic=True)
        axes.errorbar(
            estimate.x,
            estimate.mean,
            mean_error(shown),
            color=look.colour,
            marker=look.marker,
            linestyle="",
            label=f"Hutchinson, $m = {width}$",
        )
        exact = over_seeds(shown, "epoch", "exact", arithmetic=True)
        if len(exact.x):
            axes.plot(exact.x, exact.mean, label=f"exact, $m = {width}$", **EXACT)


def mean_error(frame: DataFrame) -> np.ndarray:
    """The standard error of the mean over seeds of independent estimates, at each epoch."""
    squares = over_seeds(frame, "epoch", "standard_error", "standard_error", arithmetic=True)
    counts = np.unique(frame["epoch"], return_counts=True)[1]
    return np.sqrt(squares.mean / counts)


def _draw_distances(axes: Axes, frame: DataFrame) -> None:
    for edge in (-LIMIT, LIMIT):
        axes.axhline(edge, color=style.GREY, linestyle=style.DASHED, linewidth=0.7)
    axes.axhline(0.0, color=style.GREY, linewidth=0.5)
    for shown, look, _ in _by_width(frame):
        distance = (shown["estimate"] - shown["predicted"]) / shown["standard_error"]
        axes.plot(shown["epoch"], distance, color=look.colour, marker=look.marker, linestyle="")
    axes.set_yticks([-LIMIT, 0.0, LIMIT])
    epochs.epoch_axis(axes, frame["epoch"])
