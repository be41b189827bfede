"""Kappa as the notebooks of paper A's authors show it, to be drawn in grey beside ours.

Of Figure 1 it is what is plotted there: lambda_max over eigenvalues of one other spectrum. Numbers
of Figures 8, 10 and 17 are read off pictures. Each stands beside ours in
``figures/findings/authors.md``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from figures.shared import style

Curve = tuple[Sequence[float], Sequence[float]]

_STOPS = (0, 20, 40, 60, 80, 100)  # the last is called 99 there
RESNET20: Mapping[float, Curve] = {
    0.0: (_STOPS, (1.06e4, 2.0e3, 2.9e3, 3.9e3, 4.6e3, 4.5e3)),
    0.2: (_STOPS, (8.0e3, 3.5e3, 3.2e3, 5.4e3, 5.9e3, 5.7e3)),
    0.4: (_STOPS, (1.3e4, 4.7e3, 4.5e3, 8.0e3, 6.1e3, 7.4e3)),
    0.6: (_STOPS, (1.4e5, 2.9e5, 6.3e5, 1.5e6, 2.5e6, 6.6e6)),
    0.8: (_STOPS, (6.2e4, 6.8e6, 5.3e6, 7.8e6, 8.7e6, 1.03e7)),
}
RESNET32: Mapping[float, Curve] = {
    0.0: (_STOPS, (9.578e3, 5.092e6, 1.270e6, 1.074e6, 1.382e6, 8.298e5)),
    0.2: (_STOPS, (1.498e4, 1.835e7, 2.706e5, 1.929e5, 1.402e5, 7.942e4)),
    0.4: (_STOPS, (6.365e4, 1.254e7, 4.781e5, 2.700e5, 1.254e5, 7.011e4)),
    0.6: (_STOPS, (2.665e5, 3.975e7, 1.980e6, 8.513e5, 5.427e5, 9.092e5)),
    0.8: (_STOPS, (2.42e13, 4.37e15, 8.08e15, 4.84e15, 1.16e16, 1.41e16)),
}
_LATER = (0, 40, 80, 120, 160, 200)  # the last is called 199 there
FEED_FORWARD: Mapping[float, Curve] = {
    0.0: (_LATER, (5.6e4, 4.05e4, 4.4e4, 4.3e4, 4.1e4, 3.95e4)),
    0.2: (_LATER, (5.7e4, 3.9e4, 3.85e4, 3.75e4, 3.55e4, 3.4e4)),
    0.4: (_LATER, (4.05e4, 3.9e4, 5.3e4, 5.2e4, 5.05e4, 4.75e4)),
    0.6: (_LATER, (4.6e4, 4.0e4, 4.15e4, 4.4e4, 4.2e4, 4.15e4)),
    0.8: (_LATER, (7.4e4, 6.5e4, 7.1e4, 9.7e4, 1.1e5, 1.14e5)),
}
PATH: Curve = (
    (0, 100, 200, 600, 1000, 1500, 2000, 3000),
    (8.4, 8.575, 8.3, 10.75, 9.0, 7.2, 6.75, 6.56),
)
FILTERS: Mapping[int, Curve] = {
    7: ((2, 3, 4, 5), (2.1e5, 4.3e5, 6.3e5, 7.0e5)),
    9: ((2, 3, 4, 5), (1.95e5, 3.6e5, 2.9e5, 5.2e5)),
    11: ((2, 3, 4, 5), (1.2e5, 1.8e5, 1.7e5, 1.85e5)),
}
OF = {"resnet20": RESNET20, "resnet32": RESNET32}
"""Over the epochs, by network and pruning rate."""
SAYS = {
    "resnet20": (
        "Grey, with the markers of the rates: what the authors' notebook shows, which is lambda_max"
        " over eigenvalues of one other spectrum (20.87 where the rank is full), with statistics of"
        " batches."
    ),
    "resnet32": (
        "Grey, with the markers of the rates: kappa in the authors' notebook, in single precision"
        " and with statistics of batches; at 80% it is lambda_max over a tolerance of 1e-7 and says"
        " that J has not full rank."
    ),
}
"""What the curves of a network are, in a caption."""

LABEL = "the authors' notebook"
LOOK: dict[str, Any] = {"color": "#A6A6A6", "linewidth": 0.8, "zorder": 1}


def draw(
    axes: Axes, curves: Mapping[Any, Curve], looks: Mapping[Any, style.Look], name: str
) -> None:
    """Every curve as a thin grey line, with the marker of ours, open.

    ``name`` is that of a curve, with {} for its key.
    """
    for key, (x, y) in curves.items():
        marks: dict[str, Any] = {"markersize": 3.2, "markeredgecolor": LOOK["color"]}
        drawn = style.OPEN | LOOK | marks | {"markeredgewidth": 0.7}
        axes.plot(x, y, marker=looks[key].marker, label=f"_{LABEL}, {name.format(key)}", **drawn)
