"""Figures 1, 13, 14 and 15: loss, lambda_max and kappa, by the published protocol of pruning."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator
from pandas import DataFrame, Series, concat

from experiments.claims.pruning_arms import (
    EVERY,
    KERNELS,
    kappas,
    losses,
    of_all_images,
    of_few_images,
)
from figures.shared import captions, notebook, style
from figures.shared.series import kappa_over_seeds, over_seeds

EXPERIMENT = "pruning_arms"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("what", "network", "tensors", "augment", "pruned", "epoch", "statistics", "columns"),
    *("samples", "parameters", "batch", "loss", "dead", "rank", "lambda_max"),
)
NAMES = {"resnet20": "ResNet20", "resnet32": "ResNet32", "vit": "Vision transformer"}
LOSS = "training loss"
ALL = "every column of $J$"
LEFT = "the columns that are left"
STEPS = (
    "SGD on the cross-entropy, learning rate 0.1, a tenth of it after epoch 91, momentum 0.9,"
    " weight decay 1e-4, PyTorch's default initialisation"
)
ADAMW = (
    "AdamW on the cross-entropy, learning rate 0.01, weight decay 0.01, weights from a normal"
    " distribution of standard deviation 0.02, biases 0"
)


def of_network(frame: DataFrame, network: str) -> DataFrame:
    """The rows of a network trained with crops, every tensor pruned, and of the unpruned one."""
    rows = of_all_images(frame)
    return rows[(rows["network"] == network) & rows["augment"] & (rows["tensors"] == EVERY)]


STOPS_APART = 20  # epochs between neighbouring stops; only these are joined by a line
LAST = 100  # epochs, where nothing of a panel is computed


def draw(frame: DataFrame, network: str) -> Figure:
    """The loss and kappa over the epochs with every column of J, as in the paper, then kappa of the
    columns left.

    Below, where some networks have kernels alone pruned, the same of these; then the same of
    networks that train on fewer images. Grey is kappa in the authors' notebook.
    """
    shown = of_network(frame, network)
    rows_of_panels = {"every tensor pruned": panels(frame, network, EVERY)}
    if has_kernels(frame, network):
        rows_of_panels["kernels alone pruned"] = panels(frame, network, KERNELS)
    few = of_network(of_few_images(frame), network)
    if len(few):
        rows_of_panels[f"every tensor, {images_of(few)} images"] = panels(few, network, EVERY)
    columns = max(map(len, rows_of_panels.values()))
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 0.3 + 2.4 * len(rows_of_panels))
        grid = figure.subplots(len(rows_of_panels), columns, squeeze=False)
        for axes_of_row, (what, of_row) in zip(grid, rows_of_panels.items(), strict=True):
            draw_row(axes_of_row, of_row, rates_of(shown))
            axes_of_row[0].set_ylabel(f"{NAMES[network]}\n{what}")
        theirs = published(shown, network)
        looks = dict(zip(rates_of(shown), style.ordered_looks(len(rates_of(shown))), strict=True))
        notebook.draw(grid[0, 1], theirs, looks, "{:.0%} pruned")
        key_of_rates(figure, looks, theirs)
        style.footer(figure, captions.data_line(shown))
    return figure


def draw_row(
    axes_of_row: Sequence[Axes],
    of_row: Sequence[tuple[str, DataFrame, str]],
    rates: Sequence[float],
) -> None:
    """Draw the panels of a row from the left on; what is left of the row stays white."""
    for axes, (name, rows, of) in zip(axes_of_row, of_row, strict=False):
        axes.set_title(name)
        curves(axes, rows, of, rates)
    for axes in axes_of_row[len(of_row) :]:
        axes.set_axis_off()


def panels(frame: DataFrame, network: str, tensors: str) -> tuple[tuple[str, DataFrame, str], ...]:
    """Title, rows and column of each panel of a row; of the second kappa where it is computed."""
    kappa = {columns: of_tensors(frame, network, columns, tensors) for columns in ("all", "left")}
    panels = (
        (LOSS, losses(frame, network, tensors), "loss"),
        (rf"$\kappa$, {ALL}", kappa["all"], "kappa"),
        (rf"$\kappa$, {LEFT}", kappa["left"], "kappa"),
    )
    return panels if len(kappa["left"]) else panels[:2]


def images_of(rows: DataFrame) -> str:
    """The numbers of images that networks train on, as text."""
    return _listed(rows["samples"])


def rates_of(shown: DataFrame) -> list[float]:
    """The pruning rates of a network."""
    return sorted(shown["pruned"].unique())


def published(shown: DataFrame, network: str) -> Mapping[float, notebook.Curve]:
    """Kappa in the authors' notebook, where that has it and the images are the same."""
    return notebook.OF.get(network, {}) if captions.of_cifar10(shown) else {}


