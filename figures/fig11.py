"""Figure 11: what multiplies in Lemma 2, layer by layer, for networks of growing depth."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, layers, style
from figures.shared.series import Columns, distinct

EXPERIMENT = "layer_sweep"
BEFORE, AFTER = r"\mathbf{W}^{1:\ell-1}", r"\mathbf{W}^{L:\ell+1}"
PANELS = {  # column of the table -> quantity, row by row
    "right_kappa2": rf"$\kappa^2({BEFORE})$",
    "left_kappa2": rf"$\kappa^2({AFTER})$",
    "right_smallest2": rf"$\sigma_{{\min}}^2({BEFORE})$",
    "left_smallest2": rf"$\sigma_{{\min}}^2({AFTER})$",
}
COLUMNS = (*captions.CELL, "layer", *PANELS)


def draw(table: Columns) -> Figure:
    """Squared condition number (top) and smallest singular value (bottom) of both products."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.9)
        grid = figure.subplots(2, 2, sharex=True)
        for axes, (column, quantity) in zip(grid.flat, PANELS.items(), strict=True):
            axes.set_title(quantity)
            layers.curves(axes, table, column)
        for axes in grid[1]:
            layers.layer_axis(axes, table)
        style.shared_legend(figure, grid[0, 0])
        style.footer(figure, captions.data_line(table))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes and seeds of the table behind it."""
    return captions.paragraph(
        "Figure 11. Squared condition number (top) and squared smallest singular value (bottom) of"
        " the product of the layers before layer l (left column, W^{1:l-1}) and of those after it"
        " (right column, W^{L:l+1}) at initialisation, for networks of depth"
        f" L = {captions.listed(distinct(table, 'depth'))} and width"
        f" m = {captions.listed(distinct(table, 'width'))}. Logarithmic vertical axes with"
        " different limits.",
        captions.seeds(table),
        captions.data(table, provenance),
    )
