"""Figure 23: Leaky-ReLU networks of several slopes over width, and where ReLU stops helping."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, kappa_over_seeds, select
from sweeps import effects
from sweeps.effects import crossovers

EXPERIMENT = "alpha_sweep"
COLUMNS = (*captions.CELL, *captions.CERTIFICATE, *("figure", "slope", "samples", "gain"))
RELU, LINEAR = 0.0, 1.0


def draw(table: Columns) -> Figure:
    """One curve for each slope, and the width at which those of ReLU and of slope 1 meet."""
    shown = select(table, figure="23")
    slopes = distinct(shown, "slope")
    with style.paper_style():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.7)
        axes = figure.subplots()
        style.logarithmic(axes)
        lines = [
            style.band(
                axes,
                kappa_over_seeds(select(shown, slope=slope), "width"),
                look,
                rf"$\alpha = {slope:g}$",
            )
            for slope, look in zip(slopes, style.ordered_looks(len(slopes)), strict=True)
        ]
        lines[0].set(zorder=4, linewidth=0.7, markersize=2.4)  # over the next, which it is near to
        style.logarithmic_x(axes, shown["width"], "width $m$")
        axes.set_ylabel(style.KAPPA)
        found = crossover(shown)
        if found.size:
            place = effects.mean(np.log(found)).exponential()
            style.mark_x(axes, place.value, f"$m = {place.value:.0f}$", place)
        style.label_curves(axes, lines, spacing=0.1)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = select(table, figure="23")
    return captions.paragraph(
        "Figure 23. Condition number of the Gauss-Newton matrix of one-hidden-layer Leaky-ReLU"
        " networks over the width m, for several slopes alpha (0: ReLU, 1: the linear network), at"
        f" initialisation ({captions.initialisation(shown)}). Logarithmic axes.",
        _crossing(crossover(shown)),
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def crossover(table: Columns) -> NDArray:
    """The width from which on ReLU has the higher kappa, for the seeds where there is one.

    Interpolated between the widths, both on logarithmic axes.
    """
    relu, linear = select(table, slope=RELU), select(table, slope=LINEAR)
    found = crossovers(relu, linear, "width", "kappa")
    return found[np.isfinite(found)]


def _crossing(found: NDArray) -> str:
    if not found.size:
        return "At these widths, kappa of ReLU does not rise above that of the linear network."
    place = effects.mean(np.log(found)).exponential()
    return (
        "Beyond the paper, dotted: the width at which ReLU and the linear network have the same"
        f" condition number, m = {place} (geometric mean over the seeds with its 95% interval,"
        " interpolated on logarithmic axes); beyond it, ReLU has the higher one."
    )
