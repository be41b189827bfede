"""Shared by figures 9 and 18: which networks of a table are drawn, and how they were trained."""

from pandas import DataFrame

from figures.shared import captions
from figures.shared.series import distinct

READINGS = ("published", "shuffled")  # the first that the table has is drawn
LOSSES = {"mse": "mean square error", "cross_entropy": "cross-entropy"}


def training(frame: DataFrame) -> str:
    """The optimiser, the rate of each width, the loss, the order of the samples and the biases."""
    rates = [
        f"{rate:g} for m = {captions.listed(distinct(rows, 'width'))}"
        for rate, rows in frame.groupby("rate")
    ]
    batch = captions.listed(distinct(frame, "batch"))
    loss = LOSSES[distinct(frame, "training_loss")[0]]
    order = "drawn at random" if frame["shuffled"].all() else "in the order of the file"
    biases = "no biases" if set(frame["biases"]) == {"none"} else "biases in every layer"
    return (
        f"SGD on the {loss}, batches of {batch} samples {order}, {biases}, learning rate"
        f" {' and '.join(rates)}."
    )
