"""Figure 19: condition number over depth of linear networks on raw and on whitened data."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, depths, style
from figures.shared.series import Columns, select

EXPERIMENT = "whitening_sweep"
COLUMNS = (*depths.COLUMNS, "whitening", "covariance_condition", "bound_convex")
LOOKS = dict(zip(("raw", "whitened"), style.looks(2), strict=True))


def draw(table: Columns) -> Figure:
    """Kappa and first bound of the same weights on both inputs, on a logarithmic axis."""
    with style.paper_style():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.4)
        axes = figure.subplots()
        style.logarithmic(axes)
        curves = [
            depths.Curve(select(table, whitening=inputs), look, inputs)
            for inputs, look in LOOKS.items()
        ]
        depths.draw_kappa(axes, curves, key="center left")
        axes.set_ylim(bottom=1.0)  # no condition number is below it
        axes.set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(table))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    raw = select(table, whitening="raw")
    return captions.paragraph(
        "Figure 19. Condition number of the Gauss-Newton matrix of linear networks at"
        f" initialisation ({depths.setting(table)}) on raw inputs, whose covariance has condition"
        f" number {raw['covariance_condition'].max():.2g}, and of the same weights on whitened"
        " inputs, with the first bound of Lemma 2 (dashed). Logarithmic vertical axis.",
        captions.seeds(table),
        captions.certificates(table),
        captions.data(table, provenance),
    )
