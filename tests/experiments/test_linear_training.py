"""What B3 and B4 take in place of thousands of samples is exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gnjax
from experiments.shared import linear_training
from experiments.shared.linear_training import Data, Training
from gnjax.papers.training import linear_descent
from gnjax.papers.training.descent import descend

DIGITS = Data("digits", 300, 0.2, 0, 4)


def samples(data, sigma_x):
    """The same samples, by hand."""
    drawn = gnjax.data.class_imbalance(gnjax.data.load(data.name), data.samples, data.share, 0)
    small = gnjax.data.downsample(drawn.dataset.inputs, (8, 8), (data.side, data.side))
    x = gnjax.data.orthogonalise(small, sigma_x)
    return x, gnjax.data.one_hot(drawn.dataset.labels, 10)


def apply(weights, x):
    for weight in weights:
        x = x @ weight.T
    return x


@pytest.mark.parametrize("rank", [5, 3])
def test_representatives_have_the_moments_of_raw_correlated_samples(rank):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, rank)) @ rng.standard_normal((rank, 5))
    moments = linear_descent.moments(x, rng.standard_normal((50, 2)))
    few, labels = linear_training.representatives(moments)
    assert few.shape == (rank, 5)
    assert_allclose(few.T @ few / rank, moments.covariance, atol=1e-12)
    assert_allclose(labels.T @ few / rank, moments.cross, atol=1e-12)


def test_the_hessian_is_that_on_all_samples():
    """A handful of rows in place of 300, away from any minimum and on correlated inputs."""
    x, y = samples(DIGITS, 1.0)
    x = x[:, :6] * np.linspace(0.5, 2.0, 6)[None, :] + 0.3 * x[:, 6:12]
    weights = gnjax.initializers.chain(jax.random.key(0), (6, 4, 5, 10), "kaiming_normal")
    full = np.asarray(gnjax.hessian((apply, weights), x, y).as_matrix())
    few = linear_training.hessian(weights, linear_descent.moments(x, y))
    assert few.net.samples == 6
    assert_allclose(np.asarray(few.as_matrix()), full, atol=1e-12 * np.abs(full).max())


@pytest.mark.parametrize(
    ("widths", "outside"), [((16, 2, 10), 4), ((16, 2, 3, 10), 4), ((16, 8, 10), 0)]
)
def test_the_two_parts_of_the_hessian_are_the_whole_of_it(widths, outside):
    """Far from any minimum, with inputs that neither the weights nor the labels reach."""
    x, y = samples(DIGITS, 1.5)
    moments = linear_descent.moments(x, y)
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    whole = np.linalg.eigvalsh(np.asarray(linear_training.hessian(weights, moments).as_matrix()))
    split = linear_training.split_hessian(weights, moments)
    assert split.inputs_outside == outside
    assert split.deviation < 1e-12
    inside = np.linalg.eigvalsh(np.asarray(split.inside.as_matrix()))
    both = np.sort(np.concatenate([inside, np.repeat(split.outside, outside)]))
    assert_allclose(both, whole, atol=1e-12 * np.abs(whole).max())
    values, errors = split.largest(5, 1e-10)
    assert (np.abs(values - whole[::-1][:5]) <= errors + 1e-12 * whole[-1]).all()
    assert_allclose(split.exact_trace(), whole.sum(), rtol=1e-12)
    estimate, error = split.trace(40, 0)
    assert 0 < abs(estimate - whole.sum()) < 5 * error


def test_training_takes_the_path_of_all_samples_in_the_coordinates_of_the_data():
    """Against the loss on the samples, without any reduction; 16 inputs, 3 + 10 of them spanned."""
    training = Training(3, 3, "pytorch_default", 0.05, (0, 1, 250))
    found = linear_training.orthogonal(DIGITS, 1.5)
    x, y = samples(DIGITS, 1.5)
    widths = (x.shape[1], 3, 3, 10)
    start = gnjax.initializers.chain(jax.random.key(7), widths, "pytorch_default")
    path = descend(_loss, start, (jnp.asarray(x), jnp.asarray(y)), keep=(0, 1, 250), rate=0.05)
    points = list(linear_training.train(found, training, 7))
    assert [point.epoch for point in points] == [0, 1, 250]
    for at, point in enumerate(points):
        assert point.loss == pytest.approx(float(path.losses[at]), rel=1e-10)
        for weight, plain in zip(point.weights, path.params, strict=True):
            assert_allclose(weight, plain[at], atol=1e-10)


def _loss(weights, data):
    x, y = data
    return jnp.square(apply(weights, x) - y).sum() / (2 * len(x))


def test_what_is_said_of_the_data_is_what_was_loaded():
    found = linear_training.orthogonal(DIGITS, 1.5)
    x, y = samples(DIGITS, 1.5)
    assert (found.inputs, found.outputs, found.samples) == (x.shape[1], 10, 300)
    assert found.largest_share == pytest.approx(y.mean(axis=0).max())
    fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    assert found.floor == pytest.approx(((fitted - y) ** 2).sum() / 600, rel=1e-10)
    said = linear_training.describe(DIGITS, 1.5)
    assert "4 x 4, orthogonalised with sigma_x=1.5: n=300, rank 16" in said


def test_grey_images_come_from_colour_ones():
    patches = linear_training.orthogonal(Data("photo_patches", 100, 0.1, 0, 5), 1.0)
    assert patches.inputs == 25


@pytest.mark.parametrize("wrong", [{"epochs": ()}, {"depth": 1}, {"width": 0}, {"epochs": (-1, 2)}])
def test_a_training_that_is_none_is_refused(wrong):
    fields = {"depth": 2, "width": 3, "initializer": "orthogonal", "rate": 0.1, "epochs": (0,)}
    with pytest.raises(ValueError, match="training needs"):
        Training(**(fields | wrong))
