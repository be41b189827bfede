"""A part of the data, small enough for its Jacobian to be decomposed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from gnjax.diagnosis.remedies.suggestion import ModelOnData, count_of
from gnjax.networks.arguments.samples import take
from gnjax.operators.of_networks.network_gram import NetworkGram


def part_of_samples(problem: ModelOnData, op: NetworkGram, rows: int) -> tuple[ModelOnData, str]:
    """A problem on a part of the data whose Jacobian has at most ``rows`` rows.

    Returns the problem and a description of the part in words, or the whole problem and "" where
    no such part can be taken. The part consists of samples at equal distances, or, where a single
    sample has too many rows and a label for each token, of tokens of one sample. The model still
    sees the other tokens. ``op`` is the Gauss-Newton matrix of the whole problem.
    """
    n, rows_per_sample = op.net.samples, op.net.rows
    if op.net.coupled:  # an output depends on other samples, so that a part is another model
        return problem, ""
    if rows_per_sample <= rows:
        indices = _spread_out(n, rows // rows_per_sample)
        part = _on_samples(problem, op, indices)
        return part, f"{len(indices)} of {count_of(n, 'sample')}"
    labels = None if problem.y is None else np.asarray(problem.y)
    tokens = 1 if labels is None or labels.dtype.kind not in "iu" else labels[0].size
    if tokens == 1 or rows_per_sample // tokens > rows:
        return problem, ""
    on_first_sample = _on_samples(problem, op, np.array([0]))
    labels_of_sample = np.asarray(on_first_sample.y)  # (1, *tokens)
    indices = _spread_out(tokens, rows // (rows_per_sample // tokens))
    apply, params = on_first_sample.model
    outputs_at_tokens = _OutputsAtTokens(tuple(indices.tolist()), labels_of_sample.ndim - 1)
    model = Partial(outputs_at_tokens, apply), params
    labels_of_part = labels_of_sample.reshape(1, -1)[:, indices]
    part = replace(on_first_sample, model=model, y=labels_of_part)
    return part, f"{len(indices)} of the {count_of(tokens, 'token')} of one sample"


@dataclass(frozen=True)
class _OutputsAtTokens:
    """The outputs of a model at some of its tokens; it compares by value, to be compiled once."""

    tokens: tuple[int, ...]  # their indices among all tokens of a sample
    axes: int  # of tokens, behind the axis of the samples

    def __call__(self, apply: Any, params: Any, x: Any) -> jax.Array:
        """The outputs (n, chosen tokens, ...) of ``apply`` at the inputs x."""
        outputs = apply(params, x)
        flat = outputs.reshape(outputs.shape[0], -1, *outputs.shape[1 + self.axes :])
        return flat[:, jnp.array(self.tokens)]


def _on_samples(problem: ModelOnData, op: NetworkGram, indices: np.ndarray) -> ModelOnData:
    """The problem on the samples of these indices alone; ``op`` holds all of its inputs."""
    y = None if problem.y is None else take(jax.tree.map(jnp.asarray, problem.y), indices)
    return replace(problem, x=take(op.net.x, indices), y=y)


def _spread_out(size: int, count: int) -> np.ndarray:
    """At most ``count`` different indices of 0 .. size - 1, at about equal distances."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).round().astype(int))
