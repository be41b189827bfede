"""Figure 18: training loss and condition number of one-hidden ReLU networks, one curve a width."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures import captions, style
from figures.series import Columns, distinct, kappa_over_seeds, over_seeds, select

EXPERIMENT = "width_training"
COLUMNS = (
    *captions.CERTIFICATE,
    *("figure", "width", "seed", "epoch", "measured", "samples", "inputs", "outputs", "data"),
    *("training_loss", "rate", "batch", "dtype", "loss"),
)


def draw(table: Columns) -> Figure:
    """The loss (left) and kappa (right) over the epochs, both on logarithmic axes."""
    shown = select(table, figure=18)
    widths = distinct(shown, "width")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        losses, kappas = figure.subplots(1, 2)
        for axes in (losses, kappas):
            style.logarithmic(axes)  # before the bands, which end differently there
        for width, look in zip(widths, style.ordered_looks(len(widths)), strict=True):
            of_width = select(shown, width=width)
            style.band(losses, over_seeds(of_width, "epoch", "loss"), look).set_marker("")
            measured = kappa_over_seeds(select(of_width, measured=True), "epoch")
            style.band(kappas, measured, look, f"$m = {width}$")
        for axes, label in ((losses, "training loss"), (kappas, style.KAPPA)):
            style.whole_numbers(axes, shown["epoch"], "epoch")
            axes.set_ylabel(label)
        style.label_curves(kappas, kappas.lines[: len(widths)])
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and certificates of the table behind it."""
    shown = select(table, figure=18)
    return captions.paragraph(
        "Figure 18. Training loss (left) and condition number of the Gauss-Newton matrix J J^T"
        " (right) of networks with one hidden layer of m ReLU units over the epochs."
        f" Initialisation: Xavier normal. {training(shown)} The loss of an epoch is the mean over"
        " its steps. Logarithmic vertical axes.",
        captions.seeds(shown),
        captions.certificates(select(shown, measured=True)),
        captions.data(shown, provenance),
    )


def training(table: Columns) -> str:
    """The optimiser, the rate of each width, and the loss."""
    rates = [
        f"{rate:g} for m = {captions.listed(distinct(select(table, rate=rate), 'width'))}"
        for rate in distinct(table, "rate")
    ]
    batch = captions.listed(distinct(table, "batch"))
    loss = distinct(table, "training_loss")[0].replace("_", " ")
    return (
        f"SGD on the {loss} in {distinct(table, 'dtype')[0]}, batches of {batch}, learning rate"
        f" {' and '.join(rates)}."
    )
