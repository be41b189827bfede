"""J J^T of a network as a matrix, layer by layer, in bounded memory.

Blocks above the diagonal are computed (:mod:`gnjax.networks.kernels.blocks`), the others mirrored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gnjax.networks.jacobians import Item, jacobians_of_coupled, sample_trace, widths_of_coupled
from gnjax.networks.kernels import masked
from gnjax.networks.kernels.blocks import (
    Blocks,
    add_block,
    block_size,
    fit,
    groups,
    numbers_of_rows,
)
from gnjax.networks.network import Network
from gnjax.numerics.host import zeros


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
        return [columns @ columns.T for columns in jacobians_of_coupled(net, parts)]
    grams = [zeros((n, r, n, r), net.dtype) for _ in parts]
    owners = {place: gram for part, gram in zip(parts, grams, strict=True) for place in part}
    items = masked.as_vectors(net, sample_trace(net))
    some = list(groups(items, net))
    room = np.empty(max(_room(net, group) for group in some), net.dtype)
    for group in some:
        _add_group(net, group, owners, room)
    flat = [gram.reshape(n * r, n * r) for gram in grams]
    for gram in flat:
        _mirror(gram, r * block_size(net))
    return flat


def gram_work(net: Network) -> float:
    """About how many multiplications J J^T takes, beside those for the rows and pairs of J."""
    n, m = net.samples, net.samples * net.rows
    if net.coupled:
        return float(m) ** 2 * sum(widths_of_coupled(net)) / 2
    trace = sample_trace(net)
    work = 0.0
    for item in masked.as_vectors(net, trace):
        if item.form == "rows" or item.layer is None:
            work += m**2 * item.width
            continue
        use = trace.layers[item.layer].uses[0]
        pairs = use.positions**2 if item.form == "places" else 1
        masks = net.entry_indices[item.place] is not None
        inputs = net.counts[item.place] if masks else use.sizes.inputs
        work += m**2 * use.sizes.outputs * pairs + n**2 * inputs
    return work / 2


def _add_group(
    net: Network, group: tuple[Item, ...], owners: dict[int, np.ndarray], room: np.ndarray
) -> None:
    """Add the group's blocks on and above the diagonal to the matrices that own its parameters.

    If the rows and pairs of all samples fit in memory, they are computed once, and held.
    """
    blocks = Blocks(net, group, room if fit(group, net) else None)
    count = len(blocks.starts)
    for i in range(count):
        left = blocks.pieces(i)
        for j in range(i, count):
            right = left if i == j else blocks.pieces(j)
            new = blocks.new(i), blocks.new(j)
            for gram, pairs, columns in _shares(net, group, owners):
                block = gram[blocks.place(i), :, blocks.place(j)]
                add_block(block, left, right, new, pairs, columns, blocks.inputs)


def _room(net: Network, group: tuple[Item, ...]) -> int:
    """How many numbers the rows of J of all samples have; 0 if they are not held at once."""
    return numbers_of_rows(net, group) if fit(group, net) else 0


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
