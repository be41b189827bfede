"""Bounds on the condition number of a sum of two symmetric matrices (Eq 12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import Certificate, Error, certificate
from gnjax.numerics.outward import above, below, frobenius_norm, raised
from gnjax.numerics.rounding import unit_roundoff
from gnjax.numerics.validation import check_matrix
from gnjax.papers.bounds.enclosures import Eigenvalues, eigenvalues


@dataclass(frozen=True, repr=False)
class Sides(Result):
    """Bounds lower <= kappa <= upper; ``upper`` is None where the theorem gives none.

    >>> found = gnjax.papers.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> found.lower <= 5 / 3 <= found.upper  # kappa of the sum
    True
    """

    lower: float
    upper: float | None
    certificate: Certificate


def weyl(a: ArrayLike, b: ArrayLike) -> Sides:
    """Eq 12: kappa(A + B) from the extreme eigenvalues of symmetric A and B, A + B >= 0.

    By Weyl, lambda_max(A + B) is at most lambda_max(A) + lambda_max(B) and at least
    lambda_max(A) + lambda_min(B). By dual Weyl, lambda_min(A + B) is at least
    lambda_min(A) + lambda_min(B) and at most lambda_min(A) + lambda_max(B). The same holds with A
    and B exchanged. Eigenvalues are first moved outwards by their errors; ``upper`` is None unless
    these inequalities prove that A + B is not singular.

    >>> found = gnjax.papers.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> round(found.lower, 9), round(found.upper, 9)
    (1.666666667, 1.666666667)
    """
    first, second = (_symmetric_eigenvalues(m) for m in (a, b))
    if first.values.shape != second.values.shape:
        sizes = len(first.values), len(second.values)
        msg = f"A and B must have the same size, got {sizes[0]} and {sizes[1]}"
        raise ValueError(msg)
    (a_low, a_top), (b_low, b_top) = first.largest, second.largest
    (a_least, a_small), (b_least, b_small) = first.smallest, second.smallest
    top = max(below(a_low + b_least), below(a_least + b_low))
    bottom = min(above(a_small + b_top), above(a_top + b_small))
    least, most = below(a_least + b_least), above(a_top + b_top)
    lower = max(1.0, below(top / bottom)) if bottom > 0 else 1.0
    upper = max(1.0, above(most / least)) if least > 0 and math.isfinite(most) else None
    part = Error(raised(first.error + second.error), reason="rounding of the eigenvalues")
    return Sides(lower, upper, certificate(part))


def _symmetric_eigenvalues(matrix: ArrayLike) -> Eigenvalues:
    check_matrix("A and B", matrix)
    host = np.asarray(matrix, np.float64)
    if host.shape[0] != host.shape[1] or np.abs(host - host.T).max() > 1e-8 * np.abs(host).max():
        msg = f"A and B must be symmetric matrices, got shape {host.shape}"
        raise ValueError(msg)
    if (host == host.T).all():
        return eigenvalues(host)
    found = eigenvalues(host / 2 + host.T / 2)
    rounding = unit_roundoff(host.dtype) * frobenius_norm(host)
    return Eigenvalues(found.values, raised(found.error + rounding))
