"""Figure 6: Leaky-ReLU networks over width, with the bound of Eq 11, and one layer deeper."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import kappa_over_seeds, over_seeds

EXPERIMENT = "alpha_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("panel", "slope", "sign", "samples", "gain", "bound"),
)
SLOPE = 0.01
MEASURED = style.Look(style.COLOURS[0], "o")
BOUND = style.Look(style.COLOURS[1], "s", style.DASHED)
MIRRORED = style.Look(style.COLOURS[3], "D")
DEEPER = style.Look(style.COLOURS[2], "^")
TITLE_PAD = 14  # points, above the label of m = n


def draw(frame: DataFrame) -> Figure:
    """Kappa of one hidden layer with its bound (left), and of -alpha and of two layers (right)."""
    shown = _shown(frame)
    one, two = _panel(shown, "one", "alpha"), _panel(shown, "two", "alpha")
    mirrored = _panel(shown, "one", "-alpha")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        left, right = figure.subplots(1, 2)
        _draw_bound(left, one)
        _draw_others(right, one, mirrored, two)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    has_deeper = bool((shown["panel"] == "two").any())
    deeper = ", and beyond the paper networks with two hidden layers" if has_deeper else ""
    return captions.paragraph(
        "Figure 6. Condition number of the Gauss-Newton matrix of Leaky-ReLU networks with"
        f" slope alpha = {SLOPE:g} over the width m, at initialisation"
        f" ({captions.initialisation(shown)}), on samples that are whitened themselves, so that"
        " X X^T = I. Left: one hidden layer, with the upper bound of Eq 11 where it applies; for"
        " m < n, left of the dotted line, it rests on alpha^2 alone and is another expression, so"
        " that no line connects the two. Right, ours: the same beside that of"
        f" the published code, which has -alpha in Lambda{deeper}. Logarithmic vertical axes.",
        captions.seeds(shown, panels={"one": "of one layer", "two": "of two"}),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    shown = frame[frame["panel"].isin(["one", "two"]) & (frame["slope"] == SLOPE)]
    return shown.assign(figure=shown["panel"])


def _panel(frame: DataFrame, panel: str, sign: str) -> DataFrame:
    return frame[(frame["panel"] == panel) & (frame["sign"] == sign)]


def _draw_bound(axes: Axes, one: DataFrame) -> None:
    style.logarithmic(axes)
    wide = one["width"] >= one["samples"]
    pieces = {"bound, $m < n$": one[~wide], "bound (Eq 11)": one[wide]}  # which no line connects
    bounds = [
        style.band(axes, over_seeds(rows, "width", "bound"), BOUND, label)
        for label, rows in pieces.items()
        if len(rows)
    ]
    lines = [bounds[-1], style.band(axes, kappa_over_seeds(one, "width"), MEASURED, "measured")]
    _linear_x(axes, one)
    style.mark_x(axes, float(one["samples"].iloc[0]), "$m = n$")
    if len(bounds) > 1:
        points = np.asarray(bounds[0].get_xydata(), float)
        axes.annotate(  # below the curve and left of its end, away from the line of m = n
            "bound,\n$m < n$",
            (points[-1, 0], points[0, 1]),
            xytext=(5, -5),
            textcoords="offset points",
            ha="right",
            va="top",
            color=BOUND.colour,
            fontsize=6.5,
        )
    axes.set_title("one hidden layer", pad=TITLE_PAD)
    axes.set_ylabel(style.KAPPA)
    style.label_curves(axes, lines, spacing=0.2)


def _linear_x(axes: Axes, one: DataFrame) -> None:
    """The width, linear as in the paper."""
    style.whole_numbers(axes, [0, one["width"].max()], "width $m$")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))


def _draw_others(axes: Axes, one: DataFrame, mirrored: DataFrame, two: DataFrame) -> None:
    style.logarithmic(axes)
    lines = [
        style.band(axes, kappa_over_seeds(rows, "width"), look, label)
        for rows, look, label in (
            (one, MEASURED, r"$\alpha$"),
            (mirrored, MIRRORED, r"$-\alpha$"),
            (two, DEEPER, "two\nhidden"),
        )
        if len(rows)
    ]
    _linear_x(axes, one)
    deeper = ", and two hidden layers" if len(two) else ""
    axes.set_title(rf"ours: $\alpha$ and $-\alpha$ in $\Lambda${deeper}", pad=TITLE_PAD)
    style.label_curves(axes, lines, spacing=0.2)
