"""Bounds on the rounding of partial products, against products in extended precision."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from gnjax import papers
from gnjax.numerics.precision import x64
from gnjax.papers.closed_form import formation, layer_products
from gnjax.papers.closed_form import from_weights as closed_form
from gnjax.papers.closed_form.layer_weights import CovarianceRoot, checked_layers, square_root
from tests.precision import single_precision

_EXTENDED = np.finfo(np.longdouble).eps < np.finfo(float).eps / 100
pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")

_BOTH = [formation.worst_errors, formation.probed_errors]


def _case(widths, with_root, skip, seed=0):
    rng = np.random.default_rng(seed)
    weights = [jax.device_put(rng.standard_normal((b, a))) for a, b in pairwise(widths)]
    x = rng.standard_normal((3 * widths[0], widths[0]))
    matrix = jax.device_put(np.linalg.cholesky(x.T @ x / len(x))) if with_root else None
    root = CovarianceRoot(matrix, 0.0, widths[0], np.ones(widths[0], bool))
    layers = checked_layers(weights)
    return layers, root, *closed_form._products(layers.stored, skip, matrix)


def _exact_products(layers, skip, root):
    """S_1 .. S_L and T_1 .. T_L in long double, from the weights as they were given."""
    exact = [np.asarray(w, np.longdouble) for w in layers.originals]
    exact = [w + np.longdouble(skip) * np.eye(*w.shape, dtype=np.longdouble) for w in exact]
    t = np.eye(exact[0].shape[1], dtype=np.longdouble)
    right = [t if root is None else np.asarray(root, np.longdouble)]
    for w in exact[:-1]:
        right.append(right[-1] @ w.T)
    left = [np.eye(exact[-1].shape[0], dtype=np.longdouble)]
    for w in exact[:0:-1]:
        left.append(left[-1] @ w)
    return left[::-1], right


def _true_errors(layers, skip, root, lefts, rights):
    return [
        [np.linalg.norm((np.asarray(c, np.longdouble) - e).astype(float), 2) for c, e in pairs]
        for pairs in map(zip, (lefts, rights), _exact_products(layers, skip, root.matrix))
    ]


def _check(layers, skip, root, lefts, rights, bound):
    formed = bound(layers, skip, root, lefts, rights)
    true = _true_errors(layers, skip, root, lefts, rights)
    for above, below in zip((formed.lefts, formed.rights), true, strict=True):
        # The reference itself rounds, by some units of 2^-64 of the norms.
        assert (np.asarray(above) * (1 + 1e-12) >= np.asarray(below) * (1 - 1e-3)).all()
    return formed, true


@pytest.mark.skipif(not _EXTENDED, reason="this machine's long double is a double")
@pytest.mark.parametrize("widths", [(9, 14, 11, 5), (30, 20, 40, 25, 3), (6, 2), (5,) * 9])
@pytest.mark.parametrize("with_root", [False, True])
@pytest.mark.parametrize("skip", [0.0, 0.3])
@pytest.mark.parametrize("bound", _BOTH)
def test_bounds_are_above_the_true_errors(widths, with_root, skip, bound):
    layers, root, lefts, rights = _case(widths, with_root, skip)
    _check(layers, skip, root, lefts, rights, bound)


@pytest.mark.skipif(not _EXTENDED, reason="this machine's long double is a double")
@pytest.mark.parametrize("bound", _BOTH)
@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_for_graded_weights_in_single_precision(bound, seed):
    """float64 weights whose entries span 12 decades, stored and multiplied in float32."""
    rng = np.random.default_rng(seed)
    widths = rng.integers(2, 30, rng.integers(2, 7))
    weights = [
        rng.standard_normal((b, a)) * 10.0 ** rng.uniform(-6, 6, (b, a))
        for a, b in pairwise(widths)
    ]
    skip = float(rng.choice([0.0, 1 / 3]))
    with single_precision():
        layers = checked_layers(weights)
        root = CovarianceRoot(None, 0.0, int(widths[0]), np.ones(widths[0], bool))
        lefts, rights = closed_form._products(layers.stored, skip, None)
        assert lefts[0].dtype == jnp.float32
        assert min(layers.errors) > 0
        _check(layers, skip, root, lefts, rights, bound)


def test_products_below_the_smallest_number_are_not_without_error():
    """1e-25 * 1e-25 is 0 in float32: the error is at least what was lost."""
    weights = [np.full((3, 3), 1e-25, np.float32)] * 3
    with single_precision():
        layers = checked_layers(weights)
        root = CovarianceRoot(None, 0.0, 3, np.ones(3, bool))
        lefts, rights = closed_form._products(layers.stored, 0.0, None)
        for bound in _BOTH:
            formed = bound(layers, 0.0, root, lefts, rights)
            lost = np.linalg.norm(np.float64(weights[0]) @ weights[1])
            assert formed.rights[-1] >= lost > 0
        assert float(closed_form.linear_gauss_newton(weights).stored_error) > 0


def test_a_wrong_product_is_measured():
    """An entry moved by 1e-6 is an error of spectral norm 1e-6, and the probes see it."""
    layers, root, lefts, rights = _case((9, 14, 11, 5), False, 0.0)
    broken = rights[2].at[3, 4].add(1e-6)
    formed = formation.probed_errors(layers, 0.0, root, lefts, (*rights[:2], broken))
    assert formed.rights[2] >= 1e-6
    assert formed.rights[1] < 1e-10


def test_a_wrong_product_is_missed_no_more_often_than_stated():
    """With the stated chance raised to 2%, an error of rank one is missed in at most 2% of 3000."""
    failure, size = 0.02, 12
    factor = (2 * (24 * failure) ** 0.25) ** -0.5
    rng = np.random.default_rng(0)
    missed = 0
    for seed in range(3000):
        g, _ = layer_products.probes(size, seed)
        v = rng.standard_normal(size)
        missed += factor * np.linalg.norm(v @ g) < np.linalg.norm(v)
    assert missed <= failure * 3000
    assert missed > 0  # the bound on the chance is not far too large


@pytest.mark.parametrize("skip", [0.0, 1 / 3, -1e-9])
def test_vectors_are_carried_in_twice_the_precision(skip):
    """Against 60 digits, with weights and vectors over many decades."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((7, 5)) * 10.0 ** rng.uniform(-8, 8, (7, 5))
    start = np.round(rng.standard_normal((5, 3)) * 2**10)
    step, again = layer_products.Map(w, skip), layer_products.Map(rng.standard_normal((4, 7)), skip)
    one = layer_products.apply(step, layer_products.Vectors(start, np.zeros_like(start), 0.0))
    two = layer_products.apply(again, one)
    with mpmath.workdps(60):
        seen = mpmath.matrix(start.tolist())
        for applied, found in ((step, one), (again, two)):
            matrix = mpmath.matrix(applied.matrix.tolist())
            for i in range(min(applied.matrix.shape)):
                matrix[i, i] += mpmath.mpf(skip)
            seen = matrix * seen
            got = mpmath.matrix(found.main.tolist()) + mpmath.matrix(found.rest.tolist())
            error = (
                float(mpmath.norm(got - seen, 2))
                if got.cols == 1
                else float(_frobenius(got - seen))
            )
            assert error <= found.error
            assert found.error <= 1e-17 * float(_frobenius(seen))
            seen = got


