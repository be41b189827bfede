"""Products of an operator with rows of host memory, where the Krylov methods keep their bases."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.base import Operator
from gnjax.operators.facts import check_symmetric
from gnjax.operators.prepare import prepared_product
from gnjax.spectra import lanczos


def too_large(size: int, vectors: int, limits: Limits = LIMITS) -> str:
    """Why a Krylov basis of so many vectors cannot be held, or "" where it can."""
    if min(vectors, size) <= limits.basis_rows(size):
        return ""
    return (
        f"an operator of {size:,} rows needs a Krylov basis of at least {vectors} vectors, "
        f"{8e-9 * size * vectors:.3g} GB, and limits.basis_bytes allows "
        f"{limits.basis_bytes / 1e9:.3g} GB; pass limits=gnjax.Limits(basis_bytes=..) if the "
        "machine has the memory"
    )


class NotFinite(ValueError):
    """A product has NaN or Inf in it."""


def host_product(op: Operator) -> lanczos.Apply:
    """The operator on rows of host memory, refused where its products are not symmetric.

    A row by itself goes as a vector, without a copy before the compiled call makes its own, and
    axes are changed by numpy: for a small network either takes a quarter of a product's time.
    """
    multiply = prepared_product(op)

    def apply(rows: np.ndarray) -> np.ndarray:
        block = rows.astype(op.dtype, copy=False)
        if len(block) == 1:
            images = np.asarray(multiply(block[0]), np.float64)[None]
        else:
            images = np.asarray(multiply(block.T), np.float64).T
        if not np.isfinite(images).all():
            msg = "the operator returns NaN or Inf; remove them from its weights and data"
            raise NotFinite(msg)
        return images

    check_symmetric(op, apply)
    return apply


def beside_xla() -> AbstractContextManager[object]:
    """One thread for BLAS where the host's small products and XLA's large ones alternate.

    Those of a second pool spin for a while after each product, on the cores that XLA needs.
    """
    on_cpu = jax.default_backend() == "cpu"
    return _pools().limit(limits=1, user_api="blas") if on_cpu else nullcontext()


@cache
def _pools() -> ThreadpoolController:
    """The thread pools of this process; finding them takes as long as some products."""
    return ThreadpoolController()
