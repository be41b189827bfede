"""Transforms: the identity that defines each, on data of any shape and rank."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnjax import data

Array = NDArray[np.float64]


@st.composite
def low_rank(draw: st.DrawFn) -> tuple[Array, int]:
    """(n, d) inputs of a known rank, with singular values over three decades."""
    n, d = draw(st.integers(1, 24)), draw(st.integers(1, 16))
    rank = draw(st.integers(1, min(n, d)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lefts = np.linalg.qr(rng.standard_normal((n, rank)))[0]
    rights = np.linalg.qr(rng.standard_normal((d, rank)))[0]
    scale = draw(st.sampled_from([1e-6, 1.0, 1e6]))
    return scale * lefts * np.logspace(0, -3, rank) @ rights.T, rank


def dataset(counts: list[int], seed: int = 0) -> data.Dataset:
    """A data set with these class sizes in random order; row i holds (i, label)."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    inputs = np.stack([np.arange(labels.size), labels], axis=1).astype(np.float64)
    return data.Dataset("made", "train", inputs, labels, (2,), len(counts), "made", "none")


# --- whitening -----------------------------------------------------------------------------------


# Singular values reach down to 1e-3 of the largest, so x @ transform loses 3 digits of 16.
@given(low_rank())
def test_pca_whitening(case: tuple[Array, int]) -> None:
    x, rank = case
    white = data.whiten(x)
    assert white.rank == rank
    assert white.inputs.shape == (len(x), rank)
    np.testing.assert_allclose(data.covariance(white.inputs), np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(x @ white.transform, white.inputs, atol=1e-10)
    assert white.mean is None


@given(low_rank())
def test_zca_whitening(case: tuple[Array, int]) -> None:
    x, rank = case
    white = data.whiten(x, method="zca")
    assert white.inputs.shape == x.shape
    projector = data.covariance(white.inputs)
    np.testing.assert_allclose(projector @ projector, projector, atol=1e-12)
    assert math.isclose(np.trace(projector), rank, rel_tol=1e-12)
    np.testing.assert_allclose(x @ projector, x, atol=1e-10 * np.abs(x).max())
    # Of all whitenings ZCA is the symmetric one: nothing is rotated.
    np.testing.assert_allclose(
        white.transform, white.transform.T, atol=1e-10 * np.abs(white.transform).max()
    )
    np.testing.assert_allclose(x @ white.transform, white.inputs, atol=1e-10)


@pytest.mark.parametrize("method", ["pca", "zca"])
def test_centred_whitening(method: str) -> None:
    x = 5 + np.random.default_rng(0).standard_normal((50, 4))
    white = data.whiten(x, method=method, center=True)
    np.testing.assert_allclose(white.inputs.mean(axis=0), 0, atol=1e-12)
    assert white.mean is not None
    np.testing.assert_allclose(white.mean, x.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose((x - white.mean) @ white.transform, white.inputs, atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e2, 1e4, 1e6])
def test_n_samples_less_their_mean_have_rank_n_minus_1(offset: float) -> None:
    """However far the data is from 0: the rounding of x - mean is no direction of the data."""
    x = np.random.default_rng(0).normal(size=(10, 20)) + offset
    white = data.whiten(x, center=True)
    assert white.rank == 9
    np.testing.assert_allclose(white.inputs.mean(axis=0), 0, atol=1e-14 * (10 + offset))


def test_rtol_decides_the_rank() -> None:
    x = np.diag([1.0, 1e-4, 1e-8])
    assert data.whiten(x).rank == 3
    assert data.whiten(x, rtol=1e-6).rank == 2
    assert data.whiten(x, rtol=1e-2).rank == 1


def test_whitened_photographs() -> None:
    """Real pixels: constant ones are dropped, and the covariance is still the identity."""
    images = data.load("fashion_mnist_5000", samples=1000).inputs
    padded = np.concatenate([images[:, 300:400], np.zeros((1000, 7))], axis=1)
    white = data.whiten(padded)
    assert white.rank == 100
    np.testing.assert_allclose(data.covariance(white.inputs), np.eye(100), atol=1e-10)


# --- orthogonalising -----------------------------------------------------------------------------


@given(low_rank(), st.sampled_from([0.5, 1.0, 3.0]))
def test_orthogonalise(case: tuple[Array, int], scale: float) -> None:
    x, rank = case
    n, d = x.shape
    if rank == n < d:
        with pytest.raises(ValueError, match="downsample"):
            data.orthogonalise(x, scale)
        return
    z = data.orthogonalise(x, scale)
    assert z.shape == (n, rank)
    np.testing.assert_allclose(z.T @ z, n * scale**2 * np.eye(rank), atol=1e-11 * n)
    # Nothing outside the data: the columns of x lie in the span of z.
    np.testing.assert_allclose(z @ (z.T @ x) / (n * scale**2), x, atol=1e-12 * np.abs(x).max())


def test_orthogonalise_is_qr_up_to_a_rotation() -> None:
    x = np.random.default_rng(1).standard_normal((30, 6))
    z = data.orthogonalise(x, 2.0)
    q = 2.0 * math.sqrt(30) * np.linalg.qr(x)[0]
    np.testing.assert_allclose(z @ z.T, q @ q.T, atol=1e-12)


def test_a_square_full_rank_sample_is_allowed() -> None:
    z = data.orthogonalise(np.random.default_rng(2).standard_normal((8, 8)))
    np.testing.assert_allclose(z.T @ z, 8 * np.eye(8), atol=1e-13)


# --- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "to"), [(28, 14), (28, 7), (32, 8), (6, 6), (5, 1)])
def test_integer_factors_are_block_means(size: int, to: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, size, size)).astype(np.float64)
    f = size // to
    blocks = images.reshape(3, to, f, to, f).mean(axis=(2, 4)).reshape(3, -1)
    small = data.downsample(images.reshape(3, -1), (size, size), (to, to))
    np.testing.assert_allclose(small, blocks, rtol=1e-14)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_area_average_against_exact_fractions(height: int, width: int, more: st.DataObject) -> None:
    to = (more.draw(st.integers(1, height)), more.draw(st.integers(1, width)))
    image = np.random.default_rng(height * 13 + width).integers(0, 256, (height, width))

    def overlap(i: int, j: int, size: int, cells: int) -> Fraction:
        cell = Fraction(size, cells)
        return max(Fraction(0), min((i + 1) * cell, Fraction(j + 1)) - max(i * cell, Fraction(j)))

    expected = [
        float(
            sum(
                overlap(a, i, height, to[0]) * overlap(b, j, width, to[1]) * int(image[i, j])
                for i in range(height)
                for j in range(width)
            )
            * Fraction(to[0] * to[1], height * width)
        )
        for a in range(to[0])
        for b in range(to[1])
    ]
    small = data.downsample(image.reshape(1, -1), (height, width), to)
    np.testing.assert_allclose(small[0], expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("to", [(8, 8), (8, 8, 3), (10, 7)])
def test_colours_are_averaged_apart(to: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    images = rng.random((2, 32, 32, 3))
    small = data.downsample(images.reshape(2, -1), (32, 32, 3), to).reshape(2, *to[:2], 3)
    for channel in range(3):
        alone = data.downsample(images[..., channel].reshape(2, -1), (32, 32), to[:2])
        np.testing.assert_allclose(small[..., channel].reshape(2, -1), alone, rtol=1e-14)


def test_grayscale() -> None:
    pixels = np.eye(3).reshape(1, 9)  # a red, a green and a blue pixel
    np.testing.assert_allclose(data.grayscale(pixels, (1, 3, 3)), [[0.299, 0.587, 0.114]])
    np.testing.assert_allclose(data.grayscale(np.ones((2, 12)), (2, 2, 3)), np.ones((2, 4)))


@pytest.mark.parametrize(
    ("shape", "to"),
    [((4, 4), (5, 4)), ((4, 4), (0, 4)), ((4, 4), (2,)), ((4, 4), (2, 2, 3)), ((3, 4), (2, 2))],
)
def test_impossible_downsampling(shape: tuple[int, ...], to: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"pixels cannot|give"):
        data.downsample(np.ones((2, 16)), shape, to)


def test_grayscale_wants_three_channels() -> None:
    with pytest.raises(ValueError, match="RGB"):
        data.grayscale(np.ones((2, 16)), (4, 4))


# --- columns -------------------------------------------------------------------------------------


def test_covariance() -> None:
    x = np.random.default_rng(0).standard_normal((7, 3))
    expected = sum(np.outer(row, row) for row in x) / 7
    np.testing.assert_allclose(data.covariance(x), expected, rtol=1e-14)


@given(low_rank(), st.floats(-1e3, 1e3))
def test_standardise(case: tuple[Array, int], constant: float) -> None:
    x = np.concatenate([np.random.default_rng(0).random(case[0].shape), case[0][:, :1] * 0], axis=1)
    x[:, -1] = constant
    z = data.standardise(x)
    np.testing.assert_array_equal(z[:, -1], 0)
    if len(x) > 1:
        np.testing.assert_allclose(z[:, :-1].mean(axis=0), 0, atol=1e-10)
        np.testing.assert_allclose(z[:, :-1].std(axis=0), 1, rtol=1e-10)


def test_standardised_constants_are_zero_although_their_mean_is_rounded() -> None:
    x = np.tile(np.random.default_rng(0).random(400), (4999, 1))
    assert np.any(x.std(axis=0) > 0)
    np.testing.assert_array_equal(data.standardise(x), 0)


# --- choosing samples ----------------------------------------------------------------------------


def test_subsample() -> None:
    whole = dataset([30, 20, 10])
    part = data.subsample(whole, 12, seed=1)
    again = data.subsample(whole, 12, seed=1)
    np.testing.assert_array_equal(part.inputs, again.inputs)
    assert np.all(np.diff(part.inputs[:, 0]) > 0)  # distinct, in their order
    np.testing.assert_array_equal(part.inputs[:, 1], part.labels)  # labels moved with their rows
    assert "12 of 60 samples drawn with seed 1" in part.source
    assert whole.inputs.shape == (60, 2)


def test_balanced_subsample() -> None:
    part = data.subsample(dataset([30, 20, 10]), 27, seed=1, balanced=True)
    np.testing.assert_array_equal(np.bincount(part.labels), [9, 9, 9])
    np.testing.assert_array_equal(part.inputs[:, 1], part.labels)
    with pytest.raises(ValueError, match="multiple"):
        data.subsample(dataset([30, 20, 10]), 28, seed=1, balanced=True)
    with pytest.raises(ValueError, match="class 2"):
        data.subsample(dataset([30, 20, 10]), 33, seed=1, balanced=True)
    with pytest.raises(ValueError, match="between 1 and 60"):
        data.subsample(dataset([30, 20, 10]), 61, seed=1)


@pytest.mark.parametrize("tenths", range(1, 11))
@pytest.mark.parametrize("samples", [90, 100, 1000])
def test_class_imbalance(tenths: int, samples: int) -> None:
    """Counts by the rule in exact arithmetic, for the shares of paper B."""
    result = data.class_imbalance(dataset([1000] * 10), samples, tenths / 10, seed=2)
    each = math.floor((1 - Fraction(tenths, 10)) * samples / 9)
    np.testing.assert_array_equal(
        np.bincount(result.dataset.labels, minlength=10), [samples - 9 * each] + [each] * 9
    )
    assert result.largest_share == (samples - 9 * each) / samples
    assert result.largest_share >= tenths / 10
    assert len(np.unique(result.dataset.inputs[:, 0])) == samples


def test_impossible_imbalance() -> None:
    small = dataset([50] * 10)
    with pytest.raises(ValueError, match="class 0"):
        data.class_imbalance(small, 100, 0.6, seed=0)
    for share in (0.05, 1.2, math.nan):
        with pytest.raises(ValueError, match="largest_share"):
            data.class_imbalance(small, 100, share, seed=0)
    with pytest.raises(ValueError, match="at least 1"):
        data.class_imbalance(small, 0, 0.5, seed=0)
    with pytest.raises(ValueError, match="single class"):
        data.class_imbalance(dataset([5]), 3, 1.0, seed=0)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x",
    [np.ones(3), np.ones((0, 3)), np.ones((3, 0)), np.ones((2, 2, 2)), [[1.0, np.nan]], [[np.inf]]],
)
@pytest.mark.parametrize(
    "transform", [data.whiten, data.orthogonalise, data.covariance, data.standardise]
)
def test_bad_inputs_are_refused(transform: object, x: object) -> None:
    with pytest.raises(ValueError, match="inputs"):
        transform(x)  # type: ignore[operator]


def test_bad_parameters_are_refused() -> None:
    x = np.ones((3, 2))
    with pytest.raises(ValueError, match="'pca' or 'zca'"):
        data.whiten(x, method="cholesky")
    with pytest.raises(ValueError, match="relative"):
        data.whiten(x, rtol=-1.0)
    with pytest.raises(ValueError, match="zero"):
        data.whiten(x, center=True)
    with pytest.raises(ValueError, match="sigma_x"):
        data.orthogonalise(x, scale=0.0)