def key_of_rates(
    figure: Figure, looks: Mapping[float, style.Look], theirs: Mapping[float, notebook.Curve]
) -> None:
    """One key over all panels, in the order of the rates, with grey where the notebook is drawn."""
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, label=f"{rate:.0%} pruned")
        for rate, look in looks.items()
    ]
    if theirs:
        handles.append(Line2D([], [], **notebook.LOOK, label=notebook.LABEL))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles) if len(handles) < 8 else 5,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def has_kernels(frame: DataFrame, network: str) -> bool:
    """Whether some networks of the kind have kernels alone pruned."""
    return bool(((frame["network"] == network) & (frame["tensors"] == KERNELS)).any())


def of_tensors(frame: DataFrame, network: str, columns: str, tensors: str) -> DataFrame:
    """kappa with BatchNorm's statistics of all samples, of networks so pruned or not at all."""
    return kappas(frame, "all", columns, tensors, network=network)


def certified(frame: DataFrame, columns: str) -> DataFrame:
    """kappa with BatchNorm's statistics of all samples."""
    return frame[
        (frame["what"] == "kappa") & (frame["statistics"] == "all") & (frame["columns"] == columns)
    ]


def finite(rows: DataFrame) -> DataFrame:
    """The rows, where kappa counts as resolved if it has an upper end at the rank stated."""
    return rows.assign(resolved=rows["kappa_high"] < float("inf"))


def curves(axes: Axes, rows: DataFrame, of: str, rates: Sequence[float]) -> None:
    """One curve for each pruning rate, of the same look in every panel."""
    style.logarithmic(axes)
    for rate, look in zip(rates, style.ordered_looks(len(rates)), strict=True):
        curve, name = rows[rows["pruned"] == rate], f"{rate:.0%} pruned"
        if curve.empty:
            continue
        if of == "kappa":
            series = kappa_over_seeds(finite(curve), "epoch")
            style.band(axes, series, look, name, reach=STOPS_APART)
        else:
            style.band(axes, over_seeds(curve, "epoch", of), look, name).set_marker("")
    epoch_axis(axes, int(rows["epoch"].max()) if len(rows) else LAST)


