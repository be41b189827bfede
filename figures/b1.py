"""Figure B1: the Hessian's eigenvalues at balanced minima follow from the labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pandas import DataFrame

from figures.shared import captions, labels, style
from figures.shared.series import distinct, of_first_seed
from sweeps.rows import where

EXPERIMENT = "label_sharpness"
COLUMNS = (*labels.COLUMNS, "index", "norm")
COMPUTED = style.Look(style.COLOURS[0], "o")
# Not 1, which a network of one layer has anywhere, nor 20, whose line is too short for its label.
LEVELS = (0.3, 0.6, 1.2, 2.5, 5, 10)


def draw(frame: DataFrame) -> Figure:
    """A whole spectrum, Eq 14 over depth and norm, and trained networks over the proportion."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        spectrum, contours, trained = figure.subplots(1, 3)
        _draw_spectrum(spectrum, of_first_seed(where(frame, figure="1a")))
        _draw_contours(contours, where(frame, figure="1b"))
        shown = where(frame, figure="1c")
        trained.set_title("(c) trained, balanced start")
        labels.draw_shares(trained, shown)
        low, high = trained.get_ylim()
        trained.set_ylim(low, high + 0.25 * (high - low))
        trained.legend(handles=labels.handles(trained), loc="upper left", **LEGEND)
        style.footer(figure, f"(c) {labels.data_line(shown)}")
    return figure


LEGEND: dict[str, Any] = {"fontsize": 6.5, "borderaxespad": 0, "labelspacing": 0.2}


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and residuals of the table behind the figure."""
    random = of_first_seed(where(frame, figure="1a"))
    inputs, depth = int(random["inputs"][0]), int(random["depth"][0])
    trained = where(frame, figure="1c")
    return captions.paragraph(
        "Figure B1. Eigenvalues of the Hessian of balanced linear networks, from the labels.",
        f"(a) All {inputs**2} non-zero eigenvalues of the Gauss-Newton matrix by automatic"
        f" differentiation (markers) and by Eqs 9 and 13 (line) for a network of {depth} layers of"
        f" {inputs} x {inputs} on random orthogonalised data whose labels it fits. Logarithmic"
        " vertical axis.",
        "(b) Largest eigenvalue at balanced points over depth L and sigma_max(Y)/sqrt(n), sigma_x ="
        " 1: contours of Eq 14 with their levels at the right, and dots where the computed one has"
        " this level at whole L; right of the dashed line, L = ln(1/alpha) with alpha"
        " = sigma_max(Y)^2/n, it grows with L.",
        "(c) Sharpness of trained networks (markers) and Eq 14 as printed (black).",
        labels.STAR,
        f"Panel (c): {labels.training(trained)}",
        labels.closing(
            f"(a) random, n = {int(random['samples'][0])}, d = k = {inputs}; (b) none:"
            " balanced networks of 4 inputs and 3 outputs are made at every point;"
            f" (c) {labels.data_line(trained)}",
            provenance,
        ),
    )


def _draw_spectrum(axes: Axes, frame: DataFrame) -> None:
    """All eigenvalues but the last of the table, which is zero."""
    axes.set_title("(a) random data")
    shown = frame[frame["printed"] > 0]
    style.logarithmic(axes)
    axes.plot(
        shown["index"],
        shown["measured"],
        color=COMPUTED.colour,
        marker=COMPUTED.marker,
        markersize=3.5,
        markerfacecolor="none",
        markeredgecolor=COMPUTED.colour,
        markeredgewidth=0.4,
        linestyle="",
        label="computed",
    )
    axes.plot(shown["index"], shown["printed"], color="black", linewidth=1.1, label="Eqs 9, 13")
    axes.set_xlabel("index of the eigenvalue")
    axes.set_ylabel("eigenvalue")
    axes.legend(loc="upper right", borderaxespad=0)


def _draw_contours(axes: Axes, frame: DataFrame) -> None:
    axes.set_title(r"(b) balanced; dashed: $L = \ln(1/\alpha)$")
    if frame.empty:
        style.blank(axes, "not part of this profile")
        return
    depths, norms, sharpness = grid(frame)
    levels = [level for level in LEVELS if sharpness.min() < level < sharpness.max()]
    fine, over = np.linspace(depths[0], depths[-1], 200), np.linspace(norms[0], norms[-1], 200)
    lines = axes.contour(
        fine, over, eq14(fine, over[:, None]), levels=levels, cmap="viridis", linewidths=1.0
    )
    _label(axes, lines, levels, float(depths[-1]))
    for level in levels:
        axes.plot(*_computed(depths, norms, sharpness, level), **CROSSING)
    axes.plot(fine, np.exp(-fine / 2), color="black", linestyle=style.DASHED, linewidth=0.9)
    axes.set_ylim(norms[0], norms[-1])
    style.whole_numbers(axes, depths, "depth $L$")
    axes.set_ylabel(r"$\sigma_{\max}(Y)/\sqrt{n}$")


CROSSING: dict[str, Any] = {
    "color": "black",
    "marker": "o",
    "markersize": 2.6,
    "markeredgewidth": 0,
    "linestyle": "",
    "label": "_computed",
}


def eq14(depth: NDArray, norm: NDArray) -> NDArray:
    """The largest eigenvalue by Eq 14 with sigma_x = 1, also between whole depths."""
    return depth * norm ** (2 - 2 / depth)


def _label(axes: Axes, lines: Any, levels: Sequence[float], last: float) -> None:
    """The level of each contour, upright, where it leaves the panel at the right or at the top."""
    for level, colour in zip(levels, lines.get_edgecolor(), strict=True):
        norm = (level / last) ** (1 / (2 - 2 / last))
        axes.annotate(
            f"{level:g}",
            (last, norm),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=5.5,
            annotation_clip=False,
        )


def _computed(
    depths: NDArray, norms: NDArray, sharpness: NDArray, level: float
) -> tuple[list[float], list[float]]:
    """Where the computed sharpness, between neighbouring norms on a line, reaches the level."""
    x, y = [], []
    for depth, column in zip(depths, sharpness.T, strict=True):
        if column[0] < level < column[-1]:
            x.append(float(depth))
            y.append(float(np.interp(level, column, norms)))
    return x, y


def grid(frame: DataFrame) -> tuple[NDArray, NDArray, NDArray]:
    """Depths, norms, and the largest eigenvalue (norms, depths)."""
    depths, norms = (np.array(distinct(frame, name)) for name in ("depth", "norm"))
    sharpness = frame.sort_values(["norm", "depth"])["measured"].to_numpy()
    return depths, norms, sharpness.reshape(len(norms), len(depths))
