"""kappa of networks that were pruned at initialisation, while they train: figures 16 and C2.

python -m experiments.pruning_sweep --config=configs/pruning_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from experiments.claims.pruning_sweep import CLAIMS
from experiments.shared.certificate import CERTIFICATE
from experiments.shared.pruned_kernel import conditioning, pruned_kernel
from experiments.shared.pruned_networks import KERNELS, KINDS, check_run, frozen, images
from gnjax.papers.training import Recipe, pruning
from gnjax.papers.training import minibatch as training
from sweeps import command_line
from sweeps.experiment import Experiment
from sweeps.storage.checkpoint import Checkpoint, resumed

PRINTED, SMALLER = "printed", "smaller"  # the step sizes: the paper's, or smaller ones
UNMEASURED = {"measured": False, "resolved": False, "method": None, "tolerance": None}


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each network with the printed step sizes, then with smaller constant ones if it has them."""
    smaller = config.smaller
    for name in _known((*config.networks.split(), *smaller.networks.split())):
        run = config[name].to_dict()
        if name in config.networks.split():
            yield from _of_network(config, name, run, PRINTED)
        if name in smaller.networks.split():
            recipe = {**run["recipe"], "rate": smaller.rate, "drop_after": 0}
            changed = {"rates": smaller.rates, "stops": smaller.stops, "starts": 0}
            yield from _of_network(config, name, {**run, **changed, "recipe": recipe}, SMALLER)


def _known(names: tuple[str, ...]) -> list[str]:
    """The networks that are named, in the order of the figures."""
    unknown = set(names) - set(KINDS)
    if unknown:
        msg = f"networks are {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
        raise ValueError(msg)
    return [name for name in KINDS if name in names]


def _of_network(
    config: ConfigDict, name: str, run: dict[str, Any], steps: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """``seeds`` networks are trained at each of the pruning ``rates``, and measured at ``stops``.

    Where ``starts`` is larger than ``seeds``, so many are measured at initialisation, the trained
    ones among them. A network with ``data`` of its own trains on these.
    """
    check_run(name, run)
    labels = {"figure": KINDS[name].figure, "steps": steps}
    shared = ("depth", "width", "samples", "side", "channels", "method", "recipe")
    for pruned in sorted(run["rates"]):
        for seed in range(max(run["seeds"], run["starts"])):
            yield (
                labels,
                {
                    **{field: run[field] for field in shared},
                    "data": run.get("data", config.data),
                    "network": name,
                    "pruned": pruned,
                    "seed": config.first_seed + seed,
                    "stops": run["stops"] if seed < run["seeds"] else (0,),
                },
            )


def measure(
    network: str,
    depth: int,  # layers, and blocks in the transformer
    width: int,  # of the layers, and in a convolutional network the filters of the first
    data: str,
    data_seed: int,
    samples: int,
    side: int,  # of the images, downsampled or in a black frame; 0 for images as they are
    channels: int,  # in which a single one is repeated; 0 for channels as they are
    pruned: float,  # the share of every layer's weights
    seed: int,
    stops: tuple[int, ...],  # epochs after which kappa is measured; the last ends the training
    method: str,  # of the condition number
    tolerance: float,  # of the numerical rank; 0 is k n times the precision, as in NumPy
    recipe: Recipe,
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """Prune and train: a row for every epoch with its mean loss, and kappa where it is a stop.

    ``kappa`` is certified. ``kappa_numerical`` is the pseudo-condition number at the numerical
    rank, which counts the eigenvalues above ``tolerance`` times the largest.
    """
    found = images(data, samples, data_seed, side, channels)
    x = found.x.reshape(len(found.x), -1) if network == "feed_forward" else found.x
    key = jax.random.key(seed)
    model = KINDS[network].make(depth, width, found.x.shape[1:], found.classes, key)
    mask = pruning.magnitude_mask(nnx.state(model, nnx.Param), pruned, only=KERNELS)
    problem, start = training.begin(model, x, found.labels, recipe, key, mask=mask)
    cut = tolerance or len(x) * found.classes * float(np.finfo(float).eps)

    def step(state: training.State, stop: int) -> tuple[training.State, dict[str, Any]]:
        before = int(state.epoch)
        state, losses = training.train(problem, state, stop - before)
        kernel = pruned_kernel(frozen(training.trained(model, state), x), x, mask)
        rows = [
            {"epoch": epoch, "loss": loss, **UNMEASURED}
            for epoch, loss in enumerate(losses.tolist(), before + 1)
        ] or [{"epoch": stop, "loss": None}]
        rows[-1] |= {"measured": True, **conditioning(kernel, method, cut, seed)}
        return state, {"rows": rows}

    of_all = {
        "data": found.data,
        "kept": 1 - pruned,
        "inputs": x[0].size,
        "outputs": found.classes,
        "parameters": pruning.remaining(mask),
    }
    records = resumed(checkpoint, start, stops, step)
    return [{**of_all, **row} for record in records for row in record["rows"]]


def cost(
    network: str, width: int, samples: int, side: int, pruned: float, stops: tuple[int, ...]
) -> float:
    """Multiplications: each kappa takes k backward passes and J J^T, each epoch three passes.

    Those of convolutions and attention take about 60 times as long as those of a matrix product.
    """
    kind, size = KINDS[network], 10.0 * samples
    narrower = (width / kind.width) ** 2
    work = kind.work * narrower * ((side or 32) / 32) ** 2
    work *= 1 if network == "feed_forward" else 60
    left = kind.weights * narrower * (1 - pruned)
    kappa = 3 * size * work + size**2 * left / 2 + size**3 / 3
    return len(stops) * kappa + 3.0 * stops[-1] * samples * work


def shape(
    network: str,
    depth: int,
    width: int,
    samples: int,
    side: int,
    channels: int,
    recipe: Recipe,
    stops: tuple[int, ...],
) -> tuple[Any, ...]:
    """Pruning rates and seeds share their compiled programs."""
    return network, depth, width, samples, side, channels, recipe, stops


def sources(config: ConfigDict) -> list[str]:
    runs = [config[name] for name in config.networks.split()]
    chosen = {(run.get("data", config.data), run.samples, run.side, run.channels) for run in runs}
    described = []
    for data, samples, side, channels in sorted(chosen):
        found = images(data, samples, config.data_seed, side, channels)
        size = " x ".join(map(str, found.x.shape[1:]))
        described.append(f"{found.source}, standardised by channel: n={samples}, {size}")
    return described


EXPERIMENT = Experiment(
    "pruning_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "network", "depth", "width", "pruned", "kept", "seed", "steps", "epoch"),
        *("measured", "samples", "inputs", "outputs", "parameters", "data", "optimizer", "rate"),
        *("batch", "momentum", "decay", "drop_after", "loss", *CERTIFICATE),
        *("kappa_numerical", "kappa_numerical_low", "kappa_numerical_high", "rank_numerical"),
        "tolerance",
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
