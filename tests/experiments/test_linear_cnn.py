"""Figure 8's experiment: its matrices in both readings, its rows and its claims."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import gnjax
from experiments.shared import linear_cnn
from tests import references

SIDE, KERNEL, OUTPUTS = 4, 2, 3


def _drawn(filters, channels=1, side=SIDE, kernel=KERNEL, seed=0):
    features = filters * (side - kernel + 1) ** 2
    return SimpleNamespace(
        first=linear_cnn.first_kernels(kernel, filters, 2.0, seed),
        second=linear_cnn.second_kernels(kernel, filters, channels, 2.0, seed),
        head=linear_cnn.dense_head(features, OUTPUTS, 2.0, seed),
    )


def _matrix(kernels, side):
    """T of a convolution with kernels (C, F, K, K): XLA's convolution of every unit image."""
    channels = kernels.shape[1]
    units = np.eye(channels * side**2).reshape(-1, channels, side, side)
    images = lax.conv_general_dilated(units, kernels, (1, 1), "VALID", precision="highest")
    return np.asarray(images).reshape(len(units), -1).T


def _toeplitz_matrices(weights, reading):
    first = _matrix(weights.first[:, None], SIDE)
    second = weights.head
    if reading == "convolution":
        second = _matrix(weights.second, SIDE - KERNEL + 1)
    return first, second


def _root(rank, seed=0):
    """Orthonormal columns; None where they would be all, as the library has it."""
    if rank == SIDE**2:
        return None
    noise = np.random.default_rng(seed).standard_normal((SIDE**2, rank))
    return np.linalg.qr(noise)[0]


def _inputs(root):
    """Rows x with x^T x / n = Sigma, n = r."""
    axes = np.eye(SIDE**2) if root is None else root
    return axes.T * len(axes.T) ** 0.5


def _two_layers(params, x):
    first, second = params
    return x @ first.T @ second.T


def _convolved(params, rows):
    kernels, head = params
    images = rows.reshape(-1, 1, SIDE, SIDE)
    maps = lax.conv_general_dilated(images, kernels[:, None], (1, 1), "VALID")
    return maps.reshape(len(rows), -1) @ head.T


def _spectrum(jacobian, samples):
    return np.linalg.svd(jacobian, compute_uv=False) ** 2 / samples


@pytest.mark.parametrize("reading", ["convolution", "dense"])
@pytest.mark.parametrize("rank", [SIDE**2, 11])
@pytest.mark.parametrize("filters", [1, 2, 3])
def test_toeplitz_entries_as_parameters_by_automatic_differentiation(reading, rank, filters):
    """The Jacobian by every entry of T_1 and T_2 has all sums of two eigenvalues."""
    weights, root = _drawn(filters, channels=min(filters, 2)), _root(rank)
    first, second = _toeplitz_matrices(weights, reading)
    x = _inputs(root)
    jacobian = references.jacobian(_two_layers, (first, second), x)
    expected = np.sort(_spectrum(jacobian, len(x)))[::-1]

    inner = linear_cnn.on_range(linear_cnn.inner_gram(weights.first, SIDE), root)
    outer = (
        linear_cnn.head_gram(weights.head)
        if reading == "dense"
        else linear_cnn.convolution_gram(weights.second, SIDE - KERNEL + 1)
    )
    sums = np.add.outer(*(gnjax.eigenvalues(gram).values for gram in (outer, inner)))
    found = np.sort(sums.ravel())[::-1]
    np.testing.assert_allclose(found, expected[: len(found)], atol=1e-12 * expected[0])
    np.testing.assert_allclose(expected[len(found) :], 0, atol=1e-12 * expected[0])

    ends = (linear_cnn.extreme_eigenvalues(gram) for gram in (outer, inner))
    kappa = linear_cnn.kappa_of_kronecker_sum(*ends)
    exact = expected[0] / expected[len(found) - 1]
    np.testing.assert_allclose(kappa["kappa"], exact, rtol=1e-10)
    assert kappa["kappa_low"] <= exact * (1 + 1e-12)
    assert exact <= kappa["kappa_high"] * (1 + 1e-12)
    assert kappa["resolved"]
    assert kappa["rank"] == len(found)


