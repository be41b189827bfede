"""Figure 11: what multiplies in Lemma 2, layer by layer, for networks of growing depth."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, layers, style
from figures.shared.series import distinct
from sweeps.rows import where

EXPERIMENT = "layer_sweep"
BEFORE, AFTER = r"\mathbf{W}^{1:\ell-1}", r"\mathbf{W}^{L:\ell+1}"
KAPPAS = {  # column of the table -> quantity
    "right_kappa2": rf"$\kappa^2({BEFORE})$",
    "left_kappa2": rf"$\kappa^2({AFTER})$",
}
SMALLEST = {
    "right_smallest2": rf"$\sigma_{{\min}}^2({BEFORE})$",
    "left_smallest2": rf"$\sigma_{{\min}}^2({AFTER})$",
}
COLUMNS = (*captions.CELL, *layers.COLUMNS, *KAPPAS, *SMALLEST)


def draw(frame: DataFrame) -> Figure:
    """Squared condition numbers (top), and smallest singular values with every gain (below)."""
    frame = layers.printed(frame)
    gains = distinct(frame, "gain")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 0.5 + 1.7 * (1 + len(gains)))
        grid = figure.subplots(1 + len(gains), 2, sharex=True)
        for axes, (column, quantity) in zip(grid[0], KAPPAS.items(), strict=True):
            axes.set_title(quantity)
            layers.curves(axes, where(frame, gain=gains[0]), column)
        for row, gain in zip(grid[1:], gains, strict=True):
            for axes, (column, quantity) in zip(row, SMALLEST.items(), strict=True):
                axes.set_title(f"{quantity}, gain {gain:g}")
                layers.curves(axes, where(frame, gain=gain), column)
        for axes in grid[-1]:
            layers.layer_axis(axes, frame)
        style.shared_legend(figure, grid[0, 0])
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    frame = layers.printed(frame)
    widest = layers.widest_band(frame, *KAPPAS, *SMALLEST)
    return captions.paragraph(
        "Figure 11. Squared condition number (top) and squared smallest singular value (below) of"
        " the product of the layers before layer l (left column, W^{1:l-1}) and of those after it"
        " (right column, W^{L:l+1}) at initialisation by Kaiming normal, variance gain / fan-in:"
        " gain 1 in the paper's Appendix G, 2 in PyTorch. The condition number does not depend on"
        " the gain. For networks of depth"
        f" L = {captions.listed(distinct(frame, 'depth'))} and width"
        f" m = {captions.listed(distinct(frame, 'width'))}. Logarithmic vertical axes with"
        " different limits.",
        f"Every point is an average over initialisations alone. {captions.seeds(frame)} The widest"
        f" band reaches to {widest:.2g} times its mean, and to 1/{widest:.2g} of it.",
        layers.deviation(frame),
        captions.data(frame, provenance),
    )
