"""Figure B2: the assumptions behind Eq 14 dropped one by one, and the edge of stability."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.shared import captions, epochs, labels, style
from figures.shared.series import Columns, distinct, rows, select

EXPERIMENT = "label_sharpness"
COLUMNS = (*labels.COLUMNS, "rate", "fraction")
PANELS = {
    "2a": "(a) raw inputs",
    "2b": "(b) Kaiming uniform start",
    "2c": "(c) tanh",
}


def draw(table: Columns) -> Figure:
    """Sharpness over the proportion in three panels, and over the epochs in the fourth."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.4)
        *panels, edge = figure.subplots(2, 2).flat
        for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
            axes.set_title(title)
            shown = select(table, figure=name)
            if rows(shown) == 0:
                style.blank(axes, "not part of this profile")
                continue
            if name == "2a":
                style.logarithmic(axes)
            labels.draw_shares(axes, shown)
        figure.legend(handles=labels.handles(panels[0]), loc="outside upper center", ncols=5)
        _draw_edge(edge, select(table, figure="2d"))
        style.footer(figure, labels.data_line(select(table, figure=list(PANELS))))
    return figure


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and residuals of the table behind it."""
    linear = select(table, figure=["2a", "2b"])
    tanh, edge = select(table, figure="2c"), select(table, figure="2d")
    return captions.paragraph(
        "Figure B2. Sharpness of trained networks over the largest class proportion.",
        "(a) Raw inputs, balanced start; logarithmic vertical axis. (b) Orthogonalised inputs,"
        " Kaiming uniform start (PyTorch's default). (c) Orthogonalised inputs, balanced start,"
        " tanh networks, trained in float32.",
        "Black: Eq 14 as printed.",
        labels.STAR,
        "(d) Sharpness over the epochs from the start of (b) at constant learning rates eta, on"
        f" {captions.short_title(distinct(edge, 'data')[0])} with alpha_max ="
        f" {edge['share'][0]:.2g}; dashed in the colour of a curve, its edge of stability 2/eta"
        " (where it is near); black, lambda_*.",
        f"Panels (a) and (b): {labels.training(linear)}",
        f"Panel (c): {labels.training(tanh)}" if rows(tanh) else "Panel (c) was not computed.",
        labels.closing(select(table, figure=list(PANELS)), provenance),
    )


def _draw_edge(axes: Axes, table: Columns) -> None:
    axes.set_title("(d) constant rates, start of (b)")
    if rows(table) == 0:
        style.blank(axes, "not part of this profile")
        return
    fractions = distinct(table, "fraction")
    lines: list[Line2D] = []
    highest = float(table["measured"].max())
    for fraction, look in zip(fractions, style.looks(len(fractions)), strict=True):
        run = select(table, fraction=fraction)
        rate = float(run["rate"][0])
        label = f"$\\eta = {rate:.3g}$"
        lines += axes.plot(
            run["epoch"], run["measured"], color=look.colour, marker=look.marker, label=label
        )
        limit = 2 / rate
        if limit < 2 * highest:  # the edge of a small rate lies far above the axes
            axes.axhline(limit, color=look.colour, linestyle=style.DASHED, linewidth=0.8)
    star = axes.axhline(float(table["least"][0]), label=r"$\lambda_\star$", **labels.PRINTED)
    axes.legend(handles=[star], loc="lower right", borderaxespad=0)
    epochs.epoch_axis(axes, table["epoch"])
    axes.set_ylabel(labels.SHARPNESS)
    style.label_curves(axes, lines)
