"""The parts of a Gauss-Newton matrix that come from the samples or tokens of each label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnjax.networks import jacobians, kernels
from gnjax.networks.network import Network
from gnjax.networks.rounding import (
    checked,
    forms_of_kernel,
    forms_of_rows,
    measure_jacobian,
    probe_rows,
)
from gnjax.numerics.certificate import Error
from gnjax.numerics.host import length
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised
from gnjax.numerics.rank_bound import RankBound, least
from gnjax.numerics.rounding import gamma
from gnjax.operators.blocks.diagonal_blocks import (
    DiagonalBlocks,
    formed_operator,
    off_share,
    share_outside,
)
from gnjax.operators.factorisation import gram_error
from gnjax.operators.facts import rank_of
from gnjax.operators.of_networks.network_gram import NetworkGram


def row_parts(
    op: Any, labels: np.ndarray, *, centred: bool = False, limits: Limits = LIMITS
) -> tuple[list[str], list[int], DiagonalBlocks]:
    """The labels, how many samples or tokens have each, and the parts G_c as operators.

    With the rows J_c of J that have the label c, G = scale J^T J is the sum of the parts
    G_c = scale J_c^T J_c. They come from J if it fits in memory, and otherwise from the kernel
    K = scale J J^T, whose diagonal blocks K_cc have the non-zero eigenvalues of G_c.

    Args:
      op: a Gauss-Newton matrix, an NTK or an empirical Fisher matrix.
      labels: integers or strings (n,), or several for each sample, such as one for each token; the
        rows of a sample are divided equally among its labels. Rows with a label below zero are
        left out of the parts and of their sum.
      centred: whether the mean of the rows is subtracted from each of them first.
      limits: of memory.
    """
    if not isinstance(op, NetworkGram) or op.factorisation() is None:
        msg = (
            f"parts by labels are of a sum over samples with a factor, got a {type(op).__name__}; "
            "pass gnjax.gauss_newton(model, x) or gnjax.empirical_fisher(model, x, y)"
        )
        raise ValueError(msg)
    net = op.net
    names, counts, rows_of_labels = _rows_of(net, np.asarray(labels))
    sizes = [len(rows_of_label) for rows_of_label in rows_of_labels]
    # The rows with a label, sorted by their labels, and the indices of each label among these.
    chosen_rows = np.concatenate(rows_of_labels)
    parts = np.split(np.arange(len(chosen_rows)), np.cumsum(sizes)[:-1])
    rows = net.samples * net.rows
    has_jacobian = 8.0 * rows * net.parameters <= limits.factor_bytes
    # else the kernel, and its rows and columns with a label
    if not has_jacobian and 16.0 * rows**2 > limits.factor_bytes:
        msg = (
            f"neither a Jacobian of {rows:,} x {net.parameters:,} nor a kernel of {rows:,} rows is "
            "within limits.factor_bytes; give fewer samples, or one label at a time with "
            "weights=(labels == label)"
        )
        raise ValueError(msg)
    measurement, root = measure_jacobian(net), op.scale**0.5  # before J takes its memory
    formed = jacobians.jacobian(net) if has_jacobian else kernels.output_gram(net)
    forms = (forms_of_rows if has_jacobian else forms_of_kernel)(probe_rows(net), formed)
    error = checked(measurement.whole, measurement.forms, forms).scaled(root)
    if has_jacobian:
        jacobian = root * formed[chosen_rows]
        matrices, error, share, share_error = _of_jacobian(jacobian, parts, error, centred)
    else:
        kernel = op.scale * formed[np.ix_(chosen_rows, chosen_rows)]
        matrices, error, share, share_error = _of_kernel(kernel, parts, error, centred)
    blocks = DiagonalBlocks(
        tuple(formed_operator(matrix, has_jacobian, error, op) for matrix in matrices),
        share,
        share_error,
        "jacobian" if has_jacobian else "kernels",
        lambda: [least(RankBound(size), rank_of(op)) for size in sizes],
    )
    return names, counts, blocks


def _of_jacobian(
    jacobian: np.ndarray, parts: Sequence[np.ndarray], error: Error, centred: bool
) -> tuple[list[np.ndarray], Error, float, Error]:
    """The rows J_c of each part, their error, and the share outside of the blocks with its error.

    ``jacobian`` (m, p) is scale^{1/2} J, known to ``error``. The share outside is that of J J^T
    outside the blocks J_c J_c^T: J_c^T are columns of J^T, and :func:`off_share` takes columns.
    With ``centred`` the mean of all rows is subtracted first, in place.
    """
    if centred:
        size = length(jacobian)
        jacobian -= jacobian.mean(axis=0)
        error += _rounding(len(jacobian), size)
    matrices = [jacobian[rows_of_part] for rows_of_part in parts]
    return matrices, error, *off_share([(matrix.T, True) for matrix in matrices], error)


def _of_kernel(
    kernel: np.ndarray, parts: Sequence[np.ndarray], error: Error, centred: bool
) -> tuple[list[np.ndarray], Error, float, Error]:
    """The blocks K_cc of each part, their error, and the share outside of them with its error.

    ``kernel`` (m, m) is K = scale J J^T for the m rows of J with a label, sorted by labels, and
    ``error`` that of scale^{1/2} J. If ``centred``, the mean of all rows of J is subtracted from
    each, which subtracts the means of rows and of columns from K and adds the mean of its entries.
    """
    trace = float(np.trace(kernel))
    if centred:
        mean = kernel.mean(axis=0)
        kernel = kernel - mean - mean[:, None] + mean.mean()
        error += _rounding(len(kernel), trace**0.5)
    matrices = [kernel[np.ix_(part, part)] for part in parts]
    # the share of ||K||_F^2 outside of the blocks; the trace is at least ||K||_2
    inside = math.hypot(*map(length, matrices))
    return matrices, error, *share_outside(inside, length(kernel), gram_error(trace, error))


def _rounding(rows: int, size: float) -> Error:
    """The rounding of subtracting their mean from ``rows`` rows of the Frobenius norm ``size``.

    A mean of m numbers x is wrong by at most gamma_m times the mean of |x|, and so by gamma_m
    m^{-1/2} times their length. It is subtracted from m rows, so that all errors together have at
    most the length gamma_m times ``size``. gamma_{2m+8} has room for the subtraction.
    """
    bound = raised(gamma(2 * rows + 8, np.dtype(np.float64)) * size)
    return Error(bound, reason="rounding of the mean of the rows")


def _rows_of(net: Network, labels: np.ndarray) -> tuple[list[str], list[int], list[np.ndarray]]:
    """The labels in order, how often each occurs, and the indices of the rows of J with each.

    ``labels`` are (n,), or have several labels for each of the n samples, among which the r rows
    that a sample has in J (n r, p) are divided equally. Labels below zero are left out.
    """
    n, r = net.samples, net.rows
    if labels.shape[:1] != (n,) or r % (labels.size // n) or labels.dtype.kind not in "iuUS":
        msg = (
            f"labels are integers or strings, one for each of the {n} samples or for each of their "
            f"tokens; got shape {labels.shape}, dtype {labels.dtype}, where a sample has {r} rows"
        )
        raise ValueError(msg)
    per_sample = labels.size // n
    label_of_row = np.repeat(labels.ravel(), r // per_sample)
    distinct = np.unique(labels)
    distinct = distinct[distinct >= 0] if labels.dtype.kind == "i" else distinct
    if not len(distinct):
        msg = "every label is below zero, so that no sample is in any part"
        raise ValueError(msg)
    counts = [int((labels == label).sum()) for label in distinct]
    rows = [np.flatnonzero(label_of_row == label) for label in distinct]
    return [str(label) for label in distinct], counts, rows
