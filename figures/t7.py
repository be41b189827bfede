"""Figure T7: the layers' diagonal blocks beside the whole curvature, along training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "block_alignment"
COLUMNS = (
    *captions.CELL,
    *("panel", "network", "matrix", "samples", "parameters", "blocks", "step", "damping"),
    *("value", "value_low", "value_high", "evidence"),
)
NETWORKS = {"gpt": "GPT", "mlp": "MLP"}
MATRICES = {"H": "Hessian", "G": "Gauss-Newton"}
PANELS = {
    "error": "relative error of the blocks",
    "eigenvector": "cosine of top eigenvectors",
    "step": "cosine of the steps",
    "decrease": "share of the decrease",
}


def draw(frame: DataFrame) -> Figure:
    """A row of panels for each network: error, eigenvectors, steps, and what the steps gain."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.9)
        parts: Any = figure.subplots(len(NETWORKS), len(PANELS), sharex=True, sharey=True)
        for line, network in zip(parts, NETWORKS, strict=True):
            of_network = where(frame, network=network)
            for axes, panel in zip(line, PANELS, strict=True):
                _panel(axes, where(of_network, panel=panel), distinct(frame, "step"))
            line[0].set_ylabel(f"{NETWORKS[network]}, p = {_sizes(of_network)}")
        for axes, letter, title in zip(parts[0], "abcd", PANELS.values(), strict=True):
            axes.set_title(f"({letter}) {title}", fontsize=7.5)
        for axes in parts[-1]:
            axes.set_xlabel("step of Adam")
        for axes in (parts[0][0], parts[0][2]):
            axes.legend(loc="lower left", fontsize=7, handlelength=1.4, borderaxespad=0.1)
        style.footer(figure, captions.data_line(frame))
    return figure


def _panel(axes: Axes, shown: DataFrame, stops: list[int]) -> None:
    """A curve for each matrix, or for each damping, over the stops of the run."""
    by_damping = len(distinct(shown, "damping")) > 1 or 0.0 not in distinct(shown, "damping")
    name = "damping" if by_damping else "matrix"
    curves = distinct(shown, name)[::-1]
    looks = style.looks(len(MATRICES) + len(curves))[len(MATRICES) if by_damping else 0 :]
    beside = np.linspace(-0.08, 0.08, len(curves))
    for shift, curve, look in zip(beside, curves, looks, strict=False):
        run = over_seeds(where(shown, **{name: curve}), "step", "value", arithmetic=True)
        placed = replace(run, x=np.array([stops.index(step) for step in run.x]) + shift)
        label = f"damping {curve:g}" if by_damping else MATRICES[curve]
        style.bars(axes, placed, look, label)
    axes.set_ylim(-0.05, 1.05)
    axes.set_xticks(range(len(stops)), [str(stop) for stop in stops])


def _sizes(shown: DataFrame) -> str:
    return captions.listed(distinct(shown, "parameters"))


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and errors of the table behind the figure."""
    width = float((frame["value_high"] - frame["value_low"]).to_numpy().max())
    blocks = ", ".join(
        f"{captions.listed(distinct(where(frame, network=network), 'blocks'))} in the {title}"
        for network, title in NETWORKS.items()
    )
    seeds = len(distinct(frame, "seed"))
    bars = captions.spread([2], "bars") if seeds == 2 else "bars: its 95% interval"
    return captions.paragraph(
        "Figure T7, beyond the papers. The Hessian H of the cross-entropy and its Gauss-Newton"
        f" matrix G beside their layers' diagonal blocks B ({blocks}), along a full-batch run of"
        " Adam. (a) ||A - B||_F / ||A||_F for A = H, G, the root mean square of the error of"
        " products with Gaussian vectors. (b) The cosine of the eigenvectors of the largest"
        " eigenvalues. (c) The cosine of the steps (G + d)^{-1} g and (B + d)^{-1} g for the"
        " gradient g and dampings d as shares of the mean eigenvalue of G. (d) What the second step"
        " gains of the decrease of the quadratic model that the first gains, each at its best"
        f" length. Each of the {len(frame)} numbers is known to {captions.rounded_up(width)} or"
        f" less ({captions.weakest_evidence(frame)}). Mean over {seeds} initialisations; {bars}.",
        captions.data(frame, provenance),
    )
