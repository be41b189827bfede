"""Operators: mv, as_matrix and shape say the same thing, and bad matrices are refused."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.numerics.host import zeros
from gnjax.operators.facts import error_of
from gnjax.papers.kronecker.operator import product_rounding
from tests.precision import single_precision


def _positive(rng, size):
    root = rng.standard_normal((size, size))
    return root @ root.T


def _operators(seed):
    rng = np.random.default_rng(seed)
    lefts = [_positive(rng, 3) for _ in range(4)]
    rights = [_positive(rng, 5) for _ in range(4)]
    widths = (5, 7, 2, 6, 3)
    weights = [rng.standard_normal(pair[::-1]) for pair in pairwise(widths)]
    return {
        "dense": gnjax.dense(_positive(rng, 6)),
        "factored": gnjax.factored(rng.standard_normal((6, 9))),
        "sum_of_kroneckers": papers.sum_of_kroneckers(lefts, rights),
        "linear": papers.linear_gauss_newton(weights, _positive(rng, 5), skip=0.5),
    }


@pytest.mark.parametrize("name", ["dense", "factored", "sum_of_kroneckers", "linear"])
@given(seed=st.integers(0, 2**32 - 1), block=st.integers(1, 5))
def test_products_are_those_of_the_matrix(name, seed, block):
    op = _operators(seed)[name]
    matrix = np.asarray(op.as_matrix())
    v = np.random.default_rng(seed).standard_normal((op.shape[0], block))
    tolerance = 1e-12 * np.linalg.norm(matrix)
    np.testing.assert_allclose(op.mv(jax.device_put(v)), matrix @ v, atol=tolerance * block)
    np.testing.assert_allclose(op.mv(jax.device_put(v[:, 0])), matrix @ v[:, 0], atol=tolerance)
    assert matrix.shape == op.shape
    assert isinstance(op, gnjax.Operator)
    assert op.dtype == jnp.float64


@pytest.mark.parametrize("name", ["dense", "factored", "sum_of_kroneckers", "linear"])
def test_operators_are_pytrees(name):
    op = _operators(0)[name]
    v = jax.device_put(np.ones(op.shape[0]))
    np.testing.assert_allclose(jax.jit(lambda o, x: o.mv(x))(op, v), op.mv(v), rtol=1e-13)


def test_sum_of_kroneckers_is_the_sum_of_krons():
    rng = np.random.default_rng(1)
    lefts = [_positive(rng, 2) for _ in range(3)]
    rights = [_positive(rng, 4) for _ in range(3)]
    expected = sum(np.kron(a, b) for a, b in zip(lefts, rights, strict=True))
    np.testing.assert_allclose(
        papers.sum_of_kroneckers(lefts, rights).as_matrix(), expected, rtol=1e-13
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gnjax.dense(np.ones((2, 3))), "square"),
        (lambda: gnjax.dense(np.zeros((0, 0))), "non-empty"),
        (lambda: gnjax.dense([[1.0, np.nan], [np.nan, 1.0]]), "NaN"),
        (lambda: gnjax.dense([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: gnjax.factored(np.ones(3)), "matrix"),
        (lambda: gnjax.dense(np.eye(2) * 1j), "real"),
        (lambda: gnjax.factored(np.full((2, 2), np.inf)), "Inf"),
        (lambda: papers.sum_of_kroneckers([np.eye(2)], []), "one right for each left"),
        (
            lambda: papers.sum_of_kroneckers([np.eye(2), np.eye(3)], [np.eye(4)] * 2),
            "one size",
        ),
    ],
)
def test_bad_matrices_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("make", [gnjax.dense, gnjax.factored])
def test_a_stated_error_of_a_matrix_widens_the_interval_of_kappa(make):
    """kappa of [[2, 1], [1, 2]] is 3, and 9 of its square; of a moved one it is inside, too."""
    matrix, moved = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[0.0, 1e-3], [1e-3, 0.0]])
    error = gnjax.Error(1e-3, "measured", reason="a thermometer")
    found = gnjax.condition_number(make(matrix, error=error))
    assert found.certificate.kind == "measured"
    assert "a thermometer" in str(found.certificate)
    singular = np.linalg.svd(matrix + moved, compute_uv=False)
    exact = singular[0] / singular[1]
    low, high = found.interval
    assert low <= (exact if make is gnjax.dense else exact**2) <= high
    assert gnjax.condition_number(make(matrix)).interval[1] < high


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_errors_hold_where_squares_are_no_numbers_of_the_precision(size):
    """(1e-25)^2 is 0 in float32 and (1e25)^2 infinite; the error of J J^T is a float64 number."""
    factor = (size * np.random.default_rng(0).standard_normal((4, 3))).astype(np.float32)
    exact = factor.astype(float) @ factor.T.astype(float)
    with single_precision():
        op = gnjax.factored(factor)
        stored, error = np.asarray(op.as_matrix(), float), error_of(op, 0.0)
        zero = error_of(gnjax.factored(np.zeros((4, 3), np.float32)), 0.0)
    assert error.kind == "proved"
    if size <= 1:
        assert np.linalg.norm(stored - exact, 2) <= error.value
    assert 0 < error.value <= 1e-6 * np.linalg.norm(factor.astype(float)) ** 2 + 1e-36
    assert zero.value == 0


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_the_rounding_of_a_product_with_kroneckers_is_a_float64_number():
    """Norms of 1e25 on one side and 1e-25 on the other, and of 1e25 on both."""
    with single_precision():
        one, small, large = (s * np.eye(2, dtype=np.float32) for s in (1.0, 1e-25, 1e25))
        even = product_rounding(papers.sum_of_kroneckers([one], [one]))
        apart = product_rounding(papers.sum_of_kroneckers([large], [small]))
        both = product_rounding(papers.sum_of_kroneckers([large], [large]))
    np.testing.assert_allclose([apart, both], [even, even * 1e50], rtol=1e-5)


def _shared(rng, *shape):
    """A random array in memory that JAX takes over without a copy if it is asked to."""
    array = zeros(shape, np.float64)
    array[...] = rng.standard_normal(shape)
    return array


def _layer(weight, x):
    return jnp.tanh(x @ weight)


_MADE_OF_ARRAYS = {
    "a kernel": lambda w, x: gnjax.ntk((_layer, w), x),
    "a Gauss-Newton matrix": lambda w, x: gnjax.gauss_newton((_layer, w), x),
    "a Hessian": lambda w, x: gnjax.hessian((_layer, w), x, x[:, :3]),
    "a linear network": lambda w, x: papers.linear_gauss_newton([w, x]),
    "a residual network": lambda w, x: papers.linear_gauss_newton([w, x], w.T @ w, skip=0.5),
    "a Leaky-ReLU network": lambda w, x: papers.leaky_relu_gauss_newton(w, x, w.T, 0.1),
    "a factor": lambda w, x: gnjax.factored(x),
    "a sum of Kronecker products": lambda w, x: papers.sum_of_kroneckers([w @ w.T], [x.T @ x]),
}


@pytest.mark.parametrize("name", _MADE_OF_ARRAYS)
def test_an_operator_stays_as_it_is_where_the_callers_arrays_change_afterwards(name):
    rng = np.random.default_rng(0)
    arrays = _shared(rng, 5, 3), _shared(rng, 7, 5)
    op = _MADE_OF_ARRAYS[name](*arrays)
    before = np.array(op.as_matrix())
    for array in arrays:
        array *= 3
    np.testing.assert_array_equal(np.asarray(op.as_matrix()), before)


FORMATS = ("bfloat16", "float16", "float8_e4m3fn", "float32", "int8")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_every_number_format_is_taken_as_the_numbers_that_it_holds(name, array):
    """The class: formats that NumPy does not know by itself are no reason to refuse a matrix."""
    matrix = np.array([[2.0, 1.0], [1.0, 4.0]])
    given = array(matrix).astype(jnp.dtype(name))
    root = 2**0.5
    for op, low, high in (
        (gnjax.dense(given), 3 - root, 3 + root),
        (gnjax.factored(given), (3 - root) ** 2, (3 + root) ** 2),
        (gnjax.diagonal(given[0]), 1.0, 2.0),
    ):
        found = gnjax.eigenvalues(op)
        assert (np.abs(found.values - [high, low]) <= found.errors).all()
        assert found.errors.max() <= 1e-13 * high  # LAPACK's rounding, and no other


class _Identity:
    """The identity in a number format."""

    shape = (2, 2)

    def __init__(self, dtype):
        self.dtype = jnp.dtype(dtype)

    def mv(self, v):
        return v

    def as_matrix(self):
        return jnp.eye(2, dtype=self.dtype)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "bfloat16"])
def test_an_operator_may_have_any_real_number_format(name):
    assert gnjax.eigenvalues(_Identity(name)).values.tolist() == [1.0, 1.0]


def test_facts_as_attributes_are_refused_and_not_forgotten():
    """They were stated so before there was a record; answers without them are uncertified."""

    class Before(_Identity):
        symmetric, error = True, 0.0

    before = Before(float)
    for op in (before, gnjax.dense(np.eye(2)) + before):
        with pytest.raises(ValueError, match=r"Before has the attribute error.*\.Facts\("):
            gnjax.condition_number(op)
