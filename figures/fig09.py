"""Figure 9: the spectrum before and after training, and kappa as a function of the assumed rank."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, of_first_seed
from figures.shared.width_training import READINGS, training

EXPERIMENT = "width_training"
COLUMNS = (
    *("figure", "reading", "width", "seed", "epoch", "samples", "inputs", "outputs", "data"),
    *("rank", "assumed_rank", "rule", "eigenvalue", "eigenvalue_error", "kappa", "resolved"),
    *("training_loss", "rate", "batch", "biases", "shuffled"),
)
STAR = "float64"  # the rule of the published code for such networks, marked as in the paper
MARKERS = {  # of the rules for the numerical rank; those without a star are ours
    STAR: ("*", "the paper's star: double precision"),
    "absolute": ("s", "ours: above 1e-7"),
    "absolute over rows": ("D", "ours: above 1e-7 / (k n)"),
    "float32": ("o", "ours: single precision"),
}


def draw(frame: DataFrame) -> Figure:
    """Eigenvalues in their order (left) and kappa at every rank (right), with a star at the rank
    that is counted; at the right the ranks of three other rules, too."""
    shown = _shown(frame)
    epochs = distinct(shown, "epoch")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.7)
        spectra, kappas = figure.subplots(1, 2)
        for epoch, look in zip(epochs, style.looks(len(epochs)), strict=True):
            rows = shown[(shown["epoch"] == epoch) & shown["resolved"]]
            _curve(spectra, rows, "eigenvalue", look, f"epoch {epoch}", (STAR,))
            _curve(kappas, rows, "kappa", look, f"epoch {epoch}", tuple(MARKERS))
        for axes, xlabel, ylabel in (
            (spectra, "index of the eigenvalue", "eigenvalue"),
            (kappas, "assumed rank", style.KAPPA),
        ):
            style.logarithmic(axes)
            style.whole_numbers(axes, [1, shown["assumed_rank"].max()], xlabel)
            axes.set_ylabel(ylabel)
        there = [rule for rule in MARKERS if len(_at(shown, rule))]
        signs = [(MARKERS[rule][1], _marker(rule)) for rule in there]
        style.key(kappas, signs, "lower right")
        style.shared_legend(figure, spectra)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes of the table behind the figure."""
    shown = _shown(frame)
    seeds = len(distinct(_of_reading(frame), "seed"))
    return captions.paragraph(
        "Figure 9. Left: the eigenvalues of the Gauss-Newton matrix of a network with one hidden"
        f" layer of m = {distinct(shown, 'width')[0]} ReLU units, in their order, before and after"
        " training. Right: the condition number as a function of the rank that one assumes."
        " The star is at the rank that matrix_rank counts in double precision, as the published"
        " code for such networks does; the other marks, at the right, are ours. Their ranks:",
        "; ".join(filter(None, (_counted(shown, rule) for rule in MARKERS))) + ".",
        "An eigenvalue that is smaller than its error is not drawn.",
        f"{training(shown)} Logarithmic vertical axes.",
        "One initialisation." if seeds == 1 else f"The first of {seeds} initialisations.",
        captions.data(shown, provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    """The first seed of the reading."""
    return DataFrame(of_first_seed(_of_reading(frame))).sort_values("assumed_rank")


def _of_reading(frame: DataFrame) -> DataFrame:
    """The spectra of the first reading that the table has."""
    spectra = frame[frame["figure"] == "9"]
    reading = next(name for name in READINGS if name in set(spectra["reading"]))
    return spectra[spectra["reading"] == reading]


def _at(rows: DataFrame, rule: str) -> DataFrame:
    """The row at the rank of a rule."""
    named = [rule in str(names).split(", ") for names in rows["rule"]]
    return rows[np.array(named, bool)]


def _counted(shown: DataFrame, rule: str) -> str:
    """The rank of a rule at each epoch, as text; empty where the table has no rank of the rule."""
    ranks = [
        f"{int(rank):,} at epoch {epoch}"
        for epoch, rows in shown.groupby("epoch")
        for rank in _at(rows, rule)["assumed_rank"]
    ]
    _, name = MARKERS[rule]
    name = name.rpartition(": ")[2]
    what = f"matrix_rank in {name}" if "precision" in name else f"eigenvalues {name}"
    return f"{what}, {' and '.join(ranks)}" if ranks else ""


def _marker(rule: str) -> dict[str, Any]:
    """The star large and filled, the others small and open."""
    sign, _ = MARKERS[rule]
    drawn: dict[str, Any] = {"marker": sign, "linestyle": "", "color": style.GREY}
    if rule == STAR:
        return drawn | {"markersize": 9, "markeredgecolor": "black", "zorder": 6}
    return drawn | {"markersize": 3.5, "markeredgecolor": style.GREY, "zorder": 5} | style.OPEN


def _curve(
    axes: Axes, rows: DataFrame, of: str, look: style.Look, label: str, rules: Sequence[str]
) -> Line2D:
    (line,) = axes.plot(rows["assumed_rank"], rows[of], color=look.colour, label=label)
    for rule in rules:
        at = _at(rows, rule)
        marker = _marker(rule) | {"color": look.colour}
        if rule != STAR:
            marker |= {"markeredgecolor": look.colour}
        axes.plot(at["assumed_rank"], at[of], **marker)
    return line
