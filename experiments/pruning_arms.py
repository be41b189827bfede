"""Networks pruned as paper A's published code prunes them, one change at a time: 1, 13 to 15, C4.

python -m experiments.pruning_arms --config=configs/pruning_arms.py:laptop
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

import gnjax
from experiments.claims.pruning_arms import CLAIMS, OF_FEW
from experiments.shared import batch_kernels as kernels
from experiments.shared.certificate import CERTIFICATE, certificate
from experiments.shared.protocol import Training, begun, network_at, trained
from experiments.shared.pruned_networks import KINDS
from gnjax.papers.training import pruning
from sweeps import command_line
from sweeps.experiment import Experiment
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.environment import environment

LOSSES, KAPPA, LARGEST = "losses", "kappa", "largest"  # what a cell has
LIMITS = gnjax.Limits(matrix_rows=10**5)
STEPS = 14  # of Lanczos for lambda_max alone
AS_COMPUTED = ("lambda_max_float32", "lambda_min_float32", "rank_float32")
MEASURED = ("columns", "loss", "right", "dead", *CERTIFICATE, "residual", *AS_COMPUTED)


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each arm the training, then what is measured at its stops.

    An arm prunes ``tensors`` of a network, at ``rates`` and from ``seeds`` initialisations.
    ``kappas`` and ``largest`` give for a way to take BatchNorm's statistics the epochs after which
    kappa, or lambda_max alone, is measured; those of the first ``measured`` seeds alone. kappa
    before training, which needs no training, is measured from every seed in the ways ``at_start``.
    An arm with ``samples`` of its own trains and measures on so many images.
    """
    for arm in config.arms.values():
        same = ("network", "depth", "width", "side", "tensors", "augment", "stops")
        shared = {name: arm[name] for name in same}
        own_images = {"samples": arm.samples} if "samples" in arm else {}
        few = OF_FEW if own_images else ""
        labels = {"figure": KINDS[arm.network].figure}
        for rate in arm.rates:
            for place in range(arm.seeds):
                run = {**shared, **own_images, "pruned": rate, "seed": config.first_seed + place}
                for what, way, epoch in _cells(arm, measured=place < arm.measured):
                    yield labels, {**run, "what": what + few, "statistics": way, "epoch": epoch}


def _cells(arm: ConfigDict, *, measured: bool) -> Iterator[tuple[str, str, int]]:
    """Of one start of an arm, what its cells have, by which statistics, and after which epoch."""
    yield LOSSES, "", arm.stops[-1]
    if not measured:
        for way in arm.at_start:
            yield KAPPA, way, 0
        return
    for what, ways in ((KAPPA, arm.kappas), (LARGEST, arm.largest)):
        for way, epochs in ways:
            for epoch in epochs:
                yield what, way, epoch


def measure(
    what: str,
    network: str,
    depth: int,
    width: int,
    data: str,
    samples: int,
    side: int,
    tensors: str,
    pruned: float,
    augment: bool,
    batch: int,
    statistics: str,
    epoch: int,
    stops: tuple[int, ...],
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """One training, or a measurement of the network after an epoch of it.

    The weights at ``stops`` are kept beside the cells, for the measurements that come after.
    """
    run = Training(
        network, depth, width, data, samples, side, tensors, pruned, augment, seed, batch
    )
    start, what = begun(run), what.removesuffix(OF_FEW)
    shared = {
        "data": start.data,
        "inputs": start.x[0].size,
        "outputs": start.classes,
        "parameters": pruning.remaining(start.mask),
    }
    folder = _weights(checkpoint)
    if what == LOSSES:
        rows: Iterable[dict[str, Any]] = trained(
            run, (*(stop for stop in stops if stop < epoch), epoch), folder
        )
    else:
        of = kernels.function(run, network_at(run, epoch, folder), statistics, epoch)
        rows = _kappas(of, statistics, seed) if what == KAPPA else _largest(of, seed)
    empty = {**dict.fromkeys(MEASURED), "resolved": False}
    return [{**empty, **shared, **row} for row in rows]


def _weights(checkpoint: Checkpoint | None) -> Path:
    """The folder of weights that this code, on this device, has trained."""
    if checkpoint is None:
        return Path(tempfile.mkdtemp())
    made_by = repr(environment(measure)).encode()
    return checkpoint.path.parent / "weights" / hashlib.sha256(made_by).hexdigest()[:16]


def _kappas(of: kernels.Function, statistics: str, seed: int) -> Iterator[dict[str, Any]]:
    """kappa of J with all columns and with those of the weights that are left.

    Where the statistics are those of batches, the published code's own numbers stand beside it.
    """
    theirs = kernels.as_computed(of) if statistics == "batches" else {}
    operators = kernels.operators(of)
    every, left = operators[kernels.ALL], operators[kernels.LEFT]
    of_every = _kappa(every, seed)
    of_left = of_every if left is every else _kappa(left, seed)
    for columns, found in ((kernels.ALL, of_every), (kernels.LEFT, of_left)):
        yield {
            "columns": columns,
            **certificate(found),
            **dict(zip(AS_COMPUTED, theirs.get(columns, ()), strict=False)),
        }


def _kappa(operator: gnjax.Operator, seed: int) -> gnjax.answers.ConditionNumber:
    """kappa of J J^T as it is stored, or of the operator of a network."""
    method = "inverse" if isinstance(operator, gnjax.operators.Dense) else "auto"
    return gnjax.condition_number(operator, method=method, seed=seed, limits=LIMITS)


def _largest(of: kernels.Function, seed: int) -> Iterator[dict[str, Any]]:
    """lambda_max by products in float32, a Rayleigh quotient, and the length of its residual."""
    single = kernels.cast(of, jnp.float32)
    for columns in (kernels.ALL, kernels.LEFT):
        value, residual = kernels.largest(single, columns, STEPS, seed)
        yield {"columns": columns, "lambda_max": value, "residual": residual}


def cost(what: str, network: str, width: int, samples: int, side: int, epoch: int) -> float:
    """Multiplications: an epoch takes four passes, a row of J as many as its batch has samples."""
    kind = KINDS[network]
    what = what.removesuffix(OF_FEW)
    work = samples * kind.work * (width / kind.width) ** 2 * ((side or 32) / 32) ** 2
    passes = {LOSSES: 4.0 * epoch, LARGEST: 6.0 * STEPS, KAPPA: 30.0}[what]
    return passes * work + ((10.0 * samples) ** 3 if what == KAPPA else 0.0)


def shape(
    what: str, network: str, depth: int, width: int, statistics: str, augment: bool, samples: int
) -> tuple[Any, ...]:
    return what, network, depth, width, statistics, augment, samples


def sources(config: ConfigDict) -> list[str]:
    """The images of every network, once each."""
    same = ("network", "depth", "width", "side", "tensors", "augment")
    shared = {name: config[name] for name in ("data", "samples", "batch")}
    runs = (
        Training(**{name: arm[name] for name in same}, **shared, pruned=0.0, seed=config.first_seed)
        for arm in {arm.network: arm for arm in config.arms.values()}.values()
    )
    return list(dict.fromkeys(begun(run).source for run in runs))


EXPERIMENT = Experiment(
    "pruning_arms",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "what", "network", "depth", "width", "tensors", "augment", "pruned", "seed"),
        *("epoch", "statistics", "columns", "samples", "inputs", "outputs", "parameters", "data"),
        *("batch", "loss", "right", "dead", *CERTIFICATE, "residual", *AS_COMPUTED),
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
    watch="lambda_max",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
