"""K-FAC and EK-FAC: metrics of the Kronecker factors of a network's layers at its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.jacobians import sample_trace
from gnjax.networks.losses.output_hessian import has_root
from gnjax.networks.network import Network, parameter_names
from gnjax.networks.parameters import indices_of
from gnjax.numerics.validation import check_damping, is_traced
from gnjax.operators.metrics.metric import (
    Block,
    Metric,
    diagonal_block,
    kronecker_block,
    matrix_block,
    symmetric_factor,
)
from gnjax.operators.metrics.moments import (
    LayerMoments,
    MomentPlan,
    layer_moments,
    moment_plan,
    squared_sensitivities,
)
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.of_networks.streamed import Streamed


def kfac(op: NetworkGram | Streamed, *, damping: float, others: str = "diagonal") -> Metric:
    """The K-FAC metric: A (x) B + damping I for every layer, of a Gauss-Newton matrix or NTK.

    A layer acts as z_t = W a_t + b at the positions t of a sample. With delta_ct the sensitivity of
    output c to z_t, outputs weighted by the factor R of the loss's output Hessian,

        A = mean over samples and positions of [a_t, 1] [a_t, 1]^T,
        B = scale * sum over samples, outputs and positions of delta_ct delta_ct^T,

    where ``scale`` is that of the operator, 1/n for a mean over n samples. All outputs count, and
    nothing is drawn, so that B is that of the exact Gauss-Newton matrix, which for a cross-entropy
    is the Fisher matrix. Where every sample has one position and one output, A (x) B has the
    independence of a and delta as its one approximation (Martens and Grosse 2015).

    Positions that share W are treated as independent ("expand", Eschenhagen et al. 2023; for a
    convolution, whose a_t are patches, KFC of Grosse and Martens 2016). For an embedding A is
    diagonal, with the share of the positions that look a row up. In A, samples are weighted
    by their weights. A parameter is taken as the bias of a kernel beside it in the tree if its
    columns of J are sum_t delta_t at these samples.

    Every other parameter (normalisation, tied embeddings, position tables, masked entries) has its
    exact diagonal, or its exact block; ``repr(metric)`` says which parameter has what.

    Args:
      op: of :func:`gauss_newton`, :func:`ntk` or :func:`empirical_fisher`; the metric may then be
        used for any operator on the same parameters.
      damping: the number that is added to the diagonal of P; there is no good default.
      others: "diagonal" or "block", the exact one of each parameter that is in no known layer.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> op = gnjax.gauss_newton(model, jax.random.normal(jax.random.key(1), (30, 3)))
    >>> metric = gnjax.metrics.kfac(op, damping=1e-6)
    >>> metric.blocks[0].left.matrix.shape, metric.blocks[0].right.matrix.shape  # one group each
    ((1, 4, 4), (1, 4, 4))
    >>> after = gnjax.condition_number(gnjax.preconditioned(op, metric))
    >>> after.value < gnjax.condition_number(op).value, after.certificate.kind
    (True, 'measured')
    """
    added = check_damping(damping)
    layers = _layers(op, others)
    return Metric("K-FAC", (*_kronecker_blocks(layers), *_other_blocks(layers)), added)


class LayerFactors(NamedTuple):
    """A and B of one matrix of parameters, whose block of K-FAC's P is A (x) B.

    Attributes:
      name: of the parameter, and of its bias.
      places: (g, i, o), of the entries of g blocks (i, o) in the vector of parameters.
      left: A (g, i, i), or its diagonal (g, i) for an embedding.
      right: B (g, o, o).

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> (layer,), _ = gnjax.metrics.kfac_factors(op)
    >>> isinstance(layer, gnjax.metrics.LayerFactors), layer.places.ravel().tolist()
    (True, [0, 1])
    """

    name: str
    places: np.ndarray
    left: jax.Array | np.ndarray
    right: jax.Array | np.ndarray


def kfac_factors(
    op: NetworkGram,
) -> tuple[list[LayerFactors], list[tuple[np.ndarray, jax.Array]]]:
    """The factors A and B of :func:`kfac` as arrays of JAX, also inside a compiled function.

    So an optimiser that is compiled can make them anew at each of its steps. Returned are those of
    every layer, and for every other parameter its places in the vector of parameters and the exact
    diagonal there. The first parameter beside a kernel in the tree with one number for each of its
    outputs is taken as its bias. Where its columns of J are not sum_t delta_t, A is nan:
    :func:`kfac`, which is not compiled, then looks for another.

    >>> op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    >>> (layer,), others = gnjax.metrics.kfac_factors(op)
    >>> layer.left.tolist(), layer.right.tolist(), others
    ([[[0.5, 0.0], [0.0, 2.0]]], [[[1.0]]], [])
    """
    _check_layers(op.net)
    plan, entries = moment_plan(op.net, blocks=False)
    sums = layer_moments(op.net, plan)
    biases = tuple(part.biases[0] if part.biases else None for part in plan.parts)
    factors = _factors(_Layers(op.net, op.scale, plan, entries, sums, biases))
    layers = []
    for layer, moments in zip(factors, sums.parts, strict=True):
        left, share = layer.left, float(jnp.finfo(op.net.dtype).eps)  # as in :func:`_biases`
        for gap, size in moments.gaps[:1]:  # that of the first possible bias, if there is one
            left = jnp.where(gap <= share * size, left, jnp.nan)
        layers.append(layer._replace(left=left))
    return layers, [
        (indices_of(op.net.counts, [other]), op.scale * squares)
        for other, squares in zip(plan.others, sums.others, strict=True)
        if other not in biases
    ]


def ekfac(op: NetworkGram | Streamed, *, damping: float, others: str = "diagonal") -> Metric:
    """The EK-FAC metric: K-FAC's eigenvectors, with the exact diagonal of G in their basis.

    With A = U a U^T and B = V b V^T of :func:`kfac`, P = (U (x) V) diag(s) (U (x) V)^T + damping I,

        s = diag((U (x) V)^T G (U (x) V)),

    which no other eigenvalues in that basis beat in Frobenius norm (George et al. 2018). P is the
    matrix of the eigenvectors as they are computed. The arguments are those of :func:`kfac`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> op = gnjax.gauss_newton(model, jax.random.normal(jax.random.key(1), (30, 3)))
    >>> metric = gnjax.metrics.ekfac(op, damping=0.0)
    >>> np.allclose(np.trace(metric.as_matrix()), np.trace(op.as_matrix()))
    True
    """
    added = check_damping(damping)
    layers = _layers(op, others)
    blocks, dtype = _kronecker_blocks(layers), layers.net.dtype
    # U and V as they are stored in the precision of the network, since the metric uses these
    bases = [(block.left.stored_basis(dtype), block.right.stored_basis(dtype)) for block in blocks]
    has_bias = tuple(bias is not None for bias in layers.biases)
    of_batches = (squared_sensitivities(net, layers.plan, has_bias, bases) for net in _networks(op))
    sums = reduce(partial(jax.tree.map, jnp.add), of_batches)
    values = (layers.scale * np.asarray(squares, np.float64) for squares in sums)
    blocks = [replace(block, values=s) for block, s in zip(blocks, values, strict=True)]
    return Metric("EK-FAC", (*blocks, *_other_blocks(layers)), added)


@dataclass(frozen=True)
class _Layers:
    """The second moments of an operator's layers, and what the blocks of a metric need beside them.

    Attributes:
      net: the network, at the samples of the first batch.
      scale: of the operator, scale J^T J.
      plan: which parameters are matrices of layers (its parts), and which are others.
      entries: for each part the indices (g, i, o) of its g matrices in the flattened parameter.
      moments: the sums over all samples.
      biases: for each part the index of its bias among the chosen leaves, or None.
    """

    net: Network
    scale: float
    plan: MomentPlan
    entries: list[np.ndarray]
    moments: LayerMoments
    biases: tuple[int | None, ...]


def _layers(op: Any, others: str) -> _Layers:
    """The moments of all samples, from which :func:`kfac` and :func:`ekfac` are made."""
    if others not in ("diagonal", "block"):
        msg = f"others={others!r} is neither 'diagonal' nor 'block'"
        raise ValueError(msg)
    if isinstance(op, NetworkGram):
        scale = float(op.scale)
    elif isinstance(op, Streamed) and op.functional is None:
        scale = 1.0 / op.total
    else:
        msg = (
            "K-FAC approximates a Gauss-Newton matrix or NTK of a network, got a "
            f"{type(op).__name__}; pass an operator such as gnjax.gauss_newton(model, x)"
        )
        raise ValueError(msg)
    net = next(_networks(op))
    _check_layers(net)
    plan, entries = moment_plan(net, blocks=others == "block")
    of_batches = (layer_moments(batch, plan) for batch in _networks(op))
    sums = reduce(partial(jax.tree.map, jnp.add), of_batches)
    host_sums = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), sums)
    return _Layers(net, scale, plan, entries, host_sums, _biases(plan, host_sums, net.dtype))


def _check_layers(net: Network) -> None:
    """Refuse a network without K-FAC's factors, which are sums over samples and rows of R^T J."""
    if net.coupled or not has_root(net.target):
        reason = (
            "the samples of this model are coupled, and a layer's inputs belong to one sample each"
            if net.coupled
            else "the loss's output Hessian has no factor for so many outputs"
        )
        msg = f"{reason}; use the metric 'diagonal' or 'layers'"
        if net.coupled and is_traced(net):
            msg += (
                ", or, as the samples of an operator that is made inside of jax.jit count as "
                "coupled, make it outside and pass it to the compiled function"
            )
        raise ValueError(msg)


