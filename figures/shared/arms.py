"""Figures 1, 13, 14 and 15: loss, lambda_max and kappa, by the published protocol of pruning."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series, concat

from experiments.claims.pruning_arms import EVERY, KERNELS, kappas, losses
from figures.shared import captions, style
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
    return frame[(frame["network"] == network) & frame["augment"] & (frame["tensors"] == EVERY)]


def draw(frame: DataFrame, network: str) -> Figure:
    """Over the epochs: the loss, lambda_max with every column of J, and kappa with those left.

    Below, where some networks have kernels alone pruned: their loss, and kappa with either columns.
    """
    shown = of_network(frame, network)
    every = (
        (LOSS, losses(shown, network, EVERY), "loss"),
        (rf"$\lambda_{{\max}}$, {ALL}", largest(shown), "lambda_max"),
        (rf"$\kappa$, {LEFT}", certified(shown, "left"), "kappa"),
    )
    rows_of_panels = {f"{NAMES[network]}\nevery tensor pruned": every}
    if has_kernels(frame, network):
        rows_of_panels[f"{NAMES[network]}\nkernels alone pruned"] = (
            (LOSS, losses(frame, network, KERNELS), "loss"),
            (rf"$\kappa$, {ALL}", of_kernels(frame, network, "all"), "kappa"),
            (rf"$\kappa$, {LEFT}", of_kernels(frame, network, "left"), "kappa"),
        )
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.5 * len(rows_of_panels))
        grid = figure.subplots(len(rows_of_panels), 3, squeeze=False)
        for axes_of_row, (pruned, panels) in zip(grid, rows_of_panels.items(), strict=True):
            axes_of_row[0].set_ylabel(pruned)
            for axes, (name, rows, of) in zip(axes_of_row, panels, strict=True):
                axes.set_title(name)
                curves(axes, rows, of, sorted(shown["pruned"].unique()))
        style.footer(figure, captions.data_line(shown))
    return figure


def has_kernels(frame: DataFrame, network: str) -> bool:
    """Whether some networks of the kind have kernels alone pruned."""
    return bool(((frame["network"] == network) & (frame["tensors"] == KERNELS)).any())


def of_kernels(frame: DataFrame, network: str, columns: str) -> DataFrame:
    """kappa with BatchNorm's statistics of all samples, with kernels alone pruned or nothing."""
    return kappas(frame, "all", columns, KERNELS, network=network)


def largest(frame: DataFrame) -> DataFrame:
    """lambda_max of J with every column and the statistics of batches, one row a stop."""
    rows = frame[(frame["statistics"] == "batches") & (frame["columns"] == "all")]
    return rows.drop_duplicates(["network", "tensors", "augment", "pruned", "seed", "epoch"])


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
    if rows.empty:
        style.blank(axes, "not computed at this profile")
        return
    style.logarithmic(axes)
    lines = []
    for rate, look in zip(rates, style.ordered_looks(len(rates)), strict=True):
        curve = rows[rows["pruned"] == rate]
        if curve.empty:
            continue
        series = (
            kappa_over_seeds(finite(curve), "epoch")
            if of == "kappa"
            else over_seeds(curve, "epoch", of)
        )
        if len(series.x) < 2:  # a point alone is no course; it is in the table
            continue
        lines.append(style.band(axes, series, look, f"{rate:.0%} pruned"))
        if of == "loss":
            lines[-1].set_marker("")
    style.whole_numbers(axes, rows["epoch"], "epoch")
    style.label_curves(axes, lines)


def caption(frame: DataFrame, provenance: Mapping[str, Any], number: int, network: str) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = of_network(frame, network)
    rates = sorted(shown["pruned"].unique())
    left = [int(shown.loc[shown["pruned"] == rate, "parameters"].iloc[0]) for rate in rates]
    of_every = certified(shown, "left")
    drawn = [of_every]
    if has_kernels(frame, network):
        drawn += [of_kernels(frame, network, columns) for columns in ("all", "left")]
    known = concat(drawn).drop_duplicates()
    starts = shown[shown["what"] == "losses"].groupby("pruned")["seed"].nunique()
    counts = ", ".join(f"{count} at {rate:.0%}" for rate, count in starts.items())
    transformer = network == "vit"
    vectors = "LayerNorm's scales and the positions" if transformer else "BatchNorm's scales"
    return captions.paragraph(
        f"Figure {number}. {NAMES[network]} by the protocol of the published code:"
        f" {', '.join(f'{rate:.0%}' for rate in rates)} of the smallest entries of every tensor,"
        f" {vectors} among them, pruned at initialisation, so that"
        f" {', '.join(f'{count:,}' for count in left)} parameters are left; images cropped and"
        f" flipped at random. {ADAMW if transformer else STEPS}, batches of"
        f" {_listed(shown['batch'])}.",
        "Left: the loss after each epoch, in training mode.",
        "Right: kappa of J with the columns of the weights that are left, of the images without"
        " crops."
        if transformer
        else _ends(shown),
        _below(frame, network),
        "Logarithmic vertical axes.",
        f"Initialisations of the losses: {counts}{spread(starts)}.",
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
        f" {', '.join(f'{count:,}' for count in left)} parameters are left: the loss, and kappa of"
        " J with a column for every weight (middle) and with those of the weights that are left"
        " (right), both with BatchNorm's statistics of all samples"
        f"{_starts_before_training(pruned)}."
    )


def _ends(shown: DataFrame) -> str:
    """What the middle and the right panel show, where something of it is computed."""
    if certified(shown, "left").empty:
        return "lambda_max and kappa are not computed at this profile."
    return (
        "Middle: lambda_max of J J^T with a column of J for every weight, pruned or not, and"
        " BatchNorm's statistics of batches; what the published code draws as kappa is this over"
        " numbers of another spectrum. Right: kappa of J with the columns of the weights that are"
        " left, and BatchNorm's statistics of all samples. Both are of one initialisation"
        f"{_starts_before_training(shown)}, at the rates and stops that are computed; a rate with"
        " one stop alone is not drawn."
    )


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
