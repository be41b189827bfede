"""How every figure looks: palette, curves with bands, bounds, labels, axes, saving.

Nothing here touches matplotlib's global state: figures are built on the object interface, and
`paper_style` restores what it found.
"""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)
from numpy.typing import ArrayLike

from figures.shared.series import Series
from sweeps.effects import Effect
from sweeps.storage.files import replacing

COLUMN_WIDTH = 3.3  # inches, one column of a two-column page
FULL_WIDTH = 6.9  # inches, both columns
KAPPA = r"condition number $\kappa(\widehat{\mathbf{G}}_O)$"

# Okabe and Ito's palette, told apart under every common colour blindness; markers repeat the code.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#5F5F5F"
CHARACTERS_PER_INCH = 23  # of running text at the footer's size
Dashes = str | tuple[int, tuple[float, ...]]
KeyPlace = Literal["upper left", "center left", "lower right"]
DASHED: Dashes = (0, (4, 1.6))
DASH_DOT: Dashes = (0, (5, 1.4, 1, 1.4))

RC: Any = {  # a dict, but matplotlib's type stubs accept no dict of plain strings
    "font.family": "STIXGeneral",  # ships with matplotlib: every machine draws the same glyphs
    "mathtext.fontset": "stix",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "ytick.minor.size": 1.3,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.0,
    "lines.markeredgecolor": "white",  # parts markers that touch
    "lines.markeredgewidth": 0.3,
    "pdf.fonttype": 42,  # TrueType, so that the text of the PDF can be searched and edited
    "savefig.facecolor": "white",
}


OPEN: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.9}


@dataclass(frozen=True)
class Look:
    """What tells one curve from the others: colour, marker and dashes, each enough on its own."""

    colour: str
    marker: str
    line: Dashes = "-"


def looks(count: int) -> list[Look]:
    """Looks for `count` unordered curves, all different up to 42 of them."""
    return [Look(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i in range(count)]


def ordered_looks(count: int) -> list[Look]:
    """Looks for an ordered family (depths): colours from dark to light, also when printed grey."""
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.82, count))  # paler would not be seen
    return [
        Look(mpl.colors.to_hex(shade), MARKERS[i % len(MARKERS)]) for i, shade in enumerate(shades)
    ]


@contextmanager
def paper_style() -> Iterator[None]:
    """Matplotlib's defaults with `RC` on top; what was set before returns at the end."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


class Picture(Figure):
    """A figure that keeps the series behind each of its lines, for who points at one."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        self.series: dict[Line2D, Series] = {}
        FigureCanvasAgg(self)


def new_figure(width: float, height: float) -> Picture:
    """An empty figure of that size in inches that lays itself out and belongs to no window."""
    return Picture(width, height)


def is_of(axes: Axes, line: Line2D, series: Series) -> None:
    """Keep that a line shows a series."""
    if isinstance(axes.figure, Picture):
        axes.figure.series[line] = series


def bars(axes: Axes, series: Series, look: Look, label: str = "", **drawn: Any) -> None:
    """The mean over seeds as a thin marked line, its 95% interval a bar at every place.

    For curves that stand beside each other, whose bands would hide each other. Of two starts the
    bar reaches from one to the other. Places where some seed is unresolved are drawn as lower
    bounds. ``drawn`` are arguments of matplotlib's errorbar.
    """
    mean = np.where(series.resolved, series.mean, np.nan)
    settings = {"linewidth": 0.6, "elinewidth": 0.8} | drawn
    (line, *_) = axes.errorbar(
        series.x,
        mean,
        yerr=np.abs([mean - series.low, series.high - mean]),  # at one value rounding has a sign
        color=look.colour,
        marker=look.marker,
        label=label,
        **settings,
    )
    is_of(axes, line, series)
    _lower_bounds(axes, series, look)


LEADS_ON: dict[str, Any] = {"linestyle": (0, (1, 3)), "linewidth": 0.8}


