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
    *("initializer", "epoch", "measured", "samples", "outputs", "gain", "rate", "batch", "dtype"),
    *("loss", "bound_convex"),
)
NAMES = {"kaiming_normal": "Kaiming normal", "xavier_normal": "Xavier normal"}
KEY = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)


def draw(table: Columns) -> Figure:
    """The loss (left), and kappa with its bound (right), over the epochs, one colour an
    initialisation; logarithmic axes, the horizontal ones linear between epochs 0 and 1."""
    initializers = distinct(table, "initializer")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        losses, kappas = figure.subplots(1, 2)
        for axes in (losses, kappas):
            style.logarithmic(axes)  # before the bands, which end differently there
        for initializer, look in zip(initializers, style.looks(len(initializers)), strict=True):
            drawn = select(table, initializer=initializer)
            loss = style.band(losses, over_seeds(drawn, "epoch", "loss"), look, NAMES[initializer])
            loss.set_marker("")
            measured = select(drawn, measured=True)
            style.band(kappas, kappa_over_seeds(measured, "epoch"), look)
            style.bound_curve(kappas, over_seeds(measured, "epoch", "bound_convex"), look)
        for axes, label in ((losses, "training loss"), (kappas, style.KAPPA)):
            _epochs(axes, int(np.max(table["epoch"])))
            axes.set_ylabel(label)
        style.key(kappas, KEY)
        style.shared_legend(figure, losses)
        style.footer(figure, captions.data_line(table))
    return figure


def _epochs(axes: Axes, last: int) -> None:
    """A logarithmic axis that has room for epoch 0."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(-0.15, 1.2 * last)
    axes.set_xlabel("epoch")


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and certificates of the table behind it."""
    measured = select(table, measured=True)
    depth, width = (captions.listed(distinct(table, name)) for name in ("depth", "width"))
    rate, batch = distinct(table, "rate")[0], distinct(table, "batch")[0]
    return captions.paragraph(
        "Figure 10. Training loss (left) and condition number of the Gauss-Newton matrix with the"
        f" first bound of Lemma 2 (right, dashed) of linear networks of depth L = {depth} and width"
        f" m = {width} over the epochs of SGD with batches of {batch} and learning rate {rate:g}"
        f" on the squared error averaged over the outputs, in {distinct(table, 'dtype')[0]}."
        f" Kaiming normal has variance {distinct(table, 'gain')[0]:g} / fan-in. Logarithmic axes.",
        captions.seeds(table),
        captions.certificates(measured),
        captions.data(table, provenance),
    )
