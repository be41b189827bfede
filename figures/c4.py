"""Figure C4: what makes figure 1, one change of the published protocol after the other."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from experiments.claims.pruning_arms import (
    EVERY,
    KERNELS,
    SPARSE,
    kappas,
    last,
    losses,
    of_all_images,
)
from figures.shared import arms, captions, style
from figures.shared.series import Series, kappa_over_seeds, over_seeds

EXPERIMENT, COLUMNS = arms.EXPERIMENT, arms.COLUMNS
NETWORK = "resnet20"
OF_TENSORS = {EVERY: style.COLOURS[0], KERNELS: style.COLOURS[1]}  # one colour each everywhere
NOTHING = style.COLOURS[6]
OF_COLUMNS: Mapping[str, style.Dashes] = {"all": "-", "left": style.DASHED}
LOSSES = (  # label, tensors, augment
    ("every tensor pruned", EVERY, True),
    ("kernels alone pruned", KERNELS, True),
    ("every tensor pruned, no crops", EVERY, False),
)
KAPPAS = (  # label, tensors, columns
    ("every tensor pruned, every column of $J$", EVERY, "all"),
    ("every tensor pruned, columns left", EVERY, "left"),
    ("kernels alone pruned, every column of $J$", KERNELS, "all"),
    ("kernels alone pruned, columns left", KERNELS, "left"),
)
DIRECTIONS = (  # label, rate, columns
    (f"{SPARSE:.0%} of every tensor pruned, every column of $J$", SPARSE, "all"),
    (f"{SPARSE:.0%} of every tensor pruned, columns left", SPARSE, "left"),
    ("nothing pruned, every column of $J$", 0.0, "all"),
)


def draw(frame: DataFrame) -> Figure:
    """The loss over the pruning rate (left), lambda_max over the epochs, kappa over the rate."""
    frame = of_all_images(frame)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 3.1)
        slow, directions, conditioning = figure.subplots(1, 3)
        _losses(slow, frame)
        _directions(directions, frame)
        _kappas(conditioning, frame)
        style.footer(figure, captions.data_line(frame[frame["network"] == NETWORK]))
    return figure


def _losses(axes: Axes, frame: DataFrame) -> None:
    axes.set_title("training loss at the end")
    style.logarithmic(axes)
    lines = []
    for label, tensors, augment in LOSSES:
        rows = last(losses(frame, NETWORK, tensors, augment=augment))
        if len(rows):
            look = _look(tensors, "-" if augment else ":")
            line = style.band(axes, over_seeds(rows, "pruned", "loss"), look, label)
            lines.append(_told(line, look))
    axes.set_xlabel("share pruned")
    _key_below(axes, lines)


def _kappas(axes: Axes, frame: DataFrame) -> None:
    axes.set_title(r"$\kappa$ at the end")
    style.logarithmic(axes)
    lines = []
    for label, tensors, columns in KAPPAS:
        rows = last(kappas(frame, "all", columns, tensors))
        if len(rows):
            series = kappa_over_seeds(arms.finite(rows), "pruned")
            look = _look(tensors, OF_COLUMNS[columns])
            line = style.band(axes, series, look, label)
            lines.append(_told(line, look))
            _up_to_bounds(axes, series, line)
    axes.set_xlabel("share pruned")
    _key_below(axes, lines)


def _up_to_bounds(axes: Axes, series: Series, line: Line2D) -> None:
    """A thin dotted line from each place to a lower bound beside it, as of one curve."""
    for i in np.flatnonzero(series.resolved[:-1] != series.resolved[1:]):
        ends = slice(int(i), int(i) + 2)
        axes.plot(series.x[ends], series.mean[ends], ":", color=line.get_color(), linewidth=0.8)


def _look(tensors: str, line: style.Dashes = "-") -> style.Look:
    return style.Look(OF_TENSORS[tensors], "o" if tensors == EVERY else "s", line)


def _told(line: Line2D, look: style.Look) -> Line2D:
    """The handle of a curve for a key; the markers of one that is not solid become open."""
    if look.line != "-":
        line.set(markersize=3.2, markeredgecolor=look.colour, **style.OPEN)
    dashes: Any = look.line
    handle = Line2D([], [], color=look.colour, label=str(line.get_label()))
    handle.update_from(line)
    handle.set_linestyle(dashes)
    return handle


def _directions(axes: Axes, frame: DataFrame) -> None:
    """lambda_max with all columns of J and with those that are left, of the sparsest network."""
    axes.set_title(r"$\lambda_{\max}$ along training")
    style.logarithmic(axes)
    chosen = frame[
        (frame["network"] == NETWORK) & frame["augment"] & (frame["statistics"] == "batches")
    ]
    lines = []
    for label, rate, columns in DIRECTIONS:
        rows = chosen[
            (chosen["pruned"] == rate)
            & (chosen["columns"] == columns)
            & (chosen["tensors"] == EVERY)
        ].drop_duplicates(["seed", "epoch"])
        look = _look(EVERY, OF_COLUMNS[columns]) if rate else style.Look(NOTHING, "^")
        if not rows.empty:
            series = over_seeds(rows, "epoch", "lambda_max")
            line = style.band(axes, series, look, label, reach=arms.STOPS_APART)
            lines.append(_told(line, look))
    arms.epoch_axis(axes, int(chosen["epoch"].max()))
    _key_below(axes, lines)


def _key_below(axes: Axes, lines: Sequence[Line2D]) -> None:
    """The key of a panel under it: its labels are too long to stand beside the curves."""
    axes.legend(
        handles=lines,
        loc="upper left",
        bbox_to_anchor=(-0.12, -0.22),
        fontsize="x-small",
        borderaxespad=0,
    )


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption: what is changed, and the two sentences that the picture supports."""
    shown = of_all_images(frame)
    shown = shown[shown["network"] == NETWORK]
    starts = shown[shown["what"] == "losses"].groupby("pruned")["seed"].nunique()
    counts = ", ".join(f"{count} at {rate:.0%}" for rate, count in starts.items())
    rows = arms.certified(shown, "left")
    return captions.paragraph(
        "What makes Figure 1: a ResNet20 trained by the protocol of the published code, with one"
        f" change at a time (Figure C4, beyond the papers). {arms.STEPS}, batches of"
        f" {captions.listed(sorted(shown['batch'].unique()))}. Left: the loss after the last epoch,"
        " with every tensor pruned as in the published code, with kernels alone, and without random"
        f" crops and flips (initialisations: {counts}{arms.spread(starts)}). Middle: lambda_max"
        " of J J^T with BatchNorm's statistics of batches, for J with a column for every weight and"
        " with those of the weights that are left. Right: kappa of either J after the last epoch,"
        " with every tensor or kernels alone pruned and BatchNorm's statistics of all samples;"
        " arrows are lower bounds. Middle and right are of one initialisation. A colour is what is"
        " pruned: blue every tensor, orange kernels alone, black nothing; dashed is J with the"
        " columns left, dotted without crops or over stops that are not computed.",
        _certified(rows),
        arms.rank(rows),
        captions.data(shown, provenance),
    )


def _certified(rows: DataFrame) -> str:
    """How sharply kappa of the columns that are left is known."""
    told = captions.certificates(arms.finite(rows)) if len(rows) else ""
    return told and f"With the columns that are left {told[0].lower()}{told[1:]}"
