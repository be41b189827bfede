"""Figure 2: condition number at initialisation over depth, at fixed width and at widths c L."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import Series, kappa_over_seeds, over_seeds

EXPERIMENT = "depth_sweep"
COLUMNS = (
    *captions.CELL,
    *captions.CERTIFICATE,
    *("figure", "multiplier", "samples", "gain", "bound_convex"),
)


@dataclass(frozen=True)
class Panel:
    """A panel's rows, the column that tells its curves apart, and whether bounds are drawn."""

    figure: str
    title: str
    by: str
    symbol: str
    bounded: bool


PANELS = (
    Panel("2a", "(a) fixed width $m$", "width", "m", bounded=True),
    Panel("2b-left", "(b, left) $m = c\\,L$, small $c$", "multiplier", "c", bounded=False),
    Panel("2b-right", "(b, right) $m = c\\,L$, large $c$", "multiplier", "c", bounded=False),
)
PLACES = {"2a": "in (a)", "2b-left": "in (b, left)", "2b-right": "in (b, right)"}
SMALL: dict[str, Any] = {"markersize": 2.4, "markerfacecolor": "white", "markeredgewidth": 0.6}
KEY = (
    ("measured", {"marker": "o"}),
    ("its bound", {"linestyle": style.DASHED, "linewidth": 0.9, "marker": "o", **SMALL}),
    ("quadratic fit", {"color": "black", "linewidth": 0.45}),
)
NARROW: tuple[str, dict[str, Any]] = (
    r"$m \leq d$",
    {"marker": "o", "linestyle": "", "markeredgecolor": style.GREY, **style.OPEN},
)
FEWEST_FOR_FIT = 4  # depths; some quadratic meets any three points


def draw(frame: DataFrame) -> Figure:
    """Kappa, bound and quadratic fit at fixed width, then kappa at widths proportional to depth."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.4)
        for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _draw_panel(axes, frame[frame["figure"] == panel.figure], panel)
        figure.axes[0].set_ylabel(style.KAPPA)
        style.footer(figure, captions.data_line(_shown(frame)))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    return captions.paragraph(
        "Figure 2. Condition number of the Gauss-Newton matrix of deep linear networks at"
        f" initialisation ({captions.initialisation(shown)}).",
        "(a) At fixed hidden width m, with the convex-combination bound of Lemma 2 where it"
        " applies (dashed, with the marker of its width) and a quadratic in L fitted to the means"
        " (thin black).",
        "(b) At widths proportional to depth, m = c L, for small c (left) and large c (right). Open"
        " markers: m is not above d, where kappa is that of a smaller rank, of which Lemma 2 says"
        " nothing."
        " The vertical axes differ.",
        captions.seeds(shown, panels=PLACES),
        captions.certificates(shown),
        captions.data(shown, provenance),
    )


def quadratic(series: Series) -> tuple[NDArray, NDArray] | None:
    """The least-squares quadratic through the resolved means; None if too few to be a fit."""
    x, y = series.x[series.resolved], series.mean[series.resolved]
    if len(x) < FEWEST_FOR_FIT:
        return None
    fine = np.linspace(x[0], x[-1], 100)
    return fine, np.polynomial.Polynomial.fit(x, y, deg=2)(fine)


def _shown(frame: DataFrame) -> DataFrame:
    return frame[frame["figure"].isin([panel.figure for panel in PANELS])]


def _draw_panel(axes: Axes, frame: DataFrame, panel: Panel) -> None:
    axes.set_title(panel.title)
    if frame.empty:
        style.blank(axes, "not part of this profile")
        return
    curves = frame.groupby(panel.by)
    lines, narrow = [], False
    for (value, rows), look in zip(curves, style.looks(len(curves)), strict=True):
        lines.append(_draw_curve(axes, rows, panel, look))
        lines[-1].set_label(f"${panel.symbol} = {value:g}$")
        narrow = _below_the_inputs(axes, rows, look) or narrow
    style.whole_numbers(axes, frame["depth"], "depth $L$")
    if panel.bounded:
        fitted = frame["depth"].nunique() >= FEWEST_FOR_FIT
        style.key(axes, KEY if fitted else KEY[:-1])
    elif narrow:
        style.key(axes, (NARROW,))
    style.label_curves(axes, lines)


def _below_the_inputs(axes: Axes, frame: DataFrame, look: style.Look) -> bool:
    """Open markers where m is d or less: kappa is of a smaller rank, and Lemma 2 is silent."""
    narrow = frame[frame["width"] <= frame["inputs"]]
    if narrow.empty:
        return False
    series = kappa_over_seeds(narrow, "depth")
    drawn = style.OPEN | {"markeredgecolor": look.colour, "marker": look.marker}
    axes.plot(series.x, series.mean, linestyle="", **drawn)
    return True


def _draw_curve(axes: Axes, frame: DataFrame, panel: Panel, look: style.Look) -> Line2D:
    kappa = kappa_over_seeds(frame, "depth")
    line = style.band(axes, kappa, look)
    if panel.bounded:
        bound = style.bound_curve(axes, over_seeds(frame, "depth", "bound_convex"), look)
        bound.set(marker=look.marker, markeredgecolor=look.colour, **SMALL)
        fit = quadratic(kappa)
        if fit is not None:
            style.fit_curve(axes, *fit)
    return line
