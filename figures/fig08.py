"""Figure 8: condition number of linear CNNs in one dimension over filters and kernel size."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
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
KEY = (
    ("measured", {"marker": "o"}),
    ("bound", {"linestyle": style.DASHED, "linewidth": 0.9}),
)


def draw(frame: DataFrame) -> Figure:
    """Kappa and its bound over the filters, a curve for each kernel: as the published code computes
    it (left), with the right root (middle), and on whitened images (right)."""
    shown = _shown(frame)
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 2.6)
        panels = figure.subplots(1, 3)
        curves = [
            _draw_panel(axes, shown[shown["protocol"] == protocol], title)
            for axes, (protocol, title) in zip(panels, PANELS.items(), strict=True)
        ]
        panels[0].set_ylabel(style.KAPPA)
        style.key(panels[0], KEY)
        for axes, lines in zip(panels, curves, strict=True):  # once the key has set the limits
            style.label_curves(axes, lines)
        style.footer(figure, captions.data_line(_of_one_name(shown)))
    return figure


def _draw_panel(axes: Axes, frame: DataFrame, title: str) -> list[Line2D]:
    style.logarithmic(axes)
    axes.set_title(title)
    kernels = distinct(frame, "kernel")
    bound = BOUNDS.get(frame["protocol"].iloc[0], "bound")
    lines = []
    for kernel, look in zip(kernels, style.ordered_looks(len(kernels)), strict=True):
        rows = frame[frame["kernel"] == kernel]
        lines.append(style.band(axes, kappa_over_seeds(rows, "filters"), look, f"$K = {kernel}$"))
        style.bound_curve(axes, over_seeds(rows, "filters", bound), look)
    style.whole_numbers(axes, frame["filters"], "number of filters $F$")
    return lines


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
        " 2. Networks in two dimensions are in Figure C3. Logarithmic axes for kappa.",
        captions.seeds(shown),
        captions.certificates(shown),
        captions.data(_of_one_name(shown), provenance),
    )


def _shown(frame: DataFrame) -> DataFrame:
    return frame[frame["figure"] == "8-line"]


def _of_one_name(shown: DataFrame) -> DataFrame:
    """The rows with one name for the raw and the whitened images, which have the same sizes."""
    names = shown["data"].str.partition(", ")[0] + ", raw and whitened"
    return shown.assign(data=names, outputs=shown["outputs"].astype(int))
