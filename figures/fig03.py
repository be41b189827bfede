"""Figure 3: the two bounds of Lemma 2 beside the condition number, over depth."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.table import TableError

EXPERIMENT = "depth_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("figure", "samples", "gain", "bound_convex", "bound_maximum"),
)
MEASURED = style.Look(style.COLOURS[0], "o")
CONVEX = style.Look(style.COLOURS[1], "s", style.DASHED)
MAXIMUM = style.Look(style.COLOURS[2], "^", style.DASH_DOT)


def draw(frame: DataFrame) -> Figure:
    """Kappa, the convex-combination bound and the maximum bound on a logarithmic axis."""
    shown = _shown(frame)
    with style.paper_style():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.3)
        axes = figure.subplots()
        style.logarithmic(axes)
        convex = over_seeds(shown, "depth", "bound_convex")
        maximum = over_seeds(shown, "depth", "bound_maximum")
        lines = [
            style.band(axes, kappa_over_seeds(shown, "depth"), MEASURED, "measured"),
            style.band(axes, convex, CONVEX, "convex\nbound"),
            style.band(axes, maximum, MAXIMUM, "maximum\nbound"),
        ]
        style.whole_numbers(axes, shown["depth"], "depth $L$")
        axes.set_ylabel(r"$\kappa(\widehat{\mathbf{G}}_O)$ and its bounds")
        style.label_curves(axes, lines, spacing=0.2)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    return captions.paragraph(
        "Figure 3. Condition number of the Gauss-Newton matrix of linear networks of width"
        f" m = {captions.listed(distinct(shown, 'width'))} at initialisation"
        f" ({captions.initialisation(shown)}) and the two bounds of Lemma 2: the convex"
        " combination of the layers' terms and their maximum. Logarithmic vertical axis.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    """The rows of this figure, which are drawn at one width: a mean over widths says nothing."""
    shown = frame[frame["figure"] == "3"]
    widths = distinct(shown, "width")
    if len(widths) != 1:
        msg = f"figure 3 needs rows at one width, but the table has them at {widths or 'none'}"
        raise TableError(msg)
    return shown
