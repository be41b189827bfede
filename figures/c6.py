"""Figure C6: what pruned normalisations leave of a ResNet20: its size, and where lambda_max is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
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
    "residual",
)
NAMES = {EVERY: "every tensor", SCATTERED: "ties at random", KERNELS: "kernels"}
DENSE = style.Look(style.COLOURS[6], "o")
PARTS = (  # column, its shade of grey, as colours are ways to prune, and its name
    ("idle", "0.55", "pruned, of a channel of variance 0"),
    ("other", "0.76", "pruned, other"),
    ("kept", "0.92", "left"),
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
    # a colour is one way to prune everywhere
    looks = {arm.name.split(", ")[0]: arm.look for arm in arms(frame)}
    for tensors, name in NAMES.items():
        for rate in distinct(where(pruned, tensors=tensors), "pruned"):
            told = f"{rate:.0%} {name}"
            starts = where(pruned, tensors=tensors, pruned=rate)
            look = looks.get(told, style.Look(style.GREY, "D"))
            drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": ""}
            axes.plot(starts["live"], starts["loss"], label=told, **drawn)
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
        series = over_seeds(followed(arm.rows), "epsilon", "lambda_max")
        lines.append(style.band(axes, series, arm.look, arm.name, filled=False))
    axes.set_xscale("log")
    axes.set_xlabel(r"$\epsilon$ of BatchNorm")
    style.label_curves(axes, lines, 0.1)


def followed(rows: DataFrame) -> DataFrame:
    """Of an arm the starts with every epsilon, so that a line follows the same networks."""
    epsilons = rows.groupby("seed")["epsilon"].transform("nunique")
    return rows[epsilons == epsilons.max()].reset_index(drop=True)


def _tensors(axes: Axes, frame: DataFrame) -> None:
    """Of lambda_max's right vector at the published epsilon, what lies in which columns of J."""
    axes.set_title(
        rf"(c) right singular vector of $\lambda_{{\max}}$ at $\epsilon = {_power(PUBLISHED)}$"
    )
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
        axes.text(1.01, place, f"{arm.name} ({rows['seed'].nunique()})", **named)
        named = {"fontsize": 7, "va": "center"}
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
    measured = captions.listed(distinct(frame[frame["what"] == "largest"], "measured"))
    return captions.paragraph(
        "Figure C6, beyond the papers: what the published pruning leaves of Figure 1's ResNet20,"
        " whose BatchNorm scales are pruned, too.",
        *_of_losses(frame),
        f"(b) lambda_max of J J^T for {measured} images, with a column of J for every weight, over"
        " what BatchNorm adds to a variance. Behind a channel of variance 0 the column of a pruned"
        " weight has the length of its inputs over the root of epsilon. Idle: starts with such a"
        " channel in a shortcut, where others of the same arm have none. Lines are geometric means"
        " over the starts that have every epsilon, thin lines the two where there are two.",
        "Trained: after the epochs of (a), in which epsilon was 1e-5."
        if (frame["epoch"][frame["what"] == "largest"] > 0).any()
        else "",
        "(c) How the squared length of the right singular vector of J, to which lambda_max belongs,"
        " is shared out at the published epsilon; in the bar: the tensor that has most of it. Means"
        " over the starts, whose number is in brackets. With kernels alone pruned a channel is idle"
        " if its filter is wholly pruned.",
        _certainty(frame),
        _missing(frame, provenance),
        captions.data(frame, provenance),
    )


def _of_losses(frame: DataFrame) -> Iterator[str]:
    """What panel (a) shows and of how many starts, if a network of the table is trained."""
    trained = ended(frame)
    if trained.empty:
        return
    epochs = captions.listed(distinct(trained, "epoch"))
    starts = distinct(trained, "seed")
    scattered = len(where(trained, tensors=SCATTERED)) > 0
    yield (
        f"(a) The loss after {epochs} epochs over the number of weights that can change an output:"
        " unpruned networks of fewer filters, and pruned ones, each start a marker, trained without"
        " the channels that cannot act. On the curve a pruned network is as slow as one of its"
        " size; above it, slower, below it, faster."
        + scattered
        * " With ties at random channels that are constant count, too."
    )
    yield (
        f"One start ({starts[0]})."
        if len(starts) == 1
        else f"Starts: {captions.listed(starts)}; the band is the curve's 95% interval."
    )


def _certainty(frame: DataFrame) -> str:
    """How far from an eigenpair the largest Ritz values are."""
    rows = frame[(frame["what"] == "largest") & (frame["tensor"] == "all")]
    if rows.empty:
        return ""
    worst = (rows["residual"] / rows["lambda_max"]).max()
    return (
        "lambda_max is the largest Ritz value of a few steps of Lanczos in single precision, with a"
        f" residual of at most {captions.rounded_up(worst)} of it."
    )


def _missing(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """What of the config is not computed yet, as a training takes minutes."""
    if not provenance.get("missing"):
        return ""
    config = provenance["config"]
    planned, there = _planned(config), _there(frame)
    clauses = []
    for group, cells in planned.items():
        found = len(there.get(group, set()) & cells)
        if found < len(cells):
            clauses.append(f"{found} of {len(cells)} {group}")
    return f"Not all is computed yet: {', '.join(clauses)} are here." if clauses else ""


def _group(what: str, *, shrunk: bool, epoch: int) -> str:
    """The kind of a cell, as it stands in a caption."""
    if what == "losses":
        return "losses of pruned networks" if shrunk else "losses of dense networks"
    return "lambda_max after training" if epoch else "lambda_max before training"


def _planned(config: Mapping[str, Any]) -> dict[str, set[tuple[Any, ...]]]:
    """The cells of a config by their kind."""
    cells: dict[str, set[tuple[Any, ...]]] = {}
    for arm in config["arms"].values():
        group = _group(arm["what"], shrunk=arm["shrunk"], epoch=arm["epoch"])
        seeds = range(config["first_seed"], config["first_seed"] + arm["seeds"])
        of_arm = product(arm["widths"], [arm["tensors"]], arm["rates"], arm["epsilons"], seeds)
        cells.setdefault(group, set()).update(of_arm)
    return cells


def _there(frame: DataFrame) -> dict[str, set[tuple[Any, ...]]]:
    """The cells of a table by their kind."""
    cells: dict[str, set[tuple[Any, ...]]] = {}
    named = ("what", "shrunk", "epoch", "width", "tensors", "pruned", "epsilon", "seed")
    for what, shrunk, epoch, *cell in frame[list(named)].drop_duplicates().itertuples(index=False):
        group = _group(what, shrunk=bool(shrunk), epoch=int(epoch))
        cells.setdefault(group, set()).add(tuple(cell))
    return cells
