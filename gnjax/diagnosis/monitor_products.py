"""The products and the starts of a monitor's runs, compiled once for one structure of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.certificate import Error
from gnjax.numerics.host import on_device
from gnjax.operators.metrics.metric import SAID
from gnjax.operators.metrics.optimisers import has_optimizer_state, optimizer_entries
from gnjax.operators.metrics.update_response import NoMomentsError
from gnjax.operators.of_networks.hessian import NetworkHessian
from gnjax.operators.protocol import Operator


@dataclass(frozen=True)
class InverseRoot:
    """The diagonal of P^{-1/2} for a metric P, and what it rests on that this is the metric."""

    entries: jax.Array  # (p,)
    evidence: Error


def inverse_root(op: NetworkHessian, metric: Any, optimizer: Any) -> InverseRoot | None:
    """P^{-1/2} for a tree of entries P, or for the state of an ``optimizer``.

    None for an optimiser before its first step, which has no P yet.
    """
    if optimizer is None and not has_optimizer_state(metric):
        entries, evidence = op.ravel(metric), SAID
    else:
        try:
            of_optimizer, evidence = optimizer_entries(op, metric, optimizer)
        except NoMomentsError:
            return None
        entries = on_device(of_optimizer, op.dtype)
    if not bool((entries > 0).all()):
        msg = "the metric P has an entry that is not positive; add the optimiser's eps to it"
        raise ValueError(msg)
    return InverseRoot(1 / jnp.sqrt(entries), evidence)


@bounded_jit
def curvature_product(op: Operator, v: jax.Array) -> jax.Array:
    """A v for the operator A, compiled."""
    return op.mv(v)


def scaled_product(op: Operator, scale: jax.Array, v: jax.Array) -> jax.Array:
    """S A S v for the diagonal matrix S with the entries ``scale``."""
    return scale * curvature_product(op, scale * v)


def curvature_along(op: Operator, update: jax.Array) -> jax.Array:
    """u^T H u for the ``update`` divided by its length, u: the curvature along it."""
    u = update / jnp.linalg.norm(update)
    return u @ curvature_product(op, u)


@bounded_jit(static_argnums=2)
def quadratic_forms(op: Operator, number: jax.Array, probes: int) -> jax.Array:
    """z^T H z for ``probes`` vectors z of random signs; their mean estimates the trace of H.

    ``number`` is that of the row, so that each row of a monitor draws other vectors.
    """
    key = jax.random.fold_in(jax.random.key(2), number)
    signs = jax.random.rademacher(key, (op.shape[0], probes), op.dtype)
    return (signs * op.mv(signs)).sum(0)


@jax.jit
def half_random(number: jax.Array, vector: jax.Array) -> jax.Array:
    """The sum of ``vector`` and of a random vector, both scaled to length 1.

    ``number`` is that of the row, so that each row of a monitor draws another vector.
    """
    key = jax.random.fold_in(jax.random.key(1), number)
    random = jax.random.normal(key, vector.shape, vector.dtype)
    return vector / jnp.linalg.norm(vector) + random / jnp.linalg.norm(random)
