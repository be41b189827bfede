"""Figure 12: the terms of Lemma 2 with and without their weights: large terms weigh little."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, layers, style
from figures.shared.series import distinct
from sweeps.rows import where

EXPERIMENT = "layer_sweep"
TERM = r"\kappa^2(\mathbf{W}^{L:\ell+1})\,\kappa^2(\mathbf{W}^{1:\ell-1})"
PANELS = {  # what is multiplied -> title
    ("left_kappa2", "right_kappa2"): rf"without $\gamma_\ell$: ${TERM}$",
    ("weight", "left_kappa2", "right_kappa2"): rf"with $\gamma_\ell$: $\gamma_\ell\,{TERM}$",
}
COLUMNS = (*captions.CELL, *layers.COLUMNS, "weight", "left_kappa2", "right_kappa2")


def draw(frame: DataFrame) -> Figure:
    """The terms (left) and the weighted terms, whose sum is the bound (right), over the layers."""
    frame = layers.printed(frame)
    one = where(frame, gain=distinct(frame, "gain")[0])  # any other gain gives the same
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        for axes, (factors, title) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
            axes.set_title(title)
            layers.curves(axes, one, *factors)
            layers.layer_axis(axes, frame)
        style.shared_legend(figure, figure.axes[0])
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    frame = layers.printed(frame)
    return captions.paragraph(
        "Figure 12. The terms of the convex combination in Lemma 2 over the layers, without (left)"
        " and with (right) their weights gamma_l, for networks of depth"
        f" L = {captions.listed(distinct(frame, 'depth'))} and width"
        f" m = {captions.listed(distinct(frame, 'width'))} at initialisation, whatever the gain is."
        " Logarithmic vertical axes with different limits.",
        captions.seeds(frame),
        layers.deviation(frame),
        captions.data(frame, provenance),
    )
