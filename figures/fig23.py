"""Figure 23: Leaky-ReLU networks of several slopes over width, with either sign in Lambda."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds
from sweeps import effects
from sweeps.effects import crossovers

EXPERIMENT = "alpha_sweep"
COLUMNS = (*captions.CELL, *captions.CERTIFICATE, *("panel", "slope", "sign", "samples", "gain"))
RELU, LINEAR = 0.0, 1.0
TITLES = {
    "alpha": r"the derivative $\alpha$",
    "-alpha": r"$-\alpha$, as the published code",
}


def draw(frame: DataFrame) -> Figure:
    """One curve for each slope: with the derivative alpha (left) and with -alpha (right)."""
    shown = _shown(frame)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.7)
        panels = figure.subplots(1, 2, sharey=True)
        curves = [
            _draw_slopes(axes, shown[shown["sign"] == sign], title)
            for axes, (sign, title) in zip(panels, TITLES.items(), strict=True)
        ]
        for axes, lines in zip(panels, curves, strict=True):  # once both have set the limits
            style.label_curves(axes, lines, spacing=0.1)
        figure.axes[0].set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(shown))
    return figure


def _draw_slopes(axes: Axes, frame: DataFrame, title: str) -> list[Line2D]:
    slopes = distinct(frame, "slope")
    style.logarithmic(axes)
    axes.set_title(title, pad=14)
    lines = [
        style.band(
            axes,
            kappa_over_seeds(frame[frame["slope"] == slope], "width"),
            look,
            rf"$\alpha = {slope:g}$",
        )
        for slope, look in zip(slopes, style.ordered_looks(len(slopes)), strict=True)
    ]
    lines[0].set(zorder=4, linewidth=0.7, markersize=2.4)  # over the next, which it is near to
    style.logarithmic_x(axes, frame["width"], "width $m$")
    found = crossover(frame)
    if found.size:
        place = effects.geometric_mean(found)
        style.mark_x(axes, place.value, f"$m = {place.value:.0f}$", place)
    return lines


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    return captions.paragraph(
        "Figure 23. Condition number of the Gauss-Newton matrix of one-hidden-layer Leaky-ReLU"
        " networks over the width m, for several slopes alpha (0: ReLU, 1: the linear network), at"
        f" initialisation ({captions.initialisation(shown)}), on samples that are whitened"
        " themselves, so that X X^T = I and kappa depends on n, d, k, m and alpha alone. Left: with"
        " the derivative alpha of the network in Lambda. Right: with -alpha, as the published code"
        " and the paper's Appendix H have it, for the same weights. Logarithmic axes. A dotted line"
        " marks the width at which ReLU and the linear network have the same condition number,"
        " where there is one.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    return frame[frame["panel"] == "one"]


def crossover(frame: DataFrame) -> NDArray:
    """The width from which on ReLU has the higher kappa, for the seeds where there is one.

    Interpolated between the widths, both on logarithmic axes.
    """
    relu, linear = (frame[frame["slope"] == slope] for slope in (RELU, LINEAR))
    found = crossovers(relu, linear, "width", "kappa")
    return found[np.isfinite(found)]
