"""Figure 9: the spectrum before and after training, and kappa as a function of the assumed rank."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, of_first_seed, rows, select

EXPERIMENT = "width_training"
PART = {"figure": "9", "counted": "True"}
COLUMNS = (
    *("figure", "width", "seed", "epoch", "samples", "inputs", "outputs", "data", "rank"),
    *("assumed_rank", "counted", "eigenvalue", "eigenvalue_error", "kappa"),
    *("training_loss", "rate", "batch"),
)
STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "zorder": 5, "markeredgecolor": "black"}


def draw(table: Columns) -> Figure:
    """Eigenvalues in their order (left) and kappa at every rank (right), up to the numerical rank,
    which has a star in both."""
    shown = of_first_seed(select(table, figure=9))
    epochs, last = distinct(shown, "epoch"), 0
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        spectra, kappas = figure.subplots(1, 2)
        for epoch, look in zip(epochs, style.looks(len(epochs)), strict=True):
            counted = _counted(select(shown, epoch=epoch))
            last = max(last, len(counted["assumed_rank"]))
            label = f"epoch {epoch}"
            _curve(spectra, counted["assumed_rank"], counted["eigenvalue"], look, label)
            _curve(kappas, counted["assumed_rank"], counted["kappa"], look, label)
        for axes, xlabel, ylabel in (
            (spectra, "index of the eigenvalue", "eigenvalue"),
            (kappas, "assumed rank", style.KAPPA),
        ):
            style.logarithmic(axes)
            style.whole_numbers(axes, [1, last], xlabel)
            axes.set_ylabel(ylabel)
        style.shared_legend(figure, spectra)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes of the table behind the figure."""
    shown = of_first_seed(select(table, figure=9))
    seeds = len(distinct(select(table, figure=9), "seed"))
    spectra = {epoch: select(shown, epoch=epoch) for epoch in distinct(shown, "epoch")}
    ranks = [f"{rows(_counted(one)):,} at epoch {epoch}" for epoch, one in spectra.items()]
    above = [f"{int(distinct(one, 'rank')[0]):,}" for one in spectra.values()]
    return captions.paragraph(
        "Figure 9. Left: the eigenvalues of the Gauss-Newton matrix of a network with one hidden"
        f" layer of m = {captions.listed(distinct(shown, 'width'))} ReLU units, in their order,"
        " before and after training. Right: the condition number as a function of the rank that"
        " one assumes. Stars mark the numerical rank, as matrix_rank of PyTorch counts it in single"
        f" precision: {' and '.join(ranks)}. In double precision {' and '.join(above)} eigenvalues"
        " lie above their errors; those beyond the stars are not drawn. Logarithmic vertical axes."
        " Trained as in Figure 18.",
        f"The first of {seeds} initialisations." if seeds > 1 else "",
        captions.data(shown, provenance),
    )


def _counted(spectrum: Columns) -> Columns:
    """The eigenvalues up to the numerical rank, in their order."""
    found = select(spectrum, counted=True)
    order = np.argsort(found["assumed_rank"])
    return {name: column[order] for name, column in found.items()}


def _curve(axes: Axes, x: NDArray, y: NDArray, look: style.Look, label: str) -> Line2D:
    (line,) = axes.plot(x, y, color=look.colour, label=label)
    axes.plot(x[-1:], y[-1:], linestyle="", color=look.colour, **STAR)
    return line
