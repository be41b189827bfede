"""Shared by Figures B1 and B2: the sharpness of trained networks over the largest proportion."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

STAR = (
    "lambda_*, dashed, is Eq 14 with |Y X^T| / (n sigma_x) in place of |Y| / sqrt(n): no global"
    " minimum of a linear network on orthogonalised inputs has a smaller sharpness."
)
COLUMNS = (
    *captions.CELL,
    *("figure", "samples", "share", "epoch", "measured", "error", "least", "printed"),
)
SHARE = r"largest class proportion $\alpha_{\max}$"
SHARPNESS = r"sharpness $\lambda_{\max}(\nabla^2\mathcal{L})$"
PRINTED: dict[str, Any] = {"color": "black", "linewidth": 0.9}
LEAST = r"$\lambda_\star$, least of a minimum"


def draw_shares(axes: Axes, frame: DataFrame) -> None:
    """Measured (markers) and lambda_* (dashed) of each data set, and Eq 14 as printed (black)."""
    names = distinct(frame, "data")
    for name, look in zip(names, style.looks(len(names)), strict=True):
        shown = where(frame, data=name)
        measured = over_seeds(shown, "share", "measured")
        style.band(axes, measured, replace(look, line=""), captions.short_title(name))
        style.bound_curve(axes, over_seeds(shown, "share", "least"), look)
    printed = over_seeds(frame, "share", "printed")  # of the labels alone: one for all data
    axes.plot(printed.x, printed.mean, **PRINTED)
    axes.set_xlim(0.05, 1.05)
    axes.set_xlabel(SHARE)
    axes.set_ylabel(SHARPNESS)


def handles(axes: Axes) -> list[Line2D]:
    """The handles of a legend: the data sets of the panel, and the two forms of Eq 14."""
    measured = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    dashed: dict[str, Any] = {"color": style.GREY, "linestyle": style.DASHED, "linewidth": 0.9}
    return [
        *measured,
        Line2D([], [], label=LEAST, **dashed),
        Line2D([], [], label="Eq 14 as printed", **PRINTED),
    ]


def data_line(frame: DataFrame) -> str:
    """The data sets and their sizes, d from the smallest subset's rank to the number of pixels."""
    named = frame.assign(data=frame["data"].str.rpartition(", ")[0])
    clauses = []
    for name in distinct(named, "data"):
        used = where(named, data=name)
        ranks = distinct(used, "inputs")
        rank = f"{ranks[0]:,}" if len(ranks) == 1 else f"{ranks[0]:,}\u2013{ranks[-1]:,}"
        samples = captions.listed([int(n) for n in distinct(used, "samples")])
        outputs = captions.listed(distinct(used, "outputs"))
        clauses.append(f"{captions.data_title(name)}, n = {samples}, d = {rank}, k = {outputs}")
    return "; ".join(clauses)


def data_of_panels(panels: Mapping[str, DataFrame]) -> str:
    """The data sets of every panel, by its name in the figure; panels with the same stand together.

    Panels that are not computed are left out.
    """
    named: dict[str, list[str]] = {}
    for panel, frame in panels.items():
        if len(frame):
            named.setdefault(data_line(frame), []).append(panel)
    return "; ".join(f"{', '.join(names)} {line}" for line, names in named.items())


def training(frame: DataFrame) -> str:
    """How networks were trained, and how well their sharpness is known."""
    depth, width = (captions.listed(distinct(frame, name)) for name in ("depth", "width"))
    epochs = captions.listed([int(e) for e in distinct(frame, "epoch")])
    proved = captions.rounded_up(float((frame["error"] / frame["measured"]).to_numpy().max()))
    return captions.paragraph(
        f"networks of {depth} layers and width {width} after {epochs} epochs; an eigenvalue of the"
        f" full Hessian is proved within {proved} of each value, relatively.",
        captions.seeds(frame),
    )


def closing(data: str, provenance: Mapping[str, Any]) -> str:
    """What all trained networks share, the data and the precision."""
    return captions.paragraph(
        "Training is full-batch gradient descent; its rate starts at 0.01 and halves where 100"
        " epochs improve the loss by less than 0.1%.",
        captions.data_and_precision(data, provenance),
    )
