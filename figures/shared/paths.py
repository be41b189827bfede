"""Shared by the figures of training: the loss and kappa of several networks over the epochs."""

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where

COLUMNS = (
    *captions.CERTIFICATE,
    *("seed", "epoch", "measured", "samples", "inputs", "outputs", "data", "loss"),
)


MOST_LABELS = 4  # labels of more curves that end together cross each other


def loss_and_kappa(
    shown: DataFrame, by: str, label: Callable[[Any], str], bands: int | None = None
) -> Figure:
    """The loss (left) and kappa (right) over the epochs, both on logarithmic axes.

    One curve for each value of the column ``by``, with its label at the right of both panels; of
    more than :data:`MOST_LABELS` curves over the panels, in the order of the values.
    ``bands`` is how many of them have a band, from the first to the last; all without it.
    """
    values = distinct(shown, by)
    filled = spaced(len(values), len(values) if bands is None else bands)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        losses, kappas = figure.subplots(1, 2)
        drawn: dict[Axes, list[Any]] = {losses: [], kappas: []}
        for axes, name in ((losses, "training loss"), (kappas, style.KAPPA)):
            style.logarithmic(axes)
            axes.set_ylabel(name)
        for index, look in enumerate(style.ordered_looks(len(values))):
            curve, name = where(shown, **{by: values[index]}), label(values[index])
            has_band = index in filled
            loss = over_seeds(curve, "epoch", "loss")
            drawn[losses].append(style.band(losses, loss, look, name, filled=has_band))
            drawn[losses][-1].set_marker("")
            measured = kappa_over_seeds(where(curve, measured=True), "epoch")
            drawn[kappas].append(style.band(kappas, measured, look, name, filled=has_band))
        for axes, lines in drawn.items():
            _one_style_of_ticks(axes)
            style.whole_numbers(axes, shown["epoch"], "epoch")
            if len(values) <= MOST_LABELS:
                style.label_curves(axes, lines)
        if len(values) > MOST_LABELS:
            figure.legend(handles=drawn[kappas], loc="outside upper center", ncols=len(values))
        style.footer(figure, captions.data_line(shown))
    return figure


def spaced(count: int, chosen: int) -> set[int]:
    """So many places from the first to the last of ``count``, as evenly as whole numbers allow."""
    most = min(count, chosen)
    return {round(place * (count - 1) / max(most - 1, 1)) for place in range(most)}


def _one_style_of_ticks(axes: Axes) -> None:
    """Plain numbers over less than a decade and a half; else powers of ten and nothing between.

    From a million on plain numbers would be long: there powers of ten and their multiples remain.
    """
    low, high = axes.get_ylim()
    if high / low >= 10**1.5:
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif high < 1e6:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
