"""Sums over batches of samples: their rounding does not grow with the number of batches."""

from contextlib import nullcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.network import sum_of
from tests.precision import single_precision

_MODEL = lambda w, x: x @ w, np.ones((1, 1), np.float32)  # its matrix is the mean of x^2
_X = {
    "one large sample first": np.array([[1e4], *[[1.0]] * 399], np.float32),
    "equal samples": np.full((400, 1), 0.7, np.float32),  # of 300 a plain sum is as good
}


def _streamed(make, x, y):
    return make(_MODEL, [(x[i : i + 1], y[i : i + 1]) for i in range(len(x))])


def _batched(make, x, y):
    return make(_MODEL, x, y, batch_size=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("samples", _X)
@pytest.mark.parametrize("make", [gnjax.gauss_newton, gnjax.hessian])
@pytest.mark.parametrize("given", [_streamed, _batched])
def test_the_error_covers_the_distance_of_products_and_of_the_matrix(given, make, samples):
    with single_precision():
        x = _X[samples]
        exact = np.square(x.astype(float)).mean()
        op = given(make, x, np.zeros_like(x))
        product, matrix = op.mv(jnp.ones(1, jnp.float32)), op.as_matrix()
        assert product.dtype == matrix.dtype == jnp.float32
        error = op.error(exact).value
        assert abs(float(product[0]) - exact) <= error < 1e-5 * exact
        assert abs(float(matrix[0, 0]) - exact) <= error


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("parameters", [1, 2, 3, 8, 64])
def test_the_error_covers_the_matrix_of_many_equal_samples_in_one_batch(parameters):
    row = np.linspace(0.5, 0.9, parameters).astype(np.float32)
    exact = np.outer(row, row.astype(float))
    with single_precision():
        model = lambda w, x: x @ w, np.ones((parameters, 1), np.float32)
        op = gnjax.gauss_newton(model, np.tile(row, (10_000, 1)))
        matrix = np.asarray(op.as_matrix())
        assert matrix.dtype == np.float32
        distance = np.linalg.norm(matrix - exact, 2)
        assert distance <= op.error(np.linalg.norm(exact, 2)).value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("parameters", "samples"), [(64, 1_000), (2, 3_000), (3, 100_000)])
@pytest.mark.parametrize("make", [gnjax.gauss_newton, gnjax.hessian, gnjax.ntk])
def test_the_error_covers_products_of_many_equal_samples_in_one_batch(
    make, parameters, samples, dtype
):
    """A plain sum of 100,000 numbers of one sign was 20 times as far off as the error said."""
    row = np.linspace(0.5, 0.9, parameters).astype(dtype)
    slopes = np.array([*row, 1.0], np.longdouble)  # the gradient of each output
    weights = np.ones((parameters, 1), dtype), np.ones((1, 1), dtype)
    given = (lambda w, x: x @ w[0] + w[1], weights), np.tile(row, (samples, 1))
    with single_precision() if dtype == np.float32 else nullcontext():
        if make is gnjax.ntk:
            op, v = gnjax.ntk(*given), np.ones(samples, dtype)
            norm, expected = samples * slopes @ slopes, np.full(samples, samples * slopes @ slopes)
        else:
            op, v = make(*given, np.zeros((samples, 1), dtype)), slopes.astype(dtype)
            norm, expected = slopes @ slopes, slopes * (slopes @ slopes)
        for ready in (op, gnjax.linearised(op)):
            distance = float(np.linalg.norm(np.asarray(ready.mv(v)) - expected))
            assert distance <= op.error(float(norm)).value * np.linalg.norm(v)


@pytest.mark.parametrize("loss", ["squared_error", lambda f, y: 0.5 * jnp.square(f - y).sum()])
def test_the_error_covers_products_of_equal_samples_in_batches_and_in_a_metric(loss):
    row = np.linspace(0.5, 0.9, 8)
    x, y = np.tile(row, (3_000, 1)), np.zeros((3_000, 1))
    model, norm = (lambda w, x: x @ w, np.ones((8, 1))), float(row @ row)
    streamed = gnjax.gauss_newton(
        model, [(x[:1_000], y[:1_000]), (x[1_000:], y[1_000:])], loss=loss
    )
    diagonal = gnjax.diagonal(np.full(8, 4.0))  # S = 1/2, so that the matrix is a quarter of G
    in_metric = gnjax.preconditioned(gnjax.gauss_newton(model, x, y, loss=loss), diagonal)
    for op, scale in ((streamed, 1.0), (in_metric, 0.25)):
        error = op.error(scale * norm).value
        distance = np.linalg.norm(np.asarray(op.mv(row)) - scale * row * norm)
        assert distance <= error * np.linalg.norm(row)
        assert 1_000 * 2.0**-53 / 3 * scale * norm <= error < 1e-11


@pytest.mark.parametrize("through", [lambda f: f, jax.jit], ids=["as it is", "compiled"])
def test_parts_that_cancel_lose_nothing_but_the_rounding_of_the_sum(through):
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((100, 5)).astype(np.float32) * np.float32(1e4)
    parts = np.concatenate([parts, rng.standard_normal((1, 5)).astype(np.float32), -parts])
    exact = np.array([float(sum(map(Fraction, column.tolist()))) for column in parts.T])
    got = through(lambda parts: sum_of(iter(parts)))(jnp.asarray(parts))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(got, float), exact, rtol=1e-6)


def test_an_infinite_sum_stays_infinite():
    parts = jnp.array([3e38, 3e38, 1.0], jnp.float32)
    assert np.isinf(sum_of(iter(parts)))
