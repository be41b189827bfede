"""Figure C3: Figure 8 in three readings, and where kappa changes as the paper says."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, filters, style
from figures.shared.filters import FILTERS, KERNEL, draw_curves, ticks
from figures.shared.series import distinct
from sweeps.effects import Effect, ratio
from sweeps.rows import where

EXPERIMENT = "cnn_sweep"
COLUMNS = (*filters.COLUMNS, "size", "rank")
READINGS = {  # rows of the figure: the panel, its map at another side, and what it is
    "8-convolutions": ("8-convolutions_half", "Toeplitz entries, convolutional last layer"),
    "8-dense": ("8-dense_half", "Toeplitz entries, dense last layer"),
    "8-shared": ("8-shared_other", "shared weights, dense last layer"),
}
AGREES, OPPOSES, OPEN = "as the paper says", "the opposite", "undecided"
SIGNS: dict[str, dict[str, Any]] = {
    AGREES: {"color": style.COLOURS[0], "linewidth": 2.4, "linestyle": "-"},
    OPPOSES: {"color": style.COLOURS[1], "linewidth": 1.6, "linestyle": (0, (1.6, 0.9))},
    OPEN: {"color": "#B5B5B5", "linewidth": 0.8, "linestyle": "-"},
}


def draw(frame: DataFrame) -> Figure:
    """One row for each reading: kappa over kernel size and filters, and two maps of signs."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 7.6)
        grid = figure.add_gridspec(len(READINGS), 1)
        for row, (name, (other, title)) in enumerate(READINGS.items()):
            block = figure.add_subfigure(grid[row, 0])
            block.suptitle(title, x=0.01, ha="left", fontsize=9, weight="bold")
            panels = block.subplots(1, 4, width_ratios=(1.15, 1.15, 1, 1))
            shown = where(frame, figure=name)
            for axes, axis in zip(panels, (KERNEL, FILTERS), strict=False):
                style.logarithmic(axes)
                draw_curves(axes, shown, axis)
            panels[1].sharey(panels[0])
            panels[0].set_ylabel(r"$\kappa(\widehat{\mathbf{G}}_O)$")
            for axes, side in zip(panels[2:], (name, other), strict=True):
                _draw_map(axes, where(frame, figure=side))
        handles = [Line2D([], [], label=name, **drawn) for name, drawn in SIGNS.items()]
        handles.append(Line2D([], [], color="black", linewidth=0.9, label="full rank to the right"))
        figure.legend(handles=handles, loc="outside upper right", ncols=4, handlelength=2.4)
        style.footer(figure, captions.data_line(_shown(frame)))
    return figure


def _draw_map(axes: Axes, frame: DataFrame) -> None:
    """Each step from one size to the next, as a line whose style shows the sign of kappa's change.

    Horizontal steps add filters, vertical ones enlarge the kernel. A sign is certain where the
    interval of the ratio of geometric means leaves out 1.
    """
    axes.set_title(f"signs, {distinct(frame, 'side')[0]} x {distinct(frame, 'side')[0]}")
    axes.grid(visible=False)
    for start, end, sign in steps(frame):
        axes.plot(*zip(start, end, strict=True), solid_capstyle="butt", **SIGNS[sign])
    axes.plot(frame["filters"], frame["kernel"], ".", color="black", markersize=2.2)
    _draw_threshold(axes, frame)
    ticks(axes, frame, FILTERS)
    ticks(axes, frame, KERNEL, along="y")


def steps(frame: DataFrame) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """(from, to, sign) of every step between neighbours in (filters, kernel)."""
    for axis in (FILTERS, KERNEL):
        for value in distinct(frame, axis.by):
            curve = where(frame, **{axis.by: value})
            places = distinct(curve, axis.over)
            for before, after in pairwise(places):
                first, second = (where(curve, **{axis.over: at}) for at in (before, after))
                ends = [(at, value) if axis is FILTERS else (value, at) for at in (before, after)]
                yield ends[0], ends[1], _sign(ratio(second, first), axis.rises)


def _sign(effect: Effect, rises: bool) -> str:
    if effect.low <= 1 <= effect.high:
        return OPEN
    return AGREES if (effect.value > 1) == rises else OPPOSES


def _draw_threshold(axes: Axes, frame: DataFrame) -> None:
    """A line between the networks whose G has full rank k d and the others, for each kernel.

    Toeplitz entries always give the matrix full rank, and then there is no such line.
    """
    full = frame.assign(full=frame["rank"] == frame["size"])
    places = []
    for kernel in distinct(full, "kernel"):
        at = where(full, kernel=kernel)
        below, above = (distinct(where(at, full=which), "filters") for which in (False, True))
        if below and above:
            places.append(((below[-1] * above[0]) ** 0.5, kernel))
    if places:
        axes.step(*zip(*places, strict=True), where="mid", color="black", linewidth=0.9)


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    return captions.paragraph(
        "Figure C3, a supplement to Figure 8. Condition number of the Gauss-Newton matrix of linear"
        " two-layer CNNs at"
        f" initialisation ({captions.initialisation(shown)}) over the kernel size K and the number"
        " of filters F: images whitened on the samples drawn, two-dimensional convolutions, stride"
        " 1, no padding. The text leaves three readings open. Top: all layers are convolutions and"
        " the parameters are the entries of their Toeplitz matrices, as Appendix B has it, with"
        " one output channel. Middle: the same with a dense last layer. Bottom: the parameters are"
        " the kernels, whose weights are shared, and a dense last layer. The maps show the sign of"
        " every step to more filters (horizontal) and to a larger kernel (vertical), where its 95%"
        " interval leaves out no change, at the side of the curves and at another one; the black"
        " line parts networks whose matrix has not full rank k d (left) from those that have it."
        " Logarithmic axes for kappa and F.",
        _seeds(frame),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _seeds(frame: DataFrame) -> str:
    """How many initialisations are behind each row of panels."""
    counts = [len(distinct(where(frame, figure=name), "seed")) for name in READINGS]
    listed = f"{counts[0]} (top), {counts[1]} (middle) and {counts[2]} (bottom)"
    return f"Geometric mean over {listed} initialisations; {captions.spread(counts)}."


def _shown(frame: DataFrame) -> DataFrame:
    return where(frame, figure=list(READINGS))
