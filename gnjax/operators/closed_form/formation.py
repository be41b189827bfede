"""How far the partial products of a network, as computed, are from the exact ones.

Two roads: worst-case rounding analysis, which is rigorous and grows with the product of the norms
of all layers, for small networks; and probing, which measures the error that was really made, for
large ones. Both return bounds on the spectral norm for S_1 .. S_L and for T_1 .. T_L.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.rounding import gamma, spectral_error, unit_roundoff

_PROBES = 4
# P(chi-square with 4 degrees of freedom < x) = x^2 / 8 for small x: 1e-9 at x = 8.9e-5.
_PROBE_FACTOR = float(8.94e-5**-0.5)

Products = tuple[jax.Array, ...]
Errors = tuple[jax.Array, jax.Array]


def worst_errors(
    layers: list[jax.Array],
    skip: float,
    root: jax.Array | None,
    root_error: float,
    lefts: Products,
    rights: Products,
) -> Errors:
    """||fl(PW) - exact|| <= e_P ||W|| + (||P|| + e_P) e_W + gamma ||P||_F ||W||_F, along the chain.

    e_W is the rounding of W + beta I; a product with the identity is exact.
    """
    hosts = [np.asarray(w) for w in layers]
    shifts = [
        unit_roundoff(w.dtype) * float(np.linalg.norm(np.diagonal(w))) if skip else 0.0
        for w in hosts
    ]
    chain = list(zip(hosts, shifts, strict=True))
    left = _chain_errors(0.0, lefts[::-1], [(w.T, e) for w, e in chain[:0:-1]], exact=True)
    right = _chain_errors(root_error, rights, chain[:-1], exact=root is None)
    return jnp.asarray(left[::-1]), jnp.asarray(right)


def _chain_errors(
    error: float, products: Products, chain: list[tuple[np.ndarray, float]], exact: bool
) -> list[float]:
    """The recursion for products P W^T, ``exact`` when the first of them is a copy."""
    errors = [error]
    for step, ((w, shift), product) in enumerate(zip(chain, products[:-1], strict=True)):
        norm, frobenius = np.linalg.norm(w, 2), np.linalg.norm(w)
        norm *= 1 + spectral_error(max(w.shape), w.dtype)
        size = float(np.linalg.norm(np.asarray(product)))
        rounding = 0.0 if exact and step == 0 else gamma(w.shape[1], w.dtype) * size * frobenius
        error = float(error * norm + (size + error) * shift + rounding)
        errors.append(error)
    return errors


def probed_errors(
    weights: list[jax.Array],
    skip: float,
    root: jax.Array | None,
    root_error: float,
    lefts: Products,
    rights: Products,
) -> Errors:
    """Freivalds' check: the products on random vectors against the layers one after the other.

    For the error E of a product, its top right singular vector v and a Gaussian G of four columns,
    ||E G||_F >= ||E||_2 |v^T G|, which is above 0.0094 ||E||_2 except with probability 1e-9. The
    layers act as W v + beta v, so that the rounding of W + beta I is measured too; what the check
    itself rounds adds to what it measures. An error of Sigma^{1/2} is carried along by the probed
    norm of the layers after it.
    """
    inputs, outputs = weights[0].shape[1], weights[-1].shape[0]
    generator = np.random.default_rng(0)
    dtype = weights[0].dtype
    g = jnp.asarray(generator.standard_normal((inputs, _PROBES)), dtype)
    h = jnp.asarray(generator.standard_normal((outputs, _PROBES)), dtype)
    plain = _through(weights[:-1], skip, g)
    seen = plain if root is None else _through(weights[:-1], skip, root @ g)
    right = [_difference(t, g, y) for t, y in zip(rights, seen, strict=True)]
    if root is not None:
        right = [
            e + root_error * _PROBE_FACTOR * jnp.linalg.norm(y)
            for e, y in zip(right, plain, strict=True)
        ]
    back = _through(weights[:0:-1], skip, h, transposed=True)[::-1]
    left = [_difference(s, h, z) for s, z in zip(lefts, back, strict=True)]
    return jnp.stack(left), jnp.stack(right)


def _through(
    weights: list[jax.Array], skip: float, vectors: jax.Array, *, transposed: bool = False
) -> list[jax.Array]:
    """The vectors before every layer and after the last."""
    states = [vectors]
    for w in weights:
        states.append(_layer(w, skip, states[-1], transposed))
    return states


@partial(jax.jit, static_argnames="transposed")
def _layer(weight: jax.Array, skip: float, vectors: jax.Array, transposed: bool) -> jax.Array:
    weight = weight.T if transposed else weight
    rows, columns = weight.shape
    passed = jnp.pad(vectors[: min(rows, columns)], ((0, max(0, rows - columns)), (0, 0)))
    return jnp.matmul(weight, vectors, precision="highest") + skip * passed


@jax.jit
def _difference(product: jax.Array, probes: jax.Array, seen: jax.Array) -> jax.Array:
    moved = jnp.matmul(product.T, probes, precision="highest") - seen
    return _PROBE_FACTOR * jnp.linalg.norm(moved)
