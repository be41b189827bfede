"""J J'^T of a network at two sets of samples as a matrix, layer by layer, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from gnjax.networks.arguments.samples import one_sample
from gnjax.networks.jacobians import (
    Item,
    factors_of_coupled,
    jacobian,
    sample_trace,
    widths_of_coupled,
)
from gnjax.networks.kernels import masked
from gnjax.networks.kernels.sample_blocks import (
    Blocks,
    add_block,
    block_size,
    fit,
    numbers_of_rows,
)
from gnjax.networks.network import Network
from gnjax.numerics.host import zeros


def output_gram(net: Network) -> np.ndarray:
    """J J^T (n r, n r) of n samples with r rows of J each; the index of the sample goes first."""
    return output_grams(net, [range(len(net.counts))])[0]


def output_grams(net: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_l J_l^T (n r, n r) for each group l of parameters with the columns J_l of J, from one pass.

    ``parts`` lists for each group the indices of its parameters among the chosen leaves. Every
    chosen leaf is in exactly one group.
    """
    if net.coupled:
        return [columns @ columns.T for columns in factors_of_coupled(net, parts)]
    grams = _grams(net, net, parts)
    size = net.rows * block_size(net)
    for gram in grams:
        for stop in range(size, len(gram), size):  # blocks above the diagonal, copied below it
            gram[stop:, stop - size : stop] = gram[stop - size : stop, stop:].T
    return grams


def cross_gram(left: Network, right: Network) -> np.ndarray:
    """J J'^T (n r, n' r') for the Jacobians J and J' at two sets of samples, samples first."""
    if left.coupled or right.coupled:
        return np.asarray(jacobian(left) @ jacobian(right).T)
    return _grams(left, right, [range(len(left.counts))])[0]