def _frobenius(matrix):
    return mpmath.sqrt(sum(entry**2 for entry in matrix))


def test_norms_of_middle_products_are_bounded():
    rng = np.random.default_rng(2)
    steps = [layer_products.Map(rng.standard_normal((40, 40)), 0.5) for _ in range(6)]
    bounds = layer_products.middle_norms(steps, 0, seed=0)
    for b in range(6):
        product = np.eye(40)
        for a in range(b + 1, 7):
            product = (steps[a - 1].matrix + 0.5 * np.eye(40)) @ product
            assert np.linalg.norm(product, 2) <= bounds[a, b] <= 300 * np.linalg.norm(product, 2)


def test_probed_errors_do_not_grow_like_products_of_norms():
    """Ten layers: the measured error stays near rounding of the product itself."""
    widths = (20, *[60] * 9, 4)
    layers, root, lefts, rights = _case(widths, False, 0.0)
    probed = formation.probed_errors(layers, 0.0, root, lefts, rights)
    worst = formation.worst_errors(layers, 0.0, root, lefts, rights)
    norm = np.linalg.norm(rights[-1], 2)
    assert probed.rights[-1] < 1e-12 * norm
    assert probed.rights[-1] < worst.rights[-1] / 10
    assert (worst.evidence, worst.failure) == ("proved", 0.0)
    assert probed.evidence == "probable"
    assert 0 < probed.failure < 1e-9


