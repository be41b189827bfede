"""Sparse matrices of SciPy and JAX: stored numbers, which are taken as exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import conversion_error, frobenius_norm, raised
from gnjax.numerics.rounding import unit_roundoff
from gnjax.numerics.validation import check_finite
from gnjax.operators.elsewhere.black_box import HostProducts
from gnjax.operators.elsewhere.products import ForeignProducts, products_of, working_dtype
from gnjax.operators.facts import Facts
from gnjax.operators.stored.diagonal import trace_of_diagonal
from gnjax.operators.stored.matrices import ASYMMETRY


@dataclass(frozen=True, repr=False, eq=False)
class Sparse(HostProducts):
    """A symmetric sparse matrix ``matrix`` of SciPy, up to ``stored`` in the 2-norm."""

    matrix: Any
    stored: Error
    products: ForeignProducts

    def facts(self) -> Facts:
        """The error is that of the entries, and what products lose in a narrower precision."""
        return Facts(
            error=lambda norm: self.stored + self.narrowing(norm),
            symmetric=True,
            trace=lambda: trace_of_diagonal(self.matrix.diagonal()),
            forms_cheaply=True,
            formed_by_products=False,
            product=lambda: self.multiply,
        )

    def as_matrix(self) -> jax.Array:
        return on_device(self.matrix.toarray(), self.dtype)


def sparse(matrix: Any, error: Error | None = None) -> Sparse | None:
    """The operator of (M + M^T) / 2 for a sparse matrix M; None for what is no sparse matrix.

    ``error`` is that of the entries of M, if it is known.
    """
    if hasattr(matrix, "tocsr") and hasattr(matrix, "toarray"):
        rows = matrix.tocsr()
    else:
        is_bcoo = all(hasattr(matrix, name) for name in ("indices", "data", "todense", "n_batch"))
        if not is_bcoo or np.ndim(matrix.indices) != 2 or np.ndim(matrix.data) != 1:
            return None
        from scipy.sparse import coo_array  # 0.1 s of import, which not every user needs

        indices, shape = np.asarray(matrix.indices).T, tuple(matrix.shape)  # (2, entries)
        inside = (indices < np.array(shape)[:, None]).all(axis=0)  # JAX fills up with others
        rows = coo_array((np.asarray(matrix.data)[inside], indices[:, inside]), shape).tocsr()
    products = products_of(rows)
    if products is None or 0 in products.shape or products.dtype.kind != "f":
        msg = f"a sparse matrix holds real numbers, got dtype {rows.dtype}, shape {rows.shape}"
        raise ValueError(msg)
    original, rows = rows, rows.astype(products.dtype)
    with np.errstate(over="ignore"):  # refused below
        narrow = rows.data.astype(working_dtype(products), copy=False)
    check_finite("the sparse matrix", original.data, narrow, "a spectrum needs finite entries")
    half, asymmetry = _symmetric_part(rows)
    total_error = asymmetry + Error(conversion_error(original.data[None], rows.data[None]))
    total_error = total_error if error is None else error + total_error
    products_of_half = ForeignProducts(
        type(matrix).__name__, products.shape, products.dtype, half.__matmul__
    )
    return Sparse(half, total_error, products_of_half)


def _symmetric_part(rows: Any) -> tuple[Any, Error]:
    """(M + M^T) / 2 and its rounding; refused if M = ``rows`` is not symmetric up to rounding."""
    difference = abs(rows - rows.T)
    largest_difference = float(difference.max())
    if largest_difference == 0:
        return rows, Error(0.0)
    largest = float(abs(rows).max())
    if largest_difference > ASYMMETRY * largest:
        msg = (
            f"the sparse matrix must be symmetric, but entries differ from their mirror by "
            f"{largest_difference:.3g} where the largest entry is {largest:.3g}; pass "
            "(M + M.T) / 2 if that is rounding"
        )
        raise ValueError(msg)
    half = ((rows + rows.T) / 2).tocsr()
    rounding = raised(unit_roundoff(half.dtype) * frobenius_norm(half.data[None]))
    return half, Error(rounding, reason="rounding of (M + M^T) / 2")
