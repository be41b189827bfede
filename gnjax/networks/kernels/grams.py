"""J J^T of a network as a matrix, layer by layer, in bounded memory.

For a dense layer the block of samples i and j of J J^T is (a_i . a_j) (delta_i delta_j^T), and no
Jacobian is formed. For a table in which both samples look rows up, the block is the sum of
delta_t delta_s^T over the positions t and s that take the same row. Any other parameter adds the
product of its rows of J. Blocks above the diagonal are computed, the others mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.samples import even_size, take
from gnjax.networks.kernels.rows import (
    Item,
    in_windows,
    items_of,
    jacobian,
    joined,
    sample_trace,
)
from gnjax.networks.layer_types.uses import Pair
from gnjax.networks.network import Network
from gnjax.numerics.host import on_cpu, zeros
from gnjax.numerics.limits import LIMITS

_BLOCK = 128  # a block of J J^T belongs to so many samples by so many samples

_PairsAndRows = tuple[list[Pair], jax.Array | np.ndarray]
"""Of some samples and a group of parameters: the pairs, and the rows (n, r, p) of J."""


def output_gram(net: Network) -> np.ndarray:
    """J J^T (n r, n r), samples first."""
    return output_grams(net, [range(len(net.counts))])[0]


def output_grams(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_l J_l^T (n r, n r) for the columns J_l of each part of the parameters, from one pass.

    A part consists of the indices of its parameters among the chosen leaves. Every chosen leaf is
    in exactly one part.
    """
    n, r = net.samples, net.rows
    if net.coupled:
        columns = np.split(jacobian(net), np.cumsum(net.counts)[:-1], axis=1)
        parts_of_j = [np.concatenate([columns[place] for place in part], axis=1) for part in parts]
        return [part @ part.T for part in parts_of_j]
    grams = [zeros((n, r, n, r), net.dtype) for _ in parts]
    owners = {place: gram for part, gram in zip(parts, grams, strict=True) for place in part}
    items = items_of(net, sample_trace(net))
    groups = list(_groups(net, sorted(items, key=lambda item: item.width)))
    room = np.empty(max(_room(net, group) for group in groups), net.dtype)
    for group in groups:
        _add_group(net, group, owners, room)
    flat = [gram.reshape(n * r, n * r) for gram in grams]
    for gram in flat:
        _mirror(gram, r * _block_size(net))
    return flat


def gram_work(net: Network) -> float:
    """About how many multiplications J J^T takes, beside those for the rows and pairs of J."""
    n, m = net.samples, net.samples * net.rows
    if net.coupled:
        return float(m) ** 2 * net.parameters / 2
    trace = sample_trace(net)
    work = 0.0
    for item in items_of(net, trace):
        if item.form == "rows" or item.layer is None:
            work += m**2 * item.width
            continue
        use = trace.layers[item.layer].uses[0]
        pairs = use.positions**2 if item.form == "places" else 1
        work += m**2 * use.sizes.outputs * pairs + n**2 * use.sizes.inputs
    return work / 2


def _add_group(
    net: Network, group: tuple[Item, ...], owners: dict[int, np.ndarray], room: np.ndarray
) -> None:
    """Add the group's blocks on and above the diagonal to the matrices that own its parameters.

    If the rows and pairs of all samples fit in memory, they are computed once. On a CPU the rows of
    J are then stored in ``room``, which all groups reuse, because memory that is new to a process
    costs more time than writing to it.
    """
    n, size = net.samples, _block_size(net)
    starts = range(0, n, size)
    pieces: dict[int, _PairsAndRows] = {}
    rooms = np.split(room[: _room(net, group)], len(starts))

    def piece(index: int) -> _PairsAndRows:
        if index in pieces:
            return pieces[index]
        first = min(starts[index], n - size)
        some = take((net.x, net.target), slice(first, first + size))
        pairs, rows = zip(*in_windows(net, group, some), strict=True)
        if not _fits(net, group):
            return joined(pairs), joined(rows)
        pieces[index] = joined(pairs), _stored_in(rooms[index], rows)
        return pieces[index]

    for i, top in enumerate(starts):
        left = piece(i)
        for j, start in enumerate(starts[i:], start=i):
            right = left if i == j else piece(j)
            # The last block overlaps the one before, so that one program serves all blocks;
            # only its new entries are added.
            new = np.s_[max(top + size - n, 0) :, :, max(start + size - n, 0) :]
            for gram, pairs, columns in _shares(net, group, owners):
                block = gram[top : top + size, :, start : start + size]
                for pair in pairs:
                    _add_structured(block, left[0][pair], right[0][pair], new)
                if len(columns):
                    ours = _columns(_flat(left[1]), columns)
                    product = _outer(ours, ours if i == j else _columns(_flat(right[1]), columns))
                    shape = (size, net.rows, size, net.rows)
                    block += product.reshape(shape)[new]


def _fits(net: Network, group: tuple[Item, ...]) -> bool:
    """Whether the rows and pairs of a group are held for all samples at once."""
    numbers = net.samples * net.rows * sum(item.width for item in group)
    return numbers * net.dtype.itemsize <= LIMITS.kernel_bytes


def _room(net: Network, group: tuple[Item, ...]) -> int:
    """How many numbers the rows of J of all samples have; 0 if they are not held at once."""
    if not _fits(net, group):
        return 0
    size = _block_size(net)
    samples = size * len(range(0, net.samples, size))
    return samples * net.rows * sum(net.counts[i.place] for i in group if i.form == "rows")


