"""Exact diagonals: of Hessians without their matrix, and refused where they take too much."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gnjax
from gnjax.operators import NetworkHessian

LIMITS = gnjax.Limits(matrix_rows=100)


@pytest.fixture
def hessian():
    model = gnjax.models.MLP((6, 20, 4), activation="tanh", key=jax.random.key(0))
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((30, 6)), rng.integers(0, 4, 30)
    return gnjax.hessian(model, x, labels, loss="cross_entropy")


@pytest.mark.parametrize("of", [lambda op: op, lambda op: 2.0 * op + 0.5], ids=["H", "2 H + s I"])
def test_the_diagonal_of_a_hessian_is_that_of_its_matrix_and_needs_no_matrix(
    hessian, of, monkeypatch
):
    op = of(hessian)
    exact = np.diagonal(np.asarray(op))

    def refuse(self):
        msg = "the matrix is formed"
        raise AssertionError(msg)

    monkeypatch.setattr(NetworkHessian, "as_matrix", refuse)
    assert_allclose(op.ravel(gnjax.metrics.diagonal_of(op)), exact, atol=1e-12)


def test_too_many_parameters_are_refused_with_the_way_out(hessian):
    with pytest.raises(ValueError, match=r"224 products .* gnjax.estimate_diagonal"):
        gnjax.metrics.diagonal_of(hessian, limits=LIMITS)
    with pytest.raises(ValueError, match=r"of 224 parameters"):
        gnjax.metrics.diagonal_of(hessian + 1.0, limits=LIMITS)


def test_the_diagonal_of_a_gauss_newton_matrix_has_no_limit():
    """It takes the rows of J alone."""
    op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((200, 1))), np.eye(3, 200))
    diagonal = gnjax.metrics.diagonal_of(op, limits=LIMITS)
    assert_allclose(np.ravel(diagonal)[:4], [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-7)
