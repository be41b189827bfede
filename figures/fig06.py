"""Figure 6: Leaky-ReLU networks over width, with the bound of Eq 11, and one layer deeper."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, kappa_over_seeds, over_seeds, select

EXPERIMENT = "alpha_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("figure", "slope", "samples", "gain", "bound"),
)
MEASURED = style.Look(style.COLOURS[0], "o")
BOUND = style.Look(style.COLOURS[1], "s", style.DASHED)
DEEPER = style.Look(style.COLOURS[2], "^")
TITLE_PAD = 14  # points, above the label of m = n


def draw(table: Columns) -> Figure:
    """Kappa of one hidden layer with its bound (left), and of one and two hidden layers (right)."""
    one, two = select(table, figure="6"), select(table, figure="6-deep")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        left, right = figure.subplots(1, 2)
        _draw_bound(left, one)
        _draw_depths(right, one, two)
        style.footer(figure, captions.data_line(_shown(table)))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(table)
    slopes = ", ".join(f"{slope:g}" for slope in distinct(shown, "slope"))
    return captions.paragraph(
        "Figure 6. Condition number of the Gauss-Newton matrix of Leaky-ReLU networks with"
        f" slope alpha = {slopes} over the width m, at initialisation"
        f" ({captions.initialisation(shown)}). Left: one hidden layer, with the upper bound of"
        " Eq 11 where it applies; for m < n, left of the dotted line, it rests on alpha^2 alone."
        " Right, beyond the paper: the same beside networks with two hidden layers of width m, for"
        " which there is no theorem. Logarithmic axes.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _shown(table: Columns) -> Columns:
    return select(table, figure=["6", "6-deep"])


def _draw_bound(axes: Axes, one: Columns) -> None:
    style.logarithmic(axes)
    lines = [
        style.band(axes, over_seeds(one, "width", "bound"), BOUND, "bound\n(Eq 11)"),
        style.band(axes, kappa_over_seeds(one, "width"), MEASURED, "measured"),
    ]
    style.logarithmic_x(axes, one["width"], "width $m$")
    style.mark_x(axes, float(one["samples"][0]), "$m = n$")
    axes.set_title("one hidden layer", pad=TITLE_PAD)
    axes.set_ylabel(style.KAPPA)
    style.label_curves(axes, lines, spacing=0.2)


def _draw_depths(axes: Axes, one: Columns, two: Columns) -> None:
    style.logarithmic(axes)
    lines = [
        style.band(axes, kappa_over_seeds(one, "width"), MEASURED, "one\nhidden"),
        style.band(axes, kappa_over_seeds(two, "width"), DEEPER, "two\nhidden"),
    ]
    style.logarithmic_x(axes, one["width"], "width $m$")
    axes.set_title("one and two hidden layers", pad=TITLE_PAD)
    style.label_curves(axes, lines, spacing=0.2)
