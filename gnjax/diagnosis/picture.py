"""A diagnosis as one picture: the spectrum over its floor, and the layers' shares of both ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnjax.conditioning.answer import is_assumed, short
from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.diagnose import Diagnosis
from gnjax.diagnosis.layer_shares import shortened
from gnjax.numerics.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf", ".svg")
_TOP, _BOTTOM, _GREY = "#0072B2", "#D55E00", "#5F5F5F"
_BAR_INCHES = 0.28  # the height of one of the two bars of a layer
_TALLEST = 9.0  # inches
_NAMES = 30  # at most so many names of layers are written
NAME = 30  # letters of a name, as more would leave the bars no room


def check_format(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed for it."""
    if path.suffix not in FORMATS:
        msg = f"{path.name} does not end in {', '.join(FORMATS)}, the formats of the picture"
        raise ValueError(msg)
    optional("matplotlib", "a picture")


def blank(width: float, height: float) -> Figure:
    """An empty figure of ``width`` and ``height`` inches, without matplotlib's global state."""
    module = optional("matplotlib.figure", "a picture")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    optional("matplotlib.backends.backend_agg", "a picture").FigureCanvasAgg(figure)
    return figure


def two_axes(diagnosis: Diagnosis) -> Sequence[Axes]:
    """Two pairs of axes side by side in a new figure, which is taller for more layers."""
    height = min(max(3.0, 1.4 + _BAR_INCHES * 2 * len(diagnosis.layers)), _TALLEST)
    return tuple(blank(8.0, height).subplots(1, 2))


def draw(axes: Sequence[Axes], diagnosis: Diagnosis) -> None:
    """Draw the spectrum on the first pair of axes, and the shares of the layers on the second."""
    spectrum, shares = axes
    _spectrum(spectrum, diagnosis)
    _shares(shares, diagnosis)


def with_kappa(name: str, condition: ConditionNumber | None) -> str:
    """The name of a layer or a block, and its own kappa below it where that is known."""
    if condition is None or math.isnan(condition.value):
        return name
    return f"{name}\nkappa {short(condition)}"


def explain_mark(axes: Axes, conditions: Iterable[ConditionNumber | None]) -> None:
    """Write below the axes what the mark * of :func:`short` means, if one of the kappas has it.

    The mark is on a kappa at a rank that is only assumed.
    """
    if any(map(is_assumed, conditions)):
        axes.set_xlabel("* at an assumed rank: kappa may be larger", color=_GREY)


def _spectrum(axes: Axes, diagnosis: Diagnosis) -> None:
    """Plot eigenvalues above the floor over their index, and a star at lambda_min.

    Where the matrix was too large for all eigenvalues, lambda_max and lambda_min are plotted. A
    dashed line is the floor, below which no eigenvalue can be told from zero.
    """
    condition = diagnosis.condition
    axes.set_yscale("log")
    if diagnosis.eigenvalues is None:
        index, values = np.array([1, condition.rank]), [condition.lambda_max, condition.lambda_min]
        axes.plot(index, values, "o", color=_TOP)
    else:
        above_floor = diagnosis.eigenvalues[diagnosis.eigenvalues > condition.floor]
        axes.plot(np.arange(1, len(above_floor) + 1), above_floor, ".", ms=3, color=_TOP)
        axes.plot([condition.rank], [condition.lambda_min], "*", ms=11, color=_BOTTOM)
    if condition.floor > 0:
        axes.axhline(condition.floor, color=_GREY, ls="--", lw=0.9)
        axes.annotate(
            "floor ", (1, condition.floor), xycoords=("axes fraction", "data"), ha="right",
            va="bottom", color=_GREY,
        )  # fmt: skip
    rank = "the assumed rank" if is_assumed(condition) else "rank"
    axes.set_title(f"kappa {short(condition, 4)}, {rank} {condition.rank}", loc="left")
    axes.set_xlabel("index")
    axes.set_ylabel("eigenvalue of G")


def _shares(axes: Axes, diagnosis: Diagnosis) -> None:
    """Plot each layer's shares of lambda_max and of lambda_min as two bars, the first layer on top.

    At most 30 names are written, and kappa of a layer's own block below its name where all are.
    """
    heights = np.arange(len(diagnosis.layers))
    tops = [layer.top for layer in diagnosis.layers]
    axes.barh(heights - 0.2, tops, 0.38, color=_TOP, label="lambda_max")
    bottoms = [layer.bottom for layer in diagnosis.layers if layer.bottom is not None]
    if len(bottoms) == len(heights):
        axes.barh(heights + 0.2, bottoms, 0.38, color=_BOTTOM, label="lambda_min")
    step = -(-len(heights) // _NAMES)  # rounded up: every so manieth name is written
    names = shortened([layer.name for layer in diagnosis.layers], NAME)
    if step == 1:
        blocks = [layer.block for layer in diagnosis.layers]
        names = list(map(with_kappa, names, blocks))
        explain_mark(axes, blocks)
    axes.set_yticks(heights[::step], names[::step])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title("share of each layer", loc="left")
    axes.legend(frameon=False)
