"""Figure T8: kappa of linear networks over depth, to 100 layers, beside the law of its growth."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from experiments.claims.depth_law import QUADRATIC, local_powers
from figures.shared import captions, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds
from sweeps.rows import where

EXPERIMENT = "depth_law"
COLUMNS = (*captions.CELL, *captions.CERTIFICATE, "gain", "rate")
POWERS = 0.1, 40.0  # that are drawn


def draw(frame: DataFrame) -> Figure:
    """kappa over depth (a), its local powers (b, c), and kappa with one output on one scale (d)."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.9)
        panels: Any = figure.subplots(2, 2)
        wide, square, single = (_pair(frame, kind) for kind in ("wide", "square", "single"))
        _kappas(panels[0][0], wide)
        _powers(panels[0][1], wide, "b")
        _powers(panels[1][0], square, "c")
        _one_scale(panels[1][1], single)
        style.footer(figure, captions.data_line(frame))
    return figure


def _pair(frame: DataFrame, kind: str) -> DataFrame:
    """Networks with one output, with as many outputs as inputs, or with fewer."""
    outputs, inputs = frame["outputs"], frame["inputs"]
    chosen = {
        "single": outputs == 1,
        "square": (outputs > 1) & (outputs == inputs),
        "wide": (outputs > 1) & (outputs < inputs),
    }[kind]
    return frame[chosen].reset_index(drop=True)


def _curves(frame: DataFrame) -> list[tuple[str, DataFrame, style.Look]]:
    """The rows of each width with the name of its curve and its look."""
    widths = distinct(frame, "width")
    looks = style.ordered_looks(len(widths))
    return [
        (_name(rows), rows, look)
        for width, look in zip(widths, looks, strict=True)
        for rows in [where(frame, width=width)]
    ]


def _name(rows: DataFrame) -> str:
    return f"$m/d = {rows['width'].iloc[0] / rows['inputs'].iloc[0]:g}$"


def _kappas(axes: Axes, frame: DataFrame) -> None:
    axes.set_title(_title("a", frame, r"$\kappa$"))
    style.logarithmic(axes)
    lines = [
        style.band(axes, kappa_over_seeds(rows, "depth"), look, name)
        for name, rows, look in _curves(frame)
    ]
    _depths(axes, frame)
    style.label_curves(axes, lines, 0.11)


def _powers(axes: Axes, frame: DataFrame, letter: str) -> None:
    """The local power of L over L, and what it comes near to: L times the limit, dashed."""
    axes.set_title(_title(letter, frame, "local power of $L$"))
    style.logarithmic(axes)
    axes.axhline(QUADRATIC, color=style.GREY, linewidth=0.8, linestyle=":")
    lines = []
    for name, rows, look in _curves(frame):
        powers = local_powers(where(rows, resolved=True))
        if powers.empty:
            continue
        series = over_seeds(powers, "depth", "power", arithmetic=True)
        lines.append(style.band(axes, series, look, name, filled=False))
        limit, deepest = rows["rate"].iloc[0], rows["depth"].max()
        depths = np.geomspace(2.0, deepest)
        axes.plot(depths, limit * depths, color=look.colour, linestyle=style.DASHED, linewidth=0.7)
    axes.set_ylim(*POWERS)
    _depths(axes, frame)
    style.label_curves(axes, lines, 0.11)


def _one_scale(axes: Axes, frame: DataFrame) -> None:
    """kappa over L d / m, on which networks wider than their inputs share one curve."""
    axes.set_title(_title("d", frame, r"$\kappa$"))
    style.logarithmic(axes)
    scaled = frame.assign(scaled=frame["depth"] * frame["inputs"] / frame["width"])
    lines = [
        style.band(axes, kappa_over_seeds(rows, "scaled"), look, name)
        for name, rows, look in _curves(scaled)
    ]
    if len(scaled):
        axes.set_xscale("log")
    axes.set_xlabel("$L d / m$")
    style.label_curves(axes, lines, 0.11)


def _title(letter: str, frame: DataFrame, shown: str) -> str:
    sizes = [captions.listed(distinct(frame, name)) for name in ("inputs", "outputs") if len(frame)]
    return f"({letter}) {shown}" + (f", $d$ = {sizes[0]}, $k$ = {sizes[1]}" if sizes else "")


def _depths(axes: Axes, frame: DataFrame) -> None:
    if len(frame):
        style.logarithmic_x(axes, frame["depth"], "depth $L$")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption: the law, what dashes are, and how sharply kappa is known."""
    return captions.paragraph(
        "Figure T8, beyond the papers: kappa of linear networks on whitened inputs over the depth"
        f" L, to {frame['depth'].max()} layers, at widths m from"
        f" {(frame['width'] / frame['inputs']).min():g} to"
        f" {(frame['width'] / frame['inputs']).max():g} times the number of inputs d. (a) kappa;"
        " both axes are logarithmic, so that a power of L is a straight line. (b, c) The power of L"
        " that kappa grows like between two depths, which stand two apart in the sweep, at their"
        " geometric mean. Dashed: L (psi(m/2) - psi((m - r + 1)/2)), r = min(d, k), psi the digamma"
        " function, which is what the power of very deep networks comes near to. Dotted: 2, a"
        " quadratic growth, which the power passes the deeper, the wider the network is. (d) With"
        " one output the dashed law is 0; kappa over L d / m.",
        f"{captions.initialisation(frame)}. {captions.seeds(frame)} Powers are means"
        " without bands.",
        captions.certificates(frame),
        captions.data(frame, provenance),
    )
