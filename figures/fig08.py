"""Figure 8: condition number of linear CNNs over kernel size and over the number of filters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, kappa_over_seeds, select

EXPERIMENT = "cnn_sweep"
COLUMNS = (
    *captions.CERTIFICATE,
    *("figure", "kernel", "filters", "seed", "inputs", "outputs", "data", "samples", "gain"),
    *("whitening", "whitened_on"),
)
NETWORKS = {  # rows of the figure: the paper's network, and one beyond it
    "8": "one convolution and the head",
    "8-depth-3": "two convolutions and the head",
}
DRAWN = {"drawn": "whitened on the samples drawn", "all": "whitened on the whole data set"}


@dataclass(frozen=True)
class Axis:
    """The column along x, what it is called, and the column and symbol that curves are told by."""

    over: str
    label: str
    by: str
    symbol: str


AXES = (
    Axis("kernel", "kernel size $K$", "filters", "F"),
    Axis("filters", "number of filters $F$", "kernel", "K"),
)


def draw(table: Columns) -> Figure:
    """Kappa over the kernel size (left) and the filters (right), two layers above three."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.5)
        grid = figure.subplots(len(NETWORKS), len(AXES), sharey="row")
        for panels, (name, title) in zip(grid, NETWORKS.items(), strict=True):
            shown = select(table, figure=name)
            for axes, axis in zip(panels, AXES, strict=True):
                axes.set_title(title)
                style.logarithmic(axes)
                _draw_curves(axes, shown, axis)
            panels[0].set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(_shown(table)))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and certificates of the table behind it."""
    shown = _shown(table)
    (method,), (when,) = distinct(shown, "whitening"), distinct(shown, "whitened_on")
    return captions.paragraph(
        "Figure 8. Condition number of the Gauss-Newton matrix of linear CNNs at initialisation"
        f" ({captions.initialisation(shown)}) over the kernel size K (left) and over the number of"
        " filters F of every convolution (right): one-dimensional convolutions over the flattened"
        f" image ({method.upper()}, {DRAWN[when]}), stride 1, no padding, and a dense head. Top:"
        " one convolution. Bottom, beyond the paper: two. The matrix is that of the kernels and"
        " the head, whose weights are shared, not of Toeplitz matrices. Logarithmic vertical axes,"
        " and on the right logarithmic horizontal ones.",
        _seeds(table),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def _seeds(table: Columns) -> str:
    """How many initialisations are behind each row of panels."""
    top, bottom = (len(distinct(select(table, figure=name), "seed")) for name in NETWORKS)
    if top == bottom:
        return captions.seeds(_shown(table))
    return (
        f"Mean over {top} initialisations (top) and {bottom} (bottom); bands are one sample"
        " standard deviation."
    )


def _shown(table: Columns) -> Columns:
    return select(table, figure=list(NETWORKS))


def _draw_curves(axes: Axes, table: Columns, axis: Axis) -> None:
    values = distinct(table, axis.by)
    lines = [
        style.band(
            axes,
            kappa_over_seeds(select(table, **{axis.by: value}), axis.over),
            look,
            f"${axis.symbol} = {value}$",
        )
        for value, look in zip(values, style.ordered_looks(len(values)), strict=True)
    ]
    places = distinct(table, axis.over)
    if axis.over == "filters":
        axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(place) for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(axis.label)
    style.label_curves(axes, lines)
