"""How much goes through the device at once, decided for the device that computes.

On a CPU the caches decide, and what storing a Jacobian pays was measured there. None of these
numbers says anything about an accelerator: there its memory decides, and a Jacobian is stored only
where the caller asks for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import jax

_PARTS = 16  # one evaluation may write this fraction, 1 / 16, of an accelerator's memory


@dataclass(frozen=True)
class Device:
    """How much one evaluation of a network may write on a device.

    Attributes:
      batch: the numbers that the evaluation of a batch of samples may write.
      columns: the numbers that a product with several columns at once may write.
      stores: whether a Jacobian is stored unasked, where that pays by rates measured on a CPU.
      samples: the samples of a batch at most. A CPU adds many terms of one sign with an error that
        grows like their number, so that batches are added up by themselves.
      passes: how often a batch goes through all parameters, at the least: it may write as many
        numbers as that in any case.
    """

    batch: float
    columns: float
    stores: bool
    samples: float = math.inf
    passes: float = 0.0

    def written(self, parameters: int) -> float:
        """The numbers that a batch may write, for a network of so many parameters."""
        return max(self.batch, self.passes * parameters)


# More would leave the caches. A product with 7 million parameters, each of which is read and
# written for every batch, takes 0.8 of the time where a batch writes twelve times as much as they.
CPU = Device(batch=2.5e7, columns=3.5e6, stores=True, samples=1024, passes=12.0)


def device() -> Device:
    """The limits for JAX's default backend."""
    backend = jax.default_backend()
    return CPU if backend == "cpu" else _accelerator(backend)


@cache
def _accelerator(backend: str) -> Device:
    """The limits from the memory of one device, and never less than those of a CPU.

    One evaluation may write as many float64 numbers as fill 1/16 of the memory.
    """
    room = (jax.local_devices(backend=backend)[0].memory_stats() or {}).get("bytes_limit", 0)
    numbers = room / (8 * _PARTS)  # 8 bytes each
    return Device(max(numbers, CPU.batch), max(numbers, CPU.columns), stores=False)


def on_gpu() -> bool:
    """Whether arrays live on a GPU, where float64 and LAPACK's factorisations are at hand."""
    return jax.default_backend() == "gpu"


def free_device_memory() -> float | None:
    """The bytes of the first device that are not taken yet; None where it does not say."""
    stats = jax.local_devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit")
    return None if limit is None else float(limit - stats.get("bytes_in_use", 0))
