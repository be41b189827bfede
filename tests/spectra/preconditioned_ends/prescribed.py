"""Factors with prescribed singular values, and their ends as the method takes them."""

import numpy as np

from gnjax.numerics.certificate import Error
from gnjax.numerics.limits import Limits
from gnjax.operators.factorisation import Factorisation
from gnjax.spectra.preconditioned_ends.cholesky_ends import largest_end, smallest_end
from gnjax.spectra.preconditioned_ends.plan import Plan
from gnjax.spectra.preconditioned_ends.prepared import prepared
from gnjax.spectra.watch import UNWATCHED

LIMITS = Limits()


def factor(eigenvalues, columns, seed=0):
    """J (m, q) whose J J^T has these eigenvalues, up to rounding."""
    rng = np.random.default_rng(seed)
    rows = len(eigenvalues)
    left = np.linalg.qr(rng.standard_normal((rows, rows)))[0]
    right = np.linalg.qr(rng.standard_normal((columns, rows)))[0]
    return (left * np.sqrt(eigenvalues)) @ right.T


def stated(j, *, by_rows=True, height=7):
    """The factor as an operator states it, in blocks of a few rows."""
    whole = j if by_rows else j.T
    parts = [whole[start : start + height] for start in range(0, len(whole), height)]
    return Factorisation(j.shape, lambda: j, lambda: Error(0.0), lambda: iter(parts), by_rows)


def ready(j, *, width, dtype=np.float64, by_rows=True, block=4, seed=0, on_device=False):
    """J in memory with its preconditioner, and both ends."""
    plan = Plan(np.dtype(dtype), width, block, 0.0, on_device=on_device)
    made = prepared(stated(j, by_rows=by_rows), plan, seed, UNWATCHED)
    matrix = made.matrix(UNWATCHED)
    top = largest_end(matrix, block)
    return made, smallest_end(matrix, made.triangle, block, top.norm), top
