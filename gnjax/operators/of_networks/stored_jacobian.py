"""Gauss-Newton matrices and kernels of networks with their Jacobian in memory.

A product that runs the network passes four times through its layers, and a kernel that acts on t
positions costs t products each time. A product with a stored J (n r, p) reads it twice. The block
of a layer W, from q_in to q_out numbers, is kept as r q_in q_out numbers for each sample or, from

    (J V)_c = sum_t delta_tc . V a_t,    J^T u = sum_t (sum_c u_c delta_tc) a_t^T,

as its inputs a_t and sensitivities delta_t, r t q_out numbers: less work in dense layers, where t
is small, and often less to keep. The first is less work in convolutional networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.jacobians import Item, as_columns, joined, pieces_of, sample_trace, uses_of
from gnjax.networks.layer_types import Use
from gnjax.networks.layer_types.uses import Pair, acting
from gnjax.networks.network import Network, batched, scatter_leaf, sum_of
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.memory.device import device
from gnjax.operators.facts import Product
from gnjax.operators.of_networks.linearised import Prepared
from gnjax.operators.protocol import Operator
from gnjax.operators.trees import takes_trees

if TYPE_CHECKING:
    from gnjax.operators.of_networks.network_gram import NetworkGram

_READ = 4  # multiplications of a convolution that take as long as reading a number
_GAIN = 2  # J is made by itself only if products get this much faster
_COMPILED = 2e10  # the time to compile what makes and uses J, in multiplications
_BLOCK_BYTES = 2e8  # bytes of a block of J: a smaller one is mostly overhead
_COLUMNS = 64

Items = tuple[Item, ...]
_Map = Callable[[jax.Array], jax.Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JacobianBlock:
    """R^T J for n_b samples with r rows each: columns of p' parameters, and pairs for the others.

    A pair holds the inputs a_t and sensitivities delta_t of one use of a layer.
    """

    rows: jax.Array  # (n_b r, p')
    pairs: tuple[Pair, ...]  # a (n_b, ..) and delta (n_b, r, ..)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class WithJacobian(Prepared):
    """The operator ``op``, scale J^T J or scale J J^T, by its stored Jacobian R^T J.

    ``items`` say in which form each parameter has its columns in the ``blocks`` of samples.
    """

    op: NetworkGram
    blocks: tuple[JacobianBlock, ...]
    items: Items = field(metadata={"static": True})

    @takes_trees
    def mv(self, v: jax.Array) -> jax.Array:
        """The product with a vector or columns, of which ``_COLUMNS`` are multiplied at once.

        It is the sum of J_b^T J_b v over blocks b, or J_b times the sum of all J_b^T v_b.
        """
        if v.ndim > 1 and v.shape[1] > _COLUMNS:
            parts = jnp.array_split(v, -(-v.shape[1] // _COLUMNS), axis=1)
            return jnp.concatenate([self.mv(part) for part in parts], axis=1)
        net, items = self.op.net, self.items
        if self.op.side == "parameters":
            images = (_there_and_back(net, items, block, v) for block in self.blocks)
            return self.op.scale * sum_of(images)
        ends = np.cumsum([len(block.rows) for block in self.blocks])[:-1]
        pairs = zip(self.blocks, jnp.split(v, ends), strict=True)
        pulled = sum_of(_transposed_product(net, items, block, part) for block, part in pairs)
        rows = [_jacobian_product(net, items, block, pulled) for block in self.blocks]
        return self.op.scale * jnp.concatenate(rows)


def with_jacobian(op: Operator, *, limits: Limits = LIMITS) -> Operator:
    """``op``, a Gauss-Newton matrix or NTK of a network, with its Jacobian (n r, p) stored.

    It pays when many products are made with one convolutional network. Making J costs r backward
    passes, about as much as r products, where r is the number of rows of J for each sample. J takes
    up to ``limits.jacobian_bytes``. Where it does not fit, the inputs and sensitivities of layers
    are kept instead of their part of J; they take less memory, and products with them are slower.

    For fewer products use :func:`gnjax.linearised`. It keeps the intermediate values of the network
    in place of J, so that it costs about one evaluation of the network, and its products still run
    through all layers.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (5, 3))
    >>> op = gnjax.gauss_newton(model, x)
    >>> v = np.ones(26)
    >>> np.allclose(gnjax.with_jacobian(op).mv(v), op.mv(v))
    True
    """
    from gnjax.operators.of_networks.network_gram import NetworkGram  # which imports this module

    if not isinstance(op, NetworkGram):
        msg = (
            "only the operators of gnjax.gauss_newton and gnjax.ntk have a Jacobian to store, "
            f"got {type(op).__name__}"
        )
        raise ValueError(msg)
    net, memory = op.net, limits.jacobian_bytes
    items = _items(net, sample_trace(net), memory)
    size = _bytes(net, items)
    if not size <= memory:
        msg = (
            f"the Jacobian, {net.samples * net.rows} x {net.parameters} in {net.dtype}, takes at "
            f"least {size / 1e9:.1f} GB, and limits allow {memory:.3g} bytes; pass "
            f"limits=gnjax.Limits(jacobian_bytes={size:.0f}) or more where that is free, or use "
            "gnjax.linearised(op)"
        )
        raise ValueError(msg)
    return WithJacobian(op, tuple(_blocks(net, items)), items)


def storing(op: NetworkGram, product: Product) -> Product:
    """Multiply by ``product`` until that has cost as much as making J; then store J and use it.

    Whatever the number of products, this takes at most about twice as long as if their number had
    been known beforehand. Where J does not pay it is the same product.
    """
    products_left = products_before(op)
    if products_left == np.inf:
        return product
    # A list of one, so that the first product and what it keeps can be freed.
    multiplications = [product]
    del product

    def multiply(v: Any) -> Any:
        """A v for a vector or columns v, each of which counts as a product."""
        nonlocal products_left
        if products_left <= 0:
            multiplications.clear()  # free its memory first
            multiplications.append(op.others.watched(with_jacobian(op).mv, "with J stored"))
            products_left = np.inf
        products_left -= 1 if v.ndim == 1 else v.shape[1]
        return multiplications[0](v)

    return multiply


def products_before(op: NetworkGram) -> float:
    """The number of products of a convolutional network that cost as much as making J.

    Making J costs r backward passes, where r is the number of rows of J for each sample, and the
    compilation. All work is counted in multiplications of one sample. A product without J takes a
    pass forward and one back through all layers. The number is infinite if products with J are not
    ``_GAIN`` times faster, if J does not fit in memory, for coupled samples, for a network without
    convolutions, on several devices, and on an accelerator, for which none of this was measured.
    """
    net = op.net
    on_one_device = len(jax.tree.leaves(net.x)[0].devices()) == 1
    if net.coupled or not (net.convolves and on_one_device and device().stores):
        return np.inf
    trace = sample_trace(net)
    items = _items(net, trace, LIMITS.jacobian_bytes)
    # The multiplications of one pass of a sample through each layer.
    work = [sum(use.terms * use.results for use in layer.uses) for layer in trace.layers]
    pairs = [item for item in items if item.form == "pair"]
    numbers_read = sum(item.width for item in items)
    # J is read, and those parameters that are kept as pairs take a pass through their layers.
    work_with_j = _READ * numbers_read + sum(
        work[item.layer] for item in pairs if item.layer is not None
    )
    work_without_j = 2 * sum(work)
    if _bytes(net, items) > LIMITS.jacobian_bytes or _GAIN * work_with_j > work_without_j:
        return np.inf
    # in products: r backward passes count as r products, and then the compilation
    return net.rows + _COMPILED / (2 * net.samples * work_without_j)


def _bytes(net: Network, items: Items) -> float:
    """The bytes of the Jacobian with its parameters kept as ``items`` say, in the net's dtype."""
    return float(net.samples * sum(item.width for item in items) * net.dtype.itemsize)


