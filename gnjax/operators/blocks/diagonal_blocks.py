"""The diagonal blocks of an operator on a network's parameters, and the share outside them.

For G = scale J^T J with the columns J_b of the parameters of block b,

    G_bb = scale J_b^T J_b,  twin K_b = scale J_b J_b^T,  K = sum_b K_b the twin of G,
    |G|_F^2 = |K|_F^2,  |G_bb|_F^2 = |K_b|_F^2,

so that all blocks come from one Jacobian, or from kernels that the layers' structure gives. Of any
other operator, such as a Hessian, they come from its columns.
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
from gnjax.networks.null_space.ranks import entry_rank_bounds, rank_bounds
from gnjax.networks.parameters import indices_of
from gnjax.networks.rounding import (
    checked,
    forms_of_kernel,
    forms_of_rows,
    measured,
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
_UNDERFLOWS = 1e-290  # products of entries that underflow cost digits below this norm of a matrix


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
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        net = op.twin.net
        # How many columns J has for each leaf; for coupled samples, the fewer columns of a matrix
        # with the same J J^T.
        counts = jacobians.widths_of_coupled(net) if net.coupled else net.counts
        sizes = [sum(counts[leaf] for leaf in group) for group in groups]
        by_columns = [_is_by_columns(net, size, sum(counts), limits) for size in sizes]
        if _fits(net, sizes, by_columns, limits):
            return _of_gram(op, net, groups, by_columns, limits)
    counts = network_of(on_parameters(op), "blocks are").counts
    return _of_columns(op, [indices_of(counts, group) for group in groups], limits)


def entry_blocks(op: Any, parts: Sequence[np.ndarray], limits: Limits = LIMITS) -> DiagonalBlocks:
    """The diagonal blocks of ``op`` for a partition of the indices of the parameter vector.

    ``parts`` has the indices of each block. Unlike the groups of :func:`diagonal_blocks`, a part
    may have only some entries of an array. The kernels of layers are of whole arrays, so they are
    of no use here. For G = scale J^T J, block b comes from the columns scale^{1/2} J_b, if all of J
    fits in memory. In all other cases the blocks come from the columns of the matrix of ``op``, as
    for a G without a factorisation, where the output Hessian of the loss has no root.
    """
    if isinstance(op, NetworkGram) and op.factorisation() is not None:
        net = op.twin.net
        rows = net.samples * net.rows
        if 8.0 * rows * net.parameters <= limits.factor_bytes:  # J in float64
            jacobian = op.scale**0.5 * jacobians.jacobian(net)
            matrices = [jacobian[:, indices] for indices in parts]
            by_columns = [True] * len(parts)  # no block is computed from its kernel J_b J_b^T
            total_error, errors = _errors(op, parts, matrices, by_columns)
            operators = [
                formed_operator(matrix, True, error, op)
                for matrix, error in zip(matrices, errors, strict=True)
            ]
            share, share_error = off_share(matrices, by_columns, total_error)
            bounds = cache(partial(entry_rank_bounds, net, parts))
            return DiagonalBlocks(tuple(operators), share, share_error, "jacobian", bounds)
    return _of_columns(op, parts, limits)


def _is_by_columns(net: Network, size: int, total: int, limits: Limits) -> bool:
    """Whether a block is computed from its columns J_b, and not from the kernel J_b J_b^T.

    J_b has ``size`` columns, and J has ``total``. The singular values of J_b resolve smaller
    eigenvalues than the kernel does, so that J_b is taken wherever it is the smaller matrix, or is
    not too large and cheap enough. Where the outputs of a sample depend on other samples (they are
    coupled), a matrix of fewer columns with the same J_b J_b^T takes its place, and always.
    """
    rows = net.samples * net.rows
    is_cheap = float(min(rows, size)) ** 2 * max(rows, size) <= limits.factor_work
    fits = 8.0 * rows * total <= limits.factor_bytes
    return net.coupled or size <= rows or (is_cheap and fits)


def _fits(net: Network, sizes: Sequence[int], by_columns: Sequence[bool], limits: Limits) -> bool:
    """Whether the columns J_b, and the kernels and their sums, are within the limits of memory.

    A block has ``sizes`` parameters, and is computed from J_b where it is ``by_columns``.
    """
    rows = net.samples * net.rows
    columns = sum(size for size, is_by in zip(sizes, by_columns, strict=True) if is_by)
    matrices = 3 + len(sizes) - sum(by_columns)  # K, and two for intermediate results
    squares = 8.0 * min(rows, net.parameters) ** 2 * matrices
    return 8.0 * rows * columns <= limits.factor_bytes and squares <= limits.factor_bytes


def _of_gram(
    op: NetworkGram,
    net: Network,
    groups: Sequence[Sequence[int]],
    by_columns: Sequence[bool],
    limits: Limits,
) -> DiagonalBlocks:
    """The blocks G_bb = scale J_b^T J_b of G = scale J^T J, one for each group of parameters.

    J_b (n r, p_b) are the columns of J for group b. A block is computed from J_b where it is
    ``by_columns``, and else from K_b = scale J_b J_b^T, which has its non-zero eigenvalues. Each of
    the ``groups`` has the indices of its arrays among the chosen ones.

    The share of G outside the blocks (:func:`off_share`) needs the norms of all K_b and of their
    sum. If some K_b are formed in any case, and all of them fit in memory with three more matrices
    of their size, one pass over the layers gives all of them, also where a block comes from J_b.
    Otherwise the missing ones are products of J_b.
    """
    parts = [indices_of(net.counts, group) for group in groups]
    root = op.scale**0.5
    square = 8.0 * (net.samples * net.rows) ** 2
    has_all_kernels = not all(by_columns) and square * (len(groups) + 3) <= limits.factor_bytes
    pairs = list(zip(groups, by_columns, strict=True))
    column_groups = [group for group, is_by_columns in pairs if is_by_columns]
    kernel_groups = [
        group for group, is_by_columns in pairs if has_all_kernels or not is_by_columns
    ]
    # J_b and J_b J_b^T of those groups for which they are formed
    columns, grams = iter(_jacobians(net, column_groups)), iter(_kernels(net, kernel_groups))
    matrices: list[np.ndarray] = []  # from which the blocks are computed: scale^{1/2} J_b or K_b
    for_share: list[tuple[np.ndarray, bool]] = []  # the same, but K_b wherever that is formed
    for is_by_columns in by_columns:
        kernel = op.scale * next(grams) if has_all_kernels or not is_by_columns else None
        matrix = root * next(columns) if kernel is None or is_by_columns else kernel
        matrices.append(matrix)
        for_share.append((matrix, True) if kernel is None else (kernel, False))
    total_error, errors = _errors(op, parts, matrices, by_columns)
    operators = [
        formed_operator(matrix, is_by_columns, error, op)
        for matrix, is_by_columns, error in zip(matrices, by_columns, errors, strict=True)
    ]
    off = off_share(
        [matrix for matrix, _ in for_share],
        [is_columns for _, is_columns in for_share],
        total_error,
    )
    method = "jacobian" if all(by_columns) else "kernels"
    bounds = cache(partial(rank_bounds, net, groups))
    return DiagonalBlocks(tuple(operators), *off, method, bounds)


def _errors(
    op: NetworkGram,
    parts: Sequence[np.ndarray],
    matrices: Sequence[np.ndarray],
    by_columns: Sequence[bool],
) -> tuple[Error, list[Error]]:
    """The error of scale^{1/2} J, and those of its columns J_b for the indices of each part.

    ``matrices`` are what was formed of each: scale^{1/2} J_b where it is ``by_columns``, and else
    scale J_b J_b^T. The errors are measured on products with J. But other programs formed the
    ``matrices``. So the numbers scale u^T J_b J_b^T w of both are compared at random vectors u and
    w, and a difference beyond the measured error becomes the error.
    """
    root, measurement, probes = op.scale**0.5, measured(op.net, parts), probe_rows(op.net)
    total_error, errors = measurement.whole.scaled(root), []
    groups = zip(measurement.parts, measurement.forms_of_parts, matrices, by_columns, strict=True)
    for error_of_part, forms, matrix, is_by_columns in groups:
        error = error_of_part.scaled(root)
        forms_of_matrix = (forms_of_rows if is_by_columns else forms_of_kernel)(probes, matrix)
        errors.append(checked(error, forms.scaled(op.scale), forms_of_matrix))
        # ``checked`` returns the same object where the numbers agree.
        total_error = total_error if errors[-1] is error else total_error + errors[-1]
    return total_error, errors


def formed_operator(
    matrix: np.ndarray, is_by_columns: bool, error: Error, op: NetworkGram
) -> Operator:
    """The operator of a block scale J_b^T J_b, or a smaller one with its non-zero eigenvalues.

    ``matrix`` is scale^{1/2} J_b if ``is_by_columns``, and else the kernel scale J_b J_b^T.
    ``error`` is that of scale^{1/2} J_b. The operator has the dtype of ``op``.
    """
    if is_by_columns:
        array = on_device(matrix, op.dtype)
        bound = stored_bound(error.value, op.dtype)
        # scale J_b J_b^T, or its twin scale J_b^T J_b where that is smaller
        return twin_of(Factored(array, bound, error.kind, error.failure))
    norm = float(np.abs(matrix).sum(axis=0).max())  # at least the 2-norm, as K is symmetric
    error_of_kernel = gram_error(norm, error)
    array = on_device(matrix, op.dtype)
    bound = stored_bound(error_of_kernel.value, op.dtype)
    return Dense(array, bound, error_of_kernel.kind, error_of_kernel.failure)


def _jacobians(net: Network, groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_b (n r, p_b) for each of the groups of leaves, cut out of one Jacobian.

    For coupled samples they are matrices of fewer columns with the same J_b J_b^T.
    """
    if not groups:
        return []
    if net.coupled:
        return jacobians.jacobians_of_coupled(net, groups)
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


