"""The diagonal blocks of an operator on a network's parameters, and the share outside them.

For G = scale J^T J with the columns J_b of the parameters of block b,

    G_bb = scale J_b^T J_b,  twin K_b = scale J_b J_b^T,  K = sum_b K_b the twin of G,
    |G|_F^2 = |K|_F^2,  |G_bb|_F^2 = |K_b|_F^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from gnjax.networks import jacobians, kernels
from gnjax.networks.network import Network, restricted
from gnjax.networks.null_space.ranks import entry_rank_bounds
from gnjax.networks.parameters import indices_of
from gnjax.networks.rounding import (
    checked,
    forms_of_kernel,
    forms_of_rows,
    measure_jacobian,
    probe_rows,
)
from gnjax.numerics.certificate import Error, unknown
from gnjax.numerics.host import length, on_device
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.outward import raised, stored_bound
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import LAPACK_ROUNDING, gamma, spectral_error
from gnjax.operators.factorisation import gram_error
from gnjax.operators.facts import check_symmetric, error_of, facts_of, symmetry_of, twin_of
from gnjax.operators.metrics.exact import on_parameters
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.prepare import prepared_product
from gnjax.operators.protocol import Operator
from gnjax.operators.stored.matrices import Dense, Factored
from gnjax.operators.trees import network_of

_COLUMNS = 64


@dataclass(frozen=True)
class DiagonalBlocks:
    """The blocks G_bb as operators, and the share of |G|_F^2 outside of the blocks.

    Attributes:
      operators: one for each block: the block, or a smaller operator with the same non-zero
        eigenvalues (its twin).
      off_share: |G - blockdiag(G)|_F^2 / |G|_F^2; nan for G = 0.
      off_error: a bound on the error of ``off_share``.
      method: "jacobian", "kernels" (for at least one block), "matrix" or "products".
      rank_bounds: returns a bound on the rank of each block; None where
        nothing but the operators is known.
    """

    operators: tuple[Operator, ...]
    off_share: float
    off_error: Error
    method: str
    rank_bounds: Callable[[], Sequence[RankBound]] | None = None

    def rank_bound_of(self, index: int) -> Callable[[], RankBound] | None:
        """A function that returns the bound on the rank of block number ``index``."""
        bounds = self.rank_bounds
        return None if bounds is None else lambda: bounds()[index]


def diagonal_blocks(
    op: Any, groups: Sequence[Sequence[int]], limits: Limits = LIMITS
) -> DiagonalBlocks:
    """The diagonal blocks of an operator for groups of parameters, and the share outside them.

    Each of the ``groups`` has the indices of its arrays (leaves) among the chosen ones, and each
    leaf is in one group. The blocks of scale J^T J come from J and from kernels J_b J_b^T of the
    columns J_b of a group, where these fit in memory, and those of any other operator from the
    columns of its matrix.

    The singular values of J_b resolve smaller eigenvalues than the kernel does, so that J_b is
    taken wherever it is the smaller matrix, or is not too large and cheap enough; and always for
    coupled samples, with a matrix of fewer columns and the same J_b J_b^T in its place.
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        net = op.twin.net
        counts = jacobians.widths_of_coupled(net) if net.coupled else net.counts
        sizes = [sum(counts[leaf] for leaf in group) for group in groups]  # the columns of each J_b
        rows = net.samples * net.rows
        fits = 8.0 * rows * sum(counts) <= limits.factor_bytes  # all of J
        by_columns = [
            net.coupled or size <= rows or (fits and float(rows) ** 2 * size <= limits.factor_work)
            for size in sizes
        ]
        columns = sum(size for size, is_by in zip(sizes, by_columns, strict=True) if is_by)
        squares = 3 + len(sizes) - sum(by_columns)  # kernels: K, and two for intermediate results
        largest = max(rows * columns, min(rows, net.parameters) ** 2 * squares)
        if 8.0 * largest <= limits.factor_bytes:
            return _of_gram(op, net, groups, by_columns, limits)
    counts = network_of(on_parameters(op), "blocks are").counts
    return _of_columns(op, [indices_of(counts, group) for group in groups], limits)


