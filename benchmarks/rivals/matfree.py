"""matfree: Hessian eigenvalues from its tridiagonalisation with full reorthogonalisation."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matfree import decomp, eig, funm, stochtrace

from benchmarks import harness
from benchmarks.rivals import jax_models


def hessian(case: harness.Case, repeats: int) -> dict[str, Any]:
    """The largest eigenvalues, in the fewest steps that reach the residual."""
    jax.config.update("jax_enable_x64", True)
    flat, product = jax_models.hessian_product(case)
    start = jnp.asarray(np.random.default_rng(0).standard_normal(flat.size))
    images = jax.jit(jax.vmap(product))

    def solver(steps: int) -> jax.stages.Wrapped:
        partial = eig.eigh_partial(decomp.tridiag_sym(steps))
        return jax.jit(lambda v: partial(product, v))

    def residual(steps: int) -> float:
        values, vectors = _largest(solver(steps)(start))
        apart = np.linalg.norm(images(vectors) - values[:, None] * vectors, axis=1)
        return float(apart.max()) / values[0]

    steps = harness.fewest_steps(residual)
    solve = solver(steps)
    runs, found = harness.in_turn(lambda: jax.block_until_ready(solve(start)), repeats)
    values, vectors = _largest(found)
    in_case = np.empty((flat.size, len(values)))
    in_case[jax_models.order(case.weights)] = vectors.T
    return {
        "tool": harness.signed("matfree"),
        "runs": runs,
        "values": values,
        "vectors": in_case,
        "products": steps,
        "note": "fewest steps, found beforehand",
    }


def logdet(case: harness.Case, repeats: int, vectors: int, steps: int) -> dict[str, Any]:
    """log det (N G + I) by stochastic Lanczos quadrature, with two standard errors as its error."""
    jax.config.update("jax_enable_x64", True)
    flat, product = jax_models.gauss_newton_product(case)
    integrand = funm.monte_carlo_funm_sym_logdet(decomp.tridiag_sym(steps))
    sampler = stochtrace.sampler_signs(flat, num=vectors)
    estimate = stochtrace.estimator_monte_carlo_mean_and_sem(integrand, sampler)
    solve = jax.jit(lambda key: estimate(lambda v: len(case.x) * product(v) + v, key))
    key = jax.random.key(0)
    runs, (value, error) = harness.in_turn(
        lambda: jax.block_until_ready(solve(key)), repeats, time.process_time
    )
    return {
        "tool": harness.signed("matfree"),
        "runs": runs,
        "value": value,
        "stated": 2 * error,
        "note": f"{vectors} vectors of {steps} steps",
    }


def _largest(found: tuple[jax.Array, jax.Array]) -> tuple[np.ndarray, np.ndarray]:
    """The largest of ascending eigenvalues, in descending order, and their eigenvectors as rows."""
    values, vectors = (np.asarray(array)[::-1][: harness.EIGENVALUES] for array in found)
    return values, vectors
