"""Slow dense oracles in float64, written as the equations stand.

Each derivative is compiled as one program: operation by operation, as JAX does it without ``jit``,
every operation of every shape is compiled for itself, which takes ten times as long.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.tree_util import Partial


def linear_gauss_newton(weights, covariance=None, skip=0.0):
    """Eqs 4, 5, 7: sum_l (W^{L:l+1} W^{l+1:L}) (x) (Sigma^1/2 W^{1:l-1} W^{l-1:1} Sigma^1/2)."""
    layers = [np.asarray(w) + skip * np.eye(*w.shape) for w in weights]
    inputs, outputs = layers[0].shape[1], layers[-1].shape[0]
    sigma = np.eye(inputs) if covariance is None else np.asarray(covariance)
    root = np.real(scipy.linalg.sqrtm(sigma + 0.0))
    total = np.zeros((outputs * inputs, outputs * inputs))
    for layer in range(len(layers)):
        after = np.linalg.multi_dot(
            [np.eye(outputs), *layers[:layer:-1], np.eye(layers[layer].shape[0])]
        )
        before = np.linalg.multi_dot([np.eye(layers[layer].shape[1]), *layers[:layer][::-1], root])
        total += np.kron(after @ after.T, before.T @ before)
    return total


def jacobian(apply, params, x):
    """d f(x_i)_c / d theta as (n k, p), samples first."""
    return outputs_and_jacobian(apply, params, x)[1]


def outputs_and_jacobian(apply, params, x):
    """f(x) as the network returns it, and its Jacobian (n k, p)."""
    return _both(apply if isinstance(apply, Partial) else Partial(apply), params, x)


@jax.jit
def _both(apply, params, x):
    """The same; what is compiled for a function serves other numbers of the same shapes."""
    flat, unflatten = jax.flatten_util.ravel_pytree(params)

    def twice(theta):
        outputs = apply(unflatten(theta), x)
        return outputs, outputs

    derivative, outputs = jax.jacrev(twice, has_aux=True)(flat)
    return outputs, derivative.reshape(-1, flat.size)


def hessian(function, params):
    """The Hessian of a function of a tree of parameters, p x p."""

    @jax.jit
    def dense(params):
        flat, unflatten = jax.flatten_util.ravel_pytree(params)
        return jax.hessian(lambda theta: function(unflatten(theta)))(flat)

    return np.asarray(dense(params))


def gauss_newton(apply, params, x):
    """Eq 1: (1/n) sum_i J_i^T J_i, p x p."""
    j = np.asarray(jacobian(apply, params, x))
    return j.T @ j / x.shape[0]


def functional_hessian(apply, params, x, y):
    """Hessian of (1/2n) sum |f(x_i) - y_i|^2 less its Gauss-Newton matrix."""

    def loss(params):
        return jnp.sum((apply(params, x) - y) ** 2) / (2 * x.shape[0])

    return hessian(loss, params) - gauss_newton(apply, params, x)


def pseudo_condition(matrix, rtol=1e-10):
    """Largest over smallest non-zero singular value."""
    values = np.linalg.svd(np.asarray(matrix), compute_uv=False)
    kept = values[values > rtol * values[0]]
    return kept[0] / kept[-1]
