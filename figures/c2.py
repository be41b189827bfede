"""Figure C2: kappa of pruned networks over the number of their parameters for each output."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame, Series

from figures import fig16
from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT, COLUMNS = fig16.EXPERIMENT, fig16.COLUMNS
PART = {"measured": "True", "steps": "printed"}
NAMES = {
    "resnet20": "ResNet20",
    "resnet32": "ResNet32",
    "vgg5": "VGG5",
    "vit": "ViT",
    "feed_forward": "feed-forward",
}


def draw(frame: DataFrame) -> Figure:
    """Kappa at initialisation (left) and averaged over the epochs of training (right)."""
    measured = where(frame, measured=True, steps="printed")
    share = measured["parameters"] / (measured["samples"] * measured["outputs"])
    measured = measured.assign(share=share)
    start = measured["epoch"] == 0
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.7)
        panels = figure.subplots(1, 2, sharey=True)
        titles = ("(a) at initialisation", "(b) mean over the epochs of training")
        for axes, kept, title in zip(panels, (start, ~start), titles, strict=True):
            axes.set_title(title)
            _panel(axes, measured[kept], share)
        panels[0].set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(measured))
    return figure


def _panel(axes: Axes, shown: DataFrame, share: Series) -> None:
    axes.set_yscale("log")
    lines: list[Line2D] = []
    names = [name for name in NAMES if name in distinct(shown, "network")]
    for name, look in zip(names, style.looks(len(names)), strict=True):
        curve = over_epochs(where(shown, network=name))
        lines.append(style.band(axes, over_seeds(curve, "share", "kappa"), look, NAMES[name]))
    style.logarithmic_x(axes, share, "parameters for each output, $p / (k n)$")
    if lines:
        style.label_curves(axes, lines)


def over_epochs(rows: DataFrame) -> DataFrame:
    """The geometric mean of kappa over the epochs, for every seed and every share."""
    means = [
        {"share": share, "seed": seed, "kappa": np.exp(np.log(one["kappa"].to_numpy()).mean())}
        for (share, seed), one in rows.groupby(["share", "seed"])
    ]
    return DataFrame(means, columns=["share", "seed", "kappa"])


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    measured = where(frame, measured=True, steps="printed")
    rates = ", ".join(f"{rate:.0%}" for rate in distinct(measured, "pruned"))
    return captions.paragraph(
        "Figure C2, beyond the papers. Condition number of the Gauss-Newton matrix J J^T of the"
        f" networks of figures 13 to 17, of which up to {rates.split(', ')[-1]} of every layer's"
        " weights were pruned, over the number of parameters that are left for each of the k n"
        " outputs (p of the paper's networks goes from 12 to 47 k n down to 1.7 to 4.9 k n): (a) at"
        " initialisation, (b) the geometric mean over the later epochs in which kappa was measured."
        f" From right to left, rates {rates}. Logarithmic axes.",
        _images(measured),
        _seeds(measured),
        captions.certificates(measured),
        captions.data(measured, provenance),
    )


def _images(measured: DataFrame) -> str:
    """Which networks were trained on which images, where these differ."""
    networks: dict[str, list[str]] = {}
    for name in distinct(measured, "network"):
        data = distinct(where(measured, network=name), "data")[0]
        networks.setdefault(captions.short_title(data), []).append(NAMES[name])
    if len(networks) < 2:
        return ""
    told = "; ".join(f"{title}: {', '.join(names)}" for title, names in networks.items())
    return f"Trained on {told}."


def _seeds(measured: DataFrame) -> str:
    """The numbers of initialisations behind the means of both panels: they differ by network."""
    start = measured["epoch"] == 0
    ends, every = [], set()
    for part in (start, ~start):
        counts = {len(np.unique(measured["seed"][part & one])) for one in _each(measured)}
        every |= counts
        ends.append(" to ".join(str(count) for count in sorted({min(counts), max(counts)})))
    drawn = captions.spread(every, interval="their 95% intervals")
    return f"Geometric means over {ends[0]} initialisations (a) and {ends[1]} (b); {drawn}."


def _each(measured: DataFrame) -> list[np.ndarray]:
    """For every network a mask that is true for its rows."""
    return [measured["network"] == name for name in distinct(measured, "network")]
