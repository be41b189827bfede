"""Figure 17: training loss and condition number of pruned feed-forward networks."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, notebook, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds

EXPERIMENT = "feed_forward_pruning"
COLUMNS = (
    *captions.CERTIFICATE,
    *("run", "of", "pruned", "seed", "epoch", "measured", "loss", "samples", "inputs", "outputs"),
    *("depth", "width", "parameters", "data", "rate", "batch"),
)
RUN = "plotted"
TITLES = {"all": "$J$ of all parameters", "left": "$J$ of those left"}


def draw(frame: DataFrame) -> Figure:
    """The loss, and kappa with J of all parameters and of those left, over the epochs.

    One colour for each share of every tensor that is pruned.
    """
    shown = _trained(frame)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5)
        losses, *kappas = figure.subplots(1, 3)
        rates = distinct(shown, "pruned")
        looks = dict(zip(rates, style.ordered_looks(len(rates)), strict=True))
        kappas[1].sharey(kappas[0])
        _curves(losses, shown[~shown["measured"]], "loss", looks)
        losses.set_title("training loss")
        for axes, (of, title) in zip(kappas, TITLES.items(), strict=True):
            _curves(axes, shown[shown["of"] == of], "kappa", looks)
            _other_starts(axes, _not_trained(frame, of), looks)
            axes.set_title(title)
        if _theirs(shown):
            notebook.draw(kappas[0], notebook.FEED_FORWARD, looks, "{:.0%} pruned")
        kappas[0].set_ylabel(style.KAPPA)
        for axes in figure.axes:
            style.logarithmic(axes)
            style.whole_numbers(axes, shown["epoch"], "epoch")
        handles = [*kappas[0].get_legend_handles_labels()[0]]
        if _theirs(shown):
            handles.append(Line2D([], [], **notebook.LOOK, label=notebook.LABEL))
        figure.legend(handles=handles, loc="outside upper center", ncols=6, columnspacing=1.2)
        style.footer(figure, captions.data_line(shown))
    return figure


def _trained(frame: DataFrame) -> DataFrame:
    """The rows of the plotted run, without kappas of starts that have it before training only.

    A mean over more starts at the first epoch than later would move as its starts do.
    """
    shown = frame[frame["run"] == RUN]
    followed = shown["seed"][shown["measured"] & (shown["epoch"] > 0)]
    return shown[~shown["measured"] | shown["seed"].isin(followed)]


def _theirs(shown: DataFrame) -> bool:
    """Whether the notebook's kappa is of the same images."""
    return captions.of_cifar10(shown)


def _not_trained(frame: DataFrame, of: str) -> DataFrame:
    """Kappa before training of the starts of which it is not known after it."""
    rows = frame[(frame["run"] == RUN) & (frame["of"] == of) & (frame["epoch"] == 0)]
    shown = _trained(frame)
    return rows[~rows["seed"].isin(shown["seed"][shown["measured"]])]


def _other_starts(axes: Axes, rows: DataFrame, looks: Mapping[float, style.Look]) -> None:
    """A small open marker for each further start: how far starts lie apart."""
    for rate, starts in rows.groupby("pruned"):
        drawn = style.OPEN | {"color": looks[rate].colour, "markersize": 3.0}
        drawn |= {"markeredgecolor": looks[rate].colour, "markeredgewidth": 0.7}
        axes.plot(
            starts["epoch"],
            starts["kappa"],
            linestyle="",
            marker=looks[rate].marker,
            label=f"_{rate:.0%} pruned, another start",
            **drawn,
        )


def _curves(axes: Axes, frame: DataFrame, of: str, looks: Mapping[float, style.Look]) -> None:
    if frame.empty:
        style.blank(axes, "not computed yet")
        return
    ends = {min(looks), max(looks)}  # more bands would hide each other
    for rate, rows in frame.groupby("pruned"):
        kappa = of == "kappa"
        series = kappa_over_seeds(rows, "epoch") if kappa else over_seeds(rows, "epoch", of)
        line = style.band(axes, series, looks[rate], f"{rate:.0%} pruned", filled=rate in ends)
        if not kappa:
            line.set_marker("")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _trained(frame)
    depth, width = (distinct(shown, name)[0] for name in ("depth", "width"))
    counts = [f"{count:,}" for count in sorted(set(shown["parameters"]), reverse=True)]
    rates = ", ".join(f"{rate:.0%}" for rate in distinct(shown, "pruned"))
    return captions.paragraph(
        "Figure 17. Training loss (left) and condition number of the Gauss-Newton matrix J J^T"
        f" of a feed-forward ReLU network of {depth} layers, {width} units wide, of which {rates}"
        " of every tensor, weights and biases, the smallest, were pruned at initialisation. J is"
        f" the Jacobian with respect to all {counts[0]} parameters (middle), or to the"
        f" {', '.join(counts)} that are left (right). Kaiming normal weights and N(0, 1) biases."
        " SGD on the mean square error in the order of the file, batches of"
        f" {captions.listed(distinct(shown, 'batch'))}, learning rate"
        f" {distinct(shown, 'rate')[0]:g}. The loss of an epoch is the mean over its steps."
        " Logarithmic vertical axes.",
        _beside(frame),
        _seeds(shown),
        captions.certificates(shown[shown["measured"]]),
        _missing(shown, provenance),
        captions.data(shown, provenance),
    )


def _seeds(shown: DataFrame) -> str:
    """How many starts the curves are means over: those of kappa may have fewer."""
    bands = f"bands, of {shown['pruned'].min():.0%} and {shown['pruned'].max():.0%},"
    losses, kappas = (captions.seeds(shown[shown["measured"] == of], bands) for of in (False, True))
    apart = (
        f"{name}: {told[0].lower()}{told[1:]}"
        for name, told in (("Losses", losses), ("Kappa", kappas))
    )
    return losses if losses == kappas else captions.paragraph(*apart)


def _beside(frame: DataFrame) -> str:
    """What small open and grey markers are."""
    more = _not_trained(frame, "all")["seed"].nunique()
    opened = (
        f"Small open markers: kappa of {more} more starts before training, which shows how far"
        " starts lie apart; of these none is computed later."
        if more
        else ""
    )
    grey = (
        "Grey, with the markers of the rates: kappa in the authors' notebook, read off its picture."
        if _theirs(_trained(frame))
        else ""
    )
    return captions.paragraph(opened, grey)


def _missing(shown: DataFrame, provenance: Mapping[str, Any]) -> str:
    """What of the config is not computed yet, as a kappa takes minutes."""
    run = provenance["config"][RUN]
    planned = len(run["rates"]) * len(run["stops"]) * run["seeds"]
    there = {of: int((shown["of"] == of).sum()) for of in TITLES}
    absent = [f"{count} of {planned} with J {_WORDS[of]}" for of, count in there.items()]
    complete = all(count == planned for count in there.values())
    return "" if complete else f"Kappas that are computed so far: {', '.join(absent)}."


_WORDS = {"all": "of all parameters", "left": "of those left"}
