"""Figure 4: the linear network in which a skip connection bypasses every layer."""

from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from figures.shared import captions, style

# Lengths are in units of the distance from one sum to the next.
BOX_WIDTH, BOX_HEIGHT, SUM_RADIUS, ARC_CONTROL = 0.36, 0.34, 0.085, 0.5
BRANCH = 0.18  # where a skip leaves the road, behind the previous sum
LAYERS_PER_COLUMN = 3  # deeper networks get a proportionally wider figure
SKIP_COLOUR, BOX_FACE, BOX_EDGE = style.COLOURS[1], "#DCEAF4", style.COLOURS[0]


@dataclass(frozen=True)
class Edge:
    """A summand of h_target, ``factor`` @ h_source; a skip's factor is beta I, rectangular."""

    source: int
    target: int
    factor: str
    shape: str
    skip: bool


def widths(depth: int) -> tuple[str, ...]:
    """The sizes of h_0 .. h_L: d inputs, depth - 1 hidden layers of m neurons, k outputs."""
    if depth < 1:
        msg = f"depth = {depth}, but a network has at least one weight matrix; give depth >= 1"
        raise ValueError(msg)
    return ("d", *["m"] * (depth - 1), "k")


def edges(sizes: tuple[str, ...]) -> list[Edge]:
    """The network h_l = W^l h_{l-1} + beta I h_{l-1} as a graph, layer by layer."""
    graph = []
    for layer, (columns, rows) in enumerate(pairwise(sizes), start=1):
        shape = rf"{rows} \times {columns}"
        weight = rf"\mathbf{{W}}^{{{layer}}}"
        graph.append(Edge(layer - 1, layer, weight, shape, skip=False))
        graph.append(Edge(layer - 1, layer, r"\beta\,\mathbf{I}", shape, skip=True))
    return graph


def formula(graph: list[Edge]) -> str:
    """The product that the graph computes, last layer first."""
    factors: dict[int, list[str]] = {}
    for edge in graph:
        factors.setdefault(edge.target, []).append(edge.factor)
    product = [rf"({' + '.join(factors[layer])})" for layer in sorted(factors, reverse=True)]
    return rf"$F_{{\theta}}(\mathbf{{x}}) = {''.join(product)}\,\mathbf{{x}}$"


def draw(depth: int = 3) -> Figure:
    """Boxes W^1 .. W^L over their shapes, each bypassed by an arc beta I into the sum behind it."""
    graph = edges(widths(depth))
    with style.paper_style():
        figure = style.new_figure(style.COLUMN_WIDTH * max(1.0, depth / LAYERS_PER_COLUMN), 1.3)
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set(xlim=(-0.1, depth + 0.6), ylim=(-0.68, 0.6), aspect="equal")
        axes.text(SUM_RADIUS - 0.03, 0, r"$\mathbf{x}$", ha="right", va="center", fontsize=10)
        for edge in graph:
            (_draw_skip if edge.skip else _draw_weight)(axes, edge)
        _arrow(axes, [(depth + SUM_RADIUS, 0), (depth + 0.3, 0)])
        axes.text(depth + 0.32, 0, r"$F_{\theta}(\mathbf{x})$", va="center", fontsize=10)
        axes.text(depth / 2 + 0.25, -0.66, formula(graph), ha="center", va="bottom")
    return figure


def caption(depth: int = 3) -> str:
    """The caption of the schematic."""
    return captions.paragraph(
        f"Figure 4. A linear network with skip connections, drawn for L = {depth}: every weight"
        " matrix W^l is bypassed by beta times the identity, which is rectangular where W^l is."
    )


def _draw_weight(axes: Axes, edge: Edge) -> None:
    """The layer: an arrow into the box of the weight, and one from the box into the sum."""
    left, bottom = _middle(edge) - BOX_WIDTH / 2, -BOX_HEIGHT / 2
    _arrow(axes, [(edge.source + SUM_RADIUS, 0), (left, 0)])
    _arrow(axes, [(left + BOX_WIDTH, 0), (edge.target - SUM_RADIUS, 0)])
    box = FancyBboxPatch(
        (left, bottom),
        BOX_WIDTH,
        BOX_HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.05",
        facecolor=BOX_FACE,
        edgecolor=BOX_EDGE,
        linewidth=0.8,
    )
    axes.add_patch(box)
    axes.text(_middle(edge), -0.01, f"${edge.factor}$", ha="center", va="center", fontsize=9)
    axes.text(
        _middle(edge),
        bottom - 0.05,
        f"${edge.shape}$",
        ha="center",
        va="top",
        fontsize=7.5,
        color=style.GREY,
    )
    axes.add_patch(Circle((edge.target, 0), SUM_RADIUS, facecolor="white", edgecolor="black"))
    axes.text(edge.target, -0.008, "$+$", ha="center", va="center")


def _draw_skip(axes: Axes, edge: Edge) -> None:
    """The skip: an arc from the layer's input, over the box, into the top of the sum."""
    start = edge.source + BRANCH
    arc = [(start, 0), (start, ARC_CONTROL), (edge.target, ARC_CONTROL), (edge.target, SUM_RADIUS)]
    _arrow(axes, arc, SKIP_COLOUR)
    axes.add_patch(Circle((start, 0), 0.022, color=SKIP_COLOUR, linewidth=0, zorder=4))
    top = 0.75 * ARC_CONTROL  # a cubic rises to 3/4 of the height of its middle control points
    axes.text(
        _middle(edge), top + 0.06, f"${edge.factor}$", ha="center", va="bottom", color=SKIP_COLOUR
    )


def _middle(edge: Edge) -> float:
    """The middle between the branching of the skip and the sum."""
    return (edge.source + BRANCH + edge.target) / 2


def _arrow(axes: Axes, points: list[tuple[float, float]], colour: str = "black") -> None:
    """A straight arrow through two points, or a cubic arc through four control points."""
    codes = [Path.MOVETO] + [Path.LINETO if len(points) == 2 else Path.CURVE4] * (len(points) - 1)
    axes.add_patch(
        FancyArrowPatch(
            path=Path(points, codes),
            arrowstyle="-|>,head_length=2.6,head_width=1.4",
            color=colour,
            linewidth=0.9,
        )
    )