def off_share(
    matrices: Sequence[np.ndarray], by_columns: Sequence[bool], error: Error
) -> tuple[float, Error]:
    """The share of |G|_F^2 outside the blocks, and its error.

    ``matrices`` are J_b where they are ``by_columns``, and else K_b = J_b J_b^T. ``error`` is that
    of J. With the blocks G_bb = J_b^T J_b of G = J^T J, the share is 1 - sum_b |G_bb|^2 / |G|^2 in
    Frobenius norms, in which |G_bb| = |K_b| and |G| = |sum_b K_b|. It is computed with G or with
    the K_b, whichever are smaller.
    """
    squares: Iterator[np.ndarray]
    if all(by_columns) and sum(matrix.shape[1] for matrix in matrices) < len(matrices[0]):
        jacobian = np.concatenate(matrices, axis=1)
        total, is_whole = jacobian.T @ jacobian, True
        squares = (matrix.T @ matrix for matrix in matrices)
    else:
        total, is_whole = np.zeros(2 * (len(matrices[0]),)), False
        pairs = zip(matrices, by_columns, strict=True)
        squares = (matrix @ matrix.T if is_by else matrix for matrix, is_by in pairs)
    inside, trace = 0.0, 0.0
    for square in squares:
        inside = math.hypot(inside, length(square))
        trace += float(np.trace(square))
        if not is_whole:
            total += square
    error_of_squares = gram_error(trace, error)  # in Frobenius norm, as the error of J is
    rounding = LAPACK_ROUNDING.to(spectral_error(len(total), matrices[0].dtype) * trace)
    return share_outside(inside, length(total), error_of_squares + rounding)


