"""A diagnosis as one picture: the spectrum over its floor, and the layers' shares of both ends."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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
    from matplotlib.text import Text

FORMATS = (".png", ".pdf", ".svg")
_TOP, _BOTTOM, _GREY = "#0072B2", "#D55E00", "#5F5F5F"
_BAR_INCHES = 0.28  # the height of one of the two bars of a layer
_TALLEST = 9.0  # inches
_NAME = 30  # letters of a name, as more would leave the bars no room
LETTER_POINTS = 5.5  # the width of a letter of small text, rounded up
_NEAR = 1e3  # the floor is drawn where it is at most this many times below lambda_min
_LINE_POINTS = 10.5  # from one line of small text to the next


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


def write_title(axes: Axes, text: str) -> None:
    """Write a title over the axes, in lines that are no longer than the axes are wide."""
    title = axes.set_title("", loc="left", fontsize="medium", wrap=True)
    _write_lines(title, text, axes)


def explain_mark(axes: Axes, conditions: Sequence[ConditionNumber | None]) -> None:
    """Write below the axes what the mark * of :func:`short` means, if one of the kappas has it."""
    if any(map(is_assumed, conditions)):
        write_below(axes, "* at an assumed rank: kappa may be larger")


def write_below(axes: Axes, text: str) -> None:
    """Write a grey text below the axes and what is there already, in lines like a title's."""
    above = axes.get_xlabel()
    label = axes.set_xlabel("", loc="right", color=_GREY, fontsize="small")
    _write_lines(label, text, axes)
    label.set_text("\n".join(filter(None, (above, label.get_text()))))


def _write_lines(text: Text, words: str, axes: Axes) -> None:
    """Give ``text`` these words, with a new line where the next word would leave the axes."""
    width, lines = axes.get_window_extent().width, [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".lstrip()
        text.set_text(longer)
        if lines[-1] and text.get_window_extent().width > width:
            lines.append(word)
        else:
            lines[-1] = longer
    text.set_text("\n".join(lines))


def tick_texts(
    names: Sequence[str],
    conditions: Sequence[ConditionNumber | None],
    points: float,
    length: float,
) -> list[str]:
    """The texts at the ticks of layers or blocks: their names, and their own kappas below them.

    A long name is shortened, or has several lines. The kappas are left out where there is no room
    for all of these lines, and some names where there is no room for all names: their texts are
    empty.

    Args:
      names: the names of all layers.
      conditions: the kappa of each layer's own block, where it is known.
      points: the room for all lines of all texts, in points.
      length: the longest that a line may be, in points.
    """
    letters = max(int(length / LETTER_POINTS), 2)
    in_lines = [_in_lines(name, letters) for name in shortened(names, _NAME)]
    with_kappas = [
        name if known is None or math.isnan(known.value) else f"{name}\nkappa {short(known)}"
        for name, known in zip(in_lines, conditions, strict=True)
    ]
    if _step(with_kappas, points) == 1:
        return with_kappas
    step = _step(in_lines, points)
    return [name if place % step == 0 else "" for place, name in enumerate(in_lines)]


def _step(texts: Sequence[str], points: float) -> int:
    """There is room for every so manieth of these texts."""
    most_lines = max(text.count("\n") + 1 for text in texts)
    return math.ceil(most_lines * _LINE_POINTS * len(texts) / points)


def _in_lines(name: str, letters: int) -> str:
    """A name in lines of so many letters, which end after a slash, a point or an underscore."""
    lines = [""]
    for part in re.findall(rf"[^/._]{{1,{letters - 1}}}[/._]?|[/._]", name):
        if lines[-1] and len(lines[-1] + part) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def in_points(axes: Axes) -> tuple[float, float]:
    """The width and the height of the axes in points, of which 72 are an inch."""
    extent = axes.get_window_extent()
    width, height = (72 / axes.figure.dpi * size for size in (extent.width, extent.height))
    return width, height


def _spectrum(axes: Axes, diagnosis: Diagnosis) -> None:
    """Plot eigenvalues above the floor over their index, and a star at lambda_min.

    Where the matrix was too large for all eigenvalues, lambda_max and lambda_min are plotted, and
    without kappa lambda_max alone.
    """
    condition = diagnosis.condition
    axes.set_yscale("log")
    if condition is None:
        axes.plot([1], [diagnosis.whole_lambda_max], "o", color=_TOP)
        write_title(axes, "kappa was not measured")
        axes.set_xlabel("index")
        axes.set_ylabel("eigenvalue of G")
        return
    if diagnosis.eigenvalues is None:
        index, values = np.array([1, condition.rank]), [condition.lambda_max, condition.lambda_min]
        axes.plot(index, values, "o", color=_TOP)
    else:
        above_floor = diagnosis.eigenvalues[diagnosis.eigenvalues > condition.floor]
        axes.plot(np.arange(1, len(above_floor) + 1), above_floor, ".", ms=3, color=_TOP)
        axes.plot([condition.rank], [condition.lambda_min], "*", ms=11, color=_BOTTOM)
    _mark_floor(axes, condition)
    rank = "the assumed rank" if is_assumed(condition) else "rank"
    write_title(axes, f"kappa {short(condition, 4)}, {rank} {condition.rank}")
    axes.set_xlabel("index")
    axes.set_ylabel("eigenvalue of G")


def _mark_floor(axes: Axes, condition: ConditionNumber) -> None:
    """A dashed line at the floor; of one far below the eigenvalues the number alone."""
    if condition.floor <= 0:
        return
    if condition.floor * _NEAR >= condition.lambda_min:
        text, height, unit = " floor", condition.floor, "data"
        axes.axhline(height, color=_GREY, ls="--", lw=0.9)
    else:
        text, height, unit = f" floor {condition.floor:.0e} ↓", 0.01, "axes fraction"
    # on the left, which the falling eigenvalues leave free
    axes.annotate(text, (0, height), xycoords=("axes fraction", unit), va="bottom", color=_GREY)


def _shares(axes: Axes, diagnosis: Diagnosis) -> None:
    """Plot each layer's shares of lambda_max and of lambda_min as two bars, the first layer on top.

    Kappa of a layer's own block is below its name where there is room.
    """
    heights = np.arange(len(diagnosis.layers))
    tops = [layer.top for layer in diagnosis.layers]
    axes.barh(heights - 0.2, tops, 0.38, color=_TOP)
    key = "blue: of lambda_max"
    bottoms = [layer.bottom for layer in diagnosis.layers if layer.bottom is not None]
    if len(bottoms) == len(heights):
        axes.barh(heights + 0.2, bottoms, 0.38, color=_BOTTOM)
        key += ", orange: of lambda_min"
    names, blocks = zip(*((layer.name, layer.block) for layer in diagnosis.layers), strict=True)
    width, height = in_points(axes)
    room = height - 2 * _LINE_POINTS  # which the title may need
    axes.set_yticks(heights, tick_texts(names, blocks, room, width), fontsize="small")
    write_below(axes, key)
    explain_mark(axes, blocks)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    write_title(axes, "share of each layer")