def _networks(op: NetworkGram | Streamed) -> Iterator[Network]:
    """The network of an operator at its samples, once for each batch if they come in batches."""
    if isinstance(op, NetworkGram):
        yield op.net
    else:
        yield from (part.net for part in op.parts())


def _biases(plan: MomentPlan, sums: LayerMoments, dtype: jnp.dtype) -> tuple[int | None, ...]:
    """For each weight matrix the index of its bias b among the chosen leaves, or None.

    In z_t = W a_t + b the columns J_b of J are sum_t delta_t, with delta_t the derivatives of the
    outputs with respect to z_t. The first candidate whose columns are these in half of the digits
    is the bias, unless another matrix has taken it before. ``gaps`` has |J_b - sum_t delta_t|^2
    and |J_b|^2 for every candidate.
    """
    share = float(jnp.finfo(dtype).eps)
    biases: list[int | None] = []
    for part, sums_of_part in zip(plan.parts, sums.parts, strict=True):
        pairs = zip(part.biases, sums_of_part.gaps, strict=True)
        equal = (b for b, (gap, size) in pairs if gap <= share * size and b not in biases)
        biases.append(next(equal, None))
    return tuple(biases)


def _kronecker_blocks(layers: _Layers) -> list[Block]:
    """The blocks A (x) B, for K-FAC's factors A and B, of all known layers with their biases."""
    blocks = []
    for name, places, a, b in _factors(layers):
        factors = symmetric_factor(np.asarray(a)), symmetric_factor(np.asarray(b))
        blocks.append(kronecker_block(name, places, *factors))
    return blocks


