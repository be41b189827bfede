"""Figure 13: training loss and condition number of pruned vision transformers."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.pruning_arms import EVERY, losses, of_few_images
from figures.shared import arms, captions, style
from figures.shared.series import kappa_over_seeds

EXPERIMENT, COLUMNS = arms.EXPERIMENT, arms.COLUMNS
NETWORK = "vit"


def draw(frame: DataFrame) -> Figure:
    """The loss and kappa over the epochs, as in the paper; beside them kappa over the rate.

    Below, the same of networks that train on fewer images, whose kappa is known after training.
    """
    shown = arms.of_network(frame, NETWORK)
    rates = arms.rates_of(shown)
    of_losses = losses(shown, NETWORK, EVERY)
    with style.paper_style():
        few = arms.of_network(of_few_images(frame), NETWORK)
        rows = 2 if len(few) else 1
        figure = style.new_figure(style.FULL_WIDTH, 0.3 + 2.4 * rows)
        grid = figure.subplots(rows, 3, squeeze=False)
        left, middle, right = grid[0]
        left.set_title("training loss")
        arms.curves(left, of_losses, "loss", rates)
        middle.set_title(rf"$\kappa$, {arms.ALL}")
        arms.curves(middle, arms.certified(shown, "all"), "kappa", rates)
        middle.set_xlim(left.get_xlim())
        middle.xaxis.set_major_locator(left.xaxis.get_major_locator())
        right.set_title(r"$\kappa$ over the share pruned")
        _over_rates(right, arms.finite(arms.certified(shown, "left")))
        if len(few):
            arms.draw_row(grid[1], arms.panels(few, NETWORK, EVERY), rates)
            grid[1, 0].set_ylabel(f"{arms.images_of(few)} images")
        looks = dict(zip(rates, style.ordered_looks(len(rates)), strict=True))
        arms.key_of_rates(figure, looks, {})
        style.footer(figure, captions.data_line(shown))
    return figure


def _over_rates(axes: Any, kappas: DataFrame) -> None:
    """Kappa with the columns that are left over the pruning rate, before and after training."""
    style.logarithmic(axes)
    axes.set_xlabel("share of every tensor that is pruned")
    epochs = sorted(kappas["epoch"].unique())
    for epoch, look in zip(epochs, style.looks(len(epochs)), strict=True):
        name = f"after {epoch} epochs" if epoch else "before training"
        style.band(axes, kappa_over_seeds(kappas[kappas["epoch"] == epoch], "pruned"), look, name)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.2)
    axes.legend(loc="upper left", borderaxespad=0)


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = arms.of_network(frame, NETWORK)
    kappas = arms.certified(shown, "all")
    stops = sorted(int(epoch) for epoch in kappas["epoch"].unique())
    when = "before training alone" if stops == [0] else f"after {captions.listed(stops)} epochs"
    return captions.paragraph(
        arms.opening(shown, 13, NETWORK),
        "Left: the loss after each epoch, in training mode. Middle: kappa with a column of J for"
        f" every weight, pruned or not, of the images without crops, computed {when}; the paper"
        " shows it along training. Right, ours: kappa with the columns of"
        " the weights that are left, over the share that is pruned. Both are of one initialisation."
        " Logarithmic vertical axes.",
        arms.from_few(frame, NETWORK),
        arms.closing(shown, kappas, provenance),
    )