def _grams(left: Network, right: Network, parts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """J_l J'_l^T (n r, n' r') for each part l of the parameters, at two sets of samples.

    A part lists the indices of its parameters among the chosen ones. If both networks are one, only
    the blocks on and above the diagonal are computed.
    """
    shape = left.samples, left.rows, right.samples, right.rows
    grams = [zeros(shape, left.dtype) for _ in parts]
    gram_of = {index: gram for part, gram in zip(parts, grams, strict=True) for index in part}
    nets = (left,) if left is right else (left, right)
    # groups of parameters, narrowest first, so that the rows of J and the pairs of a group fit in
    # memory; a parameter that does not fit by itself is a group alone
    groups: list[tuple[Item, ...]] = [()]
    for item in sorted(_items(left, right), key=lambda item: item.width):
        if groups[-1] and not fit((*groups[-1], item), *nets):
            groups.append(())
        groups[-1] = (*groups[-1], item)
    kept_groups = [group for group in groups if fit(group, *nets)]
    buffers = [  # memory for the rows of J of one group, which all groups reuse
        np.empty(max((numbers_of_rows(net, group) for group in kept_groups), default=0), net.dtype)
        for net in nets
    ]
    for group in groups:
        _add_group(nets, group, gram_of, buffers)
    return [gram.reshape(left.samples * left.rows, -1) for gram in grams]


def _items(left: Network, right: Network) -> tuple[Item, ...]:
    """How the summand of each parameter in J_left J_right^T is computed, one item for each.

    Both networks need one form, which is chosen by the layers in the equations of the left one.
    """
    # items_of, but with masked dense layers in the form "vectors" where that is less work
    items = masked.as_vectors(left, sample_trace(left))
    # The same shape and dtype of a sample give the same equations, and so the same layers. For
    # other shapes the model may have other layers, and only the form "columns" needs none.
    if left is right or one_sample(left.x) == one_sample(right.x):
        return items
    counts = left.counts
    return tuple(replace(i, layer=None, form="columns", width=counts[i.parameter]) for i in items)


def gram_work(net: Network) -> float:
    """About how many multiplications J J^T takes, beside those for the rows and pairs of J.

    J has r rows for each of n samples. A parameter whose w columns of J are formed (the form
    "columns") takes (n r)^2 w. Of a layer the inputs a_i (q_in) and sensitivities delta_i (r,
    q_out) of every sample are kept, and it takes n^2 q_in for all a_i . a_j, and (n r)^2 q_out for
    all delta_i delta_j^T. Where they are kept at each position (the form "places"), the latter is
    taken for every pair of positions. Half of it is above the diagonal.
    """
    n, m = net.samples, net.samples * net.rows
    if net.coupled:
        return float(m) ** 2 * sum(widths_of_coupled(net)) / 2
    trace = sample_trace(net)
    work = 0.0
    for item in masked.as_vectors(net, trace):
        if item.form == "columns" or item.layer is None:
            work += m**2 * item.width
            continue
        use = trace.layers[item.layer].uses[0]
        pairs_of_positions = use.positions**2 if item.form == "places" else 1
        is_masked = net.entry_indices[item.parameter] is not None
        # with a mask a_i . a_j is taken over the inputs of each unit: one product for each weight
        inputs = net.counts[item.parameter] if is_masked else use.sizes.inputs
        work += m**2 * use.sizes.outputs * pairs_of_positions + n**2 * inputs
    return work / 2


def _add_group(
    nets: Sequence[Network],
    group: tuple[Item, ...],
    gram_of: dict[int, np.ndarray],
    buffers: Sequence[np.ndarray],
) -> None:
    """Add the summands of a group of parameters to the kernels, one block of samples at a time.

    If the rows and pairs of all samples fit in memory, they are computed once, and kept.

    Args:
      nets: the network at the samples of the rows of the kernels, and the one at the samples of
        the columns, if that is another one.
      group: the parameters.
      gram_of: the kernel (n, r, n', r') to which each parameter belongs, by its index.
      buffers: for each network memory for the rows of J that are kept.
    """
    keeps = fit(group, *nets)
    blocks = [
        Blocks(net, group, buffer if keeps else None)
        for net, buffer in zip(nets, buffers, strict=True)
    ]
    left, right = blocks[0], blocks[-1]
    for i in range(len(left.starts)):
        of_left = left.pieces(i)  # pairs and rows of the samples of block i
        for j in range(i if left is right else 0, len(right.starts)):  # from the diagonal on
            of_right = of_left if left is right and i == j else right.pieces(j)
            (new_i, rows_i), (new_j, rows_j) = left.new(i), right.new(j)
            for gram, pairs, columns in _shares(nets[0], group, gram_of):
                block, new = gram[rows_i, :, rows_j], (new_i, new_j)
                add_block(block, of_left, of_right, new, pairs, columns, left.inputs)


def _shares(
    net: Network, group: tuple[Item, ...], gram_of: dict[int, np.ndarray]
) -> Iterator[tuple[np.ndarray, list[int], np.ndarray]]:
    """Yield (kernel, pairs, columns): each kernel that a group of parameters adds to, and by what.

    ``gram_of`` has the kernel of each parameter, by its index among the chosen ones. A parameter in
    the form "columns" adds the products of its columns in the group's rows of J, and any other
    those of its pair (a, delta) in the list of the group's pairs. Of the parameters of one kernel,
    ``pairs`` are the indices in that list, and ``columns`` the indices of the columns.
    """
    with_columns = [item for item in group if item.form == "columns"]
    ends = np.cumsum([net.counts[item.parameter] for item in with_columns])  # of their columns
    with_pairs = [item for item in group if item.form != "columns"]
    # arrays cannot be keys, so the identity of a kernel stands for it
    grams = {id(gram_of[item.parameter]): gram_of[item.parameter] for item in group}
    for key, gram in grams.items():
        pairs = [i for i, item in enumerate(with_pairs) if id(gram_of[item.parameter]) == key]
        columns = [
            np.arange(end - net.counts[item.parameter], end)
            for item, end in zip(with_columns, ends, strict=True)
            if id(gram_of[item.parameter]) == key
        ]
        yield gram, pairs, np.concatenate(columns) if columns else np.zeros(0, int)
