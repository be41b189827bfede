"""What pruned normalisations leave of a ResNet20: its size, its loss, and where lambda_max lives.

python -m experiments.dead_channels --config=configs/dead_channels.py:laptop
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from experiments.claims.dead_channels import CLAIMS
from experiments.shared import batch_kernels as kernels
from experiments.shared import live_channels as channels
from experiments.shared.protocol import KERNELS, Training, begun, keep, kept_at, network_at
from experiments.shared.pruned_networks import KINDS
from gnjax.papers.training import minibatch as training
from gnjax.papers.training import pruning
from sweeps import command_line
from sweeps.experiment import Experiment
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.environment import environment

NETWORK = "resnet20"
LOSSES, LARGEST = "losses", "largest"  # what a cell has
STEPS = 5  # of Lanczos
SHOWN = 6  # tensors with the largest shares of a vector
COUNTS = ("parameters", "live", "idle", "empty")
MEASURED = (
    *("columns", "tensor", "share", "share_pruned", "share_idle", "lambda_max", "residual"),
    *("loss", "right"),
)


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each arm the losses of a training, or lambda_max and its vector at every epsilon.

    An arm has ``rates``, ``widths``, ``epsilons`` and ``seeds``. With ``shrunk`` the network of the
    live channels is trained, and put back into the whole one before lambda_max is measured. What
    two arms share is told once: a start that stood in the table twice would count as two.
    """
    told: list[dict[str, Any]] = []
    for arm in config.arms.values():
        for width in arm.widths:
            for rate in arm.rates:
                for epsilon in arm.epsilons:
                    for seed in range(config.first_seed, config.first_seed + arm.seeds):
                        same = {name: arm[name] for name in ("what", "tensors", "shrunk", "epoch")}
                        run = {"width": width, "pruned": rate, "epsilon": epsilon, "seed": seed}
                        measured = config.measured if arm.what == LARGEST else 0
                        setting = {**same, **run, "measured": measured}
                        if setting not in told:
                            told.append(setting)
                            yield {"figure": "C6"}, setting


