"""neural-tangents: the NTK by its structured derivatives."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness
from benchmarks.rivals import jax_models


def ntk(case: harness.Case, repeats: int) -> dict[str, Any]:
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
    runs, blocks = harness.in_turn(lambda: kernel(x, None, weights).block_until_ready(), repeats)
    n, _, k, _ = blocks.shape  # (n, n, k, k)
    matrix = np.asarray(blocks).transpose(0, 2, 1, 3).reshape(n * k, n * k)
    return {"tool": harness.signed("neural-tangents"), "runs": runs, "matrix": matrix}


def _package() -> types.ModuleType:
    """neural_tangents, without its experimental part, which would need tensorflow."""
    left_out = "neural_tangents.experimental"
    sys.modules[left_out] = types.ModuleType(left_out)
    return importlib.import_module("neural_tangents")
