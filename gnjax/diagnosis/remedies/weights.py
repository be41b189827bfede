"""Other weights: skip connections, and networks of twice the width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber
from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    ModelOnData,
    NotMeasurableError,
    Remedy,
    count_of,
)
from gnjax.networks import layers
from gnjax.networks.arguments.samples import one_sample
from gnjax.networks.network import parameter_names
from gnjax.networks.parameters import natural_order
from gnjax.numerics.host import on_device
from gnjax.operators.of_networks.network_gram import NetworkGram

_DRAWS = 5  # networks of new weights of which the median kappa is taken
_SAME_OUTPUT = 1e-8  # outputs whose relative difference is at most this count as equal


def skips(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """W + beta I in place of W, for beta of 1 / L, 1 / sqrt(L) and 1 with L changed matrices.

    These are all matrices of a model that is a product of matrices, where I may be rectangular, and
    the square kernels of dense layers of any other model.
    """
    op = baseline.op
    chain = _linear_chain(op)
    indices = list(range(len(chain))) if chain else _square_kernels(op)
    if not indices:
        msg = "no dense layer maps samples to as many units, and the model is no chain of matrices"
        raise NotMeasurableError(msg)
    depth = len(indices)
    variants = []
    for beta in sorted({1 / depth, depth**-0.5, 1.0}):
        leaves = list(op.net.leaves)
        for index in indices:
            rows, columns = leaves[index].shape
            leaves[index] += beta * jnp.eye(rows, columns, dtype=op.net.dtype)
        model = op.net.apply, jax.tree.unflatten(op.net.structure, leaves)
        variants.append((f"beta={beta:.3g}", replace(problem, model=model).kappa))
    kernels = "every layer" if chain else count_of(depth, "square kernel")
    name = "skip connections" if depth > 1 else "skip connections beta=1"
    return Remedy(name, f"W + beta I in place of W for {kernels} (Eq 7)", tuple(variants))


def _square_kernels(op: NetworkGram) -> list[int]:
    """The indices of the leaves that are square matrices of dense layers, used once for a sample.

    Of leaves that are reshaped before they are used, the shape is not that of the layer.
    """
    trace = layers.traced_layers(op.net.one, op.net.leaves, one_sample(op.net.x))
    uses = [layer.only_use for layer in trace.layers]
    return sorted(
        use.leaf
        for use in uses
        if use is not None
        and use.kind == "dot_general"
        and not use.loops
        and use.groups == use.positions == 1
        and use.sizes.inputs == use.sizes.outputs
        and op.net.leaves[use.leaf].shape == use.sizes[1:]
    )


def _linear_chain(op: NetworkGram) -> list[jax.Array]:
    """W_1 .. W_L, each (a_{l-1}, a_l), if the model is x -> x W_1 .. W_L; else an empty list.

    The product of all parameters in the order of their names, as they are or transposed, must then
    have the outputs of the model.
    """
    net = op.net
    if any(leaf.ndim != 2 for leaf in net.leaves) or getattr(net.x, "ndim", 0) != 2:
        return []
    named_leaves = zip(parameter_names(net), net.leaves, strict=True)
    kernels = [leaf for _, leaf in sorted(named_leaves, key=lambda pair: natural_order(pair[0]))]
    outputs = net.outputs(net.leaves, net.x)
    for chain in (kernels, [kernel.T for kernel in kernels]):
        fit = all(first.shape[1] == second.shape[0] for first, second in pairwise(chain))
        if fit and (chain[0].shape[0], chain[-1].shape[1]) == (net.x.shape[1], net.k):
            difference = jnp.abs(_product(chain, net.x) - outputs).max()
            if float(difference) <= _SAME_OUTPUT * float(jnp.abs(outputs).max()):
                return chain
    return []


def _product(chain: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    """x W_1 .. W_L for the rows x and the matrices of a chain: its model."""
    for weight in chain:
        x = jnp.matmul(x, weight, precision="highest")
    return x


def wider(problem: ModelOnData, baseline: Baseline) -> Remedy:
    """Networks of new Gaussian weights with twice the hidden widths, for a product of matrices.

    They are compared with such networks at the model's own widths. At both widths the variance of
    the entries of W_l times its fan-in is that of the model.
    """
    chain = _linear_chain(baseline.op)
    if len(chain) < 2:
        msg = "a network is rebuilt at another width only where it is a chain of matrices"
        raise NotMeasurableError(msg)
    reason = (
        f"medians of {_DRAWS} draws of Gaussian weights with these variances x fan-in, at both "
        "widths; the singular values of a wide Gaussian matrix lie close together"
    )
    before, after = (partial(_median_kappa, problem, chain, factor) for factor in (1, 2))
    return Remedy("twice the width", reason, (("", after),), before)


def _median_kappa(problem: ModelOnData, chain: list[jax.Array], factor: int) -> ConditionNumber:
    """The median kappa of five networks of new Gaussian weights, ``factor`` times as wide."""
    draws = (_gaussian_chain(chain, factor, [problem.seed, draw]) for draw in range(_DRAWS))
    kappas = [replace(problem, model=(_product, weights)).kappa() for weights in draws]
    return sorted(kappas, key=lambda kappa: kappa.value)[_DRAWS // 2]


def _gaussian_chain(chain: list[jax.Array], factor: int, seed: list[int]) -> list[jax.Array]:
    """W_1 .. W_L, (inputs, outputs), with new Gaussian entries and ``factor`` times hidden widths.

    The mean square of the entries times the inputs is as in the chain, for each of them.
    """
    rng = np.random.default_rng(seed)
    last = len(chain) - 1
    weights = []
    for index, weight in enumerate(chain):
        inputs, outputs = weight.shape
        shape = inputs * (factor if index else 1), outputs * (factor if index < last else 1)
        deviation = math.sqrt(float(jnp.square(weight).mean()) * inputs / shape[0])
        weights.append(on_device(deviation * rng.standard_normal(shape), weight.dtype))
    return weights
