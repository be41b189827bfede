"""Appendix B: Toeplitz matrices are convolutions, and the linear CNN's Gauss-Newton matrix."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import gnjax
from gnjax import papers
from gnjax.models.cnn import LinearCNN, output_length
from gnjax.papers.closed_form.linear_cnn import linear_cnn_gauss_newton, toeplitz
from tests import references


@partial(jax.jit, static_argnums=(3, 4))
def _jacobian(kernels, head, x, stride, padding):
    """(n k, p), samples first, of the linear CNN on rows x, by reverse mode."""

    def apply(params, rows):
        hidden = lax.conv_general_dilated(
            rows[:, None], params["kernels"][:, None], (stride,), [(padding, padding)]
        )
        return hidden.reshape(len(rows), -1) @ params["head"].T

    return references.jacobian(apply, {"kernels": kernels, "head": head}, x)


def _draw(seed, filters, kernel, length, outputs, stride=1, padding=0):
    rng = np.random.default_rng(seed)
    positions = output_length(length, kernel, stride, padding)
    kernels = rng.standard_normal((filters, kernel))
    head = rng.standard_normal((outputs, filters * positions))
    return rng, kernels, head


@settings(max_examples=25)
@given(
    channels=st.sampled_from([1, 2]),
    sizes=st.sampled_from(  # kernel, length, stride, padding
        [(1, 1, 1, 0), (3, 6, 1, 0), (3, 11, 2, 1), (6, 6, 1, 0), (6, 1, 3, 4), (2, 6, 3, 1)]
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_toeplitz_is_the_convolution(channels, sizes, seed):
    """Against XLA's convolution, and numpy's correlation for each pair of channels."""
    filters = 3
    kernel, length, stride, padding = sizes
    rng = np.random.default_rng(seed)
    kernels = rng.standard_normal((filters, channels, kernel))
    x = rng.standard_normal((channels, length))
    image = np.asarray(toeplitz(kernels, length, stride, padding)) @ x.ravel()
    expected = np.asarray(
        lax.conv_general_dilated(x[None], kernels, (stride,), [(padding, padding)])
    )[0]
    np.testing.assert_allclose(image, expected.ravel(), rtol=1e-12, atol=1e-12)
    padded = np.pad(x, ((0, 0), (padding, padding)))
    by_hand = [
        sum(np.correlate(padded[j], kernels[i, j], "valid")[::stride] for j in range(channels))
        for i in range(filters)
    ]
    np.testing.assert_allclose(image, np.ravel(by_hand), rtol=1e-12, atol=1e-12)


def test_toeplitz_as_printed_in_appendix_b():
    np.testing.assert_array_equal(
        toeplitz([[1.0, 2.0], [3.0, 4.0]], 3),
        [[1, 2, 0], [0, 1, 2], [3, 4, 0], [0, 3, 4]],
    )


@settings(max_examples=30)
@given(
    sizes=st.sampled_from(  # filters, kernel, length, outputs, stride, padding
        [(1, 3, 7, 2, 1, 0), (4, 1, 3, 1, 1, 0), (3, 3, 7, 2, 2, 1), (2, 4, 6, 1, 3, 1)]
    ),
    rank=st.sampled_from([None, 1, 9]),
    work=st.sampled_from([0, 1e10]),
    seed=st.integers(0, 2**32 - 1),
)
def test_gauss_newton_is_the_jacobian_of_the_linear_map(sizes, rank, work, seed):
    """By reverse mode through H T(w) Sigma^{1/2}; the distance is within the operator's error."""
    *_, length, outputs, stride, padding = sizes
    rng, kernels, head = _draw(seed, *sizes)
    covariance, root = None, np.eye(length)
    if rank is not None:
        x = rng.standard_normal((rank, length))
        covariance = x.T @ x / rank
        values, vectors = np.linalg.eigh(covariance)
        root = (vectors * np.sqrt(np.where(values > 1e-13 * values[-1], values, 0))) @ vectors.T

    jacobian = np.asarray(_jacobian(kernels, head, root, stride, padding))
    jacobian = (
        jacobian.reshape(length, outputs, -1).transpose(1, 0, 2).reshape(outputs * length, -1)
    )
    op = linear_cnn_gauss_newton(
        kernels,
        head,
        length,
        covariance,
        stride=stride,
        padding=padding,
        limits=gnjax.Limits(factor_work=work),
    )
    assert isinstance(op, gnjax.operators.Factored if work else gnjax.operators.Dense)
    assert op.shape == (outputs * length, outputs * length)
    scale = float(np.linalg.norm(jacobian)) ** 2
    distance = np.linalg.norm(np.asarray(op.as_matrix()) - jacobian @ jacobian.T, 2)
    error = float(op.stored_error)
    allowed = (2 * scale**0.5 + error) * error if work else error
    assert distance <= allowed + 1e-13 * scale
    assert allowed <= 1e-10 * scale


