"""Figure T3: kappa of G in the metrics of optimisers, and the steps that these need to a loss."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where

EXPERIMENT = "optimizer_metrics"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("panel", "network", "samples", "parameters", "share", "rank", "metric", "damping"),
    *("step", "target", "momentum", "steps", "reached", "rate", "at_edge"),
)
NETWORKS = {"gpt": "GPT", "mlp": "MLP, few images", "mlp_many": "MLP, many images"}
NAMES = {
    "SGD": "SGD",
    "Adam": "Adam",
    "Shampoo": "Shampoo",
    "diagonal": "diag(G)",
    "K-FAC": "K-FAC",
    "layers": "layers of G",
    "full": "G",
}
LOOKS = dict(zip(NAMES, style.looks(len(NAMES)), strict=True))


def draw(frame: DataFrame) -> Figure:
    """For each network kappa along training (top), and steps over kappa at the start (bottom)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.6)
        panels = figure.subplots(2, len(NETWORKS))
        for letter, (network, title) in enumerate(NETWORKS.items()):
            upper, lower = panels[:, letter]
            shown = where(frame, network=network)
            _along(upper, where(shown, panel="kappa", damping=[0.0, usual(frame)]))
            _against(lower, shown)
            upper.set_title(f"({'abc'[letter]}) {title}, {_regime(shown)}")
            lower.set_title(f"({'def'[letter]})")
        panels[0, 0].set_ylabel("condition number in the metric")
        panels[1, 0].set_ylabel("steps to the loss")
        handles = [
            Line2D([], [], color=look.colour, marker=look.marker, label=NAMES[metric])
            for metric, look in LOOKS.items()
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        style.footer(figure, captions.data_line(frame))
    return figure


def usual(frame: DataFrame) -> float:
    """The damping at which kappa is measured along training."""
    late = where(frame, panel="kappa", metric="full")
    return float(late["damping"][late["step"] == late["step"].max()].iloc[0])


def _regime(shown: DataFrame) -> str:
    return f"$p / (k n) = {distinct(shown, 'share')[0]:.2g}$"


def _along(axes: Axes, shown: DataFrame) -> None:
    """One curve for each metric over the steps of Adam's run, the metrics beside each other."""
    style.logarithmic(axes)
    stops, beside = distinct(shown, "step"), np.linspace(-0.27, 0.27, len(LOOKS))
    for shift, (metric, look) in zip(beside, LOOKS.items(), strict=True):
        run = kappa_over_seeds(where(shown, metric=metric), "step")
        placed = replace(run, x=np.arange(len(stops)) + shift)
        style.bars(axes, placed, look, NAMES[metric])
    axes.set_xticks(np.arange(len(stops)), [f"{stop}" for stop in stops])
    axes.set_xlabel("step of Adam")


def _against(axes: Axes, shown: DataFrame) -> None:
    """Steps against kappa: a point for each metric and damping, filled at the usual one."""
    style.logarithmic(axes)
    axes.set_xscale("log")
    for metric, look in LOOKS.items():
        places = [point(shown, metric, damping) for damping in _dampings(shown, metric)]
        kappas, steps = (np.array(ends).T for ends in zip(*places, strict=True))
        axes.plot(kappas[0], steps[0], color=look.colour, linewidth=0.8)
        for place, size in enumerate(np.linspace(5.5, 3.0, len(places))):
            axes.errorbar(
                kappas[0, place],
                steps[0, place],
                xerr=np.abs(kappas[1:, [place]] - kappas[0, place]),
                yerr=np.abs(steps[1:, [place]] - steps[0, place]),
                color=look.colour,
                marker=look.marker,
                markersize=size,
                elinewidth=0.5,
                linestyle="",
                label=NAMES[metric],
                markeredgecolor=look.colour if place else "white",
                markerfacecolor="white" if place else look.colour,
            )
    axes.set_xlabel("condition number at the start")


def _dampings(shown: DataFrame, metric: str) -> list[float]:
    """The dampings at which kappa was measured at the start, the largest first."""
    measured = where(shown, panel="kappa", metric=metric, step=0)
    return distinct(measured, "damping")[::-1]


def point(
    shown: DataFrame, metric: str, damping: float
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """kappa at the start, and the steps without momentum, each with the ends of its interval."""
    own = where(shown, metric=metric, damping=damping, step=0)
    kappas = kappa_over_seeds(where(own, panel="kappa"), "step")
    race = where(own, panel="race", momentum=0.0)
    taken = over_seeds(race.assign(steps=race["steps"].astype(float)), "step", "steps")
    (kappa,), (low,), (high,) = kappas.mean, kappas.low, kappas.high
    return (kappa, low, high), (taken.mean[0], taken.low[0], taken.high[0])


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    kappas, race = (where(frame, panel=panel) for panel in ("kappa", "race"))
    little = min(damping for damping in distinct(kappas, "damping") if damping)
    sizes = "; ".join(
        _sizes(where(frame, network=network), NETWORKS[network]) for network in NETWORKS
    )
    lost = int((~race["reached"].astype(bool)).sum())
    (target,) = distinct(race, "target")
    edges = int(race["at_edge"].astype(bool).sum())
    return captions.paragraph(
        "Figure T3, beyond the papers. (a, b, c) The condition number of P^{-1/2} G P^{-1/2} over"
        " its non-zero eigenvalues, at the points of one run of Adam, for the P of SGD (I), of Adam"
        " and of Shampoo, which that run's gradients make, for diag(G), for K-FAC, for the exact"
        f" blocks of the layers and for G itself. To every P but I the number {usual(frame):g}"
        " tr(P) / p is added; P = G would have kappa 1 without it. (d, e, f) The steps of"
        " full-batch runs without momentum, with P made anew at every step and the best of the"
        f" rates, to {target:g} times the loss of a uniform guess, over kappa at the start; open"
        f" markers: {little:g} tr(P) / p. {lost} of {len(race)} searches for a rate reached the"
        f" loss with none, and {edges} have their best at an end of the grid. {sizes}. Logarithmic"
        " vertical axes.",
        captions.seeds(frame, "bars"),
        captions.certificates(kappas),
        captions.data(frame, provenance),
    )


def _sizes(shown: DataFrame, title: str) -> str:
    sizes = [
        captions.listed(distinct(shown, name)) for name in ("parameters", "samples", "outputs")
    ]
    ranks = captions.listed(distinct(where(shown, panel="kappa"), "rank"))
    return f"{title}: p = {sizes[0]}, n = {sizes[1]}, k = {sizes[2]}, rank {ranks}"
