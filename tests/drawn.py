"""What tests of figures share: tables from rows, and what was drawn beside slow references."""

import math
import statistics

import numpy as np
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from pandas import DataFrame


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [drawn for drawn in axes.lines if drawn.get_label() == label]
    return found


def band_edges(axes: Axes, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, lower and upper edge of the index-th band of the panel."""
    vertices = axes.collections[index].get_paths()[0].vertices
    x = np.unique(vertices[:, 0])
    edges = [vertices[vertices[:, 0] == place, 1] for place in x]
    return x, np.array([min(e) for e in edges]), np.array([max(e) for e in edges])


def mean_and_interval(table: DataFrame, x: str, values: np.ndarray) -> np.ndarray:
    """A slow reference: rows (x, geometric mean, ends of its 95% interval by Student's t).

    Values that are not all positive have an arithmetic mean.
    """
    into, back = (math.log, math.exp) if (values > 0).all() else (float, float)
    places = sorted(set(table[x].tolist()))
    groups = [[into(v) for v, at in zip(values, table[x], strict=True) if at == p] for p in places]
    return np.array([(p, *map(back, _interval(g))) for p, g in zip(places, groups, strict=True)]).T


def _interval(group: list[float]) -> tuple[float, float, float]:
    if len(group) == 1:
        return (group[0],) * 3
    mean, error = statistics.fmean(group), scipy.stats.sem(group)
    low, high = scipy.stats.t.interval(0.95, len(group) - 1, mean, error) if error else (mean, mean)
    return mean, low, high


def assert_texts_fit(figure: Figure) -> None:
    """No label, title or visible tick label leaves the page or touches another of its panel."""
    figure.draw_without_rendering()
    page = figure.bbox
    for axes in figure.axes:
        ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=False)  # shared: no labels
        low, high = axes.get_xlim()
        shown = [*axes.texts, axes.title, *(label for at, label in ticks if low <= at <= high)]
        # of the letters alone: an annotation's own method includes its arrow
        boxes = [Text.get_window_extent(text) for text in shown if text.get_text()]
        assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in boxes)
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
