"""Figure 8: condition number of linear CNNs in one dimension over filters and kernel size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, notebook, style
from figures.shared.series import distinct, kappa_over_seeds, over_seeds

EXPERIMENT = "cnn_sweep"
COLUMNS = (
    *captions.CERTIFICATE,
    *("figure", "protocol", "kernel", "filters", "seed", "inputs", "outputs", "data", "samples"),
    *("gain", "covariance_condition", "bound", "bound_published"),
)
PANELS = {  # protocol -> title
    "raw, Sigma/2 for the root": r"raw, $\Sigma/2$ for $\Sigma^{1/2}$",
    "raw": r"raw, $\Sigma^{1/2}$",
    "whitened": "whitened",
}
BOUNDS = {"raw, Sigma/2 for the root": "bound_published"}  # else Lemma 2's
KEY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
    (notebook.LABEL, {"color": notebook.LOOK["color"], "linewidth": 0.8}),
)


def draw(frame: DataFrame) -> Figure:
    """Kappa and its bound over the filters, a curve for each kernel: as the published code computes
    it (left), with the right root (middle), and on whitened images (right). Below, kappa over the
    kernel size. All vertical axes span equally many decades."""
    shown = _shown(frame)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.9)
        grid = figure.subplots(2, 3)
        curves: dict[Axes, list[Line2D]] = {}
        for panels, axis in zip(grid, AXES, strict=True):
            for axes, (protocol, title) in zip(panels, PANELS.items(), strict=True):
                rows = shown[shown["protocol"] == protocol]
                curves[axes] = _draw_panel(axes, rows, axis, title if axis is AXES[0] else "")
            panels[0].set_ylabel(style.KAPPA)
        _theirs(grid[0, 0], shown)
        equal_decades(list(curves))
        key = KEY if of_mnist(shown) else KEY[:-1]
        handles = [Line2D([], [], **{"color": style.GREY, "label": n} | how) for n, how in key]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        for axes, lines in curves.items():
            style.label_curves(axes, lines)
        style.footer(figure, footer(shown))
    return figure


@dataclass(frozen=True)
class Axis:
    """The column along x with its label, and the column in which curves differ with its symbol."""

    over: str
    label: str
    by: str
    symbol: str


AXES = (
    Axis("filters", "number of filters $F$", "kernel", "K"),
    Axis("kernel", "kernel size $K$", "filters", "F"),
)


def _draw_panel(axes: Axes, frame: DataFrame, axis: Axis, title: str) -> list[Line2D]:
    style.logarithmic(axes)
    axes.set_title(title)
    values = distinct(frame, axis.by)
    bound = BOUNDS.get(frame["protocol"].iloc[0], "bound")
    lines = []
    for value, look in zip(values, style.ordered_looks(len(values)), strict=True):
        rows, name = frame[frame[axis.by] == value], f"${axis.symbol} = {value}$"
        lines.append(style.band(axes, kappa_over_seeds(rows, axis.over), look, name))
        if axis is AXES[0]:
            style.bound_curve(axes, over_seeds(rows, axis.over, bound), look)
    style.whole_numbers(axes, frame[axis.over], axis.label)
    if axis is AXES[1]:
        axes.set_xticks(distinct(frame, axis.over))
    return lines


def of_mnist(shown: DataFrame) -> bool:
    """Whether the images are those of the authors' notebook."""
    return bool(shown["data"].str.startswith("mnist").all())


def _theirs(axes: Axes, shown: DataFrame) -> None:
    """Kappa as the authors' notebook draws it, in grey, where the images are the same."""
    if of_mnist(shown):
        kernels = distinct(shown, "kernel")
        looks = dict(zip(kernels, style.ordered_looks(len(kernels)), strict=True))
        notebook.draw(axes, notebook.FILTERS, looks, "K = {}")


def equal_decades(panels: Sequence[Axes]) -> None:
    """Logarithmic axes with limits of the same ratio, so that slopes can be compared."""
    ends = [axes.get_ylim() for axes in panels]
    widest = max(high / low for low, high in ends)
    for axes, (low, high) in zip(panels, ends, strict=True):
        more = (widest * low / high) ** 0.5
        axes.set_ylim(low / more, high * more)


def footer(shown: DataFrame) -> str:
    """The data and their sizes; of the outputs, of which each F and K has its own, the ends."""
    named = _of_one_name(shown).drop(columns="outputs")
    outputs = shown["outputs"].astype(int)
    return f"{captions.data_line(named)}, k = {outputs.min()} to {outputs.max()}"


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes, seeds and certificates of the table behind the figure."""
    shown = _shown(frame)
    condition = shown[shown["protocol"] == "raw"]["covariance_condition"].max()
    return captions.paragraph(
        "Figure 8. Condition number of the Gauss-Newton matrix of linear CNNs of two"
        f" one-dimensional convolutions at initialisation ({captions.initialisation(shown)}) over"
        " the number of filters F, for kernels of K entries; the parameters are the entries of the"
        " Toeplitz matrices, as in Eqs 15 and 16. Images are every so many-th pixel, taken as a"
        f" line; not whitened, their covariance has condition number {condition:.4g}. Left: as the"
        " published code computes it, with Sigma / 2 for the root of Sigma, and its bound. Middle:"
        " with the root. Right: whitened, as the paper's caption has it. Dashed: the bound of Lemma"
        " 2, which on whitened images is kappa itself. Below: kappa over the kernel size. Networks"
        " in two dimensions are in Figure C3. Vertical axes are logarithmic and span equally many"
        " decades.",
        "Grey, with the markers of the kernels: the means in the authors' notebook, read off."
        if of_mnist(shown)
        else "",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data_and_precision(footer(shown), provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    return frame[frame["figure"] == "8-line"]


def _of_one_name(shown: DataFrame) -> DataFrame:
    """The rows with one name for the raw and the whitened images, which have the same sizes."""
    names = shown["data"].str.partition(", ")[0] + ", raw and whitened"
    return shown.assign(data=names, outputs=shown["outputs"].astype(int))
