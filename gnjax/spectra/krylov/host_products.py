"""Products of an operator with rows of host memory, where the Krylov methods keep their bases."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.base import Operator
from gnjax.operators.facts import check_symmetric
from gnjax.operators.prepare import prepared_product
from gnjax.spectra.krylov import lanczos


def too_large(size: int, vectors: int, limits: Limits = LIMITS) -> str:
    """Why a Krylov basis of so many vectors cannot be held, or "" where it can."""
    if min(vectors, size) <= limits.basis_rows(size):
        return ""
    least = min(vectors, size)
    also = "" if limits.vectors is None else f", vectors={least}"
    return (
        f"an operator of {size:,} rows needs a Krylov basis of at least {least} vectors, "
        f"{8e-9 * size * least:.3g} GB, and limits allow {limits.basis_rows(size)}; pass "
        f"limits=gnjax.Limits(basis_bytes={8 * size * least:_}{also}) if the machine has the memory"
    )


BASIS_BYTES = LIMITS.basis_bytes


class NotFinite(ValueError):
    """A product has NaN or Inf in it."""


def most_rows(size: int) -> int:
    """How many vectors of a length a Krylov basis may hold."""
    return LIMITS.basis_rows(size)


def host_product(op: Operator) -> lanczos.Apply:
    """The operator on rows of host memory, refused where its products are not symmetric.

    A row by itself goes as a vector, and without a copy by jax before the compiled call makes its
    own: that is a quarter of the time of a small network's product.
    """
    multiply = prepared_product(op)

    def apply(rows: np.ndarray) -> np.ndarray:
        block = rows.astype(op.dtype, copy=False)
        images = multiply(block[0])[None] if len(block) == 1 else multiply(block.T).T
        images = np.asarray(images, np.float64)
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
    return threadpool_limits(1, user_api="blas") if on_cpu else nullcontext()
