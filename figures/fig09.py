"""Figure 9: the spectrum before and after training, and kappa as a function of the assumed rank."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from figures.shared import captions, style
from figures.shared.series import Columns, distinct, of_first_seed, select

EXPERIMENT = "width_training"
COLUMNS = (
    *("figure", "width", "seed", "epoch", "samples", "inputs", "outputs", "data", "rank"),
    *("assumed_rank", "eigenvalue", "eigenvalue_error", "kappa", "training_loss", "rate", "batch"),
)
STAR: dict[str, Any] = {"marker": "*", "markersize": 10, "zorder": 5, "markeredgecolor": "black"}


def draw(table: Columns) -> Figure:
    """Eigenvalues in their order (left) and kappa at every resolved rank (right), the chosen
    smallest eigenvalue starred in both."""
    shown = of_first_seed(select(table, figure=9))
    epochs = distinct(shown, "epoch")
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        spectra, kappas = figure.subplots(1, 2)
        for epoch, look in zip(epochs, style.looks(len(epochs)), strict=True):
            resolved = _resolved(select(shown, epoch=epoch))
            label = f"epoch {epoch}"
            _curve(spectra, resolved["assumed_rank"], resolved["eigenvalue"], look, label)
            _curve(kappas, resolved["assumed_rank"], resolved["kappa"], look, label)
        for axes, xlabel, ylabel in (
            (spectra, "index of the eigenvalue", "eigenvalue"),
            (kappas, "assumed rank", style.KAPPA),
        ):
            style.logarithmic(axes)
            style.whole_numbers(axes, shown["assumed_rank"], xlabel)
            axes.set_ylabel(ylabel)
        style.shared_legend(figure, spectra)
        style.footer(figure, captions.data_line(shown))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes of the table behind the figure."""
    shown = of_first_seed(select(table, figure=9))
    seeds = len(distinct(select(table, figure=9), "seed"))
    ranks = [
        f"{int(distinct(select(shown, epoch=epoch), 'rank')[0]):,} at epoch {epoch}"
        for epoch in distinct(shown, "epoch")
    ]
    return captions.paragraph(
        "Figure 9. Left: the eigenvalues of the Gauss-Newton matrix of a network with one hidden"
        f" layer of m = {captions.listed(distinct(shown, 'width'))} ReLU units, in their order,"
        " before and after training. Right: the condition number as a function of the rank that"
        " one assumes. Stars mark the smallest eigenvalue above its error, the one chosen: rank"
        f" {' and '.join(ranks)}; eigenvalues below their errors are not drawn. Logarithmic"
        " vertical axes. Trained as in Figure 18.",
        f"The first of {seeds} initialisations." if seeds > 1 else "",
        captions.data(shown, provenance),
    )


def _resolved(spectrum: Columns) -> Columns:
    """The eigenvalues above their errors, in their order."""
    order = np.argsort(spectrum["assumed_rank"])
    ordered = {name: column[order] for name, column in spectrum.items()}
    keep = ordered["assumed_rank"] <= ordered["rank"]
    return {name: column[keep] for name, column in ordered.items()}


def _curve(axes: Axes, x: NDArray, y: NDArray, look: style.Look, label: str) -> Line2D:
    (line,) = axes.plot(x, y, color=look.colour, label=label)
    axes.plot(x[-1:], y[-1:], linestyle="", color=look.colour, **STAR)
    return line
