"""Figure 5: condition number over depth of linear and of residual networks, on two data sets."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, depths, style
from figures.shared.series import distinct
from sweeps.rows import where

EXPERIMENT = "beta_sweep"
COLUMNS = (*depths.COLUMNS, "figure", "beta", "bound_convex")
PANELS = ("5-left", "5-right")
PLACES = {"5-left": "on the left", "5-right": "on the right"}


def draw(frame: DataFrame) -> Figure:
    """Kappa and first bound at beta = 0 and beta = 1, one panel for each data set."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        for axes, name in zip(figure.subplots(1, 2), PANELS, strict=True):
            shown = depths.of_figure(frame, name)
            (data,) = distinct(shown, "data")
            axes.set_title(captions.data_title(data))
            depths.draw_kappa(axes, depths.by_beta(shown, depths.PAIR))
        figure.axes[0].set_ylabel(style.KAPPA)
        style.footer(figure, depths.data_line(*_panels(frame)))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = where(frame, figure=PANELS)
    left, right = map(depths.setting, _panels(frame))
    return captions.paragraph(
        "Figure 5. Condition number of the Gauss-Newton matrix at initialisation of linear"
        " networks, and of the same weights with a skip connection of strength beta = 1 around"
        " every layer, with the first bounds of Lemma 2 and Eq 7 (dashed).",
        f"Left: {left}. Right: {right}.",
        captions.seeds(
            shown, panels=dict(zip(PANELS, ("on the left", "on the right"), strict=True))
        ),
        captions.certificates(shown),
        captions.data_and_precision(captions.data_of_panels(_panels(frame)), provenance),
    )


def _panels(frame: DataFrame) -> list[DataFrame]:
    """The rows of each panel, from left to right."""
    return [where(frame, figure=name) for name in PANELS]
