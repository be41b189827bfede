"""The pairs and rows of some samples, and the part of a kernel that two sets of samples have.

For a dense layer the block of samples i and j of J J^T is (a_i . a_j) (delta_i delta_j^T), and no
Jacobian is formed. For a table that rows are looked up in, it is the sum of delta_t delta_s^T over
the positions t and s that take the same row. Any other parameter adds the product of its rows of J.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.samples import even_size, take
from gnjax.networks.jacobians import Item, PairsAndRows, joined, pieces_of
from gnjax.networks.kernels import masked
from gnjax.networks.layer_types.uses import Pair
from gnjax.networks.network import Network
from gnjax.numerics.host import on_cpu
from gnjax.numerics.limits import LIMITS

_BLOCK = 128  # a block of a kernel belongs to at most so many samples by so many samples


class Blocks:
    """The samples of a network in blocks of one size, and what J J^T needs of each block.

    The last block overlaps the one before, so that one program serves all blocks. With a ``buffer``
    pairs and rows are computed once; on a CPU the rows are stored in the buffer, which all groups
    reuse, because memory that is new to a process costs more time than writing to it.
    """

    def __init__(self, net: Network, group: tuple[Item, ...], buffer: np.ndarray | None) -> None:
        """Plan the blocks for the parameters in ``group``; the ``buffer`` has room for all rows."""
        self._net, self._group = net, group
        # for the layer of each pair the inputs that a mask leaves its units
        self.inputs = [
            masked.inputs_of_units(net, item) for item in group if item.form != "columns"
        ]
        self.size = block_size(net)  # samples of a block
        self.starts = range(0, net.samples, self.size)
        self._pieces: dict[int, PairsAndRows] = {}  # of the blocks that were computed
        needed = 0 if buffer is None else numbers_of_rows(net, group)
        self._buffers = None if buffer is None else np.split(buffer[:needed], len(self.starts))

    def pieces(self, index: int) -> PairsAndRows:
        """The pairs (a, delta) of layers and the rows (n, r, p) of J for the samples of a block.

        They are computed anew in each call, or once and kept if there are buffers for them.
        """
        if index in self._pieces:
            return self._pieces[index]
        # the last block begins earlier, so that it is as large as the others
        first = min(self.starts[index], self._net.samples - self.size)
        samples_and_targets = take((self._net.x, self._net.target), slice(first, first + self.size))
        pairs, rows = zip(*pieces_of(self._net, self._group, samples_and_targets), strict=True)
        if self._buffers is None:
            return joined(pairs), joined(rows)
        buffer = self._buffers[index]
        if buffer.size and all(on_cpu(part) for part in rows):
            stored = buffer.reshape(-1, *rows[0].shape[1:])
            stored = np.concatenate([np.asarray(part) for part in rows], out=stored)
        else:
            stored = joined(rows)
        self._pieces[index] = joined(pairs), stored
        return self._pieces[index]

    def new(self, index: int) -> tuple[slice, slice]:
        """Which samples of a block are not in the one before: within the block, and among all."""
        start, stop = self.starts[index], self.starts[index] + self.size
        return slice(max(stop - self._net.samples, 0), None), slice(start, stop)


def block_size(net: Network) -> int:
    """How many samples a block has: at most ``_BLOCK``, in as few blocks as possible."""
    return even_size(net.samples, _BLOCK)


def numbers_of_rows(net: Network, group: Sequence[Item]) -> int:
    """How many numbers the rows of J of all blocks of samples have, for a group of parameters.

    Only parameters in the form "columns" have columns of these rows; others are in pairs. The last
    block counts in full, though it overlaps the one before.
    """
    size = block_size(net)
    samples = size * len(range(0, net.samples, size))
    columns = sum(net.counts[item.parameter] for item in group if item.form == "columns")
    return samples * net.rows * columns


def fit(group: Sequence[Item], *nets: Network) -> bool:
    """Whether the rows and pairs of a group fit in memory for all samples of the networks."""
    width = sum(item.width for item in group)
    numbers_and_sizes = ((net.samples * net.rows * width, net.dtype.itemsize) for net in nets)
    return sum(float(numbers) * size for numbers, size in numbers_and_sizes) <= LIMITS.kernel_bytes


def add_block(
    block: np.ndarray,
    left: PairsAndRows,
    right: PairsAndRows,
    new: tuple[slice, slice],
    pairs: Sequence[int],
    columns: np.ndarray,
    inputs: Sequence[masked.Inputs | None],
) -> None:
    """Add to a block of J_left J_right^T the summands of some parameters.

    Entry (i, r, j, r') of the block belongs to row r of J of sample i on the left and to row r' of
    sample j on the right. A layer with the inputs a and the sensitivities delta of its outputs adds
    (a_i . a_j) (delta_i delta_j^T), and other parameters the product of their rows of J.

    Args:
      block: the block (i, r, j, r') that is added to.
      left: of the samples i the pairs (a, delta) of layers, and rows of J.
      right: the same of the samples j.
      new: which of the samples i and j are in the block; the others belong to blocks before.
      pairs: the indices of the pairs whose layers are added.
      columns: the indices of the columns of the rows of J that are added.
      inputs: for every pair the inputs that a mask leaves each unit; None without a mask.
    """
    new_entries = np.s_[new[0], :, new[1]]
    for pair in pairs:
        _add_structured(block, left[0][pair], right[0][pair], new_entries, inputs[pair])
    if len(columns):
        left_rows = _columns(left[1], columns)
        right_rows = left_rows if left is right else _columns(right[1], columns)
        if isinstance(left_rows, np.ndarray):
            # on a CPU a third faster than XLA in float64, and half the work for A A^T
            product = left_rows @ right_rows.T
        else:
            product = np.asarray(jnp.matmul(left_rows, right_rows.T, precision="highest"))
        shape = (*left[1].shape[:2], *right[1].shape[:2])
        block += product.reshape(shape)[new_entries]


def _add_structured(
    block: np.ndarray,
    left: Pair,
    right: Pair,
    new: tuple[slice, ...],
    inputs: masked.Inputs | None = None,
) -> None:
    """Add one layer's summand of J_left J_right^T to a block (i, r, j, r').

    ``left`` has the inputs and sensitivities (a, delta) of the samples i, and ``right`` has
    (b, epsilon) of the samples j, of which ``new`` selects those that are in the block. ``inputs``
    are the inputs that a mask leaves each unit.
    """
    (a, delta), (b, epsilon) = left, right
    if delta.ndim == 4:  # (i, r, t, q_out), with positions t
        block += np.asarray(_over_positions(left, right))[new]
    elif all(on_cpu(array) for array in (*left, *right)):
        new_i, _, new_j = new
        new_left = (np.asarray(a)[new_i], np.asarray(delta)[new_i])
        new_right = (np.asarray(b)[new_j], np.asarray(epsilon)[new_j])
        if inputs is None:  # (a_i . b_j) (delta_i epsilon_j^T), twice as fast as by XLA
            (a_i, delta_i), (b_j, epsilon_j) = new_left, new_right
            (n, r, q), r_right = delta_i.shape, epsilon_j.shape[1]
            outputs = (delta_i.reshape(-1, q) @ epsilon_j.reshape(-1, q).T).reshape(n, r, -1)
            outputs *= np.repeat(a_i @ b_j.T, r_right, axis=1)[:, None]  # (i, 1, j r')
            block += outputs.reshape(block.shape)
        else:
            masked.add(block, new_left, new_right, inputs)
    else:
        block += np.asarray(_over_vectors(left, right))[new]


@jax.jit
def _over_vectors(left: Pair, right: Pair) -> jax.Array:
    """(a_i . b_j) (delta_i epsilon_j^T), a block (i, r, j, r') of two sets of samples.

    ``left`` are the inputs a (i, q_in) and sensitivities delta (i, r, q_out) of a dense layer, and
    ``right`` are b and epsilon of the samples j.
    """
    (a, delta), (b, epsilon) = left, right
    inputs = jnp.matmul(a, b.T, precision="highest")
    outputs = jnp.tensordot(delta, epsilon, axes=(2, 2), precision="highest")
    return outputs * inputs[:, None, :, None]


@jax.jit
def _over_positions(left: Pair, right: Pair) -> jax.Array:
    """The block (i, r, j, r') of J_left J_right^T for a table that samples look rows up in.

    ``left`` are the indices (i, t) of the rows at positions t, and the sensitivities delta
    (i, r, t, q_out); ``right`` are the indices (j, s) and epsilon (j, r', s, q_out). Those pairs of
    positions count that look up the same row.
    """

    def add_t(total: jax.Array, at_t: Pair) -> tuple[jax.Array, None]:
        """Add the terms of one position t to the block: indices (i,), and delta (i, r, q_out)."""
        index_t, delta_t = at_t

        def add_t_s(total: jax.Array, at_s: Pair) -> tuple[jax.Array, None]:
            """Add the term of the positions t and s: indices (j,), and epsilon (j, r', q_out)."""
            index_s, epsilon_s = at_s
            same_row = index_t[:, None] == index_s[None]  # (i, j)
            outputs = jnp.tensordot(delta_t, epsilon_s, axes=(2, 2), precision="highest")
            return total + jnp.where(same_row[:, None, :, None], outputs, 0), None

        return jax.lax.scan(add_t_s, total, _positions_first(right))

    delta, epsilon = left[1], right[1]
    nothing = jnp.zeros((*delta.shape[:2], *epsilon.shape[:2]), delta.dtype)
    return jax.lax.scan(add_t, nothing, _positions_first(left))[0]


def _positions_first(pair: Pair) -> Pair:
    """Indices (i, t) and sensitivities (i, r, t, q) with the axis t first, for a scan over it."""
    return pair[0].T, jnp.moveaxis(pair[1], 2, 0)


def _columns(rows: np.ndarray | jax.Array, columns: np.ndarray) -> np.ndarray | jax.Array:
    """Some columns, in ascending order, of rows (n, r, p), as (n r, c); all are not copied.

    On a CPU it is an array of NumPy.
    """
    host = np.asarray(rows) if on_cpu(rows) else rows
    flat = host.reshape(-1, rows.shape[-1])
    return flat if len(columns) == flat.shape[1] else flat[:, columns]
