"""What figures of training share: the loss and kappa over the epochs, one curve a network."""

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, kappa_over_seeds, over_seeds, select

COLUMNS = (
    *captions.CERTIFICATE,
    *("seed", "epoch", "measured", "samples", "inputs", "outputs", "data", "loss"),
)


def loss_and_kappa(shown: Columns, by: str, label: Callable[[Any], str]) -> Figure:
    """The loss (left) and kappa (right) over the epochs, both on logarithmic axes.

    One curve for each value of the column ``by``, with its label at the right.
    """
    values = distinct(shown, by)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        losses, kappas = figure.subplots(1, 2)
        lines = []
        for axes, name in ((losses, "training loss"), (kappas, style.KAPPA)):
            style.logarithmic(axes)
            axes.set_ylabel(name)
        for value, look in zip(values, style.ordered_looks(len(values)), strict=True):
            curve = select(shown, **{by: value})
            style.band(losses, over_seeds(curve, "epoch", "loss"), look).set_marker("")
            measured = kappa_over_seeds(select(curve, measured=True), "epoch")
            lines.append(style.band(kappas, measured, look, label(value)))
        for axes in (losses, kappas):
            style.whole_numbers(axes, shown["epoch"], "epoch")
        style.label_curves(kappas, lines)
        style.footer(figure, captions.data_line(shown))
    return figure