@pytest.mark.parametrize("channels", [1, 3])
def test_grams_are_those_of_the_matrices_within_their_errors(channels):
    weights = _drawn(3, channels)
    first, second = _toeplitz_matrices(weights, "convolution")
    for gram, exact in (
        (linear_cnn.inner_gram(weights.first, SIDE), first.T @ first),
        (linear_cnn.convolution_gram(weights.second, 3), second @ second.T),
        (linear_cnn.head_gram(weights.head), weights.head @ weights.head.T),
    ):
        distance = np.linalg.norm(np.asarray(gram.matrix) - exact, 2)
        assert distance <= 2 * float(gram.stored_error)  # the reference is rounded as well
        assert float(gram.stored_error) < 1e-13 * np.linalg.norm(exact)


@settings(max_examples=8)
@given(
    filters=st.sampled_from([1, 2, 5]),
    rank=st.sampled_from([SIDE**2, 9]),
    seed=st.integers(0, 2**31 - 1),
)
def test_shared_weights_by_automatic_differentiation(filters, rank, seed):
    """The Jacobian of the convolutional network by its kernels and its head."""
    weights, root = _drawn(filters, seed=seed), _root(rank, seed)
    x = _inputs(root)
    jacobian = references.jacobian(_convolved, (weights.first, weights.head), x)
    expected = np.sort(_spectrum(jacobian, len(x)))[::-1]
    op = linear_cnn.shared_gauss_newton(weights.first, weights.head, SIDE, root)
    found = gnjax.eigenvalues(op).values
    size = min(len(found), len(expected))
    np.testing.assert_allclose(found[:size], expected[:size], atol=1e-12 * expected[0])
    assert 0 < float(op.stored_error) < 1e-11 * expected[0]


def test_a_singular_second_layer_gives_a_lower_bound_alone():
    """Two output channels of one filter share a kernel: T_2 T_2^T has no full rank."""
    weights = _drawn(1, channels=2)
    inner, outer = (
        linear_cnn.extreme_eigenvalues(gram)
        for gram in (
            linear_cnn.inner_gram(weights.first, SIDE),
            linear_cnn.convolution_gram(weights.second, SIDE - KERNEL + 1),
        )
    )
    found = linear_cnn.kappa_of_kronecker_sum(outer, inner)
    assert not found["resolved"]
    assert 1e10 < found["kappa"] == found["kappa_low"] < found["kappa_high"] == np.inf


def test_the_mean_of_the_grams():
    """E T_1^T T_1 = g F diag(c) / K^2 for c positions over a pixel; E T_2 T_2^T = E H H^T = g I.

    So many filters bring kappa near (1 + F) / (1 + F / K^2): a corner has c = 1, the centre K^2.
    """
    side, kernel, filters, draws = 6, 3, 4, 400
    covered = np.minimum(np.minimum(np.arange(1, 7), np.arange(6, 0, -1)), kernel)
    coverage = np.outer(covered, covered).ravel()
    grams = [[], [], []]
    for seed in range(draws):
        weights = _drawn(filters, 1, side, kernel, seed)
        grams[0].append(linear_cnn.inner_gram(weights.first, side).matrix)
        grams[1].append(linear_cnn.convolution_gram(weights.second, side - kernel + 1).matrix)
        grams[2].append(linear_cnn.head_gram(weights.head).matrix)
    expected = 2.0 * filters * np.diag(coverage) / kernel**2, 2.0 * np.eye(4), 2.0 * np.eye(OUTPUTS)
    for drawn, mean in zip(grams, expected, strict=True):
        sample = np.array(drawn)
        standard_error = sample.std(axis=0, ddof=1) / draws**0.5
        deviation = np.abs(sample.mean(axis=0) - mean)
        assert (deviation <= 5 * standard_error + 1e-12).all()


@pytest.mark.parametrize(("frame", "rank"), [(0, 64), (2, 16)])
def test_images_are_whitened_on_the_samples_and_their_frame_is_zero(frame, rank):
    found = linear_cnn.images("fashion_mnist_5000", 200, 0, 8, frame)
    assert (found.rank, found.pixels, found.samples) == (rank, 64, 200)
    assert f"rank {rank}" in found.source
    if frame:
        inside = np.zeros((8, 8), bool)
        inside[frame:-frame, frame:-frame] = True
        projection = found.root @ found.root.T
        np.testing.assert_allclose(projection, np.diag(inside.ravel().astype(float)), atol=1e-9)
    else:
        assert found.root is None
