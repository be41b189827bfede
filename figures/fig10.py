"""Figure 10: loss, condition number and the first bound of Lemma 2 over training."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from figures.shared import captions, notebook, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds

EXPERIMENT = "training_path"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("reading", "epoch", "measured", "samples", "rate", "batch", "dtype"),
    *("loss", "bound_convex"),
)
PAPERS = "published"
NAMES = {  # in the order of the legend
    PAPERS: "the paper's: $X^T X = I$, mean of each colour subtracted",
    "published_raw": "$X^T X = I$, values in [0, 1]",
    "sigma_xavier": r"$\Sigma = I$, Xavier",
    "sigma_kaiming": r"$\Sigma = I$, Kaiming",
}
PAPER_RANGE = (6.0, 12.0)
KEY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)


def draw(frame: DataFrame) -> Figure:
    """The loss (left) and kappa with its bound (right) over the epochs.

    Above, on linear axes, the paper's setting alone, as in its picture. Below, ours: a colour for
    each reading on logarithmic axes, the horizontal ones linear between epochs 0 and 1.
    """
    papers = frame[frame["reading"] == PAPERS]
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 5.2 if len(papers) else 2.9)
        *above, losses, kappas = figure.subplots(2 if len(papers) else 1, 2).flat
        if len(papers):
            _as_printed(above[0], above[1], papers)
        _every_reading(losses, kappas, frame)
        handles, names = losses.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=2)
        style.footer(figure, captions.data_line(frame))
    return figure


def _as_printed(losses: Axes, kappas: Axes, papers: DataFrame) -> None:
    """The paper's setting alone, each curve a mean over the starts in a band of one deviation."""
    look = style.looks(1)[0]
    _paper_range(kappas)
    _mean_and_deviation(losses, papers, "loss", look)
    losses.set_yscale("log")
    style.logarithmic(losses)
    measured = papers[papers["measured"]]
    line = _mean_and_deviation(kappas, measured, "kappa", look)
    line.set_marker(look.marker)
    bound = over_seeds(measured, "epoch", "bound_convex", arithmetic=True)
    style.bound_curve(kappas, bound, look)
    entries = KEY
    if captions.of_cifar10(papers):
        x, y = notebook.PATH
        drawn = style.OPEN | notebook.LOOK | {"markeredgecolor": notebook.LOOK["color"]}
        kappas.plot(x, y, marker="o", label=f"_{notebook.LABEL}", **drawn | {"zorder": 3})
        entries = (*KEY, (notebook.LABEL, {"color": notebook.LOOK["color"], "linewidth": 0.8}))
    for axes, label in ((losses, "training loss"), (kappas, style.KAPPA)):
        style.whole_numbers(axes, [0, papers["epoch"].max()], "epoch")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.set_ylabel(label)
    kappas.set_ylim(bottom=0.8 * PAPER_RANGE[0])
    kappas.legend(
        handles=[Line2D([], [], **{"color": style.GREY, "label": n} | how) for n, how in entries],
        loc="upper right",
        borderaxespad=0,
        labelspacing=0.2,
    )


def _mean_and_deviation(axes: Axes, frame: DataFrame, of: str, look: style.Look) -> Line2D:
    """The arithmetic mean over the starts, inside one standard deviation where there are some."""
    by_epoch = frame.groupby("epoch")[of]
    mean, deviation = by_epoch.mean(), by_epoch.std(ddof=1).fillna(0.0)
    x = mean.index.to_numpy()
    low, high = (mean - deviation).to_numpy(), (mean + deviation).to_numpy()
    axes.fill_between(x, low, high, color=look.colour, alpha=0.18, lw=0)
    (line,) = axes.plot(x, mean.to_numpy(), color=look.colour, label="_the paper's setting")
    return line


def _every_reading(losses: Axes, kappas: Axes, frame: DataFrame) -> None:
    """All four readings on logarithmic axes."""
    drawn = {
        reading: name for reading, name in NAMES.items() if (frame["reading"] == reading).any()
    }
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
        axes.set_title("ours: every reading" if len(drawn) > 1 else "")
    style.key(kappas, KEY)


def _paper_range(axes: Axes) -> None:
    """The values that the paper reports, as a grey band with its name."""
    low, high = PAPER_RANGE
    axes.axhspan(low, high, color=style.GREY, alpha=0.15, linewidth=0, zorder=0)
    axes.annotate(
        f"the paper's {low:g} to {high:g}",
        (0.02, low * (high / low) ** 0.06),
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
        " Sigma = I the inputs are sqrt(n) times as large, and the batches are drawn.",
        _above(frame),
        "The grey band is the range that the paper reports.",
        _theirs(frame),
        _seeds(frame),
        captions.certificates(frame[frame["measured"]]),
        captions.data(frame, provenance),
    )


def _above(frame: DataFrame) -> str:
    """What the upper row shows, and the lower one; where there is one alone, its axes."""
    if not (frame["reading"] == PAPERS).any():
        return "Logarithmic axes."
    return (
        "Above: the setting whose kappa is the notebook's, the mean over the starts in a band of"
        " one standard deviation, with linear epochs and kappa, as in the paper. Below, ours: every"
        " reading, on logarithmic axes."
    )


def _theirs(frame: DataFrame) -> str:
    """What the grey curve is, where it is drawn."""
    papers = frame[frame["reading"] == PAPERS]
    of_cifar = len(papers) and captions.of_cifar10(papers)
    return "Grey: kappa in the authors' notebook, read off its picture." if of_cifar else ""


def _below(frame: DataFrame) -> str:
    return "Below: geometric mean" if (frame["reading"] == PAPERS).any() else "Geometric mean"


def _seeds(frame: DataFrame) -> str:
    """How many starts each curve averages."""
    counts = frame.groupby("reading")["seed"].nunique()
    listed = ", ".join(str(counts[reading]) for reading in NAMES if reading in counts)
    return (
        f"{_below(frame)} over initialisations ({listed}, in the order of the legend);"
        f" {captions.spread(set(counts))}."
    )
