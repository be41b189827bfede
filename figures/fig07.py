"""Figure 7: a linear network over width, with and without BatchNorm, and under LayerNorm."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where

EXPERIMENT = "batch_norm_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("figure", "norm", "samples", "gain", "rank", "kappa_leading"),
)
LOOKS = dict(zip(("none", "batch", "frozen", "layer", "initial"), style.looks(5), strict=True))
LABELS = {
    "none": "no norm",
    "batch": "BatchNorm",
    "frozen": "BatchNorm,\nstatistics\nheld fixed",
    "initial": "BatchNorm,\nas evaluated",
    "layer": "LayerNorm",
}
LEADING = style.Look(LOOKS["layer"].colour, "v", style.DASHED)


def draw(frame: DataFrame) -> Figure:
    """Kappa with and without BatchNorm (left), and with LayerNorm, which is far above (right)."""
    frame = where(frame, figure="7")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        left, right = figure.subplots(1, 2)
        _draw_panel(
            left, frame, ("none", "initial", "frozen", "batch"), "with and without BatchNorm"
        )
        left.set_ylabel(style.KAPPA)
        _draw_panel(right, frame, ("none", "layer"), "ours: with LayerNorm")
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    frame = where(frame, figure="7")
    ranks = {norm: captions.listed(distinct(_of(frame, norm), "rank")) for norm in _present(frame)}
    layer = (
        f"; of LayerNorm, {ranks['layer']}: its curve beside the {ranks['batch']} leading"
        " eigenvalues alone (dashed)"
        if "layer" in ranks
        else ""
    )
    return captions.paragraph(
        "Figure 7. Condition number of the Gauss-Newton matrix of a linear network with one hidden"
        f" layer over its width m, at initialisation ({captions.initialisation(frame)}), with and"
        " without normalisation of the hidden layer. BatchNorm uses the statistics of all n"
        " samples and is differentiated through them, or has them held fixed, or is evaluated with"
        " mean 0 and variance 1, as evaluation mode does before training; scale and shift are"
        " parameters. Right, ours: LayerNorm. Logarithmic axes.",
        f"Rank of the matrix without normalisation {ranks['none']}, with BatchNorm"
        f" {ranks['batch']}{layer}.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )


def _of(frame: DataFrame, norm: str) -> DataFrame:
    return where(frame, norm=norm)


def _present(frame: DataFrame) -> list[str]:
    return distinct(frame, "norm")


def _draw_panel(axes: Axes, frame: DataFrame, norms: Sequence[str], title: str) -> None:
    style.logarithmic(axes)
    lines: list[Line2D] = []
    for norm in norms:
        rows = _of(frame, norm)
        lines.append(style.band(axes, kappa_over_seeds(rows, "width"), LOOKS[norm], LABELS[norm]))
        if norm == "layer":
            leading = over_seeds(rows, "width", "kappa_leading")
            lines.append(style.band(axes, leading, LEADING, "LayerNorm,\nleading"))
    style.logarithmic_x(axes, frame["width"], "width $m$")
    axes.set_title(title)
    style.label_curves(axes, lines, spacing=0.2)
