"""The Gauss-Newton matrix of a linear network in many digits, from the exact values of floats."""

from __future__ import annotations

import mpmath
import numpy as np

_DIGITS = 50
_DIGITS_A_LAYER = 30  # conditions multiply along the chain: 1e28 a layer at worst


def linear_eigenvalues(weights, covariance, skip, digits=None):
    """Eigenvalues of G = sum_l (S_l S_l^T) (x) (T_l T_l^T), largest first.

    Eigenvalues of the covariance below 1e-13 of its largest are zero, as they are rounding.
    """
    digits = digits or _DIGITS + _DIGITS_A_LAYER * len(weights)
    with mpmath.workdps(digits):
        layers = [_shifted(w, skip) for w in weights]
        outputs, inputs = weights[-1].shape[0], weights[0].shape[1]
        lefts = [mpmath.eye(outputs)]
        for w in layers[:0:-1]:
            lefts.append(lefts[-1] * w)
        rights = [mpmath.eye(inputs) if covariance is None else _root(covariance)]
        for w in layers[:-1]:
            rights.append(rights[-1] * w.T)
        total = mpmath.zeros(outputs * inputs)
        for s, t in zip(lefts[::-1], rights, strict=True):
            _add_kron(total, s * s.T, t * t.T)
        return sorted(mpmath.eigsy(total, eigvals_only=True), reverse=True)


def _shifted(weight, skip):
    exact = mpmath.matrix(np.asarray(weight).tolist())
    for i in range(min(exact.rows, exact.cols)):
        exact[i, i] += mpmath.mpf(float(skip))
    return exact


def _root(covariance):
    """R with R^T R = Sigma; it need not be symmetric, as only T T^T enters."""
    values, vectors = mpmath.eigsy(mpmath.matrix(np.asarray(covariance).tolist()))
    threshold = max(values) * mpmath.mpf(1e-13)
    roots = [mpmath.sqrt(v) if v > threshold else mpmath.mpf(0) for v in values]
    return mpmath.diag(roots) * vectors.T


def _add_kron(total, left, right):
    size = right.rows
    for i in range(left.rows):
        for j in range(left.cols):
            for p in range(size):
                for q in range(size):
                    total[i * size + p, j * size + q] += left[i, j] * right[p, q]