def epoch_axis(axes: Axes, last: int) -> None:
    """An axis of epochs with its ticks at the stops."""
    style.whole_numbers(axes, [0, last], "epoch")
    if last >= STOPS_APART:
        axes.xaxis.set_major_locator(MultipleLocator(STOPS_APART * (1 + last // 101)))


def caption(frame: DataFrame, provenance: Mapping[str, Any], number: int, network: str) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = of_network(frame, network)
    known = concat(
        [
            of_tensors(frame, network, columns, tensors)
            for columns in ("all", "left")
            for tensors in (EVERY, KERNELS)
        ]
    ).drop_duplicates()
    return captions.paragraph(
        opening(shown, number, network),
        "Left: the loss after each epoch, in training mode.",
        _kappas_of(shown, network),
        _below(frame, network),
        from_few(frame, network),
        "Logarithmic vertical axes.",
        closing(shown, known, provenance),
    )


def opening(shown: DataFrame, number: int, network: str) -> str:
    """What was pruned of which network, and how it was trained."""
    rates = rates_of(shown)
    left = [int(shown.loc[shown["pruned"] == rate, "parameters"].iloc[0]) for rate in rates]
    transformer = network == "vit"
    vectors = "LayerNorm's scales and the positions" if transformer else "BatchNorm's scales"
    return (
        f"Figure {number}. Training loss and condition number kappa of J J^T of a"
        f" {NAMES[network]}, pruned at initialisation by the protocol of the published code:"
        f" {', '.join(f'{rate:.0%}' for rate in rates)} of the smallest entries of every tensor,"
        f" {vectors} among them, so that {', '.join(f'{count:,}' for count in left)} parameters are"
        " left; images cropped and flipped at random."
        f" {ADAMW if transformer else STEPS}, batches of {_listed(shown['batch'])}."
    )


def closing(shown: DataFrame, known: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The starts of the losses, what is known of kappa, the data and the precision."""
    starts = shown[shown["what"] == "losses"].groupby("pruned")["seed"].nunique()
    counts = ", ".join(f"{count} at {rate:.0%}" for rate, count in starts.items())
    each = f"{starts.max()} at each rate" if starts.nunique() == 1 else counts
    return captions.paragraph(
        f"Initialisations of the losses: {each}{spread(starts)}.",
        captions.certificates(finite(known)) if len(known) else "",
        rank(known),
        captions.data(shown, provenance),
    )


def spread(starts: Series) -> str:
    """What bands and bars of the losses are, after a semicolon; "" where each rate has one start.

    ``starts`` are the numbers of initialisations, by rate.
    """
    if starts.max() == 1:
        return ""
    several = "the 95% interval of the geometric mean where there are several"
    return f"; {captions.spread(set(starts), 'bands and bars', several)}"


def _below(frame: DataFrame, network: str) -> str:
    """What the lower row shows, where there is one."""
    if not has_kernels(frame, network):
        return ""
    pruned = frame[(frame["network"] == network) & (frame["tensors"] == KERNELS)]
    left = pruned.groupby("pruned")["parameters"].first()
    return (
        f"Below: the same with {', '.join(f'{rate:.0%}' for rate in left.index)} of the smallest"
        " entries of every kernel pruned and nothing else, so that"
        f" {', '.join(f'{count:,}' for count in left)} parameters are left"
        f"{_starts_before_training(pruned)}."
    )


def from_few(frame: DataFrame, network: str) -> str:
    """What the row of networks that train on fewer images shows, where there is one."""
    few = of_network(of_few_images(frame), network)
    rows = certified(few, "all")
    if rows.empty:
        return ""
    stops = captions.listed(sorted(int(epoch) for epoch in rows["epoch"].unique()))
    return captions.paragraph(
        f"Last row: the same networks trained on {images_of(few)} of the images, every tensor"
        f" pruned, one initialisation, with kappa of these images after {stops} epochs at each"
        " rate, between which dots lead from stop to stop.",
        rank(concat([rows, certified(few, "left")])),
    )


def _kappas_of(shown: DataFrame, network: str) -> str:
    """What the panels of kappa show, ours and the notebook's."""
    left = certified(shown, "left")
    of_images = ", of the images without crops" if network == "vit" else STATISTICS
    ours = (
        f"with a column of J for every weight, pruned or not{of_images}; right: with the columns of"
        " the weights that are left. Both are of one initialisation"
        f"{_starts_before_training(shown)}, at the rates and stops that are computed; solid"
        " lines join stops that follow each other, dotted ones lead over some that are not."
    )
    theirs = f" {notebook.SAYS[network]}" if published(shown, network) else ""
    if left.empty:
        return f"Right: kappa with a column of J for every weight.{theirs} {NOT_HERE}"
    return f"Middle: kappa {ours}{theirs}"


STATISTICS = ", and BatchNorm's statistics of all samples"
NOT_HERE = "Ours is not computed at this size, where J has 10,000 rows at every stop."


def _starts_before_training(shown: DataFrame) -> str:
    """In brackets, the rates with several starts of kappa before training, and how many; or ""."""
    starts = certified(shown, "left").query("epoch == 0").groupby("pruned")["seed"].nunique()
    several = starts[starts > 1]
    if several.empty:
        return ""
    counts = ", ".join(f"{count} at {rate:.0%}" for rate, count in several.items())
    return f" (kappa before training of {counts}; its 95% interval is a bar)"


def _listed(values: Series) -> str:
    return captions.listed(sorted(values.unique()))


def rank(kappas: DataFrame) -> str:
    """At which rank kappa is taken where J has not full rank."""
    rows = kappas["samples"] * kappas["outputs"]
    short = kappas[kappas["rank"] < rows]
    if short.empty:
        return ""
    return captions.paragraph(*(_at_rank(rows, of) for of, rows in short.groupby("tensors")))


def _at_rank(short: DataFrame, tensors: str) -> str:
    ranks = captions.listed(sorted({int(rank) for rank in short["rank"]}))
    rates = ", ".join(f"{rate:.0%}" for rate in sorted(short["pruned"].unique()))
    return (
        f"With {rates} of {tensors} pruned J has not full rank, and kappa is that at the rank"
        f" {ranks}."
    )
