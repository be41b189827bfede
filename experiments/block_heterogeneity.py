"""Spectra of the Hessian's diagonal blocks of transformers, a CNN and an MLP: figure T2.

python -m experiments.block_heterogeneity --config=configs/block_heterogeneity.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

import gnjax
from experiments.claims.block_heterogeneity import CLAIMS
from experiments.shared.language import of_every_position
from gnjax.spectra.distance import jensen_shannon
from sweeps import command_line
from sweeps.experiment import Experiment

TABLES = ("tokens", "positions")
SHARES = tuple(np.linspace(0, 1, 11).round(1).tolist())
FLOOR = 1e-12  # smaller eigenvalues do not count, in spectra whose largest eigenvalue is 1
DISTANCE, SPECTRUM = "distance", "spectrum"


@dataclass(frozen=True)
class Cell:
    """One network at initialisation: a GPT on pieces of the text, the others on images.

    ``depth`` counts blocks of a transformer, else layers. The width of a layer of the CNN is its
    number of filters. The text has ``outputs`` different characters and pieces of ``length``.
    """

    network: str
    width: int
    depth: int
    data: str
    data_seed: int
    side: int
    outputs: int
    length: int
    samples: int
    seed: int


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The most expensive networks first; the seeds of one network follow each other."""
    if min(config.samples, config.seeds) < 1:
        msg = f"samples={config.samples} and seeds={config.seeds} must be at least 1"
        raise ValueError(msg)
    for name in ("gpt", "vit", "mlp", "cnn"):
        data = "python_topics" if name == "gpt" else config.data
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {}, {"network": name, **config[name], "data": data, "seed": seed}


def cost(cell: Cell) -> float:
    """Multiplications in the products with H that give its columns."""
    transformer = cell.network in ("gpt", "vit")
    weights = (12.0 if transformer else 2.0) * cell.width**2 * cell.depth
    return weights**2 * cell.samples * (cell.length if transformer else 1)


def made(cell: Cell) -> tuple[nnx.Module, Any, Any]:
    """The network at initialisation, its inputs and its labels."""
    if cell.network == "gpt":
        return of_every_position(cell, cell.data_seed)
    key = jax.random.key(cell.seed)
    dataset = gnjax.data.load(cell.data, samples=cell.samples, seed=cell.data_seed)
    rows = gnjax.data.downsample(dataset.inputs, dataset.shape, (cell.side, cell.side))
    rows = (rows - rows.mean()) / rows.std()
    images, shape = rows.reshape(-1, cell.side, cell.side, 1), (cell.side, cell.side, 1)
    classes, width = dataset.classes, cell.width
    if cell.network == "vit":
        vit = gnjax.models.ViT(
            cell.side,
            classes,
            patch=cell.side // 2,
            width=width,
            depth=cell.depth,
            heads=2,
            channels=1,
            key=key,
        )
        return vit, images, dataset.labels
    if cell.network == "cnn":
        filters = [width] * cell.depth
        cnn = gnjax.models.CNN(shape, classes, filters=filters, stride=2, padding=1, key=key)
        return cnn, images, dataset.labels
    widths = (rows.shape[1], *[width] * (cell.depth - 1), classes)
    return gnjax.models.MLP(widths, key=key), rows, dataset.labels


def matrices(path: str) -> bool:
    """Whether a path names the weights of a layer or a table of embeddings.

    Biases and the scales of normalisations are left out.
    """
    return path.split("/")[-1] in ("kernel", *TABLES)


def measure(cell: Cell) -> list[dict[str, Any]]:
    """The distances between the blocks of H (``panel`` "distance"), and rows of their spectra.

    ``distance`` is the mean Jensen-Shannon distance between the spectra of two blocks, and
    ``distance_shape`` that of spectra divided by their largest eigenvalue. ``off_share`` is
    |H - blockdiag(H)|_F^2 / |H|_F^2. ``size`` is |lambda| of an eigenvalue of a block, and
    ``share`` the share of the block's eigenvalues that are larger in size.
    """
    model, x, y = made(cell)
    op = gnjax.hessian(model, x, y, loss="cross_entropy", only=matrices)
    found = gnjax.block_spectra(op)
    row = {
        "panel": DISTANCE,
        "inputs": int(np.prod(np.shape(x)[1:])),
        "outputs": int(np.max(y)) + 1 if cell.network != "gpt" else cell.outputs,
        "parameters": sum(block.parameters for block in found.blocks),
        "distance": found.mean_distance,
        "distance_error": found.mean_distance_error,
        "distance_shape": shape_distance(found.blocks),
        "off_share": found.off_block_share,
        "block": "",
    }
    rows = [row]
    for block in found.blocks:
        values = np.sort(np.abs(block.spectrum.values))[::-1]
        values = values[values > found.floor]
        for share in SHARES if values.size else ():
            size = values[round(share * (values.size - 1))]
            own = {"panel": SPECTRUM, "block": block.name, "share": share, "size": size}
            rows.append({**row, **own})
    return rows


def shape_distance(blocks: tuple[gnjax.answers.BlockSpectrum, ...]) -> float:
    """The mean distance between the blocks' spectra, each divided by its largest |lambda|."""
    scaled = []
    for block in blocks:
        values, errors = block.spectrum.values, block.spectrum.errors
        largest = np.abs(values).max()
        scaled.append(replace(block.spectrum, values=values / largest, errors=errors / largest))
    return float(np.mean([jensen_shannon(a, b, FLOOR)[0] for a, b in combinations(scaled, 2)]))


def sources(config: ConfigDict) -> list[str]:
    text = gnjax.data.load_text(vocabulary=config.outputs).source
    images = gnjax.data.load(config.data, samples=config.samples, seed=config.data_seed).source
    return [
        f"{text}: {config.samples} pieces of {config.length} characters",
        f"{images}, {config.side} x {config.side}, standardised",
    ]


EXPERIMENT = Experiment(
    "block_heterogeneity",
    settings,
    measure,
    cost,
    columns=(
        *("panel", "network", "data", "samples", "inputs", "outputs", "parameters", "width"),
        *("depth", "seed", "distance", "distance_error", "distance_shape", "off_share"),
        *("block", "share", "size"),
    ),
    claims=CLAIMS,
    sources=sources,
    watch="distance",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
