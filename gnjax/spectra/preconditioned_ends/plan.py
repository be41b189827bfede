"""How a factor J is stored, and which preconditioner is made of it, by their cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnjax.numerics.limits import Limits
from gnjax.numerics.memory.device import free_device_memory, on_gpu
from gnjax.numerics.memory.free import free_memory
from gnjax.operators.factorisation import Factorisation

_WIDTHS = (4, 8, 16, 32, 64)  # columns of a sketch for each row of J
TOGETHER = 16  # vectors that are multiplied together
_STEPS = 10.0  # products with a block of vectors for each unit of kappa(M)^{1/2}, M preconditioned
_READING = 20.0  # reading a number of J takes as long as so many multiplications with it
_FREE = 0.7  # of the memory that is free
_TRIANGLES = 3  # matrices as large as J J^T that a Cholesky factorisation takes
_WIDE = 0.1  # of the memory allowed: a J that takes less in float64 is stored in it
_UNASKED = 12e9  # bytes for J where the caller does not say; ResNet20's for 1000 images are 10.9e9


@dataclass(frozen=True)
class Plan:
    """How to store J and to precondition J J^T.

    Attributes:
      dtype: in which J is stored.
      width: the columns of the sketch; 0 for the Gram matrix of J itself.
      block: how many vectors are multiplied together.
      work: about how many multiplications in float64 all of it takes, the rows of J left out.
      refused: why none of it is possible, or "".
      wide_fits: whether J in float64 fits in memory too.
      on_device: whether J and the preconditioner are stored on an accelerator.
    """

    dtype: np.dtype
    width: int
    block: int
    work: float
    refused: str = ""
    wide_fits: bool = False
    on_device: bool = False


def planned(factor: Factorisation, limits: Limits) -> Plan:
    """The cheapest way to store J (m, q) in memory and to precondition J J^T, or why it is refused.

    On a CPU a J that takes little memory is stored in float64, and otherwise in float32. The
    preconditioner is the Cholesky factor of J J^T itself (width 0), or of a sketch with the width
    that makes it and all later products cheapest. On a GPU, where matrix products in float64 are
    fast, J is stored in float64 if it fits there, and there is no sketch.
    """
    m, q = factor.shape
    numbers, on_device = float(m) * q, on_gpu()
    free = free_device_memory() if on_device else free_memory()[0]
    left = math.inf if free is None else _FREE * free
    unasked = _UNASKED
    if on_device and free is not None:  # the limit is what a Cholesky factorisation leaves
        left, unasked = left - _TRIANGLES * 8 * float(m) ** 2, math.inf
    allowed = unasked if limits.rows_bytes is None else limits.rows_bytes
    room = min(allowed, left)
    wide_fits = 8 * numbers <= room
    is_wide = wide_fits if on_device else 8 * numbers <= _WIDE * room
    dtype = np.dtype(np.float64 if is_wide else np.float32)
    cost = 1.0 if is_wide or on_device else 0.5  # of a multiplication in this precision
    block = min(TOGETHER, max(m // 4, 1))
    sketches = [] if on_device else [times * m for times in _WIDTHS if 2 * times * m <= q]
    work, width = min(
        (_work(m, q, block, width) * cost + m**3 / 3, width)  # m^3 / 3 for the Cholesky factor
        for width in (0, *sketches)
    )
    refused = ""
    if dtype.itemsize * numbers > room:
        cause = "limits allow" if room == allowed else "the machine has free"
        refused = (
            f"method='sketched' holds J, {m:,} x {q:,}, which takes "
            f"{1e-9 * 4 * numbers:.3g} GB in float32, and {cause} {1e-9 * room:.3g} GB; pass "
            f"limits=gnjax.Limits(rows_bytes={4 * numbers:.3g}) if the machine has the memory"
        )
    return Plan(dtype, width, block, work, refused, wide_fits, on_device)


def _work(m: int, q: int, block: int, width: int) -> float:
    """Multiplications of the preconditioner's Gram matrix and of all products, for J (m, q).

    A sketch with s = ``width`` columns has singular values within 1 +- d of those of J,
    d = (m / s)^{1/2}. The number of steps is proportional to the root of the condition number of
    the preconditioned matrix, (1 + d) / (1 - d). Each step multiplies ``block`` vectors with J and
    J^T.
    """
    distortion = (m / width) ** 0.5 if width else 0.0
    steps = _STEPS * (1 + distortion) / (1 - distortion)
    of_gram_matrix = float(m) ** 2 * (width or q) / 2  # half, as it is symmetric
    return of_gram_matrix + steps * 2 * m * q * (block + _READING)
