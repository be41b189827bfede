"""J, J J^T and J^T J of a network as matrices, layer by layer, in bounded memory.

For a dense layer the block of samples i and j of J J^T is (a_i . a_j) (delta_i delta_j^T), and no
Jacobian is formed. For a table in which both samples look rows up, the block is the sum of
delta_t delta_s^T over the positions t and s that take the same row. A convolution, a dense layer on
several positions, a parameter with several uses, and a layer with masked entries have their
Jacobian sum_t delta_t a_t^T formed for some samples at a time; any other parameter has it from
automatic differentiation. Blocks above the diagonal are computed, the others mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.forms.samples import even_size, one_sample, sample_count, take, windows
from gnjax.networks.layer_types.uses import Pair, by_places, by_positions, has_places
from gnjax.networks.network import Network, backward_products
from gnjax.networks.outputs.hessians import root_rows
from gnjax.networks.outputs.targets import Target
from gnjax.numerics.host import on_cpu, on_device

_CACHE_BYTES = 3e9  # a layer of ResNet20, 36,864 weights, for 10,000 outputs
_ROWS = 64
_BLOCK = 128  # samples a side of a block

Tree = TypeVar("Tree")


@dataclass(frozen=True)
class Item:
    """One chosen parameter: its layer (None: by differentiation), and what is made of it.

    Its "rows" of J; the pair of a and delta of each use as its equation has them ("pair"); where a
    layer acts on a single position, as vectors ("vectors"); where every a_t is a unit vector, the
    places of the ones in place of a ("places").
    """

    place: int  # among the chosen leaves
    layer: int | None  # among the traced layers
    form: Literal["rows", "pair", "vectors", "places"]
    width: int  # numbers for each row of J that a sample has


Pieces = tuple[list[Pair], jax.Array]
"""The pairs of some samples, of items that are not "rows", and rows (n, r, p)."""


def row_blocks(net: Network) -> Iterator[jax.Array]:
    """J (n r, p) some rows at a time, columns in the order of the parameter vector."""
    if net.coupled:
        yield from _coupled_blocks(net)
        return
    items = tuple(replace(item, form="rows") for item in items_of(net, traced_sample(net)))
    for _, rows in in_batches(net, items):
        yield rows.reshape(-1, net.parameters)


def in_batches(net: Network, items: tuple[Item, ...]) -> Iterator[Pieces]:
    """What is made of the items, for as many samples at a time as r backward passes allow."""
    yield from _in_windows(net, items, (net.x, net.target))


def _in_windows(net: Network, items: tuple[Item, ...], samples: Any) -> Iterator[Pieces]:
    """The same of some samples, by a single program: the last run overlaps the one before."""
    fewer = even_size(sample_count(samples), max(1, net.batch // net.rows))
    for (x, target), skip in windows(samples, fewer):
        found = _pieces(net, items, x, target)
        yield take(found, slice(skip, None)) if skip else found


def jacobian(net: Network) -> np.ndarray:
    """J (n r, p), columns in the order of the parameter vector."""
    return np.concatenate([np.asarray(block) for block in row_blocks(net)])


def parameter_gram(net: Network) -> np.ndarray:
    """J^T J (p, p), summed over rows."""
    total = jnp.zeros((net.parameters, net.parameters), net.dtype)
    for block in row_blocks(net):
        total = _accumulate(total, block)
    return np.asarray(total)


def output_gram(net: Network) -> np.ndarray:
    """J J^T (n r, n r), samples first."""
    return output_grams(net, [range(len(net.counts))])[0]


def output_grams(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_l J_l^T (n r, n r) for the columns J_l of each part of the parameters, from one pass.

    A part has the places of its parameters among the chosen leaves; parts do not overlap, and
    together they are all.
    """
    n, r = net.samples, net.rows
    if net.coupled:
        columns = np.split(jacobian(net), np.cumsum(net.counts)[:-1], axis=1)
        wholes = [np.concatenate([columns[place] for place in part], axis=1) for part in parts]
        return [whole @ whole.T for whole in wholes]
    grams = [np.zeros((n, r, n, r), net.dtype) for _ in parts]
    owners = {place: gram for part, gram in zip(parts, grams, strict=True) for place in part}
    items = items_of(net, traced_sample(net))
    for group in _groups(net, sorted(items, key=lambda item: item.width)):
        _add_group(net, group, owners)
    flat = [gram.reshape(n * r, n * r) for gram in grams]
    for gram in flat:
        _mirror(gram, r * _block_size(net))
    return flat


