"""Figure C5: sharpness over the number of samples, and the largest along training over alpha."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.data_sharpness import over_samples, peaks
from figures.shared import captions, labels, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "data_sharpness"
COLUMNS = (
    *captions.CELL,
    *("panel", "initializer", "samples", "share", "epoch", "measured", "error"),
    *("printed", "least", "loss", "floor"),
)
STARTS = {"balanced": "balanced start", "pytorch_default": "PyTorch's start"}


def draw(frame: DataFrame) -> Figure:
    """Sharpness of trained networks over n (left), and its peaks over the largest class (right)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        left, right = figure.subplots(1, 2)
        _over_samples(left, frame)
        _peaks(right, frame)
        style.footer(figure, f"(b) {labels.data_line(where(frame, panel='b'))}")
    return figure


def _over_samples(axes: Axes, frame: DataFrame) -> None:
    images, fitted = (over_samples(frame, fit=fit) for fit in (False, True))
    shares = distinct(images, "share")
    lines = []
    for share, look in zip(shares, style.looks(len(shares)), strict=True):
        shown = where(images, share=share)
        label = rf"$\alpha_{{\max}}$ = {share:.2g}"
        lines.append(style.band(axes, over_seeds(shown, "samples", "measured"), look, label))
        style.bound_curve(axes, over_seeds(shown, "samples", "least"), look)
        known = where(fitted, share=share)
        printed = over_seeds(known, "samples", "printed")
        axes.plot(printed.x, printed.mean, **labels.PRINTED)
        ends = over_seeds(known, "samples", "measured")
        open_marker = {"markeredgecolor": look.colour, "linestyle": "", **style.OPEN}
        axes.plot(ends.x, ends.mean, marker=look.marker, **open_marker)
    axes.set_title("(a) balanced start; open: inputs that fit the labels")
    style.logarithmic_x(axes, frame["samples"][frame["panel"] == "a"], "samples $n$")
    axes.set_ylabel(labels.SHARPNESS)
    style.label_curves(axes, lines)


def _peaks(axes: Axes, frame: DataFrame) -> None:
    starts = [name for name in STARTS if name in distinct(frame, "initializer")]
    for name, look in zip(starts, style.looks(len(starts)), strict=True):
        shown = peaks(frame, name)
        style.band(axes, over_seeds(shown, "share", "measured"), look, STARTS[name])
    printed = over_seeds(where(frame, panel="b"), "share", "printed")
    axes.plot(printed.x, printed.mean, label="Eq 14 as printed", **labels.PRINTED)
    axes.set_title("(b) the largest along training")
    axes.set_xlim(0.05, 1.05)
    axes.set_xlabel(labels.SHARE)
    axes.set_ylabel("largest sharpness")
    axes.legend(loc="upper left", borderaxespad=0)


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and residuals of the table behind the figure."""
    a, b = (where(frame, panel=name) for name in ("a", "b"))
    inputs = captions.listed(distinct(a, "inputs"))
    epochs = captions.listed([int(epoch) for epoch in distinct(b, "epoch")])
    return captions.paragraph(
        "Figure C5, of two sentences of paper B that no figure of it shows.",
        f"(a) Sharpness of networks trained from a balanced start on orthogonalised inputs (d ="
        f" {inputs}) over the number of samples n, for two proportions of the largest class."
        " Filled: images; their labels are not fitted. Open: random inputs of which a linear map"
        " gives the labels, so that Eq 14 as printed (black) holds. Logarithmic horizontal axis.",
        labels.STAR,
        "Every filled marker lies on it.",
        f"(b) The largest sharpness after epochs {epochs}, over the proportion of the largest"
        " class.",
        f"Panel (a): {labels.training(over_samples(frame, fit=False))}",
        labels.closing(labels.data_line(b), provenance),
    )
