"""Remedies that the theory offers for a large kappa, each tried on the model and measured.

A remedy changes one thing: the inputs, the weights, a learning rate or the layers. Nothing is
trained after the change, so that the number says what the change itself does to kappa.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gnjax.conditioning.condition_number import ConditionNumber, condition_number
from gnjax.data.transforms import standardise, whiten
from gnjax.diagnosis.metric_remedies import diagonal_metric, kronecker_metric
from gnjax.diagnosis.suggestion import (
    Found,
    LeftOut,
    NotMeasurableError,
    Problem,
    Remedy,
    Suggestion,
    block_condition,
    counted,
    measured,
)
from gnjax.networks import layers
from gnjax.networks.forms.samples import one_sample
from gnjax.networks.layer_types import Use
from gnjax.networks.model import functional
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import layer_name, natural_order, paths
from gnjax.operators.base import factored
from gnjax.operators.of_networks.network import NetworkGram
from gnjax.theory import bounds

_LEARNING_RATES = (0.25, 1 / 16)
_DRAWS = 5
_COUPLED_UP_TO = 2000  # outputs n k of a model that couples its samples
_SAME_OUTPUT = 1e-8
_NORMALISATIONS = (nnx.BatchNorm, nnx.LayerNorm, nnx.GroupNorm, nnx.RMSNorm)


def suggestions(
    problem: Problem, found: Found, advance: Callable[[], None]
) -> tuple[tuple[Suggestion, ...], tuple[LeftOut, ...]]:
    """Every remedy that can be measured on this model, and the others with the reason.

    ``advance`` is called after each of the :data:`REMEDIES`.
    """
    made, missing = [], []
    for name, remedy in REMEDIES.items():
        try:
            made.append(measured(remedy(problem, found), found.condition))
        except ValueError as error:  # what a changed model returns may be refused as well
            missing.append(LeftOut(name, str(error)))
        advance()
    return tuple(made), tuple(missing)


def _standardised(problem: Problem, found: Found) -> Remedy:
    flat = _flat_inputs(found.op)
    changed = _with_inputs(problem, found.op, standardise(flat))
    return Remedy("standardised inputs", _by_covariance(flat), (("", changed.kappa),))


def _whitened(problem: Problem, found: Found) -> Remedy:
    flat = _flat_inputs(found.op)
    white = whiten(flat, method="zca")
    if white.rank == len(flat):
        msg = (
            f"{len(flat)} samples in {flat.shape[1]} dimensions are independent, and whitening "
            "would make them orthogonal and nothing else; give more samples than dimensions"
        )
        raise NotMeasurableError(msg)
    changed = _with_inputs(problem, found.op, white.inputs)
    return Remedy("whitened inputs", _by_covariance(flat), (("", changed.kappa),))


def _flat_inputs(op: NetworkGram) -> np.ndarray:
    """The inputs, with one flat row for each sample."""
    if not isinstance(op.net.x, jax.Array):
        msg = "inputs of several arrays have no one covariance"
        raise NotMeasurableError(msg)
    if not jnp.issubdtype(op.net.x.dtype, jnp.floating):
        msg = f"inputs of type {op.net.x.dtype} are tokens, which have no scale"
        raise NotMeasurableError(msg)
    return np.asarray(op.net.x, np.float64).reshape(op.net.samples, -1)


def _with_inputs(problem: Problem, op: NetworkGram, flat: np.ndarray) -> Problem:
    return replace(problem, x=jnp.asarray(flat.reshape(op.net.x.shape), op.net.x.dtype))


def _by_covariance(flat: np.ndarray) -> str:
    sigma = _covariance_condition(flat)
    return (
        "for linear networks kappa(G) <= kappa(Sigma) x a factor of the weights (Lemma 2); here "
        f"kappa(Sigma) {'=' if sigma.bounded else '>='} {sigma.value:.3g}"
    )


def _covariance_condition(flat: np.ndarray) -> ConditionNumber:
    return condition_number(factored(flat.T / math.sqrt(len(flat))))


def _skips(problem: Problem, found: Found) -> Remedy:
    """W + beta I for every layer of a linear chain, else for every square dense kernel."""
    op = found.op
    chain = _linear_chain(op)
    places = list(range(len(chain))) if chain else _square_kernels(op)
    if not places:
        msg = "no square dense kernel acts on whole samples, and the model is no chain of matrices"
        raise NotMeasurableError(msg)
    depth = len(places)
    betas = sorted({1 / depth, depth**-0.5, 1.0})
    variants = tuple(
        (f"beta={beta:.3g}", _with_skip(problem, op, places, beta).kappa) for beta in betas
    )
    kernels = "every layer" if chain else counted(depth, "square kernel")
    name = "skip connections" if depth > 1 else "skip connections beta=1"
    return Remedy(name, f"W + beta I in place of W for {kernels} (Eq 7)", variants)


def _with_skip(problem: Problem, op: NetworkGram, places: list[int], beta: float) -> Problem:
    """The problem with beta added on the diagonal of some leaves."""
    leaves = list(op.net.leaves)
    for place in places:
        rows, columns = leaves[place].shape
        leaves[place] += beta * jnp.eye(rows, columns, dtype=op.net.dtype)
    return replace(problem, model=(op.net.apply, jax.tree.unflatten(op.net.structure, leaves)))


def _square_kernels(op: NetworkGram) -> list[int]:
    """The leaves that are square matrices and multiply one vector for each sample."""
    return sorted(
        use.leaf
        for use in _dense_layers(op)
        if use.positions == 1
        and use.sizes.inputs == use.sizes.outputs
        and op.net.leaves[use.leaf].shape == use.sizes[1:]
    )


def _dense_layers(op: NetworkGram) -> list[Use]:
    """The dense layers outside loops whose parameter has a single use, in a sample's order."""
    traced = layers.trace(op.net.one, op.net.leaves, one_sample(op.net.x))
    uses = [layer.only_use for layer in traced.layers]
    return [
        use
        for use in uses
        if use is not None and use.kind == "dot_general" and not use.loops and use.groups == 1
    ]