def _add_group(net: Network, group: tuple[Item, ...], owners: dict[int, np.ndarray]) -> None:
    """Add the group's blocks on and above the diagonal to the matrices that own its parameters.

    What fits in memory is computed once.
    """
    n, size = net.samples, _block_size(net)
    starts = range(0, n, size)
    held: dict[int, Pieces] = {}
    fits = n * net.rows * sum(item.width for item in group) * net.dtype.itemsize <= _CACHE_BYTES

    def piece(index: int) -> Pieces:
        if index in held:
            return held[index]
        first = min(starts[index], n - size)
        some = take((net.x, net.target), slice(first, first + size))
        found = joined(list(_in_windows(net, group, some)))
        if fits:
            held[index] = found
        return found

    for i, top in enumerate(starts):
        left = piece(i)
        for j, start in enumerate(starts[i:], start=i):
            right = left if i == j else piece(j)
            rows, columns_of = slice(top, top + size), slice(start, start + size)
            # The last block reaches back, so that one program serves all: what was there is left.
            new = np.s_[max(top + size - n, 0) :, :, max(start + size - n, 0) :]
            for gram, pairs, columns in _shares(net, group, owners):
                if pairs:
                    near, far = ([side[0][index] for index in pairs] for side in (left, right))
                    gram[rows, :, columns_of] += np.asarray(_structured(near, far))[new]
                if len(columns):
                    ours = _columns(_flat(left[1]), columns)
                    product = _outer(ours, ours if i == j else _columns(_flat(right[1]), columns))
                    shape = (size, net.rows, size, net.rows)
                    gram[rows, :, columns_of] += product.reshape(shape)[new]


def _shares(
    net: Network, group: tuple[Item, ...], owners: dict[int, np.ndarray]
) -> Iterator[tuple[np.ndarray, list[int], np.ndarray]]:
    """For every matrix with parameters in the group: its pairs, and its columns of the rows."""
    with_rows = [item for item in group if item.form == "rows"]
    ends = np.cumsum([net.counts[item.place] for item in with_rows])
    held = [item for item in group if item.form != "rows"]
    wanted = {id(owners[item.place]): owners[item.place] for item in group}
    for key, gram in wanted.items():
        pairs = [i for i, item in enumerate(held) if id(owners[item.place]) == key]
        own = [
            np.arange(end - net.counts[item.place], end)
            for item, end in zip(with_rows, ends, strict=True)
            if id(owners[item.place]) == key
        ]
        yield gram, pairs, np.concatenate(own) if own else np.zeros(0, int)


def _mirror(matrix: np.ndarray, size: int) -> None:
    """Copy the blocks above the diagonal below it."""
    for start in range(0, len(matrix), size):
        stop = start + size
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T


@jax.jit
def _structured(left: list[Pair], right: list[Pair]) -> jax.Array:
    """sum_layers (a_i . a_j) (delta_i delta_j^T), a block (i, r, j, r) of two sets of samples."""
    total: jax.Array | float = 0.0
    for (a, delta), (b, epsilon) in zip(left, right, strict=True):
        if delta.ndim == 4:
            total = total + _over_positions((a, delta), (b, epsilon))
            continue
        inputs = jnp.matmul(a, b.T, precision="highest")
        outputs = jnp.tensordot(delta, epsilon, axes=(2, 2), precision="highest")
        total = total + outputs * inputs[:, None, :, None]
    return jnp.asarray(total)


def _over_positions(left: Pair, right: Pair) -> jax.Array:
    """sum_ts (a_t . b_s) (delta_t epsilon_s^T) for unit vectors a_t and b_s, given by the places
    (i, t) and (j, s) of their ones; delta is (i, r, t, q). A block (i, r, j, r)."""

    def add(total: jax.Array, one: Pair) -> tuple[jax.Array, None]:
        def add_one(total: jax.Array, other: Pair) -> tuple[jax.Array, None]:
            same = one[0][:, None] == other[0][None]
            outputs = jnp.tensordot(one[1], other[1], axes=(2, 2), precision="highest")
            return total + jnp.where(same[:, None, :, None], outputs, 0), None

        return jax.lax.scan(add_one, total, _positions_first(right))

    delta, epsilon = left[1], right[1]
    zeros = jnp.zeros((*delta.shape[:2], *epsilon.shape[:2]), delta.dtype)
    return jax.lax.scan(add, zeros, _positions_first(left))[0]


def _positions_first(pair: Pair) -> Pair:
    return pair[0].T, jnp.moveaxis(pair[1], 2, 0)


def _flat(rows: jax.Array) -> np.ndarray | jax.Array:
    """(n, r, p) as (n r, p); for a CPU on the host, where arrays are shared, not copied."""
    host = np.asarray(rows) if on_cpu(rows) else rows
    return host.reshape(-1, rows.shape[-1])


def _columns(rows: np.ndarray | jax.Array, columns: np.ndarray) -> np.ndarray | jax.Array:
    return rows if len(columns) == rows.shape[1] else rows[:, columns]


