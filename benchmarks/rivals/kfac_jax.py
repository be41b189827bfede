"""kfac-jax: Gauss-Newton products of its exact, implicit curvature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import kfac_jax
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.rivals import harness, jax_models

Batch = tuple[jax.Array, jax.Array]


def ggn(case: harness.Case, options: harness.Options) -> harness.Answer:
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
    seconds, images = options.timed(lambda: jax.block_until_ready(multiply(weights, batch, block)))
    leaves = [np.asarray(a).reshape(-1, case.vectors.shape[1]) for a in jax.tree.leaves(images)]
    in_case = np.empty_like(case.vectors)
    in_case[order] = np.concatenate(leaves)
    return harness.Answer(seconds, {"product": in_case})


if __name__ == "__main__":
    harness.answer("kfac-jax", {"ggn": ggn}, ("jax", "jaxlib"))
