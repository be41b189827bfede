"""Figure 12: the terms of Lemma 2 with and without their weights: large terms weigh little."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, layers, style
from figures.shared.series import Columns, distinct, select

EXPERIMENT = "layer_sweep"
TERM = r"\kappa^2(\mathbf{W}^{L:\ell+1})\,\kappa^2(\mathbf{W}^{1:\ell-1})"
PANELS = {  # what is multiplied -> title
    ("left_kappa2", "right_kappa2"): rf"without $\gamma_\ell$: ${TERM}$",
    ("weight", "left_kappa2", "right_kappa2"): rf"with $\gamma_\ell$: $\gamma_\ell\,{TERM}$",
}
COLUMNS = (*captions.CELL, "sizes", "layer", "gain", "weight", "left_kappa2", "right_kappa2")


def draw(table: Columns) -> Figure:
    """The terms (left) and the weighted terms, whose sum is the bound (right), over the layers."""
    table = layers.printed(table)
    one = select(table, gain=distinct(table, "gain")[0])  # any other gain gives the same
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        for axes, (factors, title) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            axes.set_title(title)
            layers.curves(axes, one, *factors)
            layers.layer_axis(axes, table)
        style.shared_legend(figure, figure.axes[0])
        style.footer(figure, captions.data_line(table))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    table = layers.printed(table)
    return captions.paragraph(
        "Figure 12. The terms of the convex combination in Lemma 2 over the layers, without (left)"
        " and with (right) their weights gamma_l, for networks of depth"
        f" L = {captions.listed(distinct(table, 'depth'))} and width"
        f" m = {captions.listed(distinct(table, 'width'))} at initialisation, whatever the gain is."
        " Logarithmic vertical axes with different limits.",
        captions.seeds(table),
        captions.data(table, provenance),
    )
