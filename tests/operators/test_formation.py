"""Bounds on the rounding of partial products, against products in extended precision."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.operators.closed_form import formation
from gnjax.operators.closed_form import linear as closed_form

_EXTENDED = np.finfo(np.longdouble).eps < np.finfo(float).eps / 100


def _case(widths, with_root, skip, seed=0):
    rng = np.random.default_rng(seed)
    weights = [jnp.asarray(rng.standard_normal((b, a))) for a, b in pairwise(widths)]
    x = rng.standard_normal((3 * widths[0], widths[0]))
    root = jnp.asarray(np.linalg.cholesky(x.T @ x / len(x))) if with_root else None
    layers = [closed_form._with_skip(w, skip) for w in weights]
    lefts = closed_form._left_products(layers)
    rights = closed_form._right_products(layers, root)
    return weights, layers, root, lefts, rights


def _true_errors(weights, skip, root, lefts, rights):
    exact = [np.asarray(w, np.longdouble) for w in weights]
    exact = [w + np.longdouble(skip) * np.eye(*w.shape, dtype=np.longdouble) for w in exact]
    t = np.eye(exact[0].shape[1], dtype=np.longdouble)
    t = t if root is None else np.asarray(root, np.longdouble)
    right = []
    for w, computed in zip([*exact[:-1], None], rights, strict=True):
        right.append(np.linalg.norm((np.asarray(computed) - t).astype(float), 2))
        t = t if w is None else t @ w.T
    s = np.eye(exact[-1].shape[0], dtype=np.longdouble)
    left = []
    for w, computed in zip([*exact[:0:-1], None], lefts[::-1], strict=True):
        left.append(np.linalg.norm((np.asarray(computed) - s).astype(float), 2))
        s = s if w is None else s @ w
    return left[::-1], right


@pytest.mark.skipif(not _EXTENDED, reason="this machine's long double is a double")
@pytest.mark.parametrize("widths", [(9, 14, 11, 5), (30, 20, 40, 25, 3), (6, 2)])
@pytest.mark.parametrize("with_root", [False, True])
@pytest.mark.parametrize("skip", [0.0, 0.3])
@pytest.mark.parametrize("bound", [formation.worst_errors, formation.probed_errors])
def test_bounds_are_above_the_true_errors(widths, with_root, skip, bound):
    weights, layers, root, lefts, rights = _case(widths, with_root, skip)
    given = layers if bound is formation.worst_errors else weights
    bounded = bound(given, skip, root, 0.0, lefts, rights)
    true = _true_errors(weights, skip, root, lefts, rights)
    for above, below in zip(bounded, true, strict=True):
        assert (np.asarray(above) * (1 + 1e-12) >= np.asarray(below)).all()


def test_a_wrong_product_is_measured():
    """An entry moved by 1e-6 is an error of spectral norm 1e-6, and the probes see it."""
    weights, _, root, lefts, rights = _case((9, 14, 11, 5), False, 0.0)
    broken = rights[2].at[3, 4].add(1e-6)
    _, right = formation.probed_errors(weights, 0.0, root, 0.0, lefts, (*rights[:2], broken))
    assert right[2] >= 1e-6
    assert right[1] < 1e-10


def test_probed_errors_do_not_grow_like_products_of_norms():
    """Ten layers: the measured error stays near rounding of the product itself."""
    widths = (20, *[60] * 9, 4)
    weights, layers, root, lefts, rights = _case(widths, False, 0.0)
    _, probed = formation.probed_errors(weights, 0.0, root, 0.0, lefts, rights)
    _, worst = formation.worst_errors(layers, 0.0, root, 0.0, lefts, rights)
    norm = np.linalg.norm(rights[-1], 2)
    assert probed[-1] < 1e-11 * norm
    assert probed[-1] < worst[-1] / 10


def test_root_errors_are_carried_along():
    weights, layers, root, lefts, rights = _case((9, 14, 11, 5), True, 0.0)
    for bound, given in ((formation.worst_errors, layers), (formation.probed_errors, weights)):
        _, right = bound(given, 0.0, root, 1e-3, lefts, rights)
        chain = np.eye(9)
        for layer, w in enumerate((None, *weights[:-1])):
            chain = chain if w is None else np.asarray(w) @ chain
            assert right[layer] >= 1e-3 * np.linalg.norm(chain, 2) * (1 - 1e-9)
