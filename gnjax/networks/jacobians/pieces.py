"""The one loop that computes J: its pairs and its rows, for some samples at a time.

A convolution, a dense layer on several positions, a parameter with several uses, and a layer with
masked entries have their Jacobian sum_t delta_t a_t^T formed; any other parameter has it from
automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import layers
from gnjax.networks.arguments.samples import even_size, sample_count, take, windows
from gnjax.networks.jacobians.items import Item, sample_trace, uses_of
from gnjax.networks.layer_types.uses import Pair, by_one_hot_indices, by_positions
from gnjax.networks.losses.output_hessian import root_rows
from gnjax.networks.losses.targets import Target
from gnjax.networks.network import Network, backward_products
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import on_cpu, on_device, zeros

_ROWS = 64  # rows of the J of a coupled batch that are computed at once

Tree = TypeVar("Tree")

PairsAndRows = tuple[list[Pair], jax.Array | np.ndarray]
"""Of n samples: rows (n, r, c) of J in the form "columns", and pairs (a, delta) of the others."""


def pieces_of(
    net: Network,
    items: tuple[Item, ...],
    samples: Any = None,
    *,
    portion: tuple[int, int] | None = None,
    through: Callable[..., Any] | None = None,
) -> Iterator[Any]:
    """Yield J as (pairs, rows) for n_b samples at a time: a list of (a, delta), and (n_b, r, c).

    A parameter in the form "columns" has its columns of J in the rows. Any other has a pair, the
    inputs a of its layer and the sensitivities delta, from which its columns are
    sum_t delta_t a_t^T over the positions t of the layer.

    One compiled program serves all windows of samples, as all have one size: the last one overlaps
    the one before it, and what was computed twice is yielded once. The outputs of coupled samples
    are one function; it has rows alone, which are yielded as those of one sample (1, b, p).

    Args:
      net: the network.
      items: the parameters and their forms, in the order of the columns.
      samples: the samples (x, target) in place of those of the network, which are not coupled.
      portion: at most how many samples are computed at once, and how many of their rows; the last
        rows of a sample are filled up with zeros. By default all rows of as many samples as the
        network takes, since each row of a sample is a backward pass.
      through: a pytree that is a function of the network, the samples (x, target), the pairs and
        the rows. It is compiled with them, and its results are yielded in their place.
    """
    if net.coupled:  # rows of J as products J^T u for unit vectors u, one for each output
        for unit_vectors, seen_before in unit_rows(net):
            rows_of_batch = backward_products(net, on_device(unit_vectors.T)).T[None]
            yield [], take(rows_of_batch, np.s_[:, seen_before:]) if seen_before else rows_of_batch
        return
    # all others: some samples at a time, and of these some of their r rows at a time
    samples = (net.x, net.target) if samples is None else samples
    samples_at_once, rows = portion or (max(1, net.batch // net.rows), net.rows)
    size = even_size(sample_count(samples), samples_at_once)
    for part, seen_before in windows(samples, size):
        new = slice(seen_before, None)
        # ``through`` may sum over samples, so that those seen before have to go first
        x, target = take(part, new) if seen_before and through is not None else part
        for start in range(0, net.rows, rows):
            results = _pairs_and_rows(net, items, rows, through, x, target, start)
            yield take(results, new) if seen_before and through is None else results


def unit_rows(net: Network) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the rows of the identity (n r, n r) as blocks (b, n r), for coupled samples.

    u J of such a block u are b rows of J. All blocks have one size, at most 64, so that the last
    one overlaps the one before it. With each comes the number of its rows that were yielded before.
    """
    size = net.samples * net.rows
    count = min(_ROWS, size)
    for start in range(0, size, count):
        first = min(start, size - count)
        yield np.eye(count, size, first, dtype=net.dtype), start - first


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
def _pairs_and_rows(
    net: Network,
    items: tuple[Item, ...],
    rows: int,
    through: Callable[..., Any] | None,
    x: Any,
    target: Target | None,
    start: int,
) -> Any:
    """J = R^T dF/dtheta for n_b samples x as (pairs, rows), or what ``through`` makes of both.

    So many ``rows`` of R^T (r, k), the factor of the loss at the outputs of a sample, are taken,
    from row ``start`` on; zeros follow the last one.
    """
    trace = sample_trace(net)

    def weights(sample_target: Target | None, outputs: jax.Array) -> jax.Array:
        """The rows of R^T."""
        all_rows = root_rows(sample_target, outputs)
        if rows == len(all_rows):
            return all_rows
        filled = jnp.pad(all_rows, ((0, -len(all_rows) % rows), (0, 0)))
        return jax.lax.dynamic_slice_in_dim(filled, start, rows)

    def of_sample(xi: Any, sample_target: Target | None) -> PairsAndRows:
        """The pairs and columns of one sample, from one backward pass for each of its rows."""
        pairs_of_items: list[Pair] = []
        columns = [jnp.zeros((rows, 0), net.dtype)]
        weights_of_sample = partial(weights, sample_target)
        for item, pairs, gradient in by_items(net, items, trace, xi, weights_of_sample):
            if item.form == "pair":
                pairs_of_items += pairs
            elif item.form == "places":
                pairs_of_items.append(
                    by_one_hot_indices(uses_of(trace, item)[0], pairs[0], net.dtype)
                )
            elif item.form == "vectors":
                a, delta = by_positions(uses_of(trace, item)[0], pairs[0], net.dtype)
                pairs_of_items.append((a[0, 0], delta[:, 0, 0]))
            else:
                columns.append(columns_of(net, trace, item, pairs, gradient))
        return pairs_of_items, jnp.concatenate(columns, axis=1)

    pairs_and_rows = jax.vmap(of_sample)(x, target)
    return pairs_and_rows if through is None else through(net, (x, target), *pairs_and_rows)


def by_items(
    net: Network,
    items: Sequence[Item],
    trace: layers.TracedLayers,
    sample: Any,
    weights: Callable[[jax.Array], jax.Array],
) -> Iterator[tuple[Item, list[Pair], jax.Array | None]]:
    """Yield (item, pairs, gradient) for each parameter: the derivatives of j sums M F of outputs.

    F (k,) are the outputs of the ``sample``, ``weights(F)`` is M (j, k), and ``trace`` has the
    equations of F. A parameter in a known layer has a pair (a, delta) for each use, with delta
    (j, ..) = d (M F) / d z for the layer's result z, and no gradient. Any other has no pairs, and
    the gradient (j, p) of M F.
    """
    uses = [use for item in items for use in uses_of(trace, item)]
    others = [net.leaf_indices[item.parameter] for item in items if item.layer is None]
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
    """The columns (j, c) of J for the c chosen entries of an item's parameter.

    They are sum_t delta_t a_t^T over positions t, from the ``pairs`` (a, delta) of a known layer,
    or else those of the ``gradient`` (j, p) by all entries.
    """
    if item.layer is not None:
        layer = trace.layers[item.layer]
        gradient = layers.jacobian_rows(layer, net.leaves[layer.leaf], pairs)
    assert gradient is not None
    indices = net.entry_indices[item.parameter]
    return gradient if indices is None else gradient[:, indices]
