"""Figure 19: kappa over depth on raw and whitened data, and over the condition of the inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, depths, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "whitening_sweep"
COLUMNS = (*depths.COLUMNS, "figure", "whitening", "covariance_condition", "bound_convex")
LOOKS = dict(zip(("raw", "whitened"), style.looks(2), strict=True))


def draw(frame: DataFrame) -> Figure:
    """Kappa and first bound on both inputs (left), kappa over kappa of the covariance (right)."""
    frame = where(frame, figure="19")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        axes, right = figure.subplots(1, 2)
        style.logarithmic(axes)
        curves = [
            depths.Curve(where(frame, whitening=inputs), look, inputs)
            for inputs, look in LOOKS.items()
        ]
        no_kappa_below = 1.0
        depths.draw_kappa(axes, curves, key="center left", bottom=no_kappa_below)
        axes.set_ylabel(style.KAPPA)
        _certified_ends(axes, where(frame, whitening="raw"))
        _powers(right, where(frame, resolved=True))
        style.footer(figure, captions.data_line(frame))
    return figure


WIDE = 1.05  # an interval whose ends are further apart than this is drawn


def _certified_ends(axes: Axes, raw: DataFrame) -> None:
    """The certified interval of kappa where it is wide, from the mean of the lower ends up to that
    of the upper ends."""
    means = [
        over_seeds(raw.assign(end=raw[name]), "depth", "end")
        for name in ("kappa_low", "kappa", "kappa_high")
    ]
    low, kappa, high = (series.mean for series in means)
    if not len(low) == len(kappa) == len(high):  # an end that is nowhere known
        return
    wide = high > WIDE * low
    if wide.any():
        ends = np.array([kappa - low, high - kappa])[:, wide]
        bar: dict[str, Any] = {"elinewidth": 0.9, "capsize": 2.5, "fmt": "none"}
        axes.errorbar(means[0].x[wide], kappa[wide], yerr=ends, ecolor=LOOKS["raw"].colour, **bar)


def _powers(axes: Axes, frame: DataFrame) -> None:
    """Resolved kappa on inputs of covariance Sigma^t over kappa(Sigma^t), for each depth."""
    style.logarithmic(axes)
    shown = distinct(frame, "depth")
    lines = []
    for depth, look in zip(shown, style.ordered_looks(len(shown)), strict=True):
        rows = where(frame, depth=depth)
        series = over_seeds(rows, "covariance_condition", "kappa")
        lines.append(style.band(axes, series, look, f"$L = {depth}$"))
    if lines:
        ends = np.array([1.0, frame["covariance_condition"].max()])
        start = min(float(np.asarray(line.get_ydata())[0]) for line in lines)
        axes.plot(ends, start * ends, color=style.GREY, linestyle=style.DASHED, linewidth=0.9)
    style.key(axes, (("proportional", {"linestyle": style.DASHED, "linewidth": 0.9}),))
    axes.set_xscale("log")
    axes.set_xlabel(r"$\kappa(\mathbf{\Sigma}^t)$, from $t = 0$ (white) to $t = 1$ (raw)")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.15)
    style.label_curves(axes, lines, spacing=0.085)


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    frame = where(frame, figure="19")
    raw = where(frame, whitening="raw")
    return captions.paragraph(
        "Figure 19. Condition number of the Gauss-Newton matrix of linear networks at"
        f" initialisation ({depths.setting(frame)}) on raw inputs, whose covariance has condition"
        f" number {raw['covariance_condition'].max():.2g}, and of the same weights on whitened"
        " inputs, with the first bound of Lemma 2 (dashed, left). Bars at the left are certified"
        " intervals of kappa, where rounding leaves it so open. Right, ours: on inputs of"
        " covariance Sigma^t, t from 0 to 1, over its condition number, where kappa is resolved."
        " Logarithmic axes but for the depth.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
