"""Figure B4: how well Eq 15 predicts the largest eigenvalues of the Hessian, over training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, epochs, style
from figures.shared.series import distinct, over_seeds

EXPERIMENT = "shallow_eigenvalues"
COLUMNS = (
    *captions.CELL,
    *("panel", "epoch", "index", "samples", "measured", "error", "predicted", "bound"),
)
ERROR = style.Look(style.COLOURS[0], "o")
BOUND = style.Look(style.COLOURS[1], "s", style.DASHED)


def draw(frame: DataFrame) -> Figure:
    """The mean error of the top eigenvalues in per cent and its bound, for each data set."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        grid = figure.subplots(1, len(epochs.PANELS), sharey=True)
        for axes, shown in epochs.panels(grid, frame):
            _draw_panel(axes, shown)
        grid[0].set_ylabel("mean error of the ten\nlargest eigenvalues (%)")
        style.shared_legend(figure, grid[0])
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and residuals of the table behind the figure."""
    count = int(frame["index"].max())
    proved = captions.rounded_up(float((frame["error"] / frame["measured"]).to_numpy().max()))
    return captions.paragraph(
        f"Figure B4. Error of Eq 15, in per cent, for the {count} largest eigenvalues of the full"
        " Hessian of two-layer linear networks of width"
        f" m = {captions.listed(distinct(frame, 'width'))} over training by gradient descent, the"
        " mean over these eigenvalues.",
        "Dashed: the norm of H - G, which by Weyl's inequality bounds the distance of every"
        " eigenvalue from Eq 15, in per cent of the same eigenvalues.",
        f"Residuals prove an eigenvalue within {proved} of each one, relatively.",
        captions.seeds(frame),
        captions.data(frame, provenance),
    )


def per_network(frame: DataFrame) -> DataFrame:
    """Error and bound in per cent at each epoch of each network, means over the eigenvalues."""
    error = 100 * np.abs(frame["measured"] - frame["predicted"]) / frame["measured"]
    bound = 100 * frame["bound"] / frame["measured"]
    in_per_cent = frame.assign(error=error, bound=bound)
    means = in_per_cent.groupby(["epoch", "seed"])[["error", "bound"]].mean(skipna=False)
    return means.reset_index()


def _draw_panel(axes: Axes, frame: DataFrame) -> None:
    style.logarithmic(axes)
    means = per_network(frame)
    style.band(axes, over_seeds(means, "epoch", "bound"), BOUND, r"bound $\|H - G\|_2$")
    style.band(axes, over_seeds(means, "epoch", "error"), ERROR, "error of Eq 15")
    epochs.epoch_axis(axes, frame["epoch"])
