"""What each point of a drawn figure tells, as an SVG that is laid over its picture."""

import re
from collections.abc import Iterator
from html import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from figures.shared.series import Series
from figures.shared.style import Picture

_RADIUS = 4  # hundredths of an inch
_MOST = 10  # values of single starts that are listed
_NO_POINTS = ("", " ", "None", None, "_", "|")  # markers of nothing, and the ends of error bars
_SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "ell": "ℓ",
    "eta": "η",
    "gamma": "γ",
    "kappa": "κ",
    "lambda": "λ",
    "Lambda": "Λ",
    "sigma": "σ",
    "Sigma": "Σ",
    "sqrt": "√",
    "theta": "θ",
}


def overlay(figure: Figure) -> str:
    """An SVG of the picture's size with a circle on every point, whose title is what it tells.

    To be called when the picture is saved: its places are those of the last layout.
    """
    width, height = figure.bbox.size
    unit = figure.dpi / 100
    circles = [
        f'<circle cx="{x / unit:.1f}" cy="{(height - y) / unit:.1f}" r="{_RADIUS}">'
        f"<title>{escape(text)}</title></circle>"
        for axes in figure.axes
        for x, y, text in _points(axes)
    ]
    size = f"0 0 {width / unit:.0f} {height / unit:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="points" viewBox="{size}">'
    return "\n".join([head, *circles, "</svg>"]) + "\n"


def _points(axes: Axes) -> Iterator[tuple[float, float, str]]:
    """Place and text of every point in sight, of curves over seeds and of other marked lines."""
    behind = axes.figure.series if isinstance(axes.figure, Picture) else {}
    for line in axes.lines if axes.axison else ():
        series = behind.get(line)
        if series is None and line.get_marker() in _NO_POINTS:
            continue
        for x, y in np.asarray(line.get_xydata(), float):
            at = axes.transData.transform((x, y))
            if np.isfinite(at).all() and axes.bbox.padded(1).contains(*at):
                names = ", ".join(filter(None, (_name(axes, line), _place(axes, x))))
                told = f"{y:.4g}" if series is None else _value(series, x)
                yield float(at[0]), float(at[1]), f"{names}: {told}"


def _value(series: Series, x: float) -> str:
    """The mean at a place with its interval, and the values of the starts if they are few."""
    index = int(np.argmin(np.abs(series.x - x)))
    mean, starts = series.mean[index], series.starts[index]
    told = [f"{mean:.4g}" if series.resolved[index] else f"at least {mean:.4g}"]
    if len(starts) > 2:
        told.append(f"95% interval {series.low[index]:.4g} to {series.high[index]:.4g}")
    if 1 < len(starts) <= _MOST:
        told.append("the starts: " + ", ".join(f"{value:.4g}" for value in starts))
    return "; ".join(told)


def _name(axes: Axes, line: Line2D) -> str:
    """The label of a curve, or of its bars. What stands in no legend begins with "_"."""
    of_bars = (bars for bars in axes.containers if bars and bars[0] is line)
    label = str(next(of_bars, line).get_label())
    return plain(re.sub(r"^_(child\d+$|nolegend_$)?", "", label))


def _place(axes: Axes, x: float) -> str:
    """Where a point is along the horizontal axis, in the words of the axis."""
    value, ticks = f"{x:.4g}", axes.xaxis.get_major_formatter()
    if isinstance(axes.xaxis.get_major_locator(), FixedLocator) and isinstance(
        ticks, FuncFormatter
    ):  # places with names
        value = plain(ticks(min(axes.get_xticks(), key=lambda tick: abs(tick - x))))
    column = getattr(axes.get_subplotspec(), "colspan", None)
    below = [
        other.get_xlabel()
        for other in (axes, *axes.figure.axes)
        if other is axes or getattr(other.get_subplotspec(), "colspan", None) == column
    ]
    name = plain(next(filter(None, below), ""))
    return f"{name} = {value}" if name else value


def plain(label: str) -> str:
    """A label of matplotlib without the marks of formulas."""
    text = re.sub(r"\\(mathbf|mathcal|mathrm|widehat)\b", "", label)
    text = re.sub(r"\\([A-Za-z]+)", lambda found: _SYMBOLS.get(found[1], found[1]), text)
    return " ".join(re.sub(r"[${}]|\\,?", "", text).split())
