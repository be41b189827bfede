"""Shared by Figures 11 and 12: quantities over the layers, one curve for each depth."""

import math

import scipy.stats
from matplotlib.axes import Axes
from pandas import DataFrame

from figures.shared import style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

COLUMNS = ("samples", "sizes", "layer", "gain")


def printed(frame: DataFrame) -> DataFrame:
    """The rows of the d, k and m that the paper prints."""
    return where(frame, sizes="printed")


def curves(axes: Axes, frame: DataFrame, *factors: str) -> None:
    """The product of these columns over the layers on a logarithmic axis, for each depth.

    The deepest network is drawn first: where curves coincide, each one's end stays in sight.
    """
    style.logarithmic(axes)
    depths = distinct(frame, "depth")
    family = list(zip(depths, style.ordered_looks(len(depths)), strict=True))
    for depth, look in reversed(family):
        series = over_seeds(where(frame, depth=depth), "layer", *factors)
        style.band(axes, series, look, f"$L = {depth}$")


def widest_band(frame: DataFrame, *columns: str) -> float:
    """The largest factor between the mean and an end of its interval, over all these curves."""
    factors = [1.0]
    for _, curve in frame.groupby(["depth", "gain"]):
        for column in columns:
            series = over_seeds(curve, "layer", column)
            factors += [*(series.high / series.mean), *(series.mean / series.low)]
    return max(factors)


def deviation(frame: DataFrame) -> str:
    """How wide one standard deviation is, which the paper shades, beside our interval."""
    seeds = len(distinct(frame, "seed"))
    if seeds < 3:
        return ""
    times = math.sqrt(seeds) / float(scipy.stats.t.ppf(0.975, seeds - 1))
    return f"One standard deviation, which the paper shades, is {times:.2g} times as wide."


def layer_axis(axes: Axes, frame: DataFrame) -> None:
    """The layers, from the first of all networks to the last of the deepest."""
    style.whole_numbers(axes, frame["layer"], r"layer $\ell$")
