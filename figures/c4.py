"""Figure C4: what makes the valley of kappa over the pruning rate, one change after the other."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.claims.pruning_causes import TITLES, VALLEY, depths, trained
from figures.shared import captions, style
from figures.shared.pruning import deficient, numerical, rank
from figures.shared.series import Columns, distinct, over_seeds, rows, select
from sweeps import effects

EXPERIMENT = "pruning_causes"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("variant", "pruned", "epoch", "samples", "rate", "momentum", "decay", "drop_after", "batch"),
    *("instability", "loss", "rank_numerical", "tolerance"),
    *("kappa_numerical", "kappa_numerical_low", "kappa_numerical_high"),
)


def draw(table: Columns) -> Figure:
    """For each variant the depth of the valley (left), and kappa at each pruning rate (right)."""
    variants = [name for name in TITLES if name in distinct(table, "variant")]
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 0.9 + 0.26 * len(variants))
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.2))
        _valleys(left, table, variants)
        _kappas(right, table, variants)
        left.set_yticks(range(len(variants)), [TITLES[name] for name in variants])
        left.invert_yaxis()
        style.footer(figure, captions.data_line(table))
    return figure


def _valleys(axes: Axes, table: Columns, variants: list[str]) -> None:
    """kappa at the valley's rate over that of the unpruned network, with its interval."""
    (look,) = style.looks(1)
    for place, variant in enumerate(variants):
        found = np.array(list(depths(table, variant).values()))
        if not found.size:
            continue
        effect = effects.mean(found).exponential()
        ends = [[effect.value - effect.low], [effect.high - effect.value]]
        axes.errorbar(
            [effect.value],
            [place],
            xerr=ends if np.isfinite(ends).all() else None,
            color=look.colour,
            marker=look.marker,
            linestyle="",
            capsize=2,
        )
    axes.set_xscale("log")
    axes.axvline(1.0, color=style.GREY, linewidth=0.8)
    axes.set_xlabel(rf"$\kappa$ at {VALLEY:.0%} pruned over $\kappa$ unpruned")


def _kappas(axes: Axes, table: Columns, variants: list[str]) -> None:
    """kappa after training at every pruning rate; open markers where some J has no full rank."""
    rates = distinct(table, "pruned")
    family = list(zip(rates, style.ordered_looks(len(rates)), strict=True))
    placed = {name: place for place, name in enumerate(variants)}
    for index, (rate, look) in enumerate(family):
        at = [select(trained(table, name), pruned=rate) for name in variants]
        shown = {name: np.concatenate([one[name] for one in at]) for name in table}
        shown["place"] = np.array([placed[name] for name in shown["variant"]])
        series = over_seeds(shown, "place", "kappa_numerical")
        heights = series.x + 0.16 * (index - (len(rates) - 1) / 2)
        (line,) = axes.plot(
            series.mean,
            heights,
            color=look.colour,
            marker=look.marker,
            linestyle="",
            label=f"{rate:.0%} pruned",
        )
        short = np.isin(series.x, shown["place"][deficient(shown)])
        axes.plot(
            series.mean[short],
            heights[short],
            marker=look.marker,
            linestyle="",
            markeredgecolor=line.get_color(),
            **style.OPEN,
        )
    axes.set_xscale("log")
    axes.set_xlabel(r"condition number $\kappa$ after training")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """The caption, with the recipe, the seeds and the certificates of the table."""
    printed = trained(table, "printed")
    recipe = {name: distinct(printed, name)[0] for name in ("rate", "momentum", "decay", "batch")}
    before = select(printed, pruned=[rate for rate in distinct(printed, "pruned") if rate < 1])
    least, most = float(before["instability"].min()), float(before["instability"].max())
    return captions.paragraph(
        "Figure C4, beyond the papers. What makes kappa of trained networks smaller at"
        f" {VALLEY:.0%} pruned than unpruned: a VGG5 with {distinct(table, 'width')[0]} filters in"
        " its first layer as in Figure 16, trained with the printed recipe and with one change at a"
        f" time. Printed: SGD on the cross-entropy, learning rate {recipe['rate']:g}, a tenth of it"
        f" after epoch {distinct(printed, 'drop_after')[0]}, momentum {recipe['momentum']:g},"
        f" weight decay {recipe['decay']:g}, batches of {recipe['batch']}; with momentum a step"
        " becomes rate / (1 - momentum) long. Its rate is"
        f" {least:.2g} to {most:.2g} of the largest one that is stable at the start, 2 (1 +"
        " momentum) / lambda_max of the Hessian of the loss of all samples. Left: kappa at"
        f" {VALLEY:.0%} over kappa unpruned; 1 is no valley. Right: kappa after"
        f" {distinct(printed, 'epoch')[0]} epochs.",
        captions.seeds(table, "bars"),
        captions.certificates(numerical(table)),
        rank(table) if rows(table) else "",
        captions.data(table, provenance),
    )