def test_root_errors_are_carried_along():
    layers, root, lefts, rights = _case((9, 14, 11, 5), True, 0.0)
    moved = CovarianceRoot(root.matrix, 1e-3, 9, root.inputs)
    for bound in _BOTH:
        formed = bound(layers, 0.0, moved, lefts, rights)
        chain = np.eye(9)
        for layer, w in enumerate((None, *layers.originals[:-1])):
            chain = chain if w is None else np.asarray(w) @ chain
            assert formed.rights[layer] >= 1e-3 * np.linalg.norm(chain, 2) * (1 - 1e-9)


@pytest.mark.parametrize("narrow", [True, False])
def test_the_operator_says_what_its_error_rests_on(narrow):
    rng = np.random.default_rng(0)
    widths = (3, 5, 2) if narrow else (300, 300, 4)
    op = papers.linear_gauss_newton([rng.standard_normal((b, a)) for a, b in pairwise(widths)])
    stated = op.error(0.0)
    assert stated.kind == ("proved" if narrow else "probable")
    assert (stated.failure == 0) == narrow
    assert stated.value == float(op.stored_error) > 0


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_error_of_the_operator_is_above_the_true_one(single, seed):
    """Against the matrix of the given numbers in 40 digits; a covariance of full rank."""
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 5, rng.integers(2, 5))
    weights = [rng.standard_normal((b, a)) for a, b in pairwise(widths)]
    variances = 10.0 ** rng.uniform(-6, 2, widths[0])
    skip = float(rng.choice([0.0, -0.7]))
    with single_precision() if single else x64():
        op = closed_form.linear_gauss_newton(weights, np.diag(variances), skip)
        stored = np.asarray(op.as_matrix(), float)
        error = float(op.stored_error)
    with mpmath.workdps(40):
        layers = []
        for w in weights:
            layers.append(mpmath.matrix(w.tolist()))
            for i in range(min(w.shape)):
                layers[-1][i, i] += mpmath.mpf(skip)
        t = mpmath.diag([mpmath.sqrt(mpmath.mpf(v)) for v in variances])
        exact = mpmath.zeros(len(stored))
        for layer in range(len(layers)):
            s = mpmath.eye(int(widths[-1]))
            for w in layers[:layer:-1]:
                s = s * w
            exact += _kronecker(s * s.T, t * t.T)
            t = t * layers[layer].T
        gap = _frobenius(mpmath.matrix(stored.tolist()) - exact)
    # The bound is on the spectral norm, which is at least this.
    assert float(gap) / len(stored) ** 0.5 <= error


def _kronecker(a, b):
    out = mpmath.zeros(a.rows * b.rows)
    for i in range(a.rows):
        for j in range(a.cols):
            for p in range(b.rows):
                for q in range(b.cols):
                    out[i * b.rows + p, j * b.cols + q] = a[i, j] * b[p, q]
    return out


def test_the_root_is_that_of_the_given_covariance_in_single_precision():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 6))
    sigma = x.T @ x / 20
    with single_precision():
        root = square_root(sigma, 6, jnp.dtype(jnp.float32))
        stored = np.asarray(root.matrix, float)
    values, vectors = np.linalg.eigh(sigma)
    exact = (vectors * np.sqrt(values)) @ vectors.T
    assert np.linalg.norm(stored - exact, 2) <= root.error <= 1e-6
    assert not root.assumed
