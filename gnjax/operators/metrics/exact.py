"""The exact diagonal of an operator on the parameters of a network, and its diagonal blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.frameworks import PyTree
from gnjax.networks.jacobians import row_blocks
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.operators.facts import facts_of
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.protocol import Operator
from gnjax.operators.unit_vectors import diagonal_by_products


def diagonal_of(op: Operator, *, limits: Limits = LIMITS) -> PyTree:
    """The exact diagonal of an operator on the parameters of a network, as a tree like them.

    For a Gauss-Newton matrix, the entries are the squared lengths of the columns of J, summed over
    batches of samples, for any number of parameters. The diagonal of any other operator takes a
    product for every parameter, or its matrix, and for more than ``limits.matrix_rows`` parameters
    it is refused: :func:`gnjax.estimate_diagonal` then has every entry with its standard error.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> gnjax.metrics.diagonal_of(op).ravel().tolist()
    [0.5, 2.0]
    """
    inner = on_parameters(op)
    return inner.unravel(jnp.asarray(exact_diagonal(inner, limits), inner.dtype))


def on_parameters(op: Any) -> Any:
    """The same operator with ``side`` "parameters"."""
    return replace(op, side="parameters") if isinstance(op, NetworkGram) else op


def exact_diagonal(op: Any, limits: Limits = LIMITS) -> np.ndarray:
    """diag(A) (p,), exact but for rounding.

    Without a Jacobian the entries come from products with unit vectors, or from the matrix where it
    is formed more cheaply.
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        squares = (
            np.square(np.asarray(rows, np.float64)).sum(axis=0) for rows in row_blocks(op.net)
        )
        total: np.ndarray = op.scale * sum(squares)
        return total
    _check_size("the exact diagonal", op, limits)
    if facts_of(op).formed_by_products:
        return diagonal_by_products(op)
    return np.diagonal(np.asarray(op.as_matrix(), np.float64)).copy()


def _check_size(what: str, op: Any, limits: Limits) -> None:
    """Refuse what takes a product for every parameter, or the matrix, of too many of them."""
    size = op.shape[0]
    if size > limits.matrix_rows:
        msg = (
            f"{what} of a {type(op).__name__} of {size:,} parameters takes {size:,} products or a "
            f"matrix of {8e-9 * size**2:.3g} GB, and limits allow {limits.matrix_rows:,} rows; use "
            "gnjax.estimate_diagonal(op), which has the diagonal with its standard error from some "
            f"products, or allow it where a function takes limits=gnjax.Limits(matrix_rows={size})"
        )
        raise ValueError(msg)


def exact_blocks(op: Any, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The diagonal blocks of A for the parameters at the indices of each part.

    Those of scale J^T J are summed over blocks of rows of J, so that A is never in memory.
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        totals = [np.zeros((len(indices), len(indices))) for indices in parts]
        for rows in row_blocks(op.net):
            host_rows = np.asarray(rows, np.float64)
            for indices, total in zip(parts, totals, strict=True):
                total += host_rows[:, indices].T @ host_rows[:, indices]
        return [op.scale * total for total in totals]
    _check_size("the exact diagonal blocks", op, LIMITS)
    matrix = np.asarray(op.as_matrix(), np.float64)
    return [matrix[np.ix_(indices, indices)] for indices in parts]
