"""Figure C1: condition number of the NTK of a network over the number of samples."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds

EXPERIMENT = "sample_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("samples", "activation", "lambda_max", "lambda_min"),
)
LOOKS = style.looks(3)


def draw(frame: DataFrame) -> Figure:
    """Kappa (left), and the two ends of the spectrum, whose ratio it is (right)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            style.logarithmic(axes)
        style.band(left, kappa_over_seeds(frame, "samples"), LOOKS[0])
        left.set_ylabel("condition number of the NTK")
        lines = [
            style.band(right, over_seeds(frame, "samples", column), look, label)
            for column, look, label in zip(
                ("lambda_max", "lambda_min"), LOOKS[1:], ("largest", "smallest"), strict=True
            )
        ]
        right.set_ylabel("eigenvalue")
        for axes in (left, right):
            style.logarithmic_x(axes, frame["samples"], "samples $n$")
        style.label_curves(right, lines)
        style.footer(figure, captions.data_line(frame))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    depth, width = (captions.listed(distinct(frame, name)) for name in ("depth", "width"))
    activation = ", ".join(distinct(frame, "activation"))
    return captions.paragraph(
        "Figure C1, beyond the papers. Condition number of the NTK of a network with one output"
        f" ({depth} layers, {width} units, {activation}) at initialisation on the first n samples,"
        " and both ends of its spectrum. Logarithmic axes.",
        captions.seeds(frame),
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
