"""K-FAC and EK-FAC: metrics of the Kronecker factors of a network's layers at its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.kernels import sample_trace
from gnjax.networks.network import Network, parameter_names
from gnjax.networks.outputs.hessians import has_root
from gnjax.networks.parameters import indices_of
from gnjax.numerics.host import on_device
from gnjax.numerics.validation import check_damping
from gnjax.operators.metrics.factor import Factor, diagonal_factor, symmetric_factor
from gnjax.operators.metrics.metric import (
    Block,
    DiagonalBlock,
    KroneckerBlock,
    MatrixBlock,
    Metric,
    product_block,
)
from gnjax.operators.metrics.moments import Moments, Plan, moments, plan, squares
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.operators.of_networks.streamed import Streamed


def kfac(op: Any, *, damping: float, others: str = "diagonal") -> Metric:
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
    >>> metric = gnjax.kfac(op, damping=1e-6)
    >>> metric.blocks[0].left.matrix.shape, metric.blocks[0].right.matrix.shape  # one group each
    ((1, 4, 4), (1, 4, 4))
    >>> after = gnjax.condition_number(gnjax.preconditioned(op, metric))
    >>> after.value < gnjax.condition_number(op).value, after.certificate.kind
    (True, 'measured')
    """
    added = check_damping(damping)
    found = _layers(op, others)
    return Metric("K-FAC", (*_kronecker_blocks(found), *_other_blocks(found)), added)


def ekfac(op: Any, *, damping: float, others: str = "diagonal") -> Metric:
    """The EK-FAC metric: K-FAC's eigenvectors, with the exact diagonal of G in their basis.

    With A = U a U^T and B = V b V^T of :func:`kfac`, P = (U (x) V) diag(s) (U (x) V)^T + damping I,

        s = diag((U (x) V)^T G (U (x) V)),

    which no other eigenvalues in that basis beat in Frobenius norm (George et al. 2018). P is the
    matrix of the eigenvectors as they are computed. The arguments are those of :func:`kfac`.

    >>> model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    >>> op = gnjax.gauss_newton(model, jax.random.normal(jax.random.key(1), (30, 3)))
    >>> metric = gnjax.ekfac(op, damping=0.0)
    >>> np.allclose(np.trace(metric.as_matrix()), np.trace(op.as_matrix()))
    True
    """
    added = check_damping(damping)
    found = _layers(op, others)
    blocks = _corrected(op, found, _kronecker_blocks(found))
    return Metric("EK-FAC", (*blocks, *_other_blocks(found)), added)


@dataclass(frozen=True)
class _Layers:
    """The moments of an operator's layers, and the index of every part's bias, if it has one."""

    net: Network
    scale: float
    plan: Plan
    entries: list[np.ndarray]
    moments: Moments
    biases: tuple[int | None, ...]


def _layers(op: Any, others: str) -> _Layers:
    if others not in ("diagonal", "block"):
        msg = f"others={others!r} is neither 'diagonal' nor 'block'"
        raise ValueError(msg)
    scale = _scale(op)
    net = next(_networks(op))
    if net.coupled or not has_root(net.target):
        why = (
            "the samples of this model are coupled, and a layer's inputs belong to one sample each"
            if net.coupled
            else "the loss's output Hessian has no factor for so many outputs"
        )
        msg = f"{why}; use the metric 'diagonal' or 'layers'"
        raise ValueError(msg)
    chosen, entries = plan(net, blocks=others == "block")
    found = reduce(_added, (moments(one, chosen) for one in _networks(op)))
    here = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found)
    return _Layers(net, scale, chosen, entries, here, _biases(chosen, here, net.dtype))


def _scale(op: Any) -> float:
    if isinstance(op, NetworkGram):
        return float(op.scale)
    if isinstance(op, Streamed) and op.functional is None:
        return 1.0 / op.total
    msg = (
        f"K-FAC approximates a Gauss-Newton matrix or NTK of a network, got a {type(op).__name__}; "
        "pass an operator such as gnjax.gauss_newton(model, x)"
    )
    raise ValueError(msg)


def _networks(op: NetworkGram | Streamed) -> Iterator[Network]:
    """The network at the samples of each batch."""
    if isinstance(op, NetworkGram):
        yield op.net
    else:
        yield from (part.net for part in op.parts())


def _added(one: Any, other: Any) -> Any:
    return jax.tree.map(jnp.add, one, other)


def _biases(chosen: Plan, found: Moments, dtype: jnp.dtype) -> tuple[int | None, ...]:
    """For each part the index of its bias: a parameter whose columns of J are sum_t delta_t."""
    share = float(jnp.finfo(dtype).eps)  # relative to |J_b|^2: half of the digits agree
    taken: list[int | None] = []
    for part, own in zip(chosen.parts, found.parts, strict=True):
        pairs = zip(part.biases, own.gaps, strict=True)
        equal = (b for b, (gap, size) in pairs if gap <= share * size and b not in taken)
        taken.append(next(equal, None))
    return tuple(taken)


def _kronecker_blocks(found: _Layers) -> list[KroneckerBlock]:
    parts = zip(found.plan.parts, found.entries, found.moments.parts, found.biases, strict=True)
    names, blocks = parameter_names(found.net), []
    traced = sample_trace(found.net)
    for part, entries, own, bias in parts:
        places = indices_of(found.net.counts, [part.place])[entries]
        positions = sum(traced.layers[part.layer].uses[use].positions for use in part.uses)
        share = 1.0 / (positions * float(found.moments.weight))
        left, name = share * own.left, names[part.place]
        if bias is not None:
            mean = share * own.mean[:, :, None]
            corner = np.ones_like(mean[:, :1])
            left = np.block([[left, mean], [mean.swapaxes(1, 2), corner]])
            added = indices_of(found.net.counts, [bias]).reshape(len(places), 1, -1)
            places, name = np.concatenate([places, added], axis=1), f"{name} + {names[bias]}"
        factor = diagonal_factor(left) if part.is_lookup else symmetric_factor(left)
        right = symmetric_factor(found.scale * own.right)
        blocks.append(product_block(name, places, factor, right))
    return blocks


def _other_blocks(found: _Layers) -> list[Block]:
    """The exact diagonals or blocks of parameters that are no part of a Kronecker block."""
    names = parameter_names(found.net)
    blocks: list[Block] = []
    for place, own in zip(found.plan.others, found.moments.others, strict=True):
        if place not in found.biases:
            kind = MatrixBlock if found.plan.blocks else DiagonalBlock
            places = indices_of(found.net.counts, [place])
            blocks.append(kind(names[place], places, found.scale * own))
    return blocks


def _corrected(op: Any, found: _Layers, blocks: list[KroneckerBlock]) -> list[KroneckerBlock]:
    """The same eigenvectors with the exact diagonal of G in their basis."""
    dtype = found.net.dtype
    bases = [(_basis(block.left, dtype), _basis(block.right, dtype)) for block in blocks]
    biased = tuple(bias is not None for bias in found.biases)
    sums = (squares(net, found.plan, biased, bases) for net in _networks(op))
    values = (found.scale * np.asarray(s, np.float64) for s in reduce(_added, sums))
    pairs = zip(blocks, values, strict=True)
    return [replace(block, values=own, distance=0.0) for block, own in pairs]


def _basis(factor: Factor, dtype: jnp.dtype) -> jax.Array | None:
    return None if factor.basis is None else on_device(factor.basis, dtype)
