"""The pairs and rows of some samples, and the part of a kernel that two sets of samples have.

For a dense layer the block of samples i and j of J J^T is (a_i . a_j) (delta_i delta_j^T), and no
Jacobian is formed, nor is it where a mask keeps some weights of such a layer
(:mod:`gnjax.networks.kernels.masked`). For a table in which both samples look rows up, the block is
the sum of delta_t delta_s^T over the positions t and s that take the same row. Any other parameter
adds the product of its rows of J.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.samples import even_size, take
from gnjax.networks.jacobians import Item, PairsAndRows, joined, pieces_of
from gnjax.networks.kernels import masked
from gnjax.networks.layer_types.uses import Pair
from gnjax.networks.network import Network
from gnjax.numerics.host import on_cpu
from gnjax.numerics.limits import LIMITS

_BLOCK = 128  # a block of a kernel belongs to at most so many samples by so many samples


class Blocks:
    """The samples of a network in blocks of one size, and what J J^T needs of each block.

    That is, for the parameters of one group, the rows of J, or the pairs (a, delta) of the inputs
    and the sensitivities of a layer. The last block overlaps the one before, so that one program
    serves all blocks. With a ``buffer`` pairs and rows are computed once; on a CPU the rows are
    stored in the buffer, which all groups reuse, because memory that is new to a process costs more
    time than writing to it.
    """

    def __init__(self, net: Network, group: tuple[Item, ...], buffer: np.ndarray | None) -> None:
        """Plan the blocks for the parameters in ``group``; nothing is computed.

        The ``buffer``, an array of numbers in a row, is divided into one part for each block, which
        has room for the rows of J of the block.
        """
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
        self._pieces[index] = joined(pairs), _stored_in(self._buffers[index], rows)
        return self._pieces[index]

    def new_in_block(self, index: int) -> slice:
        """Which samples of a block are not in the block before, counted from its own first one."""
        return slice(max(self.starts[index] + self.size - self._net.samples, 0), None)

    def new_among_all(self, index: int) -> slice:
        """Which samples of a block are not in the block before, counted among all samples."""
        return slice(self.starts[index], self.starts[index] + self.size)


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


def groups(items: Iterable[Item], *nets: Network) -> Iterator[tuple[Item, ...]]:
    """Split parameters, narrowest first, into groups whose data for J J^T fit in memory.

    The data of a parameter are, for all samples of the networks, its columns of J, or the inputs
    and sensitivities of its layer, see :func:`fit`. A parameter whose data do not fit by themselves
    is a group alone. ``nets`` are the networks whose Jacobians are multiplied.
    """
    group: tuple[Item, ...] = ()
    for item in sorted(items, key=lambda item: item.width):
        if group and not fit((*group, item), *nets):
            yield group
            group = ()
        group = (*group, item)
    yield group


def _stored_in(buffer: np.ndarray, parts: Sequence[jax.Array]) -> jax.Array | np.ndarray:
    """Join arrays of rows of J (n_b, r, p), each of some samples, to one (n, r, p).

    On a CPU it is written into the memory of the buffer, which has room for exactly its entries.
    """
    if not buffer.size or not all(on_cpu(part) for part in parts):
        return joined(parts)
    rows = buffer.reshape(-1, *parts[0].shape[1:])
    return np.concatenate([np.asarray(part) for part in parts], out=rows)


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
      new: which of the samples i and j on the left and right are in the block; the others belong to
        blocks before.
      pairs: the indices of the pairs whose layers are added.
      columns: the indices of the columns of the rows of J that are added.
      inputs: for every pair the inputs that a mask leaves each unit; None without a mask.
    """
    new_entries = np.s_[new[0], :, new[1]]
    for pair in pairs:
        _add_structured(block, left[0][pair], right[0][pair], new_entries, inputs[pair])
    if len(columns):
        left_rows = _columns(_flat(left[1]), columns)
        right_rows = left_rows if left is right else _columns(_flat(right[1]), columns)
        product = _product_of_rows(left_rows, right_rows)
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
    (b, epsilon) of the samples j. For a table that rows are looked up in, a and b are the indices
    of the rows at each position, and delta and epsilon have an axis for the positions. ``new``
    selects the samples that are in the block, and ``inputs`` are the inputs that a mask leaves each
    unit.
    """
    (a, delta), (b, epsilon) = left, right
    if delta.ndim == 4:  # (i, r, t, q_out), with positions t
        block += np.asarray(_over_positions(left, right))[new]
    elif all(on_cpu(array) for array in (*left, *right)):
        new_i, _, new_j = new
        new_left = (np.asarray(a)[new_i], np.asarray(delta)[new_i])
        new_right = (np.asarray(b)[new_j], np.asarray(epsilon)[new_j])
        if inputs is None:
            _add_by_blas(block, new_left, new_right)
        else:
            masked.add(block, new_left, new_right, inputs)
    else:
        block += np.asarray(_over_vectors(left, right))[new]


def _add_by_blas(
    block: np.ndarray, left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]
) -> None:
    """Add (a_i . b_j) (delta_i epsilon_j^T) to a block (i, r, j, r') of a dense layer.

    ``left`` are the inputs a (i, q_in) and sensitivities delta (i, r, q_out), and ``right`` are b
    and epsilon of the samples j. BLAS is twice as fast as XLA on a CPU.
    """
    (a, delta), (b, epsilon) = left, right
    n, r, q = delta.shape
    inputs = np.repeat(a @ b.T, epsilon.shape[1], axis=1)  # (i, j r)
    outputs = (delta.reshape(-1, q) @ epsilon.reshape(-1, q).T).reshape(n, r, -1)
    outputs *= inputs[:, None]
    block += outputs.reshape(block.shape)


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

    It is the sum over positions t of sample i and s of sample j of (a_t . b_s) (delta_t
    epsilon_s^T) with unit vectors a_t and b_s: those pairs count that look up the same row.

    ``left`` are the indices of the rows (i, t) and the sensitivities delta (i, r, t, q_out), and
    ``right`` the indices (j, s) and epsilon (j, r', s, q_out).
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


def _flat(rows: jax.Array | np.ndarray) -> np.ndarray | jax.Array:
    """Rows (n, r, p) as (n r, p); on a CPU as an array of NumPy, without a copy."""
    host = np.asarray(rows) if on_cpu(rows) else rows
    return host.reshape(-1, rows.shape[-1])


def _columns(rows: np.ndarray | jax.Array, columns: np.ndarray) -> np.ndarray | jax.Array:
    """Some columns of the rows, in ascending order; all of them are not copied."""
    return rows if len(columns) == rows.shape[1] else rows[:, columns]


def _product_of_rows(left: np.ndarray | jax.Array, right: np.ndarray | jax.Array) -> np.ndarray:
    """A B^T. On a CPU BLAS is a third faster than XLA in float64, and halves the work of A A^T."""
    if isinstance(left, np.ndarray):
        return left @ right.T
    return np.asarray(jnp.matmul(left, right.T, precision="highest"))