def _factors(layers: _Layers) -> Iterator[LayerFactors]:
    """A and B of :func:`kfac` for every layer with known structure.

    With a bias a one is appended to a, so that A has one more row.
    """
    parts = zip(layers.plan.parts, layers.entries, layers.moments.parts, layers.biases, strict=True)
    names, trace = parameter_names(layers.net), sample_trace(layers.net)
    for part, entries, sums_of_part, bias in parts:
        places = indices_of(layers.net.counts, [part.parameter])[entries]
        # all positions, over the uses of the layer that this matrix enters
        positions = sum(trace.layers[part.layer].uses[use].positions for use in part.uses)
        share = 1.0 / (positions * layers.moments.weight)  # from the sum to the mean
        left, name = share * sums_of_part.left, names[part.parameter]
        if bias is not None:
            mean = share * sums_of_part.mean[:, :, None]  # (g, i, 1)
            arrays = jnp if isinstance(mean, jax.Array) else np
            corner = arrays.ones_like(mean[:, :1])
            left = arrays.block([[left, mean], [mean.swapaxes(1, 2), corner]])
            places_of_bias = indices_of(layers.net.counts, [bias]).reshape(len(places), 1, -1)
            places = np.concatenate([places, places_of_bias], axis=1)
            name = f"{name} + {names[bias]}"
        yield LayerFactors(name, places, left, layers.scale * sums_of_part.right)


def _other_blocks(layers: _Layers) -> list[Block]:
    """The exact diagonals or blocks of parameters that are no part of a Kronecker block."""
    names = parameter_names(layers.net)
    blocks: list[Block] = []
    for other, moments in zip(layers.plan.others, layers.moments.others, strict=True):
        if other not in layers.biases:
            kind = matrix_block if layers.plan.blocks else diagonal_block
            places = indices_of(layers.net.counts, [other])
            blocks.append(kind(names[other], places, layers.scale * moments))
    return blocks
