"""Figure T2: spectra of the Hessian's diagonal blocks of two transformers, a CNN and an MLP."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pandas import DataFrame

from figures.shared import captions, style
from figures.shared.series import distinct, over_seeds
from sweeps.rows import where

EXPERIMENT = "block_heterogeneity"
COLUMNS = (
    *captions.CELL,
    *("panel", "network", "samples", "parameters", "block", "share", "size"),
    *("distance", "distance_error", "distance_shape"),
)
NAMES = {"gpt": "GPT", "vit": "ViT", "cnn": "CNN", "mlp": "MLP"}
PARTS = {  # how the name of a block begins or ends, and what it is called
    "query": "query, key",
    "key": "query, key",
    "value": "value, out",
    "out": "value, out",
    "tokens": "embedding",
    "positions": "embedding",
    "patches": "embedding",
    "conv": "convolution",
    "dense": "dense",
    "head": "head",
}
KINDS = tuple(dict.fromkeys(PARTS.values()))
MEASURES = {
    "distance": "blocks as they are",
    "distance_shape": "each block divided by\nits largest eigenvalue",
}


def part(block: str) -> str:
    """The kind of a block, found from the last part of its name."""
    last = block.split("/")[-1].rstrip("0123456789")
    return PARTS[last]


def draw(frame: DataFrame) -> Figure:
    """The spectra of all blocks of every network (top), and the mean distances (bottom)."""
    looks = dict(zip(KINDS, style.looks(len(KINDS)), strict=True))
    distances, spectra = (where(frame, panel=panel) for panel in ("distance", "spectrum"))
    names = [name for name in NAMES if name in distinct(distances, "network")]
    with style.paper_style():
        figure = style.new_figure(style.FULL_WIDTH, 4.3)
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.45, 1))
        upper, lower = parts
        panels = upper.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            _spectra(axes, where(spectra, network=name), looks)
            axes.set_title(NAMES[name])
        panels[0].set_ylabel(r"size of the eigenvalue $|\lambda|$")
        upper.supxlabel("share of a block's eigenvalues that are larger", fontsize=8.5)
        handles = [
            Line2D([], [], color=look.colour, marker=look.marker, label=kind)
            for kind, look in looks.items()
        ]
        upper.legend(handles=handles, loc="outside upper center", ncols=len(handles))
        _distances(lower.subplots(), distances, names)
        style.footer(figure, captions.data_line(distances))
    return figure


def _spectra(axes: Axes, spectra: DataFrame, looks: Mapping[str, style.Look]) -> None:
    for block in distinct(spectra, "block"):
        curve = over_seeds(where(spectra, block=block), "share", "size")
        line = style.band(axes, curve, looks[part(block)], block)
        line.set_markersize(2.5)
    style.logarithmic(axes)


def _distances(axes: Axes, distances: DataFrame, names: list[str]) -> None:
    """One line for each measure, over the networks."""
    place = {name: index for index, name in enumerate(names)}
    placed = distances.assign(place=distances["network"].map(place))
    for column, look in zip(MEASURES, style.looks(len(MEASURES)), strict=True):
        series = over_seeds(placed, "place", column)
        shifted = replace(series, x=series.x + 0.1 * (list(MEASURES).index(column) - 0.5))
        drawn = {"linestyle": "", "capsize": 2, "elinewidth": 1.1}
        style.bars(axes, shifted, look, MEASURES[column], **drawn)
    axes.set_xticks(range(len(names)), [NAMES[name] for name in names])
    axes.set_ylim(0, 1)
    axes.set_ylabel("mean Jensen-Shannon\ndistance of two blocks")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    """The caption, with the sizes and seeds of the table behind the figure."""
    distances = where(frame, panel="distance")
    sizes = ", ".join(
        f"{NAMES[name]} {captions.listed(distinct(where(distances, network=name), 'parameters'))}"
        for name in NAMES
        if name in distinct(distances, "network")
    )
    error = captions.rounded_up(float(distances["distance_error"].to_numpy().max()))
    return captions.paragraph(
        "Figure T2, beyond the papers. Top: spectra of the diagonal blocks of the Hessian of the"
        " cross-entropy at initialisation, one curve for each matrix of weights or table of"
        " embeddings; eigenvalues below 1e-12 of the largest are left out, negative ones count with"
        " their size. Bottom: the mean Jensen-Shannon distance between the spectra of two blocks"
        " (four bins to a decade; 0 for equal spectra, 1 for spectra that share no bin), for the"
        " blocks as they are and for blocks divided by their largest eigenvalue; the former are"
        f" known to {error}. Parameters in blocks: {sizes}.",
        captions.seeds(distances),
        captions.data(distances, provenance),
    )
