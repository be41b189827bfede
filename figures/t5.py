"""Figure T5: sharpness and preconditioned sharpness along training, without and with warm-up."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "edge_of_stability"
COLUMNS = (
    *captions.CELL,
    *("network", "optimizer", "samples", "parameters", "rate", "warmup", "steps", "step"),
    *("final_threshold", "loss", "sharpness", "preconditioned"),
    *("sharpness_error", "preconditioned_error"),
)
LIMIT = "edge of stability"


def draw(frame: DataFrame) -> Figure:
    """The MLP above: gradient descent and Adam; the GPT below: sharpness over threshold, loss."""
    descent = where(frame, network="mlp", optimizer="gradient descent")
    adam = where(frame, network="mlp", optimizer="Adam")
    gpt = where(frame, network="gpt")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.9)
        parts: Any = figure.subfigures(2, 1)
        left, right = parts[0].subplots(1, 2)
        _along(left, descent, "sharpness")
        left.set_ylabel(r"sharpness $\lambda_1(\mathbf{H})$")
        left.set_title("(a) MLP, gradient descent")
        _along(right, adam, "preconditioned")
        style.logarithmic_x(right, adam["step"], "step")
        right.xaxis.set_major_locator(LogLocator())
        right.set_ylabel(r"$\lambda_1(\mathbf{P}^{-1/2} \mathbf{H} \mathbf{P}^{-1/2})$")
        right.set_title("(b) MLP, Adam")
        _gpt(parts[1].subplots(1, 3), gpt)
        style.footer(figure, captions.data_line(frame))
    return figure


def _gpt(panels: Any, gpt: DataFrame) -> None:
    """Preconditioned sharpness at constant rates and with warm-up, and both losses."""
    relative = gpt.assign(relative=gpt["preconditioned"] / gpt["final_threshold"])
    constant, warmed, loss = panels
    warmed.sharey(constant)
    for axes, shown, title in (
        (constant, relative[relative["warmup"] == 0], "(c) GPT, Adam, constant rate"),
        (warmed, relative[relative["warmup"] > 0], "(d) with warm-up"),
    ):
        _curves(axes, shown, "relative")
        axes.axhline(1.0, color=style.GREY, linestyle=style.DASHED, linewidth=0.9)
        axes.set_title(title)
    warmed.tick_params(labelleft=False)
    constant.set_ylabel("preconditioned sharpness\nover 38 / final rate")
    _curves(loss, gpt, "loss")
    loss.set_ylabel("cross-entropy")
    loss.set_title("(e) loss")
    loss.legend(handles=_legend(gpt), loc="lower left")
    for steps in filter(None, distinct(gpt, "warmup")):
        warmed.axvline(steps, color=style.GREY, linewidth=0.6, linestyle=":")


def _along(axes: Axes, shown: DataFrame, column: str) -> None:
    """One curve for each rate, and its threshold dashed in the same colour."""
    style.logarithmic(axes)
    rates = distinct(shown, "rate")
    for rate, look in zip(rates, style.looks(len(rates)), strict=True):
        run = where(shown, rate=rate)
        style.band(axes, over_seeds(run, "step", column), look, f"rate {rate:g}").set_markersize(2)
        (limit,) = distinct(run, "final_threshold")
        axes.axhline(limit, color=look.colour, linestyle=style.DASHED, linewidth=0.9)
    axes.set_xlabel("step")
    handles = axes.get_legend_handles_labels()[0]
    dashed = Line2D([], [], color=style.GREY, linestyle="--", label=LIMIT)
    axes.legend(handles=[*handles, dashed], loc="lower right")


def _curves(axes: Axes, shown: DataFrame, column: str) -> None:
    """A curve for each rate, and a dotted one with warm-up, over the logarithm of the steps."""
    style.logarithmic(axes)
    rates = distinct(shown, "rate")
    for rate, look in zip(rates, style.looks(len(rates)), strict=True):
        for warmup in distinct(shown, "warmup"):
            run = where(shown, rate=rate, warmup=warmup)
            drawn = replace(look, line=":") if warmup else look
            line = style.band(axes, over_seeds(run, "step", column), drawn, _label(rate, warmup))
            line.set_markersize(2.5)
    style.logarithmic_x(axes, shown["step"], "step")


def _label(rate: float, warmup: int) -> str:
    return f"rate {rate:g}, warm-up" if warmup else f"rate {rate:g}"


def _legend(gpt: DataFrame) -> list[Line2D]:
    rates = distinct(gpt, "rate")
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, label=f"rate {rate:g}")
        for rate, look in zip(rates, style.looks(len(rates)), strict=True)
    ]
    return [*handles, Line2D([], [], color=style.GREY, linestyle=":", label="with warm-up")]


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    mlp, gpt = (where(frame, network=name) for name in ("mlp", "gpt"))
    warmups = captions.listed([steps for steps in distinct(gpt, "warmup") if steps])
    return captions.paragraph(
        "Figure T5, beyond the papers. Full-batch training. (a) The largest"
        f" eigenvalue of the Hessian of the squared error of {_sizes(mlp)}, under gradient descent;"
        " dashed: 2 / rate. (b) The same network under Adam: the largest eigenvalue of the Hessian"
        " in Adam's metric P; dashed: 38 / rate, (2 + 2 b1) / ((1 - b1) rate) for b1 = 0.9."
        f" (c, d, e) {_sizes(gpt)}, under Adam, at constant rates and with rates that rise linearly"
        f" over the first {warmups} steps (d, up to the vertical line; dotted in e): the"
        " preconditioned sharpness over 38 / final rate, and the loss. Every value has an"
        f" eigenvalue within a relative distance of {_error(frame)}.",
        _left_out(frame),
        "Logarithmic vertical axes.",
        captions.seeds(frame),
        captions.data(frame, provenance),
    )


def _error(frame: DataFrame) -> str:
    """The largest relative error of both kinds of sharpness."""
    names = ("sharpness", "preconditioned")
    return captions.rounded_up(max(np.nanmax(frame[f"{n}_error"] / frame[n]) for n in names))


def _left_out(frame: DataFrame) -> str:
    count = int((~np.isfinite(frame["preconditioned"])).sum())
    return f"{count} of {len(frame)} values have larger errors and are left out." if count else ""


def _sizes(shown: DataFrame) -> str:
    if shown.empty:
        return "no network"
    depth, width, size = (
        captions.listed(distinct(shown, name)) for name in ("depth", "width", "parameters")
    )
    if distinct(shown, "network") == ["mlp"]:
        return f"a tanh MLP ({depth} layers, width {width}, {size} parameters)"
    return f"a GPT (depth {depth}, width {width}, {size} parameters)"
