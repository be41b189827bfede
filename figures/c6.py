"""Figure C6: what pruned normalisations leave of a ResNet20: its size, and where lambda_max is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from experiments.claims.dead_channels import (
    EVERY,
    KERNELS,
    PUBLISHED,
    SCATTERED,
    dense,
    ended,
    largest,
)
from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "dead_channels"
COLUMNS = (
    *("what", "width", "tensors", "pruned", "shrunk", "epsilon", "seed", "epoch", "columns"),
    *("tensor", "share", "share_pruned", "share_idle", "lambda_max", "loss", "parameters", "live"),
    *("idle", "empty", "samples", "measured", "inputs", "outputs", "data", "batch", "depth"),
)
NAMES = {EVERY: "every tensor", SCATTERED: "ties at random", KERNELS: "kernels"}
DENSE = style.Look(style.COLOURS[6], "o")
PARTS = (  # column, its colour, its name
    ("idle", style.COLOURS[1], "pruned, of a channel of variance 0"),
    ("other", style.COLOURS[4], "pruned, other"),
    ("kept", style.COLOURS[0], "left"),
)


class Arm(NamedTuple):
    """Networks that are pruned in one way: their rows, one for each start and epsilon."""

    name: str
    rows: DataFrame
    look: style.Look


def draw(frame: DataFrame) -> Figure:
    """Losses over live weights (a), lambda_max over epsilon (b), and where its vector lives (c)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 5.6)
        parts: Any = figure.subplot_mosaic([["a", "b"], ["c", "c"]], height_ratios=(1.0, 1.1))
        _losses(parts["a"], frame)
        _over_epsilon(parts["b"], frame)
        _tensors(parts["c"], frame)
        style.footer(figure, captions.data_line(frame))
    return figure


def _losses(axes: Axes, frame: DataFrame) -> None:
    """Dense networks as a curve over their size, each pruned start as a marker."""
    axes.set_title("(a) loss after training")
    rows = ended(frame)
    if rows.empty:
        style.blank(axes, "no network of this table is trained")
        return
    narrow, pruned = dense(frame), where(rows, shrunk=True)
    style.logarithmic(axes)
    if len(narrow):
        style.band(axes, over_seeds(narrow, "live", "loss"), DENSE, _dense_name(narrow))
    looks = {arm.name: arm.look for arm in arms(frame)}  # a colour is one way to prune everywhere
    for rate in distinct(pruned, "pruned"):
        name = f"{rate:.0%} {NAMES[EVERY]}"
        of_rate, look = where(pruned, pruned=rate), looks.get(name, style.Look(style.GREY, "D"))
        drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": ""}
        axes.plot(of_rate["live"], of_rate["loss"], label=f"{name} pruned", **drawn)
    style.logarithmic_x(axes, rows["live"], "weights that can change an output")
    axes.legend(loc="lower left", borderaxespad=0.2, fontsize=7)


def _dense_name(rows: DataFrame) -> str:
    return f"dense, {captions.listed(distinct(rows, 'width'))} filters"


def arms(frame: DataFrame) -> list[Arm]:
    """Each way to prune, before and after training; starts with an idle channel apart."""
    before = list(_before(frame))
    epochs = distinct(frame[frame["what"] == "largest"], "epoch")
    trained = [_after(frame, epoch, before) for epoch in epochs if epoch]
    return [*before, *chain.from_iterable(trained)]


def _before(frame: DataFrame) -> Iterator[Arm]:
    shown = largest(frame, epoch=0)
    looks = iter(style.looks(len(style.MARKERS) * len(style.COLOURS)))
    for tensors, name in NAMES.items():
        of_tensors = where(shown, tensors=tensors)
        for rate in distinct(of_tensors, "pruned")[::-1]:
            rows, look = where(of_tensors, pruned=rate), next(looks)
            idle = (rows["idle"] > 0).to_numpy()
            told = f"{rate:.0%} {name}" if rate else "unpruned"
            if idle.all() or not idle.any():
                yield Arm(told, rows, look)
                continue
            none = replace(look, line=style.DASHED)
            yield Arm(f"{told}, idle", rows[idle].reset_index(drop=True), look)
            yield Arm(f"{told}, none idle", rows[~idle].reset_index(drop=True), none)


def _after(frame: DataFrame, epoch: int, before: Sequence[Arm]) -> Iterator[Arm]:
    """Trained networks, dashed in the colours that they have before training."""
    looks = {arm.name: arm.look for arm in before}
    shown = largest(frame, epoch=epoch)
    for rate in distinct(shown, "pruned")[::-1]:
        name = f"{rate:.0%} {NAMES[EVERY]}"
        look = looks.get(name, style.Look(style.GREY, "D"))
        yield Arm(f"{name}, trained", where(shown, pruned=rate), replace(look, line=style.DASHED))