@pytest.mark.parametrize("work", [0, 1e10])
def test_non_zero_eigenvalues_are_those_of_the_model_on_data(work):
    """(1/n) sum_i J_i^T J_i of the Flax model on 20 samples, p x p, against k d x k d."""
    model = LinearCNN(
        6, 2, filters=3, kernel=3, stride=2, padding=1, key=jax.random.key(0), gain=1.0
    )
    x = np.random.default_rng(0).standard_normal((20, 6))
    graph, params = nnx.split(model)
    auto = references.gauss_newton(
        lambda p, rows: nnx.merge(graph, p)(rows), params, jax.device_put(x)
    )
    op = linear_cnn_gauss_newton(
        model.kernels[...],
        model.head[...],
        6,
        x.T @ x / 20,
        stride=2,
        padding=1,
        limits=gnjax.Limits(factor_work=work),
    )
    values, expected = gnjax.eigenvalues(op).values, np.linalg.eigvalsh(auto)[::-1]
    assert len(values) == 12
    assert len(expected) == 27
    np.testing.assert_allclose(values, expected[:12], atol=1e-12 * expected[0])
    assert np.abs(expected[12:]).max() <= 1e-12 * expected[0]


def test_a_kernel_as_long_as_the_input_is_the_dense_network():
    """One position: T(w) = w and no weight is shared, so this is Eq 4 for W_1 = w, W_2 = H."""
    rng, kernels, head = _draw(5, 7, 4, 4, 3)
    x = rng.standard_normal((9, 4))
    for covariance in (None, x.T @ x / 9):
        op = linear_cnn_gauss_newton(kernels, head, 4, covariance)
        expected = references.linear_gauss_newton([kernels, head], covariance)
        np.testing.assert_allclose(op.as_matrix(), expected, rtol=1e-10, atol=1e-10)


def test_traces_with_and_without_weight_sharing():
    """k ||T||^2 + kernel ||H||^2 with shared weights, k ||T||^2 + d ||H||^2 without (Eq 4)."""
    _, kernels, head = _draw(6, 2, 3, 8, 2)
    matrix = toeplitz(kernels, 8)
    first = 2 * float(jnp.sum(matrix**2))
    shared = gnjax.eigenvalues(linear_cnn_gauss_newton(kernels, head, 8)).values
    unshared = gnjax.eigenvalues(papers.linear_gauss_newton([matrix, head])).values
    np.testing.assert_allclose(shared.sum(), first + 3 * np.sum(head**2), rtol=1e-12)
    np.testing.assert_allclose(unshared.sum(), first + 8 * np.sum(head**2), rtol=1e-12)


def test_lemma_2_with_toeplitz_matrices_is_no_bound_for_shared_weights():
    """It bounds kappa where every entry of T is a parameter, and not where kernels are."""
    rng = np.random.default_rng(20)
    kernels = rng.standard_normal((3, 5))
    matrix = np.asarray(toeplitz(kernels, 6))
    head = rng.standard_normal((2, len(matrix)))
    bound = papers.bounds.linear([matrix, head])
    entries = gnjax.condition_number(papers.linear_gauss_newton([matrix, head]))
    shared = gnjax.condition_number(linear_cnn_gauss_newton(kernels, head, 6))
    assert entries.rank == shared.rank == 2 * 6
    assert entries.interval[0] <= bound.convex
    assert shared.interval[0] > 5 * bound.convex


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: toeplitz(np.ones((2, 3)), 2), "does not fit into 2 inputs"),
        (lambda: toeplitz(np.ones((2, 3)), 5, stride=0), "stride must be at least 1"),
        (lambda: toeplitz(np.ones((2, 3)), 5, padding=-1), "padding at least 0"),
        (lambda: toeplitz(np.ones(3), 5), r"\(filters, kernel\)"),
        (lambda: toeplitz(np.ones((0, 3)), 5), r"\(filters, kernel\)"),
        (lambda: toeplitz(np.full((2, 3), np.nan), 5), "NaN"),
        (lambda: linear_cnn_gauss_newton(np.ones((2, 3)), np.ones((4, 7)), 5), "need 6"),
        (
            lambda: linear_cnn_gauss_newton(np.ones((1, 3)), np.full((4, 3), np.inf), 5),
            "head contains NaN or Inf",
        ),
        (
            lambda: linear_cnn_gauss_newton(np.ones((1, 3)), np.ones((4, 3)), 5, np.eye(4)),
            "covariance has shape",
        ),
        (
            lambda: linear_cnn_gauss_newton(np.ones((1, 3)), np.ones((300, 98)), 100),
            "downsample the inputs to at most 66",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
