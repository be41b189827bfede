"""Figure 10: loss, condition number and the first bound of Lemma 2 over training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, kappa_over_seeds, over_seeds, select

EXPERIMENT = "training_path"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("start", "epoch", "measured", "samples", "outputs", "rate", "batch", "dtype"),
    *("loss", "bound_convex"),
)
NAMES = {  # in the order of the legend
    "kaiming_2": "Kaiming normal, gain 2",
    "kaiming_1": "Kaiming normal, gain 1",
    "pytorch": "PyTorch's default",
    "xavier": "Xavier normal",
}
PAPER_RANGE = (6.0, 12.0)
KEY = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)


def draw(table: Columns) -> Figure:
    """The loss (left) and kappa with its bound (right) over the epochs, a colour for each start;
    logarithmic axes, the horizontal ones linear between epochs 0 and 1."""
    drawn = {start: name for start, name in NAMES.items() if start in distinct(table, "start")}
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.8)
        losses, kappas = figure.subplots(1, 2)
        for axes in (losses, kappas):
            style.logarithmic(axes)  # before the bands, which end differently there
        _paper_range(kappas)
        for (start, name), look in zip(drawn.items(), style.looks(len(drawn)), strict=True):
            of_start = select(table, start=start)
            loss = style.band(losses, over_seeds(of_start, "epoch", "loss"), look, name)
            loss.set_marker("")
            measured = select(of_start, measured=True)
            style.band(kappas, kappa_over_seeds(measured, "epoch"), look)
            style.bound_curve(kappas, over_seeds(measured, "epoch", "bound_convex"), look)
        for axes, label in ((losses, "training loss"), (kappas, style.KAPPA)):
            _epochs(axes, int(np.max(table["epoch"])))
            axes.set_ylabel(label)
        style.key(kappas, KEY)
        handles, names = losses.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        style.footer(figure, captions.data_line(table))
    return figure


def _paper_range(axes: Axes) -> None:
    """The values that the paper reports, as a grey band with its name."""
    low, high = PAPER_RANGE
    axes.axhspan(low, high, color=style.GREY, alpha=0.15, linewidth=0, zorder=0)
    axes.annotate(
        f"the paper's {low:g} to {high:g}",
        (0.98, low * (high / low) ** 0.2),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="center",
        color=style.GREY,
    )


def _epochs(axes: Axes, last: int) -> None:
    """A logarithmic axis that has room for epoch 0."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(-0.15, 1.2 * last)
    axes.set_xlabel("epoch")


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    measured = select(table, measured=True)
    depth, width = (captions.listed(distinct(table, name)) for name in ("depth", "width"))
    rate, batch = distinct(table, "rate")[0], distinct(table, "batch")[0]
    return captions.paragraph(
        "Figure 10. Training loss (left) and condition number of the Gauss-Newton matrix with the"
        f" first bound of Lemma 2 (right, dashed) of linear networks of depth L = {depth} and width"
        f" m = {width} over the epochs of SGD with batches of {batch} and learning rate {rate:g}"
        f" on the squared error averaged over the outputs, in {distinct(table, 'dtype')[0]}."
        " Kaiming normal has variance gain / fan-in; the paper's Appendix G has gain 1, PyTorch"
        " gain 2. The grey band is the range that the paper reports, for CIFAR-10. With whitened"
        " inputs the data count by their rank, the labels and the mini-batches alone. Logarithmic"
        " axes.",
        captions.seeds(table),
        captions.certificates(measured),
        captions.data(table, provenance),
    )
