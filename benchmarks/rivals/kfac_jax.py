"""kfac-jax: Gauss-Newton products of its exact, implicit curvature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import kfac_jax
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks import harness
from benchmarks.rivals import jax_models

Batch = tuple[jax.Array, jax.Array]


def ggn(case: harness.Case, repeats: int) -> dict[str, Any]:
    """G V for the block of the case, vectorised over its columns."""
    weights, statistics = jax_models.to_jax(case.weights), jax_models.to_jax(case.statistics)
    batch = (jnp.asarray(case.x), jnp.asarray(case.y))

    def risk(weights: jax_models.Weights, batch: Batch) -> jax.Array:
        outputs = jax_models.resnet20(weights, statistics, batch[0])
        kfac_jax.register_softmax_cross_entropy_loss(outputs, targets=batch[1])
        return jax_models.cross_entropy(outputs, batch[1])

    curvature = kfac_jax.ImplicitExactCurvature(risk)

    @jax.jit
    def product(weights: jax_models.Weights, batch: Batch, v: jax_models.Weights) -> dict:
        return curvature.multiply_ggn((weights, batch), v)

    order, unravel = jax_models.order(case.weights), ravel_pytree(weights)[1]
    columns = jax.vmap(unravel, in_axes=-1, out_axes=-1)(jnp.asarray(case.vectors[order]))
    single = case.vectors.shape[1] == 1
    block = jax.tree.map(lambda a: a[..., 0], columns) if single else columns
    multiply = product if single else jax.jit(jax.vmap(product, (None, None, -1), -1))
    ready = jax.block_until_ready
    runs, images = harness.in_turn(lambda: ready(multiply(weights, batch, block)), repeats)
    leaves = [np.asarray(a).reshape(-1, case.vectors.shape[1]) for a in jax.tree.leaves(images)]
    in_case = np.empty_like(case.vectors)
    in_case[order] = np.concatenate(leaves)
    return {"tool": harness.signed("kfac-jax"), "runs": runs, "product": in_case}
