"""Figure 16: training loss and condition number of pruned VGG5s."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame, Series

from figures.shared import captions, paths, style
from figures.shared.series import distinct, kappa_over_seeds
from sweeps.rows import where
from sweeps.table import TableError

EXPERIMENT = "pruning_sweep"
COLUMNS = (
    *paths.COLUMNS,
    *("network", "depth", "width", "pruned", "parameters", "optimizer", "rate", "momentum"),
    *("decay", "drop_after", "batch", "steps", "rank_numerical", "tolerance"),
)
PART = {"figure": "16"}
NETWORK = "vgg5"
ENOUGH = {"networks": NETWORK}  # the other networks of the experiment are Figure C2's
BANDS = 3  # six of them would hide each other


def draw(frame: DataFrame) -> Figure:
    """Loss and kappa over the epochs, one colour for each share of the weights that is pruned.

    Open markers: J of some seed has a numerical rank below its number of rows.
    """
    shown = _trained(frame)
    figure = paths.loss_and_kappa(shown, "pruned", lambda rate: f"{rate:.0%} pruned", BANDS)
    with style.paper_style():
        _explain(figure, shown)
    return figure


def _explain(figure: Figure, shown: DataFrame) -> None:
    """Name the network, the drop of the rate, and the markers that are open."""
    losses, kappas = figure.axes
    losses.set_title(f"VGG5, kernels alone pruned{_in_title(shown)}", pad=_TITLE_PAD)
    for drop in distinct(shown, "drop_after"):
        if 0 < drop < shown["epoch"].max():
            for axes in figure.axes:
                style.mark_x(axes, drop, "the rate drops")
    rates = distinct(shown, "pruned")
    for rate, look in zip(rates, style.ordered_looks(len(rates)), strict=True):
        curve = where(shown, measured=True, pruned=rate)
        points = kappa_over_seeds(curve, "epoch")
        at = np.isin(points.x, curve["epoch"][deficient(curve)]) & points.resolved
        if not at.any():
            continue
        kappas.plot(
            points.x[at],
            points.mean[at],
            marker=look.marker,
            linestyle="",
            markeredgecolor=look.colour,
            **style.OPEN,
        )
    if deficient(where(shown, measured=True)).any():
        opened = {"marker": "o", "linestyle": "", "markeredgecolor": style.GREY, **style.OPEN}
        handle = Line2D([], [], label="numerical rank below $k\\,n$", **opened)
        kappas.legend(handles=[handle], loc="best", borderaxespad=0)


def _trained(frame: DataFrame) -> DataFrame:
    """The rows with the printed step sizes, of the seeds that were trained, if any."""
    found = where(frame, network=NETWORK, steps="printed")
    if found.empty:
        msg = "no VGG5 is in the table: none of its cells is computed yet"
        raise TableError(msg)
    trained = np.unique(found["seed"][found["epoch"] > 0])
    return found[found["seed"].isin(trained)] if len(trained) else found


def deficient(frame: DataFrame) -> Series:
    """The rows where the numerical rank is below k n."""
    return frame["rank_numerical"] < frame["samples"] * frame["outputs"]


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _trained(frame)
    rates = distinct(shown, "pruned")
    depth, width = distinct(shown, "depth")[0], distinct(shown, "width")[0]
    left = [distinct(where(shown, pruned=rate), "parameters")[0] for rate in rates]
    return captions.paragraph(
        "Figure 16. Training loss (left) and condition number of the Gauss-Newton matrix"
        f" J J^T (right) of a VGG{depth} with {width} filters in its first layer, of which"
        f" {_shares(rates)} of every layer's weights, the smallest, were pruned at initialisation."
        " J is the Jacobian with respect to"
        f" the {', '.join(f'{count:,}' for count in left)} parameters that are left."
        " BatchNorm has the statistics of all samples. PyTorch's default initialisation.",
        f"{_training(shown)} The loss of an epoch is the mean over its steps. Logarithmic vertical"
        " axes.",
        captions.seeds(shown, f"bands, of {_shares(_banded(rates))},"),
        captions.certificates(where(shown, measured=True)),
        rank(where(shown, measured=True)),
        _missing(shown, provenance),
        "Both panels are of the same images, on which the networks were trained. Kernels alone are"
        " pruned, as the text says; of this figure no code is published.",
        _not_the_papers(shown),
        captions.data(shown, provenance),
    )


_TITLE_PAD = 14  # points, above the label of the drop


PAPER_IMAGES = 1000


def _in_title(shown: DataFrame) -> str:
    """Which images stand for the paper's, or how few of these."""
    if not captions.of_cifar10(shown):
        return f", {captions.short_title(distinct(shown, 'data')[0])} for CIFAR-10"
    images = distinct(shown, "samples")[0]
    return "" if images == PAPER_IMAGES else f", {images} images"


def _not_the_papers(shown: DataFrame) -> str:
    """That the images are not the paper's, or fewer, and what that means."""
    if not captions.of_cifar10(shown):
        return (
            "The paper has CIFAR-10, on which these networks were not run: what is seen here is"
            " not evidence for or against the paper's picture."
        )
    if distinct(shown, "samples") == [PAPER_IMAGES]:
        return ""
    return (
        f"The paper has {PAPER_IMAGES:,} images. Here filters and batches are smaller, too, so that"
        " p / (k n) and the number of steps in an epoch are close to the paper's."
    )


def _missing(shown: DataFrame, provenance: Mapping[str, Any]) -> str:
    """What of the config is not computed yet, as its sizes take many hours."""
    planned = provenance["config"].get(NETWORK) if provenance.get("missing") else None
    if planned is None:
        return ""
    seeds = {rate: set(where(shown, pruned=rate)["seed"]) for rate in planned["rates"]}
    there, total = sum(map(len, seeds.values())), planned["seeds"] * len(seeds)
    absent = [rate for rate, found in seeds.items() if not found]
    if there == total:
        return ""
    text = f"Not all is computed yet: {there} of {total} trainings are shown"
    return f"{text}, none at {_shares(absent)}." if absent else f"{text}."


def rank(measured: DataFrame) -> str:
    """How often the numerical rank is not k n, and that kappa does not depend on it."""
    short = int(np.count_nonzero(deficient(measured)))
    if not short:
        return ""
    return (
        f"Open markers: some J has a numerical rank below k n ({short} of {len(measured)} cells),"
        f" which counts eigenvalues above {distinct(measured, 'tolerance')[0]:.2g} of the largest;"
        " kappa is certified there, too, and is not that of the numerical rank."
    )


def _shares(rates: list[float]) -> str:
    return ", ".join(f"{rate:.0%}" for rate in rates)


def _banded(rates: list[float]) -> list[float]:
    """The rates whose curves have a band."""
    return [rates[place] for place in sorted(paths.spaced(len(rates), BANDS))]


def _training(frame: DataFrame) -> str:
    """The settings of SGD, and the loss."""
    setting = {name: distinct(frame, name)[0] for name in ("rate", "momentum", "decay")}
    drop, batch = distinct(frame, "drop_after")[0], captions.listed(distinct(frame, "batch"))
    clauses = [
        "SGD on the cross-entropy",
        f"batches of {batch}",
        f"learning rate {setting['rate']:g}",
        f"a tenth of it after epoch {drop}" if drop else "",
        f"momentum {setting['momentum']:g}" if setting["momentum"] else "",
        f"weight decay {setting['decay']:g}" if setting["decay"] else "",
    ]
    return ", ".join(clause for clause in clauses if clause) + "."
