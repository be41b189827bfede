"""What the zeros of a chain of matrices prove about the ranks of its products.

Draw the chain W_1 .. W_l as a graph: a unit for every row and column, an edge from unit j of layer
l - 1 to unit i of layer l where (W_l)_ij is not zero. A path is a way through all layers.

Theorem. The rank of W_l .. W_1 is at most the largest number of paths of which no two share a unit,
and it is equal to that number for almost all values of the entries that are not zero.

Proof. By Menger's theorem there are c units, in any layers, through one of which every path runs,
where c is that largest number. An entry (i, j) of the product is a sum over the paths from j to i;
group them by the first of the c units that they meet. The group of one unit is a matrix of rank
one: (sum over the ways on from the unit) times (sum over the ways to it that avoid the others
before it). So the product is a sum of c matrices of rank one. Conversely, put 1 on the edges of c
disjoint paths and 0 on the others: the product has a minor of size c that is not zero, so that this
minor, a polynomial in the entries, is not zero for almost all of them.

Without zeros the number is the smallest width along the chain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Pattern = NDArray[np.bool_] | tuple[int, int]
"""Where a matrix is not zero, or its shape where it has no zero at all."""

_LARGEST_FLOW = 2_000_000  # most edges for which a maximum flow is computed: about a second


def pattern(matrix: np.ndarray, skip: float = 0.0) -> Pattern:
    """Where W + beta I is not zero, for a rectangular identity and beta = ``skip``.

    A boolean array like W, or the shape of W if no entry is zero.
    """
    edges = matrix != 0
    if skip:
        diagonal = np.arange(min(matrix.shape))
        # NumPy would round beta to the type of a narrow matrix, such as float32.
        wide = np.diagonal(matrix).astype(np.result_type(matrix.dtype, np.float64))
        edges[diagonal, diagonal] = wide != -skip
    return matrix.shape if edges.all() else edges


def transposed(edges: Pattern) -> Pattern:
    return edges[::-1] if isinstance(edges, tuple) else edges.T


def path_counts(chain: Sequence[Pattern], starts: NDArray[np.bool_]) -> tuple[int, ...]:
    """The largest numbers of disjoint paths from the units ``starts`` to each layer 0 .. L.

    ``chain`` says where the matrices W_1 .. W_L are not zero: an edge joins unit j of a layer to
    unit i of the next if W_ij is not zero, and disjoint paths share no unit. The number up to layer
    l bounds the rank of W_l .. W_1 from the inputs ``starts`` (d_0,).

    The numbers are never too small, and they are exact for graphs of up to two million edges. Paths
    are prolonged layer by layer through maximum matchings. If that finds fewer paths than the
    narrowest layer so far would allow, a maximum flow decides.
    """
    counts = [int(starts.sum())]
    reached = ends = starts
    for layer, edges in enumerate(chain, start=1):
        everywhere = np.ones_like(reached)
        if isinstance(edges, tuple):
            reached = np.full(edges[0], reached.any())
        else:
            reached = np.asarray(edges[:, reached].any(axis=1))
        ends = _prolonged(edges, ends)
        most = min(counts[-1], int(reached.sum()))
        if ends.sum() < most:
            most = min(most, int(_prolonged(edges, everywhere).sum()))
        if ends.sum() < most and _size(chain[:layer]) <= _LARGEST_FLOW:
            most, ends = _flow(chain[:layer], starts)
        counts.append(most)
    return tuple(counts)


def _prolonged(edges: Pattern, ends: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The new ends (rows,) of the disjoint paths, as many as possible prolonged by a layer.

    They end in the units ``ends`` (columns,), and as many go on as a matching of units has pairs.
    """
    if isinstance(edges, tuple):
        return np.arange(edges[0]) < ends.sum()
    if not ends.any():
        return np.zeros(len(edges), bool)
    from scipy.sparse import csgraph, csr_matrix  # 0.1 s of import, which not every user needs

    graph = csr_matrix(edges[:, ends])
    return csgraph.maximum_bipartite_matching(graph, perm_type="column") >= 0


def _size(chain: Sequence[Pattern]) -> int:
    return sum(sum(e) if isinstance(e, tuple) else int(np.count_nonzero(e)) for e in chain)


def _flow(chain: Sequence[Pattern], starts: NDArray[np.bool_]) -> tuple[int, NDArray[np.bool_]]:
    """The largest number of disjoint paths from ``starts`` to the last layer, and where they end.

    ``chain`` says where each matrix is not zero. The number is the maximum flow in this graph:
    every unit is an edge of capacity one from its entry to its exit, so that one path uses it, and
    every entry of a matrix that is not zero an edge from the exit of one unit to the entry of
    another. A matrix without zeros, given as its shape, is one node, a hub, between its layers,
    through which any number of paths may run.
    """
    widths = [len(starts), *(e[0] if isinstance(e, tuple) else len(e) for e in chain)]
    first = np.concatenate([[0], np.cumsum(widths)])  # entries; exits come ``units`` later
    units = int(first[-1])
    source, sink, hubs = 2 * units, 2 * units + 1, 2 * units + 2
    tails, heads = [np.arange(units)], [np.arange(units) + units]
    for layer, edges in enumerate(chain):
        before, after = first[layer] + units, first[layer + 1]
        if isinstance(edges, tuple):
            hub = hubs + layer
            tails += [before + np.arange(edges[1]), np.full(edges[0], hub)]
            heads += [np.full(edges[1], hub), after + np.arange(edges[0])]
        else:
            to, start = np.nonzero(edges)
            tails.append(before + start)
            heads.append(after + to)
    begin, last = np.flatnonzero(starts), first[-2] + np.arange(widths[-1])
    tails += [np.full(len(begin), source), last + units]
    heads += [begin, np.full(len(last), sink)]
    tail, head = np.concatenate(tails), np.concatenate(heads)
    from scipy.sparse import csgraph, csr_matrix

    nodes = hubs + len(chain)
    graph = csr_matrix((np.ones(len(tail), np.int32), (tail, head)), (nodes, nodes))
    flow = csgraph.maximum_flow(graph, source, sink)
    reached = np.asarray(flow.flow[last + units, sink].todense()).ravel() > 0
    return int(flow.flow_value), reached