def _items(net: Network, trace: layers.TracedLayers, memory: float) -> Items:
    """Choose how each parameter is kept, one item each: for fast products in ``memory`` bytes.

    A parameter of a layer has its columns of J (``form`` "columns"), or a pair of inputs and
    sensitivities for each use ("pair") where products with them are less work. If all that does not
    fit, it also has pairs where these are smaller, those that save most first. The ``width`` of an
    item is how many numbers it keeps for each sample.
    """
    items = [replace(item, width=net.rows * item.width) for item in as_columns(net)]
    if net.coupled:  # the layers act on all samples at once
        return tuple(items)
    smaller = {}
    for index, item in enumerate(items):
        if item.layer is None:
            continue
        uses = uses_of(trace, item)
        width = sum(use.operands + net.rows * use.results for use in uses)
        pair = replace(item, form="pair", width=width)
        # Multiplications of a product: through the layer, and of its results by the delta.
        work = sum(use.results * (use.terms + net.rows) for use in uses)
        if work < item.width:
            items[index] = pair
        elif pair.width < item.width:
            smaller[index] = pair
    for index in sorted(smaller, key=lambda index: smaller[index].width - items[index].width):
        if _bytes(net, tuple(items)) <= memory:
            break
        items[index] = smaller[index]
    return tuple(items)


def _blocks(net: Network, items: Items) -> Iterator[JacobianBlock]:
    """Yield R^T J for some samples at a time, kept as ``items`` say, with all rows in one axis.

    Small pieces are joined to blocks of at least ``_BLOCK_BYTES`` bytes, so that a product calls
    few programs, and only the pieces of one block are in memory twice.
    """
    collected: list[JacobianBlock] = []
    for pairs, rows in pieces_of(net, items):  # rows (n_b, r, p')
        by_row = rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2])
        collected.append(JacobianBlock(by_row, tuple(pairs)))
        if sum(part.nbytes for part in jax.tree.leaves(collected)) >= _BLOCK_BYTES:
            yield joined(collected)
            collected = []
    if collected:
        yield joined(collected)


@bounded_jit(static_argnames=("items",))
def _jacobian_product(net: Network, items: Items, block: JacobianBlock, v: jax.Array) -> jax.Array:
    """J_b v for a block J_b (n_b r, p) and v (p,) or (p, b), as a sum over the parameters.

    One product of matrices multiplies all columns that are kept, ``block.rows``.
    """
    maps = iter(_maps(net, items, block))
    parts_of_columns, images = [], []
    for item, part in zip(items, jnp.split(v, np.cumsum(net.counts)[:-1]), strict=True):
        if item.form == "columns":
            parts_of_columns.append(part)
        else:
            images.append(batched(next(maps), part))
    if parts_of_columns:
        joined_parts = jnp.concatenate(parts_of_columns)
        images.append(jnp.matmul(block.rows, joined_parts, precision="highest"))
    return sum_of(iter(images))


@bounded_jit(static_argnames=("items",))
def _transposed_product(
    net: Network, items: Items, block: JacobianBlock, u: jax.Array
) -> jax.Array:
    """J_b^T u for a block J_b (n_b r, p) and u (n_b r,) or (n_b r, b), parameter by parameter.

    The columns that are kept are multiplied as (u^T J_b)^T, since for J_b^T u XLA would write J_b
    transposed.
    """
    maps = iter(_maps(net, items, block))
    from_columns = jnp.matmul(u.T, block.rows, precision="highest").T
    ends = np.cumsum([net.counts[item.parameter] for item in items if item.form == "columns"])
    parts_from_columns = iter(jnp.split(from_columns, ends[:-1]))
    parts = []
    for item in items:
        if item.form == "columns":
            parts.append(next(parts_from_columns))
            continue
        size = jax.ShapeDtypeStruct((net.counts[item.parameter],), net.dtype)
        parts.append(batched(jax.linear_transpose(next(maps), size), u)[0])
    return jnp.concatenate(parts)


@bounded_jit(static_argnames=("items",))
def _there_and_back(net: Network, items: Items, block: JacobianBlock, v: jax.Array) -> jax.Array:
    """J_b^T J_b v for a block J_b (n_b r, p) and v (p,) or (p, b)."""
    return _transposed_product(net, items, block, _jacobian_product(net, items, block, v))


def _maps(net: Network, items: Items, block: JacobianBlock) -> Iterator[_Map]:
    """Yield, for each parameter kept as pairs, the map from its part of v to its part of J_b v."""
    trace = sample_trace(net)
    pairs = iter(block.pairs)
    for item in items:
        if item.form == "pair":
            uses = uses_of(trace, item)
            yield partial(_through, net, item.parameter, [(use, next(pairs)) for use in uses])


def _through(
    net: Network, parameter: int, uses: Sequence[tuple[Use, Pair]], part: jax.Array
) -> jax.Array:
    """The part of J_b v for one parameter: sum_t delta_t . V a_t over all of its uses, (n_b r,).

    ``part`` are the chosen entries of parameter number ``parameter`` in v, and V is the array that
    they make. Each use has a pair of inputs a_t (n_b, ..) and sensitivities delta_t (n_b, r, ..).
    """
    entries = scatter_leaf(net, parameter, part)  # V

    def image(use: Use, pair: Pair) -> jax.Array:
        """sum_t delta_t . V a_t over the positions t of one use."""
        inputs, deltas = pair
        images = jax.vmap(partial(acting, use, entries))(inputs).reshape(len(inputs), -1)
        images = images.astype(net.dtype)
        deltas = deltas.reshape(*deltas.shape[:2], -1).astype(net.dtype)
        return jnp.einsum("ncz,nz->nc", deltas, images, precision="highest").reshape(-1)

    # A plain sum: the function is transposed by JAX, and what an addition loses is not linear.
    return reduce(jnp.add, (image(*use) for use in uses))