def _stored_in(room: np.ndarray, parts: Sequence[jax.Array]) -> jax.Array | np.ndarray:
    """Join arrays of rows (n, r, p) of some samples into one array, on a CPU inside ``room``."""
    if not room.size or not all(on_cpu(part) for part in parts):
        return joined(parts)
    rows = room.reshape(-1, *parts[0].shape[1:])
    return np.concatenate([np.asarray(part) for part in parts], out=rows)


def _shares(
    net: Network, group: tuple[Item, ...], owners: dict[int, np.ndarray]
) -> Iterator[tuple[np.ndarray, list[int], np.ndarray]]:
    """Yield each matrix with parameters in the group, its pairs, and its columns of the rows."""
    with_rows = [item for item in group if item.form == "rows"]
    ends = np.cumsum([net.counts[item.place] for item in with_rows])
    with_pairs = [item for item in group if item.form != "rows"]
    grams = {id(owners[item.place]): owners[item.place] for item in group}
    for key, gram in grams.items():
        pairs = [i for i, item in enumerate(with_pairs) if id(owners[item.place]) == key]
        columns = [
            np.arange(end - net.counts[item.place], end)
            for item, end in zip(with_rows, ends, strict=True)
            if id(owners[item.place]) == key
        ]
        yield gram, pairs, np.concatenate(columns) if columns else np.zeros(0, int)


def _mirror(matrix: np.ndarray, size: int) -> None:
    """Copy the blocks above the diagonal below it."""
    for start in range(0, len(matrix), size):
        stop = start + size
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T


def _add_structured(block: np.ndarray, left: Pair, right: Pair, new: tuple[slice, ...]) -> None:
    """Add a parameter's part of J J^T to a block (i, r, j, r), for the samples of ``new`` only."""
    (a, delta), (b, epsilon) = left, right
    if delta.ndim == 4:
        block += np.asarray(_over_positions(left, right))[new]
    elif all(on_cpu(part) for part in (*left, *right)):
        rows, _, columns = new
        new_left = (np.asarray(a)[rows], np.asarray(delta)[rows])
        _add_on_cpu(block, new_left, (np.asarray(b)[columns], np.asarray(epsilon)[columns]))
    else:
        block += np.asarray(_over_vectors(left, right))[new]


def _add_on_cpu(
    block: np.ndarray, left: tuple[np.ndarray, np.ndarray], right: tuple[np.ndarray, np.ndarray]
) -> None:
    """Add (a_i . b_j) (delta_i epsilon_j^T) to a block by BLAS, twice as fast as XLA on a CPU."""
    (a, delta), (b, epsilon) = left, right
    n, r, q = delta.shape
    inputs = np.repeat(a @ b.T, epsilon.shape[1], axis=1)  # (i, j r)
    outputs = (delta.reshape(-1, q) @ epsilon.reshape(-1, q).T).reshape(n, r, -1)
    outputs *= inputs[:, None]
    block += outputs.reshape(block.shape)


@jax.jit
def _over_vectors(left: Pair, right: Pair) -> jax.Array:
    """(a_i . b_j) (delta_i epsilon_j^T), a block (i, r, j, r) of two sets of samples."""
    (a, delta), (b, epsilon) = left, right
    inputs = jnp.matmul(a, b.T, precision="highest")
    outputs = jnp.tensordot(delta, epsilon, axes=(2, 2), precision="highest")
    return outputs * inputs[:, None, :, None]


@jax.jit
def _over_positions(left: Pair, right: Pair) -> jax.Array:
    """sum_ts (a_t . b_s) (delta_t epsilon_s^T) for unit vectors a_t and b_s, given by the places
    (i, t) and (j, s) of their ones; delta is (i, r, t, q). A block (i, r, j, r)."""

    def add_t(total: jax.Array, at_t: Pair) -> tuple[jax.Array, None]:
        def add_t_s(total: jax.Array, at_s: Pair) -> tuple[jax.Array, None]:
            same = at_t[0][:, None] == at_s[0][None]
            outputs = jnp.tensordot(at_t[1], at_s[1], axes=(2, 2), precision="highest")
            return total + jnp.where(same[:, None, :, None], outputs, 0), None

        return jax.lax.scan(add_t_s, total, _positions_first(right))

    delta, epsilon = left[1], right[1]
    nothing = jnp.zeros((*delta.shape[:2], *epsilon.shape[:2]), delta.dtype)
    return jax.lax.scan(add_t, nothing, _positions_first(left))[0]


def _positions_first(pair: Pair) -> Pair:
    return pair[0].T, jnp.moveaxis(pair[1], 2, 0)


def _flat(rows: jax.Array | np.ndarray) -> np.ndarray | jax.Array:
    """Rows (n, r, p) as (n r, p); on a CPU as an array of NumPy, without a copy."""
    host = np.asarray(rows) if on_cpu(rows) else rows
    return host.reshape(-1, rows.shape[-1])


def _columns(rows: np.ndarray | jax.Array, columns: np.ndarray) -> np.ndarray | jax.Array:
    return rows if len(columns) == rows.shape[1] else rows[:, columns]


def _outer(left: np.ndarray | jax.Array, right: np.ndarray | jax.Array) -> np.ndarray:
    """A B^T. On a CPU BLAS is a third faster than XLA in float64, and halves the work of A A^T."""
    if isinstance(left, np.ndarray):
        return left @ right.T
    return np.asarray(jnp.matmul(left, right.T, precision="highest"))


def _groups(net: Network, items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Group parameters so that the rows and pairs of a group fit in memory for all samples."""
    limit = LIMITS.kernel_bytes / (net.samples * net.rows * net.dtype.itemsize)
    group: list[Item] = []
    for item in items:
        if group and sum(i.width for i in group) + item.width > limit:
            yield tuple(group)
            group = []
        group.append(item)
    yield tuple(group)


def _block_size(net: Network) -> int:
    return even_size(net.samples, _BLOCK)
