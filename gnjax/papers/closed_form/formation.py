"""How far the partial products of a network, as computed, are from the exact ones.

There are two ways. For narrow networks a worst-case rounding analysis is used, whose bounds are
proved and grow with the product of the norms of all layers. For wide networks random probes are
used, which measure the error that was really made. Both return bounds on the spectral norm for
S_1 .. S_L and for T_1 .. T_L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from gnjax.numerics.certificate import PROBABLE, PROVED
from gnjax.numerics.outward import frobenius_norm, raised, underflow
from gnjax.numerics.rounding import gamma
from gnjax.papers.closed_form.layer_products import FAILURE, Map, middle_norms, product_errors
from gnjax.papers.closed_form.layer_weights import CovarianceRoot, Layers

_Products = tuple[jax.Array, ...]


@dataclass(frozen=True)
class ProductErrors:
    """Bounds on ||stored - exact||_2.

    Attributes:
      lefts, rights: (L,), for S_1 .. S_L and for T_1 .. T_L.
      evidence: "proved" or "probable".
      failure: the probability that one of the bounds does not hold, for probable ones.
    """

    lefts: tuple[float, ...]
    rights: tuple[float, ...]
    evidence: str = PROVED
    failure: float = 0.0


def worst_errors(
    layers: Layers, skip: float, root: CovarianceRoot, lefts: _Products, rights: _Products
) -> ProductErrors:
    """Worst-case bounds on the errors of all S_l and T_l, by recursion along the layers.

    ``lefts`` are the computed S_l = W_L .. W_{l+1}, and ``rights`` the computed
    T_l = Sigma^{1/2} (W_{l-1} .. W_1)^T, with W_l + beta I for beta = ``skip`` in place of W_l. For
    a product P of layers and the next layer W,

        ||fl(PW) - exact|| <= e_P ||W|| + (||P|| + e_P) e_W + gamma ||P||_F ||W||_F,

    where e_P and e_W are the errors of P and of the stored W. A product with the identity is exact.
    """
    chain = []  # W_l + beta I in float64, and how far it is from what is stored
    for index, stored in enumerate(layers.stored):
        w = np.asarray(stored, np.float64)
        w = w + skip * np.eye(*w.shape) if skip else w
        chain.append((w, layers.error(index, skip)))
    backward = [(w.T, e) for w, e in chain[:0:-1]]
    left = _chain_errors(0.0, lefts[::-1], backward, exact=True)
    right = _chain_errors(root.error, rights, chain[:-1], exact=root.matrix is None)
    return ProductErrors(tuple(left[::-1]), tuple(right))


def _chain_errors(
    error: float, products: _Products, chain: list[tuple[np.ndarray, float]], exact: bool
) -> list[float]:
    """Bounds on the errors of the partial ``products``, each P W^T of the one before, P.

    ``error`` is that of the first, and ``chain`` has the layers W as stored, whose norms are at
    least those of the exact ones less the errors e_W. With ``exact`` the first P is the identity,
    so that the first step rounds nothing.
    """
    errors = [error]
    for step, ((w, layer_error), product) in enumerate(zip(chain, products[:-1], strict=True)):
        frobenius = frobenius_norm(w)
        # LAPACK's proofs give its error as a polynomial of low degree in n times eps; ten times
        # n^2 eps is far above what was ever seen.
        lost = 1 + 10 * max(w.shape) ** 2 * float(np.finfo(np.float64).eps)
        norm = min(float(np.linalg.norm(w, 2)) * lost, frobenius)
        size, rounding = frobenius_norm(product), 0.0
        if not (exact and step == 0):
            rounding = gamma(w.shape[1], product.dtype) * size * (frobenius + layer_error)
            rounding += underflow(w.shape[1], len(product) * len(w), product.dtype)
        error = raised(error * (norm + layer_error) + (size + error) * layer_error + rounding)
        errors.append(error)
    return errors


def probed_errors(
    layers: Layers, skip: float, root: CovarianceRoot, lefts: _Products, rights: _Products
) -> ProductErrors:
    """Probable bounds on the errors of all S_l and T_l, by Freivalds' check with random vectors.

    A computed product times random vectors is compared with its layers, applied to them one after
    the other. ``lefts`` are the computed S_l = W_L .. W_{l+1}, and ``rights`` the computed
    T_l = Sigma^{1/2} (W_{l-1} .. W_1)^T. For the error E of a product, its top right singular
    vector v and a Gaussian G of eight columns, ||E G||_F >= ||E||_2 |v^T G|, which is above 0.088
    ||E||_2 except with probability 1e-11. The layers act on G in about twice the working precision,
    as W v + beta v with the weights as they were given, and what the check itself rounds is bounded
    and added (see :mod:`gnjax.papers.closed_form.layer_products`). A copy of a layer needs no
    check. An error of Sigma^{1/2} is carried along by the norm of the layers after it, probed in
    the same way.
    """
    # ``rooted``: the number of factors Sigma^{1/2} before the layers, 0 for the identity.
    depth, rooted = len(layers.originals), int(root.matrix is not None)
    steps = [Map(np.asarray(w), skip) for w in layers.originals]
    norms = middle_norms(steps[:-1], 1 - rooted, seed=1)  # of products of consecutive layers
    # S_l^T = W_{l+1}^T .. W_L^T is checked from l = L - 2 on: S_L is I, and S_(L-1) is W_L.
    back = [Map(step.matrix.T, skip) for step in steps[:0:-1]]
    left = product_errors(
        back,
        [None, *(np.asarray(s).T for s in lefts[-3::-1])][: len(back)],
        lambda i, j: norms[depth - j, depth - i],
        seed=2,
    )
    # T_l^T = W_{l-1} .. W_1 Sigma^{1/2}, from the first product of two factors on.
    ahead = steps[:-1] if root.matrix is None else [Map(np.asarray(root.matrix).T), *steps[:-1]]
    right = product_errors(
        ahead,
        [None, *(np.asarray(t).T for t in rights[2 - rooted :])][: len(ahead)],
        lambda i, j: norms[i - rooted, j - rooted],
        seed=3,
    )
    # How many probed bounds there are, each of which may fail.
    checks = sum(range(depth)) + max(depth - 2, 0) + max(depth - 2 + rooted, 0)
    left = [0.0, *left]
    if depth > 1:
        left[1] = layers.error(depth - 1, skip)  # S_(L-1) is a copy of W_L
    if root.matrix is None:
        right = [0.0, *right]
        if depth > 1:
            right[1] = layers.error(0, skip)  # T_2 is a copy of W_1^T
    else:
        right = [raised(e + root.error * n) for e, n in zip(right, norms[:, 0], strict=True)]
    left, right = (  # nan comes from overflow
        [math.inf if math.isnan(bound) else bound for bound in side] for side in (left, right)
    )
    return ProductErrors(tuple(left[::-1]), tuple(right), PROBABLE, checks * FAILURE)