def _over_epsilon(axes: Axes, frame: DataFrame) -> None:
    axes.set_title(r"(b) $\lambda_{\max}$, every column of $J$")
    style.logarithmic(axes)
    lines: list[Line2D] = []
    for arm in arms(frame):
        series = over_seeds(arm.rows, "epsilon", "lambda_max")
        lines.append(style.band(axes, series, arm.look, arm.name, filled=False))
    axes.set_xscale("log")
    axes.set_xlabel(r"$\epsilon$ of BatchNorm")
    style.label_curves(axes, lines, 0.1)


def _tensors(axes: Axes, frame: DataFrame) -> None:
    """Of lambda_max's right vector at the published epsilon, what lies in which columns of J."""
    axes.set_title(rf"(c) right vector of $\lambda_{{\max}}$ at $\epsilon = {_power(PUBLISHED)}$")
    measured = ((arm, where(arm.rows, epsilon=PUBLISHED)) for arm in arms(frame))
    shown = [(arm, rows) for arm, rows in measured if len(rows)]
    for place, (_, rows) in enumerate(shown):
        means = parts(rows)
        left = 0.0
        for column, colour, _ in PARTS:
            axes.barh(place, means[column], left=left, color=colour, height=0.7)
            left += means[column]
    for _, colour, name in PARTS:
        axes.barh(0, 0, color=colour, label=name)
    for place, (arm, rows) in enumerate(shown):
        named: dict[str, Any] = {"fontsize": 7.5, "color": arm.look.colour, "va": "center"}
        axes.text(1.01, place, arm.name, **named)
        named = {"fontsize": 7, "color": "white", "va": "center", "weight": "bold"}
        axes.text(0.01, place, home(frame, rows), **named)
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of its squared length in columns of weights that are ..")
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, fontsize=7, borderaxespad=0
    )


def parts(rows: DataFrame) -> dict[str, float]:
    """The mean shares over the starts, of the weights in each of `PARTS`."""
    pruned, idle = (rows[name].to_numpy(float).mean() for name in ("share_pruned", "share_idle"))
    return {"idle": idle, "other": pruned - idle, "kept": 1 - pruned}


def home(frame: DataFrame, rows: DataFrame) -> str:
    """The tensor with the largest share on average over these starts, with that share."""
    starts = frame[(frame["what"] == "largest") & (frame["columns"] == "all")]
    own = rows[["tensors", "pruned", "epsilon", "seed", "epoch"]]
    tensors = starts[starts["tensor"] != "all"].merge(own)
    shares = tensors.groupby("tensor")["share"].sum() / len(rows)
    if shares.empty:
        return ""
    name = str(shares.idxmax())
    return f"{name.removesuffix('/conv/kernel')}: {shares[name]:.0%}"


def _power(number: float) -> str:
    return f"10^{{{round(np.log10(number))}}}"


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption: the two questions of Figure 1 that the panels are about."""
    starts = captions.listed(distinct(frame, "seed"))
    measured = captions.listed(distinct(frame[frame["what"] == "largest"], "measured"))
    trained = ended(frame)
    epochs = captions.listed(distinct(trained, "epoch")) if len(trained) else ""
    return captions.paragraph(
        "Figure C6, beyond the papers: what the published pruning leaves of Figure 1's ResNet20,"
        " whose BatchNorm scales are pruned, too.",
        f"(a) The loss after {epochs} epochs over the number of weights that can change an output:"
        " unpruned networks of fewer filters, and pruned ones, each start a marker, trained without"
        " the channels that cannot act. On the curve a pruned network is as slow as one of its"
        " size; above it, slower."
        if len(trained)
        else "",
        f"(b) lambda_max of J J^T for {measured} images, with a column of J for every weight, over"
        " what BatchNorm adds to a variance. Behind a channel of variance 0 the column of a pruned"
        " weight has the length of its inputs over the root of epsilon. Idle: starts with such a"
        " channel in a shortcut, where others of the same arm have none. (c) How the squared length"
        " of its right vector is shared out at the published epsilon; white: the tensor that has"
        " most of it. With kernels alone pruned a channel is idle if its filter is wholly pruned.",
        f"Starts: {starts}, not all of them in every arm; lines in (b) are geometric means, and"
        " the band in (a) is its 95% interval.",
        captions.data(frame, provenance),
    )
