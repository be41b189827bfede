"""Shared by Figures 5, 19, 20, 21 and 22: kappa over the depth, with the bound on each curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where
from sweeps.table import TableError

COLUMNS = (*captions.CELL, *captions.CERTIFICATE, *("samples", "gain"))
KEY = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)
BETAS = {
    "0": r"$\beta = 0$",
    "1/H": r"$\beta = 1/H$",
    "1/sqrt(H)": r"$\beta = 1/\sqrt{H}$",
    "1": r"$\beta = 1$",
    "2": r"$\beta = 2$",
}
HIDDEN = "depth $L$ ($H = L - 1$ hidden layers)"
PAIR = {"0": "linear", "1": "residual"}
LOOKS = dict(zip(BETAS, style.looks(len(BETAS)), strict=True))


@dataclass(frozen=True)
class Curve:
    """The rows of one curve, how it looks and what it is called."""

    frame: DataFrame
    look: style.Look
    label: str


def of_figure(frame: DataFrame, figure: str) -> DataFrame:
    """The rows of a figure or panel, of networks of one width on one data set."""
    shown = where(frame, figure=figure)
    if len(distinct(shown, "width")) != 1 or len(distinct(shown, "data")) != 1:
        msg = (
            f"figure {figure} needs rows of one width on one data set, but the table has widths "
            f"{distinct(shown, 'width')} on {distinct(shown, 'data')}"
        )
        raise TableError(msg)
    return shown


def by_beta(frame: DataFrame, labels: Mapping[str, str]) -> list[Curve]:
    """One curve for each beta, in the order of the labels."""
    return [
        Curve(where(frame, beta=beta), LOOKS[beta], label)
        for beta, label in labels.items()
        if beta in distinct(frame, "beta")
    ]


def draw_kappa(
    axes: Axes,
    curves: Sequence[Curve],
    key: style.KeyPlace | None = "upper left",
    bottom: float | None = None,
) -> None:
    """kappa with its band for every curve, and its bound where that applies.

    `key` is where the key of both goes; None leaves the bounds out. `bottom` is where the vertical
    axis begins, if not below all curves.
    """
    lines = [_kappa(axes, curve, bounded=key is not None) for curve in curves]
    style.whole_numbers(axes, curves[0].frame["depth"], "depth $L$")
    if bottom is not None:
        axes.set_ylim(bottom=bottom)
    if key is not None:
        style.key(axes, KEY, loc=key)
    style.label_curves(axes, lines)


def _kappa(axes: Axes, curve: Curve, *, bounded: bool) -> Line2D:
    line = style.band(axes, kappa_over_seeds(curve.frame, "depth"), curve.look, curve.label)
    if bounded:
        style.bound_curve(axes, over_seeds(curve.frame, "depth", "bound_convex"), curve.look)
    return line


def draw_betas(frame: DataFrame, number: str) -> Figure:
    """Kappa and bound at every beta; beside it, kappa over that of the same weights at beta = 0."""
    frame = of_figure(frame, number)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        left, right = figure.subplots(1, 2)
        draw_kappa(left, by_beta(frame, BETAS))
        left.set_xlabel(HIDDEN)
        left.set_ylabel(style.KAPPA)
        _draw_ratios(right, by_beta(against_linear(frame), BETAS))
        right.set_xlabel(HIDDEN)
        style.footer(figure, data_line(frame))
    return figure


def data_line(*panels: DataFrame) -> str:
    """The data, and of whitened data what is left of them in kappa of linear networks."""
    line = captions.data_of_panels(panels)
    return f"{line} (after whitening kappa depends on d, k and m alone)"


def _draw_ratios(axes: Axes, curves: Sequence[Curve]) -> None:
    lines = [
        style.band(axes, over_seeds(curve.frame, "depth", "ratio"), curve.look, curve.label)
        for curve in curves
    ]
    style.whole_numbers(axes, curves[0].frame["depth"], "depth $L$")
    axes.set_ylabel(r"$\kappa$ relative to $\beta = 0$")
    style.label_curves(axes, lines)


def against_linear(frame: DataFrame) -> DataFrame:
    """The table with a column `ratio`: resolved kappa over that of the same weights at beta = 0."""
    known = frame.assign(ratio=frame["kappa"].where(frame["resolved"]))
    linear = where(known, beta="0").set_index(["depth", "seed"])["ratio"]
    networks = list(zip(frame["depth"], frame["seed"], strict=True))
    return known.assign(ratio=known["ratio"].to_numpy() / linear.loc[networks].to_numpy())


def setting(frame: DataFrame) -> str:
    """How wide the networks are and how they were drawn."""
    widths = captions.listed(distinct(frame, "width"))
    return f"width m = {widths}, {captions.initialisation(frame)}"


def betas_caption(frame: DataFrame, provenance: Mapping[str, Any], number: str) -> str:
    """The caption of `draw_betas`."""
    frame = of_figure(frame, number)
    return captions.paragraph(
        f"Figure {number}. Condition number of the Gauss-Newton matrix of residual networks at"
        f" initialisation ({setting(frame)}) over the number L of matrices, for several strengths"
        " beta of the skip connections, 0 and 2 beyond the paper's. H = L - 1 counts hidden layers,"
        " by which the published code divides; the paper's own 1/L and 1/sqrt(L) are in the table."
        " Left: with the first bound of Eq 7 (dashed). Right: divided by the condition number of"
        " the same weights without skip connections.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
