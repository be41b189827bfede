"""kappa of the NTK of ResNet20 at the papers' size: seconds, peak memory, and the answer.

    python -m benchmarks.resnet_kappa [--samples=1000] [--pruned=0] [--method=auto]

n=1000 images of 32 x 32 x 3, k=10, p about 270,000: J J^T is 10,000 x 10,000, float64, and J would
take 22 GB. BatchNorm is frozen at the statistics of the samples; photograph patches stand in for
CIFAR-10. With ``--pruned`` a mask leaves out that share of the weights, drawn at random. Times are
of one cold run, compilation included.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gnjax
from benchmarks import record
from benchmarks.rivals import harness
from gnjax.models.mlp import freeze_statistics
from gnjax.models.resnet import ResNet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--pruned", type=float, default=0.0, help="the share of the weights")
    parser.add_argument("--method", default="auto", help="that of gnjax.condition_number")
    parser.add_argument("--save", action="store_true", help="write what the README's tables show")
    parser.add_argument("--folder", type=Path, default=record.FOLDER, help="where --save writes")
    options = parser.parse_args()
    samples, started = options.samples, record.environment()
    gnjax.enable_x64()
    model, x = network(samples)
    mask = _mask(model, options.pruned) if options.pruned else None
    began = time.perf_counter()
    kernel = gnjax.ntk(model, x, mask=mask)
    kappa = gnjax.condition_number(kernel, method=options.method)
    seconds = time.perf_counter() - began
    print(kappa)
    name = f"kappa of the NTK of ResNet20 ({kernel.shape[0]} x {kernel.shape[0]}, float64)"
    peak = harness.peak_bytes() / 1e9
    note = f"one cold run{f', {options.pruned:.0%} pruned' if options.pruned else ''}"
    rows = [record.Row(name, "gnjax", [seconds], gigabytes=peak, note=note)]
    record.show(rows)
    if options.save:
        record.save("resnet_kappa", rows, started, options.folder)


def _mask(model: Any, share: float) -> Any:
    """Leaves out a share of the weights of convolutions and dense layers, drawn at random."""
    rng, (_, params) = np.random.default_rng(0), gnjax.functional(model)
    return jax.tree.map(lambda w: rng.random(w.shape) >= (share if w.ndim > 1 else 0.0), params)


def network(samples: int) -> tuple[Any, jax.Array]:
    """ResNet20 with its statistics frozen, and the photograph patches."""
    data = gnjax.data.load("photo_patches", samples=samples, seed=0)
    x = jnp.asarray(data.inputs.reshape(samples, *data.shape))
    x = (x - x.mean((0, 1, 2))) / x.std((0, 1, 2))
    return freeze_statistics(ResNet(20, 10, key=jax.random.key(0)), x), x


if __name__ == "__main__":
    main()