def _linear_chain(op: NetworkGram) -> list[jax.Array]:
    """W_1 .. W_L, (a_{l-1}, a_l) each, where the model is x -> x W_1 .. W_L; else nothing."""
    net = op.net
    if any(leaf.ndim != 2 for leaf in net.leaves) or getattr(net.x, "ndim", 0) != 2:
        return []
    named = zip(parameter_names(net), net.leaves, strict=True)
    kernels = [leaf for _, leaf in sorted(named, key=lambda pair: natural_order(pair[0]))]
    outputs = net.outputs(net.leaves, net.x)
    for chain in (kernels, [kernel.T for kernel in kernels]):
        if _fits_together(chain, net.x.shape[1], net.k):
            gap = jnp.abs(_product(chain, net.x) - outputs).max()
            if float(gap) <= _SAME_OUTPUT * float(jnp.abs(outputs).max()):
                return chain
    return []


def _fits_together(chain: list[jax.Array], inputs: int, outputs: int) -> bool:
    fits = all(first.shape[1] == second.shape[0] for first, second in pairwise(chain))
    return fits and chain[0].shape[0] == inputs and chain[-1].shape[1] == outputs


def _product(chain: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    for weight in chain:
        x = jnp.matmul(x, weight, precision="highest")
    return x


def _wider(problem: Problem, found: Found) -> Remedy:
    """Gaussian weights of the model's variances, at its widths and at twice its hidden widths."""
    chain = _linear_chain(found.op)
    if len(chain) < 2:
        msg = "a network is rebuilt at another width only where it is a chain of matrices"
        raise NotMeasurableError(msg)
    reason = (
        f"medians of {_DRAWS} draws of Gaussian weights with these variances x fan-in, at both "
        f"widths; {_limits_of_eq_22(found.op, chain)}"
    )
    before, after = (partial(_median_kappa, problem, chain, factor) for factor in (1, 2))
    return Remedy("twice the width", reason, (("", after),), before)


def _median_kappa(problem: Problem, chain: list[jax.Array], factor: int) -> ConditionNumber:
    """The median kappa of networks with fresh weights."""
    drawn = (_gaussian_chain(chain, factor, [problem.seed, draw]) for draw in range(_DRAWS))
    kappas = [replace(problem, model=(_product, weights)).kappa() for weights in drawn]
    return sorted(kappas, key=lambda kappa: kappa.value)[_DRAWS // 2]


def _gaussian_chain(chain: list[jax.Array], factor: int, seed: list[int]) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    last = len(chain) - 1
    drawn = []
    for index, weight in enumerate(chain):
        rows, columns = weight.shape
        shape = rows * (factor if index else 1), columns * (factor if index < last else 1)
        deviation = math.sqrt(float(jnp.square(weight).mean()) * rows / shape[0])
        drawn.append(jnp.asarray(deviation * rng.standard_normal(shape), weight.dtype))
    return drawn


def _limits_of_eq_22(op: NetworkGram, chain: list[jax.Array]) -> str:
    """Eq 22 at both widths, for two layers."""
    if len(chain) > 2:
        return "Lemma 7 (two layers): singular values of wide Gaussian matrices draw together"
    (d, m), k = chain[0].shape, chain[1].shape[1]
    sigma = _covariance_condition(_flat_inputs(op)).value
    inner, outer = (float(jnp.square(weight).mean()) for weight in chain)
    limits = [bounds.asymptotic(d, k, c * m, inner, outer / c, sigma).value for c in (1, 2)]
    narrow, wide = ("nothing" if limit is None else f"{limit:.3g}" for limit in limits)
    return f"Eq 22 bounds kappa by {narrow} at this width and by {wide} at twice the width"


def _batch_norm(problem: Problem, found: Found) -> Remedy:
    """BatchNorm in training mode behind every hidden ``nnx.Linear``."""
    model, op = problem.given, found.op
    if not isinstance(model, nnx.Module):
        msg = "layers are inserted into Flax NNX modules only"
        raise NotMeasurableError(msg)
    if any(isinstance(node, _NORMALISATIONS) for _, node in nnx.iter_graph(model)):
        msg = "the model is normalised already"
        raise NotMeasurableError(msg)
    if op.net.samples * op.net.k > _COUPLED_UP_TO:
        msg = f"it couples the samples, which is measured up to k n = {_COUPLED_UP_TO}"
        raise NotMeasurableError(msg)
    normalised, count = _with_batch_norm(model, op)
    if count == 0:
        msg = "the model has no hidden nnx.Linear to put it behind"
        raise NotMeasurableError(msg)
    changed = replace(problem, model=functional(normalised))
    reason = f"with the statistics of this batch, behind {counted(count, 'hidden layer')}"
    return Remedy("BatchNorm", f"{reason} (Section 6, Figure 7)", (("", changed.kappa),))


class _Normalised(nnx.Module):
    """N(W x + b) in place of W x + b."""

    def __init__(self, linear: nnx.Linear, dtype: jnp.dtype) -> None:
        self.linear = linear
        self.norm = nnx.BatchNorm(
            linear.out_features, param_dtype=dtype, use_fast_variance=False, rngs=nnx.Rngs(0)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.linear(x))


def _with_batch_norm(model: nnx.Module, op: NetworkGram) -> tuple[nnx.Module, int]:
    """A copy in training mode, and how many layers it gained."""
    names = paths(jax.tree.unflatten(op.net.structure, op.net.leaves))
    used = [layer_name(names[use.leaf]) for use in _dense_layers(op)]
    hidden = set(used[:-1])
    copy = nnx.clone(model)
    found = [
        (path, node)
        for path, node in nnx.iter_graph(copy)
        if isinstance(node, nnx.Linear) and "/".join(map(str, path)) in hidden
    ]
    for path, linear in found:
        parent: Any = copy
        for part in path[:-1]:
            parent = parent[part] if isinstance(part, int) else getattr(parent, str(part))
        layer = _Normalised(linear, op.net.dtype)
        if isinstance(path[-1], int):
            parent[path[-1]] = layer
        else:
            setattr(parent, str(path[-1]), layer)
    copy.train()
    return copy, len(found)


def _own_rate(problem: Problem, found: Found) -> Remedy:
    """theta_l = sqrt(s) theta'_l: gradient descent on theta' gives layer l the rate s eta.

    G_l becomes s G_l, and d ln kappa / d ln s is the layer's share at the top less its share at
    the bottom (first-order perturbation of both eigenvalues).
    """
    if not found.culprit:
        msg = "no layer has a larger share at the top of the spectrum than at its bottom"
        raise NotMeasurableError(msg)
    net = found.op.net
    chosen = np.repeat([name in found.culprit for name in parameter_names(net)], net.counts)
    variants = tuple(
        (
            f"x {scale:.3g}",
            partial(
                block_condition, found.op, found.jacobian * np.where(chosen, math.sqrt(scale), 1.0)
            ),
        )
        for scale in _LEARNING_RATES
    )
    reason = "d ln kappa / d ln rate is its share at the top less its share at the bottom"
    return Remedy(own_rate(layer_name(found.culprit[0])), reason, variants)


def own_rate(layer: str) -> str:
    """The name of the remedy that gives a layer a learning rate of its own."""
    return f"learning rate of {layer}"


REMEDIES: dict[str, Callable[[Problem, Found], Remedy]] = {
    "standardised inputs": _standardised,
    "whitened inputs": _whitened,
    "skip connections": _skips,
    "twice the width": _wider,
    "BatchNorm": _batch_norm,
    "a learning rate of its own": _own_rate,
    "the metric diag(G)": diagonal_metric,
    "the metric of K-FAC": kronecker_metric,
}
