"""Figure B2: the assumptions behind Eq 14 dropped one by one, and the edge of stability."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, epochs, labels, style
from figures.shared.series import distinct
from sweeps.rows import where

EXPERIMENT = "label_sharpness"
COLUMNS = (*labels.COLUMNS, "rate", "fraction")
LEGEND = 0.18  # of the height of (d), for its legend below the curves
PANELS = {
    "2a": "(a) raw inputs",
    "2b": "(b) Kaiming uniform start",
    "2c": "(c) tanh",
}


def draw(frame: DataFrame) -> Figure:
    """Sharpness over the proportion in three panels, and over the epochs in the fourth."""
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.4)
        *panels, edge = figure.subplots(2, 2).flat
        for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
            axes.set_title(title)
            shown = where(frame, figure=name)
            if shown.empty:
                style.blank(axes, "not part of this profile")
                continue
            if name == "2a":
                style.logarithmic(axes)
            labels.draw_shares(axes, shown)
        figure.legend(handles=labels.handles(panels[0]), loc="outside upper center", ncols=5)
        _draw_edge(edge, where(frame, figure="2d"))
        style.footer(figure, labels.data_line(where(frame, figure=list(PANELS))))
    return figure


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and residuals of the table behind it."""
    linear = where(frame, figure=["2a", "2b"])
    tanh, edge = where(frame, figure="2c"), where(frame, figure="2d")
    return captions.paragraph(
        "Figure B2. Sharpness of trained networks over the largest class proportion.",
        "(a) Raw inputs, balanced start; logarithmic vertical axis. (b) Orthogonalised inputs,"
        " Kaiming uniform start (PyTorch's default). (c) Orthogonalised inputs, balanced start, as"
        " the paper's Appendix C has it (unbalanced in its caption), tanh networks, trained in"
        " float32.",
        "Black: Eq 14 as printed.",
        labels.STAR,
        "(d), ours: sharpness over the epochs from the start of (b) at constant learning rates eta,"
        f" on {captions.short_title(distinct(edge, 'data')[0])} with alpha_max ="
        f" {edge['share'][0]:.2g}; dotted in the colour of a curve, its edge of stability 2/eta"
        " (where it is near); dashed, lambda_*.",
        f"Panels (a) and (b): {labels.training(linear)}",
        f"Panel (c): {labels.training(tanh)}" if len(tanh) else "Panel (c) was not computed.",
        labels.closing(
            labels.data_of_panels({f"({f[1]})": where(frame, figure=f) for f in (*PANELS, "2d")}),
            provenance,
        ),
    )


def _draw_edge(axes: Axes, frame: DataFrame) -> None:
    axes.set_title("(d) constant rates, start of (b)")
    if frame.empty:
        style.blank(axes, "not part of this profile")
        return
    data = captions.short_title(distinct(frame, "data")[0])
    axes.set_title(f"(d), ours: {data}, constant rates, start of (b)")
    fractions = distinct(frame, "fraction")
    lines: list[Line2D] = []
    highest = float(frame["measured"].max())
    for fraction, look in zip(fractions, style.ordered_looks(len(fractions)), strict=True):
        run = where(frame, fraction=fraction)
        rate = float(run["rate"][0])
        label = f"$\\eta = {rate:.3g}$"
        lines += axes.plot(
            run["epoch"], run["measured"], color=look.colour, marker=look.marker, label=label
        )
        limit = 2 / rate
        if limit < 2 * highest:  # the edge of a small rate lies far above the axes
            axes.axhline(limit, color=look.colour, linestyle=":", linewidth=1.0)
    star = axes.axhline(
        float(frame["least"][0]), color=style.GREY, linestyle=style.DASHED, linewidth=0.9
    )
    star.set_label(r"$\lambda_\star$")
    edge = Line2D([], [], color=style.GREY, linestyle=":", label=r"$2/\eta$, edge of stability")
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - LEGEND * (top - bottom), top)  # room for the legend below the curves
    axes.legend(handles=[star, edge], loc="lower center", ncols=2, columnspacing=1.0)
    epochs.epoch_axis(axes, frame["epoch"])
    axes.set_ylabel(labels.SHARPNESS)
    style.label_curves(axes, lines)
