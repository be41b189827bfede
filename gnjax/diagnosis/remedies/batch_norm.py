"""BatchNorm behind hidden layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gnjax.diagnosis.remedies.suggestion import (
    Baseline,
    NotMeasurableError,
    Problem,
    Remedy,
    count_of,
)
from gnjax.diagnosis.remedies.weights import dense_layers
from gnjax.networks.model import functional
from gnjax.networks.parameters import layer_name, paths
from gnjax.operators.of_networks.network import NetworkGram

_COUPLED_UP_TO = 2000  # the largest n k for which a model that couples its samples is measured
_NORMALISATIONS = (nnx.BatchNorm, nnx.LayerNorm, nnx.GroupNorm, nnx.RMSNorm)


def batch_norm(problem: Problem, baseline: Baseline) -> Remedy:
    """BatchNorm in training mode behind every hidden ``nnx.Linear``."""
    model, op = problem.user_model, baseline.op
    if not isinstance(model, nnx.Module):
        msg = "layers are inserted into Flax NNX modules only"
        raise NotMeasurableError(msg)
    if any(isinstance(node, _NORMALISATIONS) for _, node in nnx.iter_graph(model)):
        msg = "the model is normalised already"
        raise NotMeasurableError(msg)
    if op.net.samples * op.net.k > _COUPLED_UP_TO:
        msg = (
            f"BatchNorm couples the samples, and this is measured only up to k n = {_COUPLED_UP_TO}"
        )
        raise NotMeasurableError(msg)
    normalised, count = _with_batch_norm(model, op)
    if count == 0:
        msg = "the model has no hidden nnx.Linear to put it behind"
        raise NotMeasurableError(msg)
    changed = replace(problem, model=functional(normalised))
    reason = f"with the statistics of this batch, behind {count_of(count, 'hidden layer')}"
    return Remedy("BatchNorm", f"{reason} (Section 6, Figure 7)", (("", changed.kappa),))


class _Normalised(nnx.Module):
    """A linear layer followed by BatchNorm: N(W x + b) in place of W x + b."""

    def __init__(self, linear: nnx.Linear, dtype: jnp.dtype) -> None:
        self.linear = linear
        self.norm = nnx.BatchNorm(
            linear.out_features, param_dtype=dtype, use_fast_variance=False, rngs=nnx.Rngs(0)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.linear(x))


def _with_batch_norm(model: nnx.Module, op: NetworkGram) -> tuple[nnx.Module, int]:
    """A copy of the model in training mode with BatchNorm, and the number of layers inserted."""
    names = paths(jax.tree.unflatten(op.net.structure, op.net.leaves))
    dense = [layer_name(names[use.leaf]) for use in dense_layers(op)]
    hidden_names = set(dense[:-1])
    copy = nnx.clone(model)
    linears = [
        (path, node)
        for path, node in nnx.iter_graph(copy)
        if isinstance(node, nnx.Linear) and "/".join(map(str, path)) in hidden_names
    ]
    for path, linear in linears:
        parent: Any = copy
        for part in path[:-1]:
            parent = parent[part] if isinstance(part, int) else getattr(parent, str(part))
        layer = _Normalised(linear, op.net.dtype)
        if isinstance(path[-1], int):
            parent[path[-1]] = layer
        else:
            setattr(parent, str(path[-1]), layer)
    copy.train()
    return copy, len(linears)
