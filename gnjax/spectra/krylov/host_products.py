"""Products of an operator with vectors in host memory, where Krylov methods keep their basis."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from gnjax.numerics.decompositions.threads import one_thread
from gnjax.numerics.host import HostProduct
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.facts import check_symmetric, facts_of
from gnjax.operators.prepare import prepared_product
from gnjax.operators.protocol import Operator


def too_large(size: int, vectors: int, limits: Limits = LIMITS, itemsize: int = 8) -> str:
    """Why a basis of so many vectors, of numbers of ``itemsize`` bytes, does not fit, or ""."""
    allowed, least = limits.basis_rows(size, itemsize), min(vectors, size)
    if least <= allowed:
        return ""
    also = "" if limits.vectors is None else f", vectors={least}"
    size_in_bytes = itemsize * size * least
    return (
        f"an operator of {size:,} rows needs a Krylov basis of at least {least} vectors, "
        f"{1e-9 * size_in_bytes:.3g} GB in float{8 * itemsize}, and limits allow {allowed}; pass "
        f"limits=gnjax.Limits(basis_bytes={size_in_bytes:_}{also}) if the machine has the memory"
    )


class NotFinite(ValueError):
    """A product with the operator contains NaN or Inf."""


def refuse_nonfinite(numbers: np.ndarray | float) -> None:
    """Raise :class:`NotFinite` where products with an operator, or its entries, are NaN or Inf."""
    if not np.isfinite(numbers).all():
        msg = (
            "the operator returns NaN or Inf; look for them in its weights and data, and for "
            "derivatives that are infinite, as that of a root or a norm is at zero"
        )
        raise NotFinite(msg)


def host_product(op: Operator, multiply: Callable[[Any], Any] | None = None) -> HostProduct:
    """A function from rows (b, n) in host memory to their products with the operator, in float64.

    ``multiply`` is the operator's product with vectors or columns, where it is there already. An
    operator whose products are not symmetric is refused.
    """
    of_columns = prepared_product(op) if multiply is None else multiply

    def apply(rows: np.ndarray) -> np.ndarray:
        """The products; one row goes as a vector, which is faster than a column.

        It stays a numpy array: to convert or transpose it with JAX would take a quarter of the time
        of a small network's product.
        """
        block = rows.astype(op.dtype, copy=False)
        if len(block) == 1:
            images = np.asarray(of_columns(block[0]), np.float64)[None]
        else:
            images = np.asarray(of_columns(block.T), np.float64).T
        refuse_nonfinite(images)
        return images

    check_symmetric(op, apply)
    return apply


def singly(op: Operator, product: HostProduct) -> HostProduct:
    """The same products, one row after the other where several at once take no less time.

    So each of them is heard of, and no program for several is compiled.
    """
    if not facts_of(op).one_by_one:
        return product
    return lambda rows: np.concatenate([product(row[None]) for row in rows])


def vector_product(op: Operator) -> Callable[[Any], Any]:
    """A function from vectors (n,), wherever they are, to products; refused as those with rows."""
    multiply = prepared_product(op)
    host_product(op, multiply)
    return multiply


def beside_xla() -> AbstractContextManager[object]:
    """Limit BLAS to one thread while its small products alternate with large products of XLA.

    Otherwise the threads of BLAS keep the cores busy after each product while XLA needs them.
    """
    return one_thread() if jax.default_backend() == "cpu" else nullcontext()
