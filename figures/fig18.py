"""Figure 18: training loss and condition number of ReLU networks of several widths."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import captions, paths
from figures.shared.series import Columns, distinct, select

EXPERIMENT = "width_training"
PART = {"figure": "18"}
COLUMNS = (
    *paths.COLUMNS,
    *("figure", "width", "training_loss", "rate", "batch", "dtype"),
)


def draw(table: Columns) -> Figure:
    """The loss (left) and kappa (right) over the epochs, both on logarithmic axes."""
    shown = select(table, figure=18)
    return paths.loss_and_kappa(shown, "width", lambda width: f"$m = {width}$")


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
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
