"""kappa of the NTK of ResNet20 at the papers' size: seconds, peak memory, and the answer.

    python -m benchmarks.resnet_kappa [--samples=1000] [--pruned=0] [--method=auto] [--save]

n=1000 images of 32 x 32 x 3, k=10, p about 270,000: J J^T is 10,000 x 10,000, float64, and J would
take 22 GB. BatchNorm is frozen at the statistics of the samples; photograph patches stand in for
CIFAR-10. With ``--pruned`` a mask leaves out that share of the weights, drawn at random. Times are
of one cold run in a process of its own, compilation included.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gnjax
from benchmarks import harness, record
from gnjax.models import ResNet, freeze_statistics


def measure(samples: int = 1000, pruned: float = 0.0, method: str = "auto") -> list[record.Row]:
    given = {"samples": samples, "pruned": pruned, "method": method}
    found = harness.apart("benchmarks.resnet_kappa:cold", given)
    print(found["answer"])
    name = f"kappa of the NTK of ResNet20 ({found['rows']} x {found['rows']}, float64)"
    note = f"one cold run{f', {pruned:.0%} pruned' if pruned else ''}"
    gigabytes = found["gigabytes"]
    return [record.Row(name, "gnjax", [found["seconds"]], gigabytes=gigabytes, note=note)]


def cold(samples: int, pruned: float, method: str) -> dict[str, Any]:
    """The seconds of kappa, from the model on."""
    gnjax.enable_x64()
    model, x = network(samples)
    mask = random_mask(model, pruned) if pruned else None

    def answer() -> tuple[int, gnjax.answers.ConditionNumber]:
        kernel = gnjax.ntk(model, x, mask=mask)
        return kernel.shape[0], gnjax.condition_number(kernel, method=method)

    seconds, (rows, kappa) = harness.once(answer)
    return {"seconds": seconds, "rows": rows, "answer": str(kappa)}


def random_mask(model: Any, share: float) -> Any:
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
    record.command(measure)
