"""Figure 18: training loss and condition number of ReLU networks of several widths."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, paths
from figures.shared.width_training import READINGS, training

EXPERIMENT = "width_training"
COLUMNS = (
    *paths.COLUMNS,
    *("figure", "reading", "width", "training_loss", "rate", "batch", "biases", "shuffled"),
    *("kappa_numerical", "kappa_numerical_low", "kappa_numerical_high"),
)


def draw(frame: DataFrame) -> Figure:
    """The loss (left) and kappa (right) over the epochs, both on logarithmic axes."""
    return paths.loss_and_kappa(_shown(frame), "width", lambda width: f"$m = {width}$")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    return captions.paragraph(
        "Figure 18. Training loss (left) and condition number of the Gauss-Newton matrix J J^T"
        " (right) of networks with one hidden layer of m ReLU units over the epochs."
        f" Initialisation: Xavier normal. {training(shown)} The loss of an epoch is the mean over"
        " its steps. kappa is that of the rank that matrix_rank counts in double precision."
        " Logarithmic vertical axes.",
        _of_the_papers(shown),
        captions.seeds(shown),
        captions.certificates(shown[shown["measured"]]),
        captions.data(shown, provenance),
    )


PRINTED = (15, 20)  # the widths that the text names


def _of_the_papers(shown: DataFrame) -> str:
    """Which of the widths that the text names are not drawn."""
    absent = [width for width in PRINTED if width not in set(shown["width"])]
    if not absent:
        return ""
    return f"Of the widths that the paper's text names, {captions.listed(absent)} are not run here."


def _shown(frame: DataFrame) -> DataFrame:
    """The rows of the reading, with kappa at the numerical rank where that is known."""
    there = set(frame["reading"][frame["figure"] == "18"])
    reading = next(name for name in READINGS if name in there)
    rows = frame[(frame["figure"] == "18") & (frame["reading"] == reading)].reset_index(drop=True)
    known = np.isfinite(rows["kappa_numerical_high"].to_numpy(float))
    ends = {
        f"kappa{end}": np.where(known, rows[f"kappa_numerical{end}"], rows[f"kappa{end}"])
        for end in ("", "_low", "_high")
    }
    return rows.assign(**ends, resolved=known | rows["resolved"])
