"""Figure 8: condition number of linear CNNs over kernel size and over the number of filters."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, filters, style
from figures.shared.filters import FILTERS, KERNEL, draw_curves
from figures.shared.series import Columns, select

EXPERIMENT = "cnn_sweep"
COLUMNS = filters.COLUMNS
READING = "8-convolutions"  # Eqs 15, 16: every layer is a convolution


def draw(table: Columns) -> Figure:
    """Kappa over the kernel size (left) and over the number of filters (right)."""
    shown = select(table, figure=READING)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, axis in ((left, KERNEL), (right, FILTERS)):
            style.logarithmic(axes)
            draw_curves(axes, shown, axis)
        left.set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = select(table, figure=READING)
    return captions.paragraph(
        "Figure 8. Condition number of the Gauss-Newton matrix of linear CNNs of two convolutions"
        f" at initialisation ({captions.initialisation(shown)}) over the kernel size K (left) and"
        " the number of filters F (right). The parameters are the entries of the Toeplitz matrices,"
        " as in Eqs 15 and 16, with one output channel: two-dimensional convolutions, stride 1, no"
        " padding, images whitened on the samples drawn. Other readings of the text are in Figure"
        " C3. Logarithmic axes for kappa and F.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )
