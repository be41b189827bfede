"""Whitened data are to a linear network what Gaussian data of the same rank are."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import data, papers
from tests import references

SAMPLES = 400


def _images(side: int) -> np.ndarray:
    """Whitened images; the border of Fashion-MNIST is dark enough to lose rank at no side here."""
    dataset = data.load("fashion_mnist_5000", samples=SAMPLES, seed=0)
    return data.whiten(data.downsample(dataset.inputs, dataset.shape, (side, side))).inputs


def _gaussian(rank: int, seed: int) -> np.ndarray:
    drawn = data.load("gaussian", samples=SAMPLES + seed, dimension=rank, seed=seed)
    return data.whiten(drawn.inputs).inputs


@settings(max_examples=12)
@given(
    side=st.sampled_from([3, 5]),
    depth=st.integers(1, 4),
    width=st.sampled_from([12, 40]),
    skip=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**16),
)
def test_whitened_data_are_gaussian_data_of_the_same_rank(
    side: int, depth: int, width: int, skip: float, seed: int
) -> None:
    """kappa agrees to 1e-8 for the same weights, whatever the number of Gaussian samples.

    Both covariances are within 1e-13 of the identity, and kappa is below 1e4: 1e-9 at most.
    """
    images = _images(side)
    noise = _gaussian(images.shape[1], seed % 50)
    widths = (images.shape[1], *[width] * (depth - 1), 10)
    weights = gnjax.initializers.chain(jax.random.key(seed), widths, "kaiming_normal")
    kappas = [
        gnjax.condition_number(
            papers.linear_gauss_newton(weights, data.covariance(x), skip=skip), method="dense"
        )
        for x in (images, noise)
    ]
    assert kappas[0].rank == kappas[1].rank
    np.testing.assert_allclose(kappas[0].value, kappas[1].value, rtol=1e-8)


def test_and_so_by_the_jacobian_of_every_sample() -> None:
    """The same without a covariance: 1/n J J^T of all samples by automatic differentiation."""
    images = _images(3)
    weights = gnjax.initializers.chain(
        jax.random.key(1), (images.shape[1], 20, 15, 2), "orthogonal"
    )

    def apply(params: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in params:
            x = x @ w.T
        return x

    kappas = []
    for x in (images, _gaussian(images.shape[1], 3)):
        jacobian = references.jacobian(apply, weights, x)
        kappas.append(references.pseudo_condition(jacobian, rtol=1e-8) ** 2)
    np.testing.assert_allclose(kappas[0], kappas[1], rtol=1e-8)
    exact = gnjax.condition_number(papers.linear_gauss_newton(weights)).value
    np.testing.assert_allclose(kappas[0], exact, rtol=1e-8)


@pytest.mark.parametrize("change", ["raw", "rank"])
def test_raw_data_or_another_rank_give_another_kappa(change: str) -> None:
    """What the equality needs: without whitening, or at another rank, kappa is another."""
    images = _images(5)
    other = _gaussian(images.shape[1] - (change == "rank"), 0)
    if change == "raw":
        other = data.load("gaussian", samples=SAMPLES, dimension=images.shape[1], seed=0).inputs
    kappas = []
    for x in (images, other):
        widths = (x.shape[1], 40, 40, 10)
        weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
        op = papers.linear_gauss_newton(weights, data.covariance(x))
        kappas.append(gnjax.condition_number(op).value)
    assert abs(kappas[1] / kappas[0] - 1) > 1e-3
