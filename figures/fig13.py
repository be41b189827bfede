"""Figure 13: training loss and condition number of pruned vision transformers."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.pruning_arms import EVERY, losses
from figures.shared import arms, captions, style
from figures.shared.series import kappa_over_seeds

EXPERIMENT, COLUMNS = arms.EXPERIMENT, arms.COLUMNS
NETWORK = "vit"


def draw(frame: DataFrame) -> Figure:
    """The loss over the epochs, and kappa over the pruning rate before and after training."""
    shown = arms.of_network(frame, NETWORK)
    kappas = arms.finite(arms.certified(shown, "left"))
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        left, right = figure.subplots(1, 2)
        left.set_title("training loss")
        rates = sorted(shown["pruned"].unique())
        arms.curves(left, losses(shown, NETWORK, EVERY), "loss", rates)
        right.set_title(r"$\kappa$, the columns that are left")
        style.logarithmic(right)
        right.set_xlabel("share of every tensor that is pruned")
        epochs = sorted(kappas["epoch"].unique())
        lines = [
            style.band(
                right,
                kappa_over_seeds(kappas[kappas["epoch"] == epoch], "pruned"),
                look,
                f"after {epoch} epochs" if epoch else "before training",
            )
            for epoch, look in zip(epochs, style.ordered_looks(len(epochs)), strict=True)
        ]
        style.label_curves(right, lines)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    return arms.caption(frame, provenance, 13, NETWORK)
