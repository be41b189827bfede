"""The largest eigenvalue by Lanczos from a given vector, all of it in one compiled program.

A run keeps its basis where the products are computed, in their precision, and stops where the
residual of the outermost Ritz pair is small. From the eigenvector of a similar matrix, such as the
Hessian some training steps ago, that takes a few products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

_LEAST = 2  # products: one alone says nothing of other directions than that of the start
_BREAKDOWN = 8.0  # roundings of the norm below which a direction is no new one


@jax.tree_util.register_dataclass
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

    value: jax.Array
    vector: jax.Array
    residual: jax.Array
    scale: jax.Array
    products: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Run:
    """A V_j^T = V_j^T T_j + (row j + 1 of V) lengths[j]; rows from j + 1 on are not used yet."""

    basis: jax.Array  # (steps + 1, n)
    projection: jax.Array  # (steps, steps)
    done: jax.Array
    length: jax.Array  # of what A v_j has outside the basis
    value: jax.Array
    scale: jax.Array
    coefficients: jax.Array  # of the Ritz vector


def tracked(
    product: Callable[[jax.Array], jax.Array], start: jax.Array, *, rtol: float, steps: int
) -> Tracked:
    """Lanczos until the residual is at most rtol times the scale, or ``steps`` products are made.

    Args:
      product: v -> A v of a symmetric matrix A, for vectors (n,).
      start: a vector (n,), not zero.
      rtol: of the residual.
      steps: the most products; steps + 1 vectors are held.
    """
    shape, dtype = (steps + 1, start.size), start.dtype
    zero = jnp.zeros((), dtype)
    first = _Run(
        jnp.zeros(shape, dtype).at[0].set(start / jnp.linalg.norm(start)),
        jnp.zeros((steps, steps), dtype),
        jnp.zeros((), jnp.int32),
        zero,
        zero,
        zero,
        jnp.zeros(steps, dtype),
    )

    def unfinished(run: _Run) -> jax.Array:
        small = _residual(run) <= rtol * run.scale
        return (run.done < _LEAST) | ((run.done < steps) & ~small & jnp.isfinite(run.value))

    run = lax.while_loop(unfinished, partial(_step, product), first)
    vector = run.coefficients @ run.basis[:-1]
    return Tracked(run.value, vector, _residual(run), run.scale, run.done)


def _residual(run: _Run) -> jax.Array:
    last = jnp.take(run.coefficients, run.done - 1)
    return jnp.abs(run.length * last)


def _step(product: Callable[[jax.Array], jax.Array], run: _Run) -> _Run:
    """One product, orthogonalised twice against all rows of the basis."""
    basis, j = run.basis, run.done
    image = product(basis[j])
    inside = basis @ image
    image = image - inside @ basis
    again = basis @ image
    image, inside = image - again @ basis, inside + again
    length = jnp.linalg.norm(image)
    size = jnp.maximum(run.scale, jnp.linalg.norm(inside))
    length = jnp.where(length > _BREAKDOWN * jnp.finfo(basis.dtype).eps * size, length, 0.0)
    following = jnp.where(length > 0, image / jnp.where(length > 0, length, 1.0), 0.0)
    column = jnp.where(jnp.arange(len(run.projection)) <= j, inside[:-1], 0.0)
    projection = run.projection.at[:, j].set(column).at[j, :].set(column)
    value, scale, coefficients = _largest(projection, j + 1)
    return _Run(
        basis.at[j + 1].set(following),
        projection,
        j + 1,
        length,
        value,
        scale,
        coefficients,
    )


def _largest(projection: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The largest eigenvalue of the leading block, the largest absolute one, and its vector.

    What lies outside of the block is put below all of its eigenvalues.
    """
    used = jnp.arange(len(projection)) < size
    below = -2 * jnp.linalg.norm(projection) - 1
    values, vectors = jnp.linalg.eigh(projection + jnp.diag(jnp.where(used, 0.0, below)))
    inside = jnp.where(values > below / 2 - 0.5, jnp.abs(values), 0.0)
    return values[-1], inside.max(), vectors[:, -1]