def band(
    axes: Axes,
    series: Series,
    look: Look,
    label: str = "",
    *,
    filled: bool = True,
    reach: float = np.inf,
) -> Line2D:
    """The mean over seeds as a marked line inside its 95% interval; of two starts, between them.

    Two starts are thin lines. An interval between places that have none, as they are of one seed,
    is an error bar: a band from it to the next place would say that the interval closes. Places
    where some seed is unresolved are left out of line and band and drawn as lower bounds; where
    there is no other, these are the line that is returned.

    Args:
      axes: the panel.
      series: the curve.
      look: its colour, marker and dashes.
      label: its name.
      filled: whether it has a band.
      reach: how far apart neighbouring places may be to be joined by a line as of a curve; over
        more than that a thin dotted line leads from one to the next.
    """
    shown = series.resolved.tolist()
    if series.pair is not None:
        axes.plot(series.x, np.where(shown, series.pair, np.nan).T, color=look.colour, lw=0.4)
    elif filled:
        low, high, colour = series.low, series.high, look.colour
        of_several = np.array([len(values) > 1 for values in series.starts], dtype=bool)
        several = series.resolved & of_several
        axes.fill_between(
            series.x, low, high, where=several.tolist(), color=colour, alpha=0.18, lw=0
        )
        alone = several & ~np.append(several[1:], False) & ~np.append(False, several[:-1])
        ends = np.abs([series.mean - low, high - series.mean])[:, alone]
        bar: dict[str, Any] = {"ecolor": colour, "elinewidth": 0.8, "capsize": 2.0, "fmt": "none"}
        axes.errorbar(series.x[alone], series.mean[alone], yerr=ends, **bar)
    known = np.where(series.resolved, series.mean, np.nan)
    joined = bool((np.diff(series.x) <= reach).all())
    (line,) = axes.plot(
        series.x,
        known,
        color=look.colour,
        linestyle=look.line if joined else "",
        marker=look.marker,
        label=label,
    )
    if not joined:
        far = np.flatnonzero(np.diff(series.x) > reach) + 1
        drawn: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "marker": ""}
        for x, y in zip(np.split(series.x, far), np.split(known, far), strict=True):
            axes.plot(x, y, **drawn)
        for i in far:  # a thin dotted line leads on to the next place
            both = slice(int(i) - 1, int(i) + 1)
            axes.plot(series.x[both], known[both], color=look.colour, marker="", **LEADS_ON)
    is_of(axes, line, series)
    bounds = _lower_bounds(axes, series, look)
    if bounds is None:
        return line
    if series.resolved.any():
        bounds.set_label(f"_{label}")  # no entry of a legend, and where the curve's label points to
        return line
    bounds.set_label(label)
    return bounds


def _lower_bounds(axes: Axes, series: Series, look: Look) -> Line2D | None:
    """Open markers under upward arrows where all that is known is that kappa is at least this."""
    x, y = series.x[~series.resolved], series.mean[~series.resolved]
    if len(x) == 0:
        return None
    drawn = OPEN | {"color": look.colour, "markeredgecolor": look.colour}
    (line,) = axes.plot(x, y, linestyle="", marker=look.marker, **drawn)
    is_of(axes, line, series)
    axes.margins(y=0.18)  # room for an arrow over the highest
    for place in zip(x, y, strict=True):
        axes.annotate(
            "",
            xy=place,
            xytext=(0, 10),
            textcoords="offset points",
            arrowprops={"arrowstyle": "<-", "color": look.colour, "lw": 0.8, "shrinkB": 2.0},
        )
    return line


def bound_curve(axes: Axes, series: Series, look: Look) -> Line2D:
    """A bound, dashed in the colour of the curve that it bounds; absent where it does not apply."""
    (line,) = axes.plot(series.x, series.mean, color=look.colour, linestyle=DASHED, linewidth=0.9)
    return line


def fit_curve(axes: Axes, x: ArrayLike, y: ArrayLike) -> Line2D:
    """A fitted curve, as a thin black line over the means that it fits."""
    (line,) = axes.plot(x, y, color="black", linewidth=0.45, zorder=3)
    return line


def key(
    axes: Axes, entries: Sequence[tuple[str, dict[str, Any]]], loc: KeyPlace = "upper left"
) -> None:
    """A legend of the line styles; by default in the corner over rising curves."""
    handles = [
        Line2D([], [], **{"color": GREY, "label": label} | drawn) for label, drawn in entries
    ]
    axes.legend(handles=handles, loc=loc, borderaxespad=0, labelspacing=0.2, handlelength=1.7)
    if loc == "upper left":
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.12 * (high - low))


