"""The largest eigenvalue by Lanczos from a given vector, in a few compiled steps.

From the eigenvector of a similar matrix, such as the Hessian some training steps ago, that takes a
few products. Steps are a Python loop, because XLA runs what is inside of a compiled loop on one
thread of a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.scale import (
    largest_exponent,
    reach,
    times_power,
    values_in_units,
)

_LEAST = 2  # fewest products: one product shows nothing of directions other than the start
_FIRST_ROWS = 4  # rows of the first basis, enough for most runs; it is doubled when it is full
BREAKDOWN = 8.0  # a direction shorter than this times the norm's rounding is no new one


@dataclass(frozen=True)
class Tracked:
    """The Ritz pair of the largest Ritz value.

    Attributes:
      value: x^T A x for the unit vector x, so that the largest eigenvalue is at least this.
      vector: x.
      residual: ||A x - value x||, so that an eigenvalue lies this close to the value.
      scale: the largest absolute Ritz value.
      products: how many products with A were made.
    """

    value: float
    vector: jax.Array
    residual: float
    scale: float
    products: int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Run:
    """A Lanczos run after j steps, with A V_j^T = V_j^T T_j + length v_{j+1} e_j^T.

    V_j has the first j rows of the basis, and v_{j+1} is the next row.
    """

    basis: jax.Array  # (rows + 1, n)
    last: jax.Array  # row j + 1 of V, the next to be multiplied
    projection: jax.Array  # (rows, rows)
    done: jax.Array
    outcome: jax.Array  # the largest Ritz value, its residual, and the largest absolute value
    coefficients: jax.Array  # those of the Ritz vector in the basis


def tracked(
    product: Callable[[jax.Array], jax.Array], start: jax.Array, *, rtol: float, steps: int
) -> Tracked:
    """The largest eigenvalue of A and its vector, by Lanczos from the vector ``start``.

    The run ends when the residual of the Ritz pair is at most rtol times the largest absolute Ritz
    value, or when ``steps`` products are made. If the first product is so large or small that
    squares might over- or underflow, the run is one with A / 2^exponent.

    Args:
      product: v -> A v of a symmetric matrix A, for vectors (n,). It is not compiled here, so that
        it is compiled once for bases of all sizes.
      start: a vector (n,), not zero.
      rtol: of the residual.
      steps: the most products; as many vectors are stored.
    """
    run, done, exponent = _begun(start, min(_FIRST_ROWS, steps)), 0, 0
    while True:
        image = product(run.last)
        if not done:  # the largest entry's binary exponent, if squares might under- or overflow
            exponent = largest_exponent(image) or 0
            exponent = exponent if abs(exponent) > reach(image.dtype) else 0
        if exponent:
            image = times_power(image, -exponent)
        run, done = _advanced(run, image), done + 1
        outcome = np.asarray(run.outcome)  # the Ritz value, its residual, the largest absolute one
        unfinished = outcome[1] > rtol * outcome[2]  # False for what is not finite
        if done >= _LEAST and (done == steps or not unfinished):
            value, residual, scale = outcome.astype(np.float64).tolist()
            if exponent:  # the residual is rounded up
                pair, errors = np.array([value, scale]), np.array([residual, 0.0])
                pair, errors = values_in_units(pair, errors, exponent)
                value, scale, residual = pair[0].item(), pair[1].item(), errors[0].item()
            return Tracked(value, _ritz_vector(run), residual, scale, done)
        if done == len(run.projection):
            room = min(2 * done, steps) - done  # that of the basis is doubled
            run = replace(
                run,
                basis=jnp.pad(run.basis, ((0, room), (0, 0))),
                projection=jnp.pad(run.projection, (0, room)),
                coefficients=jnp.pad(run.coefficients, (0, room)),
            )


@partial(jax.jit, static_argnums=1)
def _begun(start: jax.Array, rows: int) -> _Run:
    """A run before its first product, with room for ``rows`` rows of its basis."""
    dtype = start.dtype
    unit = start / jnp.linalg.norm(start)
    basis = jnp.zeros((rows + 1, start.size), dtype).at[0].set(unit)
    zeros = jnp.zeros((rows, rows), dtype)
    return _Run(basis, unit, zeros, jnp.zeros((), jnp.int32), jnp.zeros(3, dtype), zeros[0])


@jax.jit
def _ritz_vector(run: _Run) -> jax.Array:
    """The vector (n,) of the largest Ritz value."""
    return run.coefficients @ run.basis[:-1]


@partial(jax.jit, donate_argnums=0)
def _advanced(run: _Run, image: jax.Array) -> _Run:
    """The run after one more step, from the image A v of the last row v of its basis.

    The image is orthogonalised twice against all rows of the basis, because after one pass it may
    be orthogonal to half of the digits only. What was taken off are the entries of column j of T;
    what is left is the direction that follows, times its length. The shapes do not depend on the
    step, so that one compiled program makes all steps.
    """
    basis, j = run.basis, run.done
    projected = basis @ image
    image = image - projected @ basis
    correction = basis @ image
    image, projected = image - correction @ basis, projected + correction
    length = jnp.linalg.norm(image)
    # A direction that is only rounding is no new one. Its length is 0, and the run ends.
    # outcome[2] is the largest absolute Ritz value so far, an estimate of ||A||.
    norm_estimate = jnp.maximum(run.outcome[2], jnp.linalg.norm(projected))
    is_new = length > BREAKDOWN * jnp.finfo(basis.dtype).eps * norm_estimate
    length = jnp.where(is_new, length, 0.0)
    following = jnp.where(length > 0, image / jnp.where(length > 0, length, 1.0), 0.0)
    column = jnp.where(jnp.arange(len(run.projection)) <= j, projected[:-1], 0.0)
    projection = run.projection.at[:, j].set(column).at[j, :].set(column)
    value, scale, coefficients = _largest(projection, j + 1)
    residual = jnp.abs(length * coefficients[j])  # ||A x - value x|| for the Ritz vector x
    outcome = jnp.stack([value, residual, scale])
    basis = basis.at[j + 1].set(following)
    return _Run(basis, following, projection, j + 1, outcome, coefficients)


def _largest(
    projection: jax.Array, block_size: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """For the leading block of T: the largest eigenvalue, the largest absolute one, an eigenvector.

    ``projection`` (rows, rows) is T, zero outside of its first ``block_size`` rows and columns.
    There, the diagonal is set to a number below all of the block's eigenvalues, because a compiled
    program cannot cut out a block whose size is known only when it runs.
    """
    in_block = jnp.arange(len(projection)) < block_size
    below_all = -2 * jnp.linalg.norm(projection) - 1
    values, vectors = jnp.linalg.eigh(projection + jnp.diag(jnp.where(in_block, 0.0, below_all)))
    # Eigenvalues of the block are at least -||T|| > below_all / 2 - 1/2, which excludes the others.
    of_block = jnp.where(values > below_all / 2 - 0.5, jnp.abs(values), 0.0)
    return values[-1], of_block.max(), vectors[:, -1]
