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
from gnjax.papers.bounds.enclosures import Eigenvalues, enclosed_eigenvalues


@dataclass(frozen=True, repr=False)
class Sides(Result):
    """Bounds lower <= kappa <= upper; ``upper`` is None where the theorem gives none.

    >>> sides = gnjax.papers.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> sides.lower <= 5 / 3 <= sides.upper  # kappa of the sum
    True
    """

    lower: float
    upper: float | None
    certificate: Certificate


def weyl(a: ArrayLike, b: ArrayLike) -> Sides:
    """Eq 12: kappa(A + B) from the eigenvalues of symmetric A and B, A + B >= 0.

    By Weyl, lambda_max(A + B) is at most lambda_max(A) + lambda_max(B), and lambda_min(A + B) at
    most lambda_j(A) + lambda_{n+1-j}(B) for every j. By dual Weyl, lambda_min(A + B) is at least
    lambda_min(A) + lambda_min(B), and lambda_max(A + B) at least lambda_j(A) + lambda_{n+1-j}(B)
    for every j. Eigenvalues are first moved outwards by their errors; ``upper`` is None unless
    these inequalities prove that A + B is not singular.

    >>> sides = gnjax.papers.bounds.weyl(np.diag([4.0, 2.0]), np.diag([1.0, 1.0]))
    >>> round(sides.lower, 9), round(sides.upper, 9)
    (1.666666667, 1.666666667)
    """
    first, second = (_symmetric_eigenvalues(m) for m in (a, b))
    if first.values.shape != second.values.shape:
        sizes = len(first.values), len(second.values)
        msg = f"A and B must have the same size, got {sizes[0]} and {sizes[1]}"
        raise ValueError(msg)
    # The intervals of lambda_j(A) and lambda_{n+1-j}(B), (lower end, upper end) each.
    crossed = list(zip(first.intervals, reversed(second.intervals), strict=True))
    top = max(below(a + b) for (a, _), (b, _) in crossed)
    bottom = min(above(a + b) for (_, a), (_, b) in crossed)
    least = below(first.intervals[0][0] + second.intervals[0][0])
    most = above(first.intervals[-1][1] + second.intervals[-1][1])
    lower = max(1.0, below(top / bottom)) if bottom > 0 else 1.0
    upper = max(1.0, above(most / least)) if least > 0 and math.isfinite(most) else None
    part = Error(raised(first.error + second.error), reason="rounding of the eigenvalues")
    return Sides(lower, upper, certificate(part))


def _symmetric_eigenvalues(matrix: ArrayLike) -> Eigenvalues:
    """The eigenvalues of ``matrix`` M with proved errors; one that is not symmetric is refused.

    Up to 1e-8 of its largest entry M may differ from M^T, by rounding. The eigenvalues are then
    those of (M + M^T) / 2.
    """
    check_matrix("A and B", matrix)
    host = np.asarray(matrix, np.float64)
    if host.shape[0] != host.shape[1] or np.abs(host - host.T).max() > 1e-8 * np.abs(host).max():
        msg = f"A and B must be symmetric matrices, got shape {host.shape}"
        raise ValueError(msg)
    if (host == host.T).all():
        return enclosed_eigenvalues(host)
    of_symmetric_part = enclosed_eigenvalues(host / 2 + host.T / 2)
    rounding = unit_roundoff(host.dtype) * frobenius_norm(host)
    return Eigenvalues(of_symmetric_part.values, raised(of_symmetric_part.error + rounding))
