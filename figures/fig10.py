"""Figure 10: loss, condition number and the first bound of Lemma 2 over training."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds

EXPERIMENT = "training_path"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("reading", "epoch", "measured", "samples", "rate", "batch", "dtype"),
    *("loss", "bound_convex"),
)
NAMES = {  # in the order of the legend
    "published": "$X^T X = I$, less colour means",
    "published_raw": "$X^T X = I$, in [0, 1]",
    "sigma_xavier": r"$\Sigma = I$, Xavier",
    "sigma_kaiming": r"$\Sigma = I$, Kaiming",
}
PAPER_RANGE = (6.0, 12.0)
KEY = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)


def draw(frame: DataFrame) -> Figure:
    """The loss (left) and kappa with its bound (right) over the epochs, a colour for each reading;
    logarithmic axes, the horizontal ones linear between epochs 0 and 1."""
    drawn = {
        reading: name for reading, name in NAMES.items() if (frame["reading"] == reading).any()
    }
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.8)
        losses, kappas = figure.subplots(1, 2)
        for axes in (losses, kappas):
            style.logarithmic(axes)  # before the bands, which end differently there
        _paper_range(kappas)
        for (reading, name), look in zip(drawn.items(), style.looks(len(drawn)), strict=True):
            of_reading = frame[frame["reading"] == reading]
            loss = style.band(losses, over_seeds(of_reading, "epoch", "loss"), look, name)
            loss.set_marker("")
            measured = of_reading[of_reading["measured"]]
            style.band(kappas, kappa_over_seeds(measured, "epoch"), look)
            style.bound_curve(kappas, over_seeds(measured, "epoch", "bound_convex"), look)
        for axes, label in ((losses, "training loss"), (kappas, style.KAPPA)):
            _epochs(axes, int(frame["epoch"].max()))
            axes.set_ylabel(label)
        style.key(kappas, KEY)
        handles, names = losses.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        style.footer(figure, captions.data_line(frame))
    return figure


def _paper_range(axes: Axes) -> None:
    """The values that the paper reports, as a grey band with its name."""
    low, high = PAPER_RANGE
    axes.axhspan(low, high, color=style.GREY, alpha=0.15, linewidth=0, zorder=0)
    axes.annotate(
        f"the paper's {low:g} to {high:g}",
        (0.02, low * (high / low) ** 0.12),
        xycoords=("axes fraction", "data"),
        ha="left",
        va="center",
        color=style.GREY,
    )


def _epochs(axes: Axes, last: int) -> None:
    """A logarithmic axis that has room for epoch 0."""
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(-0.15, 1.2 * last)
    axes.set_xlabel("epoch")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    depth, width = (captions.listed(distinct(frame, name)) for name in ("depth", "width"))
    rate, batch = distinct(frame, "rate")[0], distinct(frame, "batch")[0]
    return captions.paragraph(
        "Figure 10. Training loss (left) and condition number of the Gauss-Newton matrix with the"
        f" first bound of Lemma 2 (right, dashed) of linear networks of depth L = {depth} and width"
        f" m = {width} over the epochs of SGD with batches of {batch} and learning rate {rate:g}"
        f" on the squared error averaged over the outputs, in {distinct(frame, 'dtype')[0]}."
        " X^T X = I, Xavier's weights and batches as they stand are those of the published code;"
        " which values its pixels have is open, less the mean of each colour or in [0, 1]. With"
        " Sigma = I the inputs are sqrt(n) times as large, and the batches are drawn. The grey band"
        " is the range that the paper reports. Logarithmic axes.",
        _seeds(frame),
        captions.certificates(frame[frame["measured"]]),
        captions.data(frame, provenance),
    )


def _seeds(frame: DataFrame) -> str:
    """How many starts each curve averages."""
    counts = frame.groupby("reading")["seed"].nunique()
    listed = ", ".join(str(counts[reading]) for reading in NAMES if reading in counts)
    return (
        f"Geometric mean over initialisations ({listed}, in the order of the legend);"
        f" {captions.spread(set(counts))}."
    )
