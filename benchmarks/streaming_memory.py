"""Peak memory of the largest Gauss-Newton eigenvalues of streamed batches, for N and 10 N samples.

    python -m benchmarks.streaming_memory [--save]

A convolutional network with 0.3 million parameters and the cross-entropy; batches of 64 images of
128 x 128 x 3 are generated on the fly, 2 and 20 of them, where 20 have 252 MB. Each runs in a
process of its own, of which Linux says the peak (VmHWM). For comparison all samples are given as
one array, with the same number of them at once in the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

import gnjax
from benchmarks import harness, record

BATCH, BATCHES, TIMES, SIDE, CLASSES = 64, 2, 10, 128, 10
_EIGENVALUES, _RTOL, _RUNS = 5, 0.01, 2


class Network(nnx.Module):
    """Patches of 8 x 8, two convolutions with strides, and two dense layers."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        patches = nnx.Conv(3, 32, (8, 8), strides=8, rngs=rngs)
        first = nnx.Conv(32, 64, (3, 3), strides=2, rngs=rngs)
        second = nnx.Conv(64, 128, (3, 3), strides=2, rngs=rngs)
        self.layers = nnx.List([patches, first, second])
        self.hidden = nnx.Linear(128 * (SIDE // 32) ** 2, 96, rngs=rngs)
        self.head = nnx.Linear(96, CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = nnx.gelu(layer(x))
        return self.head(nnx.gelu(self.hidden(x.reshape(len(x), -1))))


@dataclass(frozen=True)
class Generated:
    """Batches that are generated when they are asked for, each from its number as a seed."""

    batches: int

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for number in range(self.batches):
            rng = np.random.default_rng(number)
            x = rng.standard_normal((BATCH, SIDE, SIDE, 3), dtype=np.float32)
            yield x, rng.integers(0, CLASSES, BATCH)


def measure() -> Iterator[record.Row]:
    for streamed in (True, False):
        for batches in (BATCHES, TIMES * BATCHES):
            yield _row(batches, streamed)


def _row(batches: int, streamed: bool) -> record.Row:
    """What several processes measure on the same batches; memory is the largest of their peaks."""
    given = {"batches": batches, "streamed": streamed}
    count = _RUNS if streamed else 1
    runs = [harness.apart("benchmarks.streaming_memory:eigenvalues", given) for _ in range(count)]
    peaks = [1e9 * run["gigabytes"] / 2**20 for run in runs]
    case = (
        f"{_EIGENVALUES} largest Gauss-Newton eigenvalues of a CNN with {runs[0]['parameters']:,} "
        f"parameters, {batches * BATCH} images"
    )
    return record.Row(
        case,
        f"gnjax, {batches} batches made on the fly" if streamed else "gnjax, one array",
        [run["seconds"] for run in runs],
        error=max(run["error"] for run in runs),
        gigabytes=max(run["gigabytes"] for run in runs),
        note=f"peaks {', '.join(f'{peak:.0f}' for peak in peaks)} MiB",
    )


def eigenvalues(batches: int, streamed: bool) -> dict[str, Any]:
    """The seconds of the eigenvalues on this many batches, and their error."""
    data: Any = Generated(batches)
    more: dict[str, Any] = {}
    if not streamed:
        x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
        data, more = x, {"y": y, "batch_size": BATCH}
    op = gnjax.gauss_newton(Network(nnx.Rngs(0)), data, loss="cross_entropy", **more)
    seconds, found = harness.once(lambda: gnjax.eigenvalues(op, k=_EIGENVALUES, rtol=_RTOL))
    error = float(found.errors.max() / found.values.max())
    return {"seconds": seconds, "parameters": op.shape[0], "error": error}


if __name__ == "__main__":
    record.command(measure)
