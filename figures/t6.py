"""Figure T6: condition number of pruned and narrow networks and of adapters over p / (k n)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds
from sweeps.rows import where

EXPERIMENT = "adapter_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("network", "family", "amount", "samples", "parameters", "share", "rank", "steps"),
)
NETWORKS = {"mlp": "(a) MLP", "gpt": "(b) GPT"}
FAMILIES = {
    "pruned": "pruned",
    "narrow": "narrower",
    "adapters": "adapters, $B = 0$",
    "adapters, trained": "adapters after training",
}


def draw(frame: DataFrame) -> Figure:
    """One panel for each network, one curve for each way to have fewer parameters."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.9)
        panels = figure.subplots(1, 2)
        for axes, (network, title) in zip(panels, NETWORKS.items(), strict=True):
            _panel(axes, where(frame, network=network))
            axes.set_title(title)
        panels[0].set_ylabel(style.KAPPA)
        style.shared_legend(figure, panels[0])
        style.footer(figure, captions.data_line(frame))
    return figure


def _panel(axes: Axes, shown: DataFrame) -> None:
    style.logarithmic(axes)
    for (family, label), look in zip(FAMILIES.items(), style.looks(len(FAMILIES)), strict=True):
        style.band(axes, kappa_over_seeds(where(shown, family=family), "share"), look, label)
    style.logarithmic_x(axes, shown["share"], "parameters for each output, $p / (k n)$")
    axes.axvline(1.0, color=style.GREY, linewidth=0.8, linestyle=":")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    sizes = "; ".join(
        f"{title[4:]}: depth {captions.listed(distinct(shown, 'depth'))}, width"
        f" {max(distinct(shown, 'width'))}, narrowed to {min(distinct(shown, 'width'))}"
        for title, shown in (
            (title, where(frame, network=network)) for network, title in NETWORKS.items()
        )
    )
    amounts = {
        family: ", ".join(f"{value:g}" for value in distinct(where(frame, family=family), "amount"))
        for family in ("pruned", "adapters")
    }
    outputs = np.asarray(frame["samples"] * frame["outputs"])
    below = int(np.sum(frame["rank"] < np.minimum(frame["parameters"], outputs)))
    return captions.paragraph(
        "Figure T6, beyond the papers. Condition number of the Gauss-Newton matrix J J^T over the"
        " number p of parameters for each of the k n outputs, for networks of which the shares"
        f" {amounts['pruned']} of every matrix were pruned by magnitude, for narrower networks, and"
        f" for adapters of ranks {amounts['adapters']} at every matrix, which add A B to it, at B ="
        f" 0, where p counts B alone, and after {max(distinct(frame, 'steps'))} steps of Adam"
        f" ({sizes}). The dotted line is p = k n, left of which J J^T is singular and kappa is that"
        f" of its range. {below} of {len(outputs)} matrices have a rank below both p and k n."
        " Logarithmic axes.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
