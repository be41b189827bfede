"""Diagonal matrices: priors, weight decay of single parameters, second moments of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import conversion_error, raised, stored_bound
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import gamma
from gnjax.numerics.scale import largest_exponent
from gnjax.numerics.validation import check_finite_number, check_matrix
from gnjax.operators.algebra import Algebra
from gnjax.operators.facts import STATED_RANK, Facts


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Diagonal(Algebra):
    """The matrix with ``entries`` (n,) on its diagonal, up to ``stored_error`` in the 2-norm.

    >>> op = gnjax.diagonal([4.0, 0.0, 1.0])
    >>> op.mv(np.ones(3)).tolist(), op.facts().rank().value
    ([4.0, 0.0, 1.0], 2)
    """

    entries: jax.Array
    stored_error: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.entries), len(self.entries)

    @property
    def dtype(self) -> jnp.dtype:
        return self.entries.dtype

    @jax.jit
    def mv(self, v: jax.Array) -> jax.Array:
        return jax.lax.broadcast_in_dim(self.entries, v.shape, (0,)) * v

    def as_matrix(self) -> jax.Array:
        return jnp.diag(self.entries)

    def facts(self) -> Facts:
        """What is known about a diagonal matrix: its eigenvalues are its entries."""
        return Facts(
            error=self._error,
            rank=self._rank,
            symmetric=True,
            eigenvalues=lambda: (np.asarray(self.entries, np.float64), self._error()),
            trace=lambda: trace_of_diagonal(np.asarray(self.entries)),
            forms_cheaply=True,
            formed_by_products=False,
            magnitude=partial(largest_exponent, self.entries),
            solve=lambda damping: Diagonal(1 / (self.entries + damping), self.stored_error).mv,
        )

    def _error(self, norm: float = 0.0) -> Error:
        """The largest error of an entry, whatever the norm is."""
        del norm
        return Error(float(self.stored_error), reason="the error of the diagonal entries")

    def _rank(self) -> RankBound:
        """A bound on the rank: the number of entries that are not zero, if they are exact."""
        is_exact = not float(self.stored_error)
        rank = np.count_nonzero(np.asarray(self.entries)) if is_exact else len(self.entries)
        return RankBound(int(rank), STATED_RANK)


def trace_of_diagonal(entries: np.ndarray) -> tuple[float, Error]:
    """The sum of the entries (n,) of a diagonal, and its rounding."""
    wide = entries.astype(np.float64)
    rounding = gamma(len(wide) + 1, np.dtype(np.float64)) * float(np.abs(wide).sum())
    return float(wide.sum()), Error(raised(rounding), reason="rounding of a sum")


def diagonal(entries: ArrayLike, *, error: float = 0.0) -> Diagonal:
    """The diagonal matrix of ``entries`` (n,), each known to ``error``.

    Its eigenvalues are the entries, so that every answer about it is proved, for any n.

    >>> gnjax.condition_number(gnjax.diagonal([4.0, 2.0, 1.0])).interval
    (3.9999999999999996, 4.000000000000001)
    >>> print(gnjax.condition_number(gnjax.diagonal([4.0, 2.0, 1.0], error=0.1)))
    kappa = 4 in [3.54545, 4.55556] (rank 3 of 3, full; stated, proved)
    """
    if np.ndim(entries) != 1:
        msg = f"entries must be a vector (n,), the diagonal alone, got shape {np.shape(entries)}"
        raise ValueError(msg)
    row = check_matrix("entries", np.asarray(entries)[None])
    array = on_device(np.asarray(row)[0])
    error_of_entries = check_finite_number("error", error)
    if error_of_entries < 0:
        msg = f"error={error} is negative; pass a bound on how far entries are from the truth"
        raise ValueError(msg)
    rounding = conversion_error(np.asarray(entries)[None], row)
    bound = raised(error_of_entries + rounding) if rounding else error_of_entries
    return Diagonal(array, stored_bound(bound, array.dtype))
