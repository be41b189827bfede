"""neural-tangents: the NTK by its structured derivatives."""

from __future__ import annotations

import importlib
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals import harness, jax_models


def ntk(case: harness.Case, options: harness.Options) -> harness.Answer:
    """J J^T, (n k, n k), sample by sample."""
    jax.config.update("jax_enable_x64", True)
    tangents = _package()
    kernel = jax.jit(
        tangents.empirical_ntk_fn(
            jax_models.relu_mlp,
            trace_axes=(),
            vmap_axes=0,
            implementation=tangents.NtkImplementation.STRUCTURED_DERIVATIVES,
        ),
        static_argnums=(1,),
    )
    weights, x = jax_models.to_jax(case.weights), jnp.asarray(case.x)
    seconds, blocks = options.timed(lambda: kernel(x, None, weights).block_until_ready())
    n, _, k, _ = blocks.shape  # (n, n, k, k)
    matrix = np.asarray(blocks).transpose(0, 2, 1, 3).reshape(n * k, n * k)
    return harness.Answer(seconds, {"matrix": matrix})


def _package() -> types.ModuleType:
    """neural_tangents, without its experimental part, which would need tensorflow."""
    left_out = "neural_tangents.experimental"
    sys.modules[left_out] = types.ModuleType(left_out)
    return importlib.import_module("neural_tangents")


if __name__ == "__main__":
    harness.answer("neural-tangents", {"ntk": ntk}, ("jax", "jaxlib"))