def measure(
    what: str,
    depth: int,
    width: int,
    data: str,
    samples: int,
    side: int,
    tensors: str,
    pruned: float,
    shrunk: bool,
    epsilon: float,
    epoch: int,
    batch: int,
    measured: int,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """The loss after every epoch, or lambda_max of J J^T and the tensors in which its vector lives.

    ``epsilon`` is what BatchNorm adds to a variance where lambda_max is measured; training has
    1e-5. ``measured`` samples in batches count there, those of the epoch that would come next.
    """
    run = Training(NETWORK, depth, width, data, samples, side, tensors, pruned, True, seed, batch)
    start, folder = begun(run), _weights(checkpoint)
    shared = {"data": start.data, "inputs": start.x[0].size, "outputs": start.classes}
    shared |= counts(start.mask)
    if what == LOSSES:
        rows = _losses(run, epoch, folder, shrunk=shrunk)
    else:
        if epoch and not kept_at(folder, run, epoch):
            list(_losses(run, epoch, folder, shrunk=shrunk))
        rows = _largest(run, network_at(run, epoch, folder), epsilon, epoch, measured)
    return [{**dict.fromkeys(MEASURED), **shared, **row} for row in rows]


def counts(mask: Any) -> dict[str, int]:
    """The weights that are left, those that can change an output, and channels without variance.

    ``idle`` are the live channels of shortcuts whose variance is 0 before training, ``empty`` the
    filters of shortcuts of which no weight is left.
    """
    shortcuts = [unit for unit in channels.units(mask) if unit.name.endswith("shortcut")]
    return {
        "parameters": pruning.remaining(mask),
        "live": channels.live_weights(mask),
        "idle": sum(int(np.count_nonzero(unit.idle)) for unit in shortcuts),
        "empty": sum(int(np.count_nonzero(unit.empty)) for unit in shortcuts),
    }


def _weights(checkpoint: Checkpoint | None) -> Path:
    """The folder of weights that this code, on this device, has trained."""
    if checkpoint is None:
        return Path(tempfile.mkdtemp())
    made_by = repr(environment(measure)).encode()
    return checkpoint.path.parent / "weights" / hashlib.sha256(made_by).hexdigest()[:16]


def _losses(run: Training, epochs: int, folder: Path, *, shrunk: bool) -> Iterator[dict[str, Any]]:
    """The loss and the share of right answers after every epoch; the last weights are kept."""
    start = begun(run)
    problem, state = start.problem, start.state
    places: Any = None
    if shrunk:
        small = channels.shrunk(start.net, start.mask)
        problem, state = training.begin(
            small.net,
            start.x,
            start.labels,
            start.problem.recipe,
            start.key,
            mask=small.mask,
            augment=start.problem.augment,
        )
        places = small.places
    for epoch in range(epochs + 1):
        if epoch:
            state, _ = training.train(problem, state, 1)
        loss, right = training.evaluated(problem, state)
        yield {"epoch": epoch, "loss": loss, "right": right}
    whole = state if places is None else channels.put_back(start.state, state, places)
    keep(folder, run, epochs, whole)


def _largest(
    run: Training, net: nnx.Module, epsilon: float, epoch: int, measured: int
) -> Iterator[dict[str, Any]]:
    """lambda_max of all columns with its right vector's shares, and of the columns left."""
    changed = nnx.clone(net)
    for _, node in nnx.iter_graph(changed):
        if isinstance(node, nnx.BatchNorm):
            node.epsilon = epsilon
    of = kernels.cast(kernels.function(run, changed, "batches", epoch), jnp.float32)
    x = jnp.concatenate([batch for group in of.wide for batch in group])[:measured]
    of = replace(
        of, wide=tuple(x[first : first + run.batch][None] for first in range(0, len(x), run.batch))
    )
    value, residual, vector = kernels.top(of, kernels.ALL, STEPS, run.seed)
    found = {"epoch": epoch, "lambda_max": value, "residual": residual}
    shares = _shares(kernels.pulled(of, kernels.ALL, vector), begun(run).mask)
    whole = {name: sum(share[name] for share in shares) for name in shares[0] if name != "tensor"}
    yield {**found, "columns": kernels.ALL, "tensor": "all", **whole}
    for share in sorted(shares, key=lambda one: -one["share"])[:SHOWN]:
        yield {"epoch": epoch, "columns": kernels.ALL, **share}
    if not of.kept.all():
        value, residual = kernels.largest(of, kernels.LEFT, STEPS, run.seed)
        found = {"epoch": epoch, "lambda_max": value, "residual": residual}
        yield {**found, "columns": kernels.LEFT, "tensor": "all"}


def _shares(right: Any, mask: Any) -> list[dict[str, Any]]:
    """Of a right vector what each tensor has of its squared length.

    ``share_pruned`` is in pruned weights, and ``share_idle`` in pruned weights of channels of
    variance 0.
    """
    idle = {unit.name: unit.idle for unit in channels.units(mask)}
    left = channels.named(mask)
    squares = {
        name: np.square(np.asarray(leaf, float)) for name, leaf in channels.named(right).items()
    }
    total = sum(square.sum() for square in squares.values())
    found = []
    for name, square in squares.items():
        pruned = square * ~np.asarray(left[name], bool) / total
        unit = name.removesuffix("/conv/kernel")
        of_idle = pruned[..., idle[unit]].sum() if unit in idle else 0.0
        found.append(
            {
                "tensor": name,
                "share": float(square.sum() / total),
                "share_pruned": float(pruned.sum()),
                "share_idle": float(of_idle),
            }
        )
    return found


def cost(
    what: str,
    width: int,
    samples: int,
    side: int,
    shrunk: bool,
    pruned: float,
    epoch: int,
    measured: int,
) -> float:
    """Multiplications: an epoch takes four passes, a step of Lanczos six."""
    kind = KINDS[NETWORK]
    live = (1 - pruned) if shrunk else 1.0
    work = kind.work * (width * live / kind.width) ** 2 * ((side or 32) / 32) ** 2
    return work * (4.0 * samples * epoch if what == LOSSES else 12.0 * STEPS * measured)


def shape(
    what: str, width: int, tensors: str, pruned: float, shrunk: bool, epsilon: float
) -> tuple[Any, ...]:
    return what, width, shrunk and (tensors, pruned), epsilon


def sources(config: ConfigDict) -> list[str]:
    run = Training(
        NETWORK,
        config.depth,
        1,
        config.data,
        config.samples,
        config.side,
        KERNELS,
        0.0,
        True,
        0,
        config.batch,
    )
    return [begun(run).source]


EXPERIMENT = Experiment(
    "dead_channels",
    settings,
    measure,
    cost,
    columns=(
        *("figure", "what", "width", "tensors", "pruned", "shrunk", "epsilon", "seed", "epoch"),
        *MEASURED,
        *COUNTS,
        *("samples", "measured", "inputs", "outputs", "data", "batch", "depth"),
    ),
    claims=CLAIMS,
    sources=sources,
    shape=shape,
    watch="lambda_max",
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
