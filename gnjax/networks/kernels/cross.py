"""J J'^T for the Jacobians J and J' of one network at two sets of samples, in bounded memory.

It is the block of the kernel of all samples in which the rows belong to the first set and the
columns to the second. No other block of that kernel is computed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnjax.networks.forms.samples import one_sample
from gnjax.networks.jacobians import Item, jacobian, sample_trace
from gnjax.networks.kernels.blocks import Blocks, add_block, fit, groups, numbers_of_rows
from gnjax.networks.kernels.masked import as_vectors
from gnjax.networks.network import Network
from gnjax.numerics.host import zeros


def cross_gram(left: Network, right: Network) -> np.ndarray:
    """J J'^T (n r, n' r'), samples first."""
    if left.coupled or right.coupled:
        return np.asarray(jacobian(left) @ jacobian(right).T)
    kernel = zeros((left.samples, left.rows, right.samples, right.rows), left.dtype)
    for group in groups(_items(left, right), left, right):
        _add_group(left, right, group, kernel)
    return kernel.reshape(left.samples * left.rows, -1)


def _add_group(left: Network, right: Network, group: tuple[Item, ...], kernel: np.ndarray) -> None:
    """Add what the parameters of a group add to all blocks."""
    fits = fit(group, left, right)
    left_blocks, right_blocks = (
        Blocks(net, group, np.empty(numbers_of_rows(net, group), net.dtype) if fits else None)
        for net in (left, right)
    )
    pairs = range(sum(item.form != "rows" for item in group))
    columns = np.arange(sum(left.counts[item.place] for item in group if item.form == "rows"))
    for i in range(len(left_blocks.starts)):
        left_pieces = left_blocks.pieces(i)
        for j in range(len(right_blocks.starts)):
            block = kernel[left_blocks.place(i), :, right_blocks.place(j)]
            new = left_blocks.new(i), right_blocks.new(j)
            right_pieces, inputs = right_blocks.pieces(j), left_blocks.inputs
            add_block(block, left_pieces, right_pieces, new, pairs, columns, inputs)


def _items(left: Network, right: Network) -> tuple[Item, ...]:
    """The form of each parameter's part; samples of two shapes have rows of J in common alone.

    A model may act otherwise on samples of another shape, and its layers there may be others.
    """
    items = as_vectors(left, sample_trace(left))
    if one_sample(left.x) == one_sample(right.x):
        return items
    counts = left.counts
    return tuple(replace(i, layer=None, form="rows", width=counts[i.place]) for i in items)