def entry_blocks(op: Any, parts: Sequence[np.ndarray], limits: Limits = LIMITS) -> DiagonalBlocks:
    """The diagonal blocks of ``op`` for a partition of the indices of the parameter vector.

    ``parts`` has the indices of each block. Unlike the groups of :func:`diagonal_blocks`, a part
    may have only some entries of an array. The kernels of layers are of whole arrays, so they are
    of no use here: the blocks of scale J^T J come from J if all of it fits in memory, and otherwise
    from the columns of the matrix, as those of any other operator.
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        net = op.twin.net
        if 8.0 * net.samples * net.rows * net.parameters <= limits.factor_bytes:  # J in float64
            jacobian = op.scale**0.5 * jacobians.jacobian(net)
            matrices = [(jacobian[:, indices], True) for indices in parts]
            return _formed(op, net, parts, matrices, matrices)
    return _of_columns(op, parts, limits)


def _of_gram(
    op: NetworkGram,
    net: Network,
    groups: Sequence[Sequence[int]],
    by_columns: Sequence[bool],
    limits: Limits,
) -> DiagonalBlocks:
    """The blocks G_bb = scale J_b^T J_b of G = scale J^T J, one for each group of parameters.

    A block is computed from its columns J_b (n r, p_b) where it is ``by_columns``, and else from
    K_b = scale J_b J_b^T, which has its non-zero eigenvalues.

    The share of G outside the blocks (:func:`off_share`) needs the norms of all K_b and of their
    sum. If some K_b are formed in any case, and all of them fit in memory with three more matrices
    of their size, one pass over the layers gives all of them, also where a block comes from J_b.
    Otherwise the missing ones are products of J_b.
    """
    square = 8.0 * (net.samples * net.rows) ** 2
    has_all_kernels = not all(by_columns) and square * (len(groups) + 3) <= limits.factor_bytes
    pairs = list(zip(groups, by_columns, strict=True))
    column_groups = [group for group, is_by_columns in pairs if is_by_columns]
    kernel_groups = [
        group for group, is_by_columns in pairs if has_all_kernels or not is_by_columns
    ]
    # J_b and J_b J_b^T of those groups for which they are formed
    columns, grams = iter(_jacobians(net, column_groups)), iter(_kernels(net, kernel_groups))
    matrices: list[tuple[np.ndarray, bool]] = []  # scale^{1/2} J_b and True, or K_b and False
    for_share: list[tuple[np.ndarray, bool]] = []  # the same, but K_b wherever that is formed
    for is_by_columns in by_columns:
        kernel = op.scale * next(grams) if has_all_kernels or not is_by_columns else None
        matrix = op.scale**0.5 * next(columns) if kernel is None or is_by_columns else kernel
        matrices.append((matrix, is_by_columns))
        for_share.append((matrix, True) if kernel is None else (kernel, False))
    parts = [indices_of(net.counts, group) for group in groups]
    return _formed(op, net, parts, matrices, for_share)


def _formed(
    op: NetworkGram,
    net: Network,
    parts: Sequence[np.ndarray],
    matrices: Sequence[tuple[np.ndarray, bool]],
    for_share: Sequence[tuple[np.ndarray, bool]],
) -> DiagonalBlocks:
    """The blocks for the indices of each part, from what was formed of each.

    ``matrices`` and ``for_share`` are scale^{1/2} J_b and True, or scale J_b J_b^T and False; the
    operators are made of the first, and the share outside of the second. The errors are measured on
    products with J, and other programs formed the matrices: the numbers scale u^T J_b J_b^T w of
    both are compared at random vectors u and w, and a difference beyond the measured error becomes
    the error.
    """
    root, measurement, probes = op.scale**0.5, measure_jacobian(op.net, parts), probe_rows(op.net)
    total_error, operators = measurement.whole.scaled(root), []
    of_parts = zip(measurement.parts, measurement.forms_of_parts, matrices, strict=True)
    for error_of_part, forms, (matrix, is_by_columns) in of_parts:
        measured_error = error_of_part.scaled(root)
        forms_of_matrix = (forms_of_rows if is_by_columns else forms_of_kernel)(probes, matrix)
        error = checked(measured_error, forms.scaled(op.scale), forms_of_matrix)
        if error is not measured_error:  # ``checked`` returns the same where the numbers agree
            total_error += error
        operators.append(formed_operator(matrix, is_by_columns, error, op))
    share, share_error = off_share(for_share, total_error)
    has_kernels = not all(is_by_columns for _, is_by_columns in matrices)
    bounds = cache(partial(entry_rank_bounds, net, parts))
    method = "kernels" if has_kernels else "jacobian"
    return DiagonalBlocks(tuple(operators), share, share_error, method, bounds)


def formed_operator(
    matrix: np.ndarray, is_by_columns: bool, error: Error, op: NetworkGram
) -> Operator:
    """The operator of a block scale J_b^T J_b, or a smaller one with its non-zero eigenvalues.

    ``matrix`` is scale^{1/2} J_b if ``is_by_columns``, and else the kernel scale J_b J_b^T.
    ``error`` is that of scale^{1/2} J_b. The operator has the dtype of ``op``.
    """
    if not is_by_columns:
        norm = float(np.abs(matrix).sum(axis=0).max())  # at least the 2-norm, as K is symmetric
        error = gram_error(norm, error)
    kind = Factored if is_by_columns else Dense
    bound = stored_bound(error.value, op.dtype)
    return twin_of(kind(on_device(matrix, op.dtype), bound, error.kind, error.failure))


def _jacobians(net: Network, groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_b (n r, p_b) for each of the groups of leaves, cut out of one Jacobian.

    For coupled samples they are matrices of fewer columns with the same J_b J_b^T.
    """
    if not groups:
        return []
    if net.coupled:
        return jacobians.factors_of_coupled(net, groups)
    restricted_net = restricted(net, [leaf for group in groups for leaf in group])
    jacobian = jacobians.jacobian(restricted_net)
    sizes = [sum(net.counts[leaf] for leaf in group) for group in groups]
    return np.split(jacobian, np.cumsum(sizes)[:-1], axis=1)


