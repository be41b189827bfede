"""Figure C6: where lambda_max of a pruned ResNet20 comes from, and its loss beside its size."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.dead_channels import (
    PUBLISHED,
    arms,
    dense,
    ended,
    groups,
    largest,
)
from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "dead_channels"
COLUMNS = (
    *captions.CELL,
    *("what", "tensors", "pruned", "shrunk", "epsilon", "epoch", "columns", "tensor"),
    *("lambda_max", "residual", "share_idle", "loss", "live", "idle", "empty"),
    *("samples", "measured", "batch"),
)


def draw(frame: DataFrame) -> Figure:
    """lambda_max over epsilon, over the starts with kernels alone pruned, and loss over size."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.1)
        epsilons, starts, losses = figure.subplots(1, 3)
        _over_epsilon(epsilons, frame)
        _over_starts(starts, frame)
        _over_size(losses, frame)
        style.footer(figure, captions.data_line(frame))
    return figure


def _over_epsilon(axes: Axes, frame: DataFrame) -> None:
    axes.set_title(r"(a) $\lambda_{\max}$ before training")
    style.logarithmic(axes)
    rows = largest(frame)
    shown = [("nothing pruned", where(rows, pruned=0.0)), *arms(rows)]
    shown = [
        (f"{name}{', ' if split else ''}{split}", part)
        for name, arm in shown
        for split, part in _split(arm)
        if len(part)
    ]
    lines = [
        style.band(axes, over_seeds(part, "epsilon", "lambda_max"), look, name)
        for (name, part), look in zip(shown, style.ordered_looks(len(shown)), strict=True)
    ]
    style.logarithmic_x(axes, rows["epsilon"], r"$\epsilon$ of BatchNorm")
    axes.legend(
        handles=lines,
        loc="upper left",
        bbox_to_anchor=(-0.12, -0.22),
        fontsize="x-small",
        borderaxespad=0,
    )


def _split(arm: DataFrame) -> tuple[tuple[str, DataFrame], ...]:
    """The starts of an arm with an idle channel and those without, where it has both."""
    idle, none = arm[arm["idle"] > 0], arm[arm["idle"] == 0]
    if idle.empty or none.empty:
        return (("", arm),)
    return ("an idle channel", idle), ("none", none)


def _over_starts(axes: Axes, frame: DataFrame) -> None:
    axes.set_title("(b) kernels alone pruned")
    style.logarithmic(axes)
    found = groups(frame)
    looks = style.looks(2)
    for (name, rows), look in zip(found.items(), looks, strict=True):
        label = f"{name} a wholly pruned filter" if name == "with" else "without one"
        axes.plot(
            rows["seed"],
            rows["growth"],
            linestyle="",
            marker=look.marker,
            color=look.colour,
            label=label,
        )
    axes.set_ylabel(r"$\lambda_{\max}$, every column over columns left")
    seeds = [seed for rows in found.values() for seed in rows["seed"]]
    if seeds:
        style.whole_numbers(axes, seeds, "start")
        axes.legend(loc="best", fontsize="x-small")


def _over_size(axes: Axes, frame: DataFrame) -> None:
    axes.set_title("(c) loss at the end")
    style.logarithmic(axes)
    narrow, pruned = dense(frame), ended(frame)
    pruned = pruned[pruned["shrunk"]]
    looks = style.looks(2)
    for rows, look, label in (
        (narrow, looks[0], "dense"),
        (pruned, looks[1], "every tensor pruned"),
    ):
        if len(rows):
            style.band(axes, over_seeds(rows, "live", "loss"), look, label)
    if len(narrow):
        style.logarithmic_x(axes, narrow["live"], "weights that can change an output")
        axes.legend(loc="best", fontsize="x-small")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    rows, trained = largest(frame), ended(frame)
    count = captions.listed(distinct(rows, "measured"))
    worst = (rows["residual"] / rows["lambda_max"]).max()
    starts = len(distinct(where(rows, epsilon=PUBLISHED), "seed"))
    sentences = [
        "Figure C6, beyond the papers: what makes lambda_max and the loss of Figure 1's ResNet20."
        " (a) lambda_max of J J^T before training, with a column of J for every weight, over the"
        f" epsilon that BatchNorm adds to a variance, from {count} images in batches of"
        f" {captions.listed(distinct(frame, 'batch'))}. A channel of a shortcut is idle if no"
        " weight is left that reads a channel which differs between images: its variance is 0. (b)"
        f" With kernels alone pruned, lambda_max of every column over that of the columns left, at"
        f" epsilon 1e-5, for each of {starts} starts. lambda_max is a Rayleigh quotient, whose"
        f" residual is at most {captions.rounded_up(worst)} of it."
    ]
    if len(trained):
        widths = captions.listed(distinct(dense(frame), "width"))
        sentences.append(
            f"(c) The loss after {int(trained['epoch'].max())} epochs over the weights that stand"
            f" between live channels: dense ResNet20s whose first stage has {widths} filters, and"
            " networks of which every tensor is pruned, trained without their dead channels."
        )
    sentences.append(captions.seeds(frame))
    return captions.paragraph(*sentences, captions.data(frame, provenance))