def label_curves(axes: Axes, lines: Sequence[Line2D], spacing: float = 0.1) -> None:
    """Each line's label right of the axes at the height of its last point, moved so none overlap.

    To be called when limits and scale are final; spacing is a fraction of the axes' height.
    """
    ends = [_end(axes, line) for line in lines]
    heights = spread([height for _, height in ends], spacing)
    for line, end, height in zip(lines, ends, heights, strict=True):
        colour = line.get_color()
        axes.annotate(
            str(line.get_label()),
            xy=end,
            xytext=(1.07, height),
            xycoords="axes fraction",
            va="center",
            linespacing=0.9,
            color=colour,
            fontsize=mpl.rcParams["legend.fontsize"],
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def _end(axes: Axes, line: Line2D) -> tuple[float, float]:
    """Where the line, or the lower bounds of its curve, end in fractions of the axes.

    Mid-height at the right for an empty line.
    """
    axes.get_ylim()  # settles pending autoscaling, which transData does not
    parts = [part for part in axes.lines if part.get_label() == f"_{line.get_label()}"]
    points = np.concatenate(
        [np.column_stack([part.get_xdata(), part.get_ydata()]) for part in (line, *parts)]
    )
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) == 0:
        return 1.0, 0.5
    last = points[np.argmax(points[:, 0])]
    right, height = (axes.transData - axes.transAxes).transform(last)
    return float(right), float(height)


def spread(heights: Sequence[float], spacing: float) -> list[float]:
    """The heights nearest to these, in least squares, that keep the order and `spacing` apart.

    Once rank times `spacing` is subtracted, heights only have to be non-decreasing. That is
    isotonic regression, in which neighbours that are out of order are replaced by their mean.
    """
    order = np.argsort(heights, kind="stable")
    pools: list[tuple[float, int]] = []  # (sum, count)
    for rank, index in enumerate(order):
        total, count = heights[index] - rank * spacing, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    level = np.repeat([total / count for total, count in pools], [count for _, count in pools])
    moved = np.empty(len(heights))
    moved[order] = level + np.arange(len(heights)) * spacing
    return moved.tolist()


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis; over less than a decade and a half it also writes 2, 5, 20, 50."""
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(_PlainDigits(minor_thresholds=(1.5, 0.4)))


class _PlainDigits(LogFormatter):
    """Writes 0.6 in place of 6e-01, at the same ticks, and what is long as a multiple of 10^k."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        digits, _, exponent = (f"{x:.3e}" if x >= 1e4 else f"{x:g}").partition("e")
        digits = f"{float(digits):g}"
        return rf"${digits} \times 10^{{{int(exponent)}}}$" if exponent else digits


def whole_numbers(axes: Axes, values: ArrayLike, label: str) -> None:
    """An x axis for depths or layers: whole numbers only, at most ten of them written."""
    low, high = float(np.min(values)), float(np.max(values))
    pad = max(0.25, 0.04 * (high - low))
    axes.set_xlim(low - pad, high + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.set_xlabel(label)


def mark_x(axes: Axes, place: float, label: str, interval: Effect | None = None) -> None:
    """A grey dotted vertical line with its label on top, inside a grey band for its interval."""
    if interval is not None and np.isfinite(interval.high):
        axes.axvspan(interval.low, interval.high, color=GREY, alpha=0.2, linewidth=0)
    axes.axvline(place, color=GREY, linewidth=0.8, linestyle=":")
    axes.annotate(
        label,
        xy=(place, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        color=GREY,
    )


def logarithmic_x(axes: Axes, values: ArrayLike, label: str) -> None:
    """A logarithmic x axis for widths, with 1, 2 and 5 of each decade written out."""
    low, high = float(np.min(values)), float(np.max(values))
    pad = max(1.08, (high / low) ** 0.04)
    axes.set_xscale("log")
    axes.set_xlim(low / pad, high * pad)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def shared_legend(figure: Figure, axes: Axes) -> None:
    """One legend over all panels for the curves that they share, in the order of drawing."""
    handles = axes.get_legend_handles_labels()[0]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 8))


def blank(axes: Axes, reason: str) -> None:
    """A panel without rows says why instead of showing empty axes."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color=GREY)


def footer(figure: Figure, text: str) -> None:
    """The data behind the figure, small and grey under the panels, broken into lines to fit."""
    unbroken = text.replace(" = ", "\u00a0=\u00a0")  # no line ends between a symbol and its value
    wrapped = textwrap.fill(unbroken, width=int(CHARACTERS_PER_INCH * figure.get_figwidth()))
    figure.supxlabel(wrapped, x=0.995, ha="right", fontsize=7, color=GREY, linespacing=1.0)


def save(figure: Figure, path: Path, dpi: int = 300) -> None:
    """Write the figure in the format of the suffix, whole or not at all, without a date in it."""
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with paper_style(), replacing(path) as partial:
        figure.savefig(
            partial,
            dpi=dpi,
            format=path.suffix.removeprefix("."),
            metadata=undated.get(path.suffix),
        )
