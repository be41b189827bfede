"""Figure T4: diagonal blocks of G by class and by token, over how frequent they are."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "class_blocks"
COLUMNS = (
    *captions.CELL,
    *("network", "stage", "part", "samples", "share", "trace", "loss", "steps", "rate"),
)
STAGES = {
    "start": "at initialisation",
    "gradient descent": "after gradient descent",
    "Adam": "after Adam",
}
PANELS = (
    ("linear", "class", "trace", "(a) linear model, by class"),
    ("gpt", "class", "trace", "(b) GPT, output layer by class"),
    ("gpt", "token", "trace", "(c) GPT, embeddings by token"),
    ("gpt", "class", "loss", "(d) GPT, loss by class"),
)
LABELS = {"trace": "trace of the block", "loss": "mean cross-entropy"}


def draw(frame: DataFrame) -> Figure:
    """One panel for each kind of block, and one for the loss."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.4)
        panels = figure.subplots(2, 2)
        for axes, (network, part, column, title) in zip(panels.flat, PANELS, strict=True):
            _panel(axes, where(frame, network=network, part=part), column)
            axes.set_title(title)
        for axes in panels[0]:
            axes.set_xlabel("")
        style.shared_legend(figure, panels[0, 0])
        style.footer(figure, captions.data_line(frame))
    return figure


def _panel(axes: Axes, shown: DataFrame, column: str) -> None:
    style.logarithmic(axes)
    for (stage, label), look in zip(STAGES.items(), style.looks(len(STAGES)), strict=True):
        series = over_seeds(where(shown, stage=stage), "share", column)
        style.band(axes, series, look, label).set_linewidth(0.5)
    style.logarithmic_x(axes, shown["share"], "share of the character in the text")
    axes.set_ylabel(LABELS[column])


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    steps = captions.listed([step for step in distinct(frame, "steps") if step])
    rates = "; ".join(
        f"{name} {_rates(where(frame, network=network))}"
        for network, name in (("linear", "the linear model"), ("gpt", "the GPT"))
    )
    gpt = where(frame, network="gpt")
    depth, width = (captions.listed(distinct(gpt, name)) for name in ("depth", "width"))
    return captions.paragraph(
        "Figure T4, beyond the papers. Traces of the diagonal blocks of the Gauss-Newton matrix of"
        " the cross-entropy over the frequency of characters: (a) of a softmax-linear model of the"
        " next character from the last, started at zero, one block for the weights of each class;"
        f" (b) of the output layer of a GPT ({depth} blocks, width {width}) in the same way; (c) of"
        " its table of embeddings, one block for the row of each character; (d) the loss of each"
        f" class. At initialisation and after {steps} full-batch steps, with the rates of gradient"
        f" descent and Adam {rates}. The character that falls out of line is the hyphen, which"
        " stands in long rows of its own. Logarithmic axes.",
        captions.seeds(frame),
        captions.data(frame, provenance),
    )


def _rates(shown: DataFrame) -> str:
    found = (distinct(where(shown, stage=stage), "rate")[0] for stage in list(STAGES)[1:])
    return " and ".join(f"{rate:g}" for rate in found)