def _kernels(net: Network, groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_b J_b^T (n r, n r) for each of the groups of leaves, from one pass over the network."""
    if not groups:
        return []
    restricted_net = restricted(net, [leaf for group in groups for leaf in group])
    ends = np.cumsum([len(group) for group in groups])
    # The indices of each group among the leaves of the restricted network.
    parts = [range(end - len(group), end) for end, group in zip(ends, groups, strict=True)]
    return kernels.output_grams(restricted_net, parts)


def off_share(matrices: Sequence[tuple[np.ndarray, bool]], error: Error) -> tuple[float, Error]:
    """The share of |G|_F^2 outside the blocks, and its error.

    ``matrices`` are J_b and True, or K_b = J_b J_b^T and False. ``error`` is that of J. The share
    is 1 - sum_b |G_bb|^2 / |G|^2 in Frobenius norms, in which |G_bb| = |K_b| and |G| = |sum_b K_b|.
    It is computed with G or with the K_b, whichever are smaller.
    """
    squares: Iterator[np.ndarray]
    columns = [matrix for matrix, is_columns in matrices if is_columns]
    rows = len(matrices[0][0])
    is_whole = len(columns) == len(matrices) and sum(map(np.size, columns)) < rows * rows
    if is_whole:
        jacobian = np.concatenate(columns, axis=1)
        total = jacobian.T @ jacobian
        squares = (matrix.T @ matrix for matrix in columns)
    else:
        total = np.zeros((rows, rows))
        squares = (matrix @ matrix.T if is_by else matrix for matrix, is_by in matrices)
    inside, trace = 0.0, 0.0
    for square in squares:
        inside = math.hypot(inside, length(square))
        trace += float(np.trace(square))
        if not is_whole:
            total += square
    error_of_squares = gram_error(trace, error)  # in Frobenius norm, as the error of J is
    rounding = LAPACK_ROUNDING.to(spectral_error(len(total), matrices[0][0].dtype) * trace)
    return share_outside(inside, length(total), error_of_squares + rounding)


def _of_columns(op: Any, parts: Sequence[np.ndarray], limits: Limits) -> DiagonalBlocks:
    """The blocks for the indices of each part, from all columns of the matrix."""
    op = on_parameters(op)
    is_formed = facts_of(op).forms_cheaply and op.shape[0] <= limits.matrix_rows
    columns = _columns(op, is_formed)
    inside, total, blocks = 0.0, 0.0, []  # Frobenius norms of the blocks and of the matrix
    # Every column is needed for the norm of the matrix, and has the entries of one block.
    for indices in parts:
        size = len(indices)
        if size > limits.matrix_rows:
            msg = (
                f"a block has {size:,} parameters, and matrices of up to {limits.matrix_rows:,} "
                "rows are formed; make smaller blocks with by=, or pass "
                "limits=gnjax.Limits(matrix_rows=..)"
            )
            raise ValueError(msg)
        block = np.empty((size, size))
        for first in range(0, size, _COLUMNS):
            images = columns(indices[first : first + _COLUMNS])
            total = math.hypot(total, length(images))
            block[:, first : first + _COLUMNS] = images[indices]
        blocks.append((block + block.T) / 2)
        inside = math.hypot(inside, length(block))
    error = error_of(op, raised(total)) + symmetry_of(op)
    bound = stored_bound(error.value, op.dtype)
    operators = [
        Dense(on_device(block, op.dtype), bound, error.kind, error.failure) for block in blocks
    ]
    frobenius_error = error.scaled(op.shape[0] ** 0.5)  # from the 2-norm to the Frobenius norm
    share, off_error = share_outside(inside, total, frobenius_error)
    return DiagonalBlocks(tuple(operators), share, off_error, "matrix" if is_formed else "products")


def _columns(op: Operator, is_formed: bool) -> Callable[[np.ndarray], np.ndarray]:
    """A function of indices (b,) that returns these columns (p, b) of a symmetric A.

    They are cut out of the matrix if that ``is_formed``, and otherwise made by b products.
    """
    if is_formed:
        matrix = np.asarray(op.as_matrix(), np.float64)
        check_symmetric(op, lambda rows: rows @ matrix.T)
        return lambda indices: matrix[:, indices]
    product, size = prepared_product(op), op.shape[0]

    def images(columns: np.ndarray) -> np.ndarray:
        return np.asarray(product(on_device(columns, op.dtype)), np.float64)

    def columns_at(indices: np.ndarray) -> np.ndarray:
        units = np.zeros((size, len(indices)))
        units[indices, np.arange(len(indices))] = 1.0
        return images(units)

    check_symmetric(op, lambda rows: images(rows.T).T)
    return columns_at


def share_outside(inside: float, total: float, error: Error) -> tuple[float, Error]:
    """1 - (D / T)^2 and its error, for the Frobenius norms D of all blocks and T of the matrix.

    ``error`` bounds that of the matrix in Frobenius norm, so that D and T may each be wrong by it.
    """
    if total == 0:
        return math.nan, unknown("every eigenvalue is zero, or below the smallest number")
    value = min(max(1 - (inside / total) ** 2, 0.0), 1.0)
    if not error.value < total:  # the error may be all of the matrix
        return value, error.to(1.0)
    least_inside, most_inside = (inside + sign * error.value for sign in (-1.0, 1.0))
    most_total, least_total = (total - sign * error.value for sign in (-1.0, 1.0))
    low = 1 - (max(most_inside, 0.0) / least_total) ** 2
    high = 1 - (max(least_inside, 0.0) / most_total) ** 2
    # Of the norms: sums are pairwise, so that a term passes through few additions.
    rounding = gamma(64, np.dtype(np.float64))
    return value, error.to(raised(min(max(value - low, high - value) + rounding, 1.0)))
