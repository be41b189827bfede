"""Figure 21: condition number over depth of linear and of residual networks."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, depths, style

EXPERIMENT = "beta_sweep"
COLUMNS = (*depths.COLUMNS, "figure", "beta")


def draw(frame: DataFrame) -> Figure:
    """Kappa at beta = 0 and beta = 1, without bounds."""
    shown = depths.of_figure(frame, "21")
    with style.paper_style():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.3)
        axes = figure.subplots()
        depths.draw_kappa(axes, depths.by_beta(shown, depths.PAIR), key=None)
        axes.set_ylabel(style.KAPPA)
        style.footer(figure, depths.data_line(shown))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = depths.of_figure(frame, "21")
    return captions.paragraph(
        "Figure 21. Condition number of the Gauss-Newton matrix at initialisation"
        f" ({depths.setting(shown)}) of linear networks, and of the same weights with a skip"
        " connection of strength beta = 1 around every layer.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )
