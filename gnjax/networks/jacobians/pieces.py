"""The one loop that computes J: its pairs and its rows, for some samples at a time.

A convolution, a dense layer on several positions, a parameter with several uses, and a layer with
masked entries have their Jacobian sum_t delta_t a_t^T formed; any other parameter has it from
automatic differentiation. What J J^T, moments and products with a stored J take in place of rows,
the inputs a and sensitivities delta of a layer, is made here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.forms.samples import even_size, sample_count, take, windows
from gnjax.networks.jacobians.items import Item, sample_trace, uses_of
from gnjax.networks.layer_types.uses import Pair, by_places, by_positions
from gnjax.networks.network import Network, backward_products
from gnjax.networks.outputs.hessians import root_rows
from gnjax.networks.outputs.targets import Target
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_cpu, on_device, zeros

_ROWS = 64

Tree = TypeVar("Tree")


Pieces = tuple[list[Pair], jax.Array]
"""The pairs of some samples, of items that are not "rows", and rows (n, r, p)."""


def pieces_of(
    net: Network,
    items: tuple[Item, ...],
    samples: Any = None,
    *,
    portion: tuple[int, int] | None = None,
    through: Callable[..., Any] | None = None,
) -> Iterator[Any]:
    """Yield the pairs and rows of the items, some samples at a time.

    All parts have one size, so that one program serves them: the last one overlaps the one before
    it, and what was computed twice is yielded once. The outputs of coupled samples are one
    function; it has rows alone, some outputs at a time, as those of one sample.

    Args:
      net: the network.
      items: the parameters, in the order of the columns.
      samples: the samples (x, target) in place of those of the network, which are not coupled.
      portion: at most how many samples are computed at once, and how many of their rows; the last
        rows of a sample are filled up with zeros. By default all rows of as many samples as the
        network takes, since each row of a sample is a backward pass.
      through: a pytree that is a function of the network, the target, the pairs and the rows. It
        is compiled with them, and its results are yielded in their place.
    """
    if net.coupled:
        for unit, skip in unit_rows(net):
            rows_of_batch = backward_products(net, on_device(unit.T)).T[None]
            yield [], take(rows_of_batch, np.s_[:, skip:]) if skip else rows_of_batch
        return
    samples = (net.x, net.target) if samples is None else samples
    most, rows = portion or (max(1, net.batch // net.rows), net.rows)
    size = even_size(sample_count(samples), most)
    for part, skip in windows(samples, size):
        new = slice(skip, None)
        x, target = take(part, new) if skip and through is not None else part
        for start in range(0, net.rows, rows):
            pieces = _pieces(net, items, rows, through, x, target, start)
            yield take(pieces, new) if skip and through is None else pieces


def unit_rows(net: Network) -> Iterator[tuple[np.ndarray, int]]:
    """Yield unit vectors (b, n r) of the outputs of coupled samples, some of them at a time.

    Each comes with the number of its vectors that came before, since all parts have one size.
    """
    size = net.samples * net.rows
    count = min(_ROWS, size)
    for start in range(0, size, count):
        place = min(start, size - count)
        yield np.eye(count, size, place, dtype=net.dtype), start - place


def joined(parts: Sequence[Tree]) -> Tree:
    """Join trees of arrays, each for some of the samples, along the samples."""
    return parts[0] if len(parts) == 1 else jax.tree.map(_concatenated, *parts)


def _concatenated(*parts: jax.Array) -> jax.Array:
    """Concatenate on the first axis; on a CPU by NumPy, as JAX would compile for every shape."""
    if all(on_cpu(part) and len(part.devices()) == 1 for part in parts):
        buffer = zeros((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        return on_device(np.concatenate([np.asarray(part) for part in parts], out=buffer))
    return jnp.concatenate(parts)


@bounded_jit(static_argnames=("items", "rows"))
def _pieces(
    net: Network,
    items: tuple[Item, ...],
    rows: int,
    through: Callable[..., Any] | None,
    x: Any,
    target: Target | None,
    start: int,
) -> Any:
    """The pairs and rows of the items for the samples x, weighted by some rows of R^T."""
    trace = sample_trace(net)

    def weights(part: Target | None, outputs: jax.Array) -> jax.Array:
        every = root_rows(part, outputs)
        if rows == len(every):
            return every
        filled = jnp.pad(every, ((0, -len(every) % rows), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(filled, start, rows)

    def sample(xi: Any, part: Target | None) -> Pieces:
        pairs_of_items: list[Pair] = []
        columns = [jnp.zeros((rows, 0), net.dtype)]
        for item, pairs, gradient in by_items(net, items, trace, xi, partial(weights, part)):
            if item.form == "pair":
                pairs_of_items += pairs
            elif item.form == "places":
                pairs_of_items.append(by_places(uses_of(trace, item)[0], pairs[0], net.dtype))
            elif item.form == "vectors":
                a, delta = by_positions(uses_of(trace, item)[0], pairs[0], net.dtype)
                pairs_of_items.append((a[0, 0], delta[:, 0, 0]))
            else:
                columns.append(columns_of(net, trace, item, pairs, gradient))
        return pairs_of_items, jnp.concatenate(columns, axis=1)

    pieces = jax.vmap(sample)(x, target)
    return pieces if through is None else through(net, target, *pieces)


def by_items(
    net: Network,
    items: Sequence[Item],
    trace: layers.TracedLayers,
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> Iterator[tuple[Item, list[Pair], jax.Array | None]]:
    """Yield each item with the pair of each use of its layer, or with its rows of J.

    The rows are those of M F, where ``weights`` makes M from the outputs F of the trace.
    """
    uses = [use for item in items for use in uses_of(trace, item)]
    others = [net.leaf_indices[item.place] for item in items if item.layer is None]
    pairs, gradients = layers.sensitivities(trace, uses, others, net.leaves, sample, weights)
    pairs_left, gradients_left = iter(pairs), iter(gradients)
    for item in items:
        gradient = next(gradients_left) if item.layer is None else None
        yield item, [next(pairs_left) for _ in uses_of(trace, item)], gradient


def columns_of(
    net: Network,
    trace: layers.TracedLayers,
    item: Item,
    pairs: Sequence[Pair],
    gradient: jax.Array | None,
) -> jax.Array:
    """The columns of J of an item's chosen entries, from its pairs where its layer is known."""
    if item.layer is not None:
        layer = trace.layers[item.layer]
        gradient = layers.jacobian_rows(layer, net.leaves[layer.leaf], pairs)
    assert gradient is not None
    indices = net.entry_indices[item.place]
    return gradient if indices is None else gradient[:, indices]
