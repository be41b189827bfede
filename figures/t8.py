"""Figure T8: kappa of linear networks over depth, the power of L that it grows like, its limit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.depth_law import growth
from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds
from sweeps.rows import where

EXPERIMENT = "depth_law"
COLUMNS = (*captions.CELL, *captions.CERTIFICATE, "rate", "gain")
PAIR = {"inputs": 12, "outputs": 3}  # of the first two panels


def draw(frame: DataFrame) -> Figure:
    """kappa over L (left), its local power (middle), and its growth by a layer over the limit."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        curves, powers, limits = figure.subplots(1, 3)
        shown = where(frame, **PAIR)
        widths = distinct(shown, "width")
        looks = style.ordered_looks(len(widths))
        for width, look in zip(widths, looks, strict=True):
            rows = where(shown, width=width, resolved=True)
            label = f"$m = {width // PAIR['inputs']}\\,d$"
            series = kappa_over_seeds(rows, "depth")
            style.band(curves, series, look, label)
            middles, slopes = _local(series.x, series.mean)
            powers.plot(middles, slopes, color=look.colour, marker=look.marker, label=label)
        _finish(curves, powers, frame)
        _limits(limits, frame)
        style.footer(figure, "no data: whitened inputs count by their number alone")
    return figure


def _local(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slopes of the logarithms between points two apart, at the geometric means of their places."""
    logs, values = np.log(x.astype(float)), np.log(y)
    slopes = (values[2:] - values[:-2]) / (logs[2:] - logs[:-2])
    return np.exp((logs[2:] + logs[:-2]) / 2), slopes


def _finish(curves: Axes, powers: Axes, frame: DataFrame) -> None:
    curves.set_title(f"(a) $d = {PAIR['inputs']}$, $k = {PAIR['outputs']}$")
    style.logarithmic(curves)
    curves.set_ylabel(style.KAPPA)
    curves.legend(loc="upper left", fontsize="x-small", borderaxespad=0)
    powers.set_title("(b) power of $L$ there")
    powers.axhline(2.0, color=style.GREY, linewidth=0.8, linestyle=":")
    for axes in (curves, powers):
        style.logarithmic_x(axes, frame["depth"], "layers $L$")


def _limits(axes: Axes, frame: DataFrame) -> None:
    """The measured growth of log(kappa) by a layer over its limit, for every width and pair."""
    axes.set_title(r"(c) growth of $\log\kappa$ by a layer")
    rows = where(frame, resolved=True)
    rows = rows[rows["rate"] > 0]
    pairs = list(dict.fromkeys(zip(rows["inputs"], rows["outputs"], strict=True)))
    for (inputs, outputs), look in zip(pairs, style.looks(len(pairs)), strict=True):
        shown = where(rows, inputs=inputs, outputs=outputs)
        found = [(one["rate"].iloc[0], growth(one)) for _, one in shown.groupby("width")]
        limits = [limit for limit, _ in found]
        values = [effect.value for _, effect in found]
        ends = np.array([(e.value - e.low, e.high - e.value) for _, e in found]).T
        axes.errorbar(
            limits,
            values,
            yerr=ends,
            linestyle="",
            marker=look.marker,
            color=look.colour,
            elinewidth=0.8,
            label=f"$d = {inputs}$, $k = {outputs}$",
        )
    span = np.array([rows["rate"].min(), rows["rate"].max()])
    axes.plot(
        span, span, color=style.GREY, linewidth=0.8, linestyle=style.DASHED, label="the limit"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(r"$\psi(m/2) - \psi((m - r + 1)/2)$")
    axes.legend(loc="upper left", fontsize="x-small", borderaxespad=0)


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = where(frame, **PAIR)
    return captions.paragraph(
        "Figure T8, beyond the papers: the law behind the growth of kappa with depth. Linear"
        " networks on whitened inputs, where kappa depends on the numbers d of inputs, k of"
        " outputs, m of units and L of layers alone."
        f" (a) kappa for d = {PAIR['inputs']}, k ="
        f" {PAIR['outputs']} and m = {captions.listed(distinct(shown, 'width'))}. (b) The slope of"
        " its logarithm over that of L, between depths two apart; dotted: 2, a quadratic growth."
        " (c) What log(kappa) grows by with every layer from L = 40 on, over the limit for L to"
        " infinity, psi(m/2) - psi((m - r + 1)/2) with r = min(d, k); bars are 95% intervals."
        " Logarithmic axes, but for the vertical one of (b).",
        f"{captions.initialisation(frame)}.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