def _outer(left: np.ndarray | jax.Array, right: np.ndarray | jax.Array) -> np.ndarray:
    """A B^T. On a CPU BLAS is a third faster than XLA in float64, and halves the work of A A^T."""
    if isinstance(left, np.ndarray):
        return left @ right.T
    return np.asarray(jnp.matmul(left, right.T, precision="highest"))


@partial(jax.jit, donate_argnums=0)
def _accumulate(total: jax.Array, rows: jax.Array) -> jax.Array:
    return total + jnp.matmul(rows.T, rows, precision="highest")


def traced_sample(net: Network) -> layers.Traced:
    """The network of one sample, and its layers."""
    return layers.trace(net.one, net.leaves, one_sample(net.x))


def items_of(net: Network, traced: layers.Traced) -> tuple[Item, ...]:
    """How every chosen parameter is treated."""
    of_leaf = {layer.leaf: index for index, layer in enumerate(traced.layers)}
    items = []
    for place, (leaf, kept) in enumerate(zip(net.chosen, net.kept, strict=True)):
        index = of_leaf.get(leaf)
        if index is None:
            items.append(Item(place, None, "rows", net.counts[place]))
            continue
        use = traced.layers[index].only_use
        positions = 0 if use is None else use.positions
        if use is None or kept is not None:
            items.append(Item(place, index, "rows", net.counts[place]))
        elif has_places(use) and positions**2 < use.sizes.inputs:
            items.append(Item(place, index, "places", positions * (use.sizes.outputs + 1)))
        elif positions == use.groups == 1:
            width = use.sizes.outputs + use.sizes.inputs // net.rows + 1
            items.append(Item(place, index, "vectors", width))
        else:
            items.append(Item(place, index, "rows", net.counts[place]))
    return tuple(items)


def _groups(net: Network, items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Runs of parameters whose pieces for all samples fit in memory together, if each does."""
    limit = _CACHE_BYTES / (net.samples * net.rows * net.dtype.itemsize)
    group: list[Item] = []
    for item in items:
        if group and sum(i.width for i in group) + item.width > limit:
            yield tuple(group)
            group = []
        group.append(item)
    yield tuple(group)


def _block_size(net: Network) -> int:
    return even_size(net.samples, _BLOCK)


def joined(parts: Sequence[Tree]) -> Tree:
    """Arrays of some samples each as one, for any tree of them."""
    return parts[0] if len(parts) == 1 else jax.tree.map(_concatenated, *parts)


def _concatenated(*parts: jax.Array) -> jax.Array:
    """Along the first axis; by NumPy in host memory, as JAX would compile it for every shape."""
    if all(on_cpu(part) and len(part.devices()) == 1 for part in parts):
        return on_device(np.concatenate([np.asarray(part) for part in parts]))
    return jnp.concatenate(parts)


@partial(jax.jit, static_argnames=("group",))
def _pieces(net: Network, group: tuple[Item, ...], x: Any, target: Target | None) -> Pieces:
    """The pieces of some samples, weighted by R^T."""
    traced = traced_sample(net)
    known = [traced.layers[item.layer] for item in group if item.layer is not None]
    uses = [use for layer in known for use in layer.uses]
    others = [net.chosen[item.place] for item in group if item.layer is None]

    def sample(xi: Any, part: Target | None) -> Pieces:
        def weights(outputs: jax.Array) -> jax.Array:
            return jnp.eye(net.k, dtype=net.dtype) if part is None else root_rows(part, outputs)

        pairs, gradients = layers.sensitivities(traced, uses, others, net.leaves, xi, weights)
        near, far = iter(pairs), iter(gradients)
        held: list[Pair] = []
        rows = [jnp.zeros((net.rows, 0), net.dtype)]
        for item in group:
            if item.layer is None:
                rows.append(_kept(net, item, next(far)))
                continue
            layer = traced.layers[item.layer]
            own = [next(near) for _ in layer.uses]
            if item.form == "pair":
                held += own
            elif item.form == "places":
                held.append(by_places(layer.uses[0], own[0]))
            elif item.form == "vectors":
                a, delta = by_positions(layer.uses[0], own[0])
                held.append((a[0, 0], delta[:, 0, 0]))
            else:
                found = layers.jacobian_rows(layer, net.leaves[layer.leaf].shape, own)
                rows.append(_kept(net, item, found))
        return held, jnp.concatenate(rows, axis=1)

    return jax.vmap(sample)(x, target)


def _kept(net: Network, item: Item, rows: jax.Array) -> jax.Array:
    """The columns of the chosen entries of a parameter."""
    kept = net.kept[item.place]
    return rows if kept is None else rows[:, kept]


def _coupled_blocks(net: Network) -> Iterator[jax.Array]:
    """J of the whole batch as one function, some outputs at a time."""
    size = net.samples * net.rows
    unit = jnp.eye(size, dtype=net.dtype)
    for start in range(0, size, _ROWS):
        yield backward_products(net, unit[:, start : start + _ROWS]).T