def _of_columns(op: Any, parts: Sequence[np.ndarray], limits: Limits) -> DiagonalBlocks:
    """The blocks for the indices of each part, from all columns of the matrix.

    The columns are those of the matrix, if it is formed cheaply, or products with unit vectors.
    """
    op = on_parameters(op)
    is_formed = facts_of(op).forms_cheaply and op.shape[0] <= limits.matrix_rows
    columns = _columns_of_matrix(op) if is_formed else _columns_by_products(op)
    inside, total, blocks = 0.0, 0.0, []  # Frobenius norms of the blocks and of the matrix
    # Every column is needed for the norm of the matrix, and has the entries of one block.
    for indices in parts:
        _check_rows(len(indices), limits)
        block = np.empty((len(indices), len(indices)))
        for first in range(0, len(indices), _COLUMNS):
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


def _columns_of_matrix(op: Operator) -> Callable[[np.ndarray], np.ndarray]:
    """A function of indices (b,) that returns these columns (p, b) of A, formed as a whole."""
    matrix = np.asarray(op.as_matrix(), np.float64)
    check_symmetric(op, lambda rows: rows @ matrix.T)
    return lambda indices: matrix[:, indices]


def _columns_by_products(op: Operator) -> Callable[[np.ndarray], np.ndarray]:
    """A function of indices (b,) that returns these columns (p, b) of A, by b products.

    A is the operator; one that is not symmetric is refused here.
    """
    product, size = prepared_product(op), op.shape[0]

    def images(columns: np.ndarray) -> np.ndarray:
        return np.asarray(product(on_device(columns, op.dtype)), np.float64)

    def columns_at(indices: np.ndarray) -> np.ndarray:
        units = np.zeros((size, len(indices)))
        units[indices, np.arange(len(indices))] = 1.0
        return images(units)

    check_symmetric(op, lambda rows: images(rows.T).T)
    return columns_at


def _check_rows(size: int, limits: Limits) -> None:
    """Refuse a block of more rows than a matrix may have."""
    if size > limits.matrix_rows:
        msg = (
            f"a block has {size:,} parameters, and matrices of up to {limits.matrix_rows:,} rows "
            "are formed; make smaller blocks with by=, or pass limits=gnjax.Limits(matrix_rows=..)"
        )
        raise ValueError(msg)


def share_outside(inside: float, total: float, error: Error) -> tuple[float, Error]:
    """1 - (D / T)^2 and its error, for the Frobenius norms D of all blocks and T of the matrix.

    ``error`` bounds that of the matrix in Frobenius norm, so that D and T may each be wrong by it.
    """
    if total == 0:
        return math.nan, unknown("every eigenvalue is zero, or below the smallest number")
    value = min(max(1 - (inside / total) ** 2, 0.0), 1.0)
    if not max(error.value, _UNDERFLOWS) < total:  # the error may be all of the matrix
        return value, error.to(1.0)
    least_inside, most_inside = (inside + sign * error.value for sign in (-1.0, 1.0))
    most_total, least_total = (total - sign * error.value for sign in (-1.0, 1.0))
    low = 1 - (max(most_inside, 0.0) / least_total) ** 2
    high = 1 - (max(least_inside, 0.0) / most_total) ** 2
    # Of the norms: sums are pairwise, so that a term passes through few additions.
    rounding = gamma(64, np.dtype(np.float64))
    return value, error.to(raised(min(max(value - low, high - value) + rounding, 1.0)))
