"""Initialisers: moments, bounds, and the identities of the structured ones."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnjax import initializers

_SHAPE = (300, 500)  # (out, in): 150,000 draws
_VARIANCES = {
    "kaiming_normal": 2 / 500,
    "kaiming_uniform": 2 / 500,
    "xavier_normal": 2 / 800,
    "xavier_uniform": 2 / 800,
    "pytorch_default": 1 / 1500,
}


@pytest.mark.parametrize("name", sorted(_VARIANCES))
def test_moments(name):
    """Sample mean and variance within five standard errors (kurtosis at most 3)."""
    draw = np.asarray(getattr(initializers, name)(jax.random.key(0), _SHAPE))
    variance, count = _VARIANCES[name], draw.size
    assert draw.shape == _SHAPE
    assert draw.dtype == np.float64
    assert abs(draw.mean()) < 5 * (variance / count) ** 0.5
    assert abs(draw.var() / variance - 1) < 5 * (2 / count) ** 0.5
    if not name.endswith("normal"):
        edge = (3 * variance) ** 0.5
        assert 0.999 * edge < np.abs(draw).max() <= edge


def test_gain_scales_the_variance():
    one = initializers.kaiming_normal(jax.random.key(0), (4, 5), gain=1.0)
    two = initializers.kaiming_normal(jax.random.key(0), (4, 5), gain=2.0)
    np.testing.assert_allclose(two, one * 2**0.5, rtol=1e-14)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal(shape):
    w = np.asarray(initializers.orthogonal(jax.random.key(0), shape))
    np.testing.assert_allclose(np.linalg.svd(w, compute_uv=False), 1.0, rtol=1e-13)


@settings(max_examples=30)
@given(
    widths=st.lists(st.sampled_from([3, 5, 8]), min_size=2, max_size=5),
    rank=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_balanced(widths, rank, seed):
    s = np.linspace(0.5, 1.5, rank)
    drawn = [np.asarray(w) for w in initializers.balanced(jax.random.key(seed), widths, s)]
    for before, after in pairwise(drawn):
        np.testing.assert_allclose(after.T @ after, before @ before.T, atol=1e-13)
    for w in drawn:
        np.testing.assert_allclose(np.linalg.svd(w, compute_uv=False)[:rank], s[::-1], rtol=1e-12)


def test_deeper_chains_share_their_first_layers():
    key = jax.random.key(3)
    short = initializers.chain(key, (5, 7, 7, 2), "kaiming_normal")
    long = initializers.chain(key, (5, 7, 7, 7, 2), "kaiming_normal")
    for a, b in zip(short[:2], long[:2], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("widths", "name", "options", "words"),
    [
        ((5,), "kaiming_normal", {}, "widths"),
        ((5, 0, 2), "kaiming_normal", {}, "at least 1"),
        ((5, 2), "xavier", {}, "xavier_"),
        ((5, 2), "balanced", {"singular_values": np.ones(3)}, "1 to 2"),
    ],
)
def test_bad_requests_are_refused(widths, name, options, words):
    with pytest.raises(ValueError, match=words):
        initializers.chain(jax.random.key(0), widths, name, **options)


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (300, 400)])
@pytest.mark.parametrize("seed", [0, 1])
def test_draws_are_those_of_jax_whatever_their_length(shape, seed):
    """The numbers of a longer draw, cut on the host, are the ones that the shape alone gives."""
    drawn = {"normal": initializers.kaiming_normal, "uniform": initializers.kaiming_uniform}
    for key in (jax.random.key(seed), jax.random.PRNGKey(seed), jax.random.key(seed, impl="rbg")):
        for law, draw in drawn.items():
            scaling = jax.nn.initializers.variance_scaling(2.0, "fan_in", law, -1, -2)
            expected = scaling(key, shape, jnp.float64)
            np.testing.assert_allclose(draw(key, shape), expected, rtol=1e-15)
            np.testing.assert_allclose(jax.jit(draw, static_argnums=1)(key, shape), expected, 1e-15)


def test_shapes_of_similar_size_share_a_compilation(caplog):
    jax.clear_caches()
    with jax.log_compiles(), caplog.at_level("DEBUG", logger="jax"):
        for columns in range(600, 1000, 50):
            initializers.kaiming_normal(jax.random.key(0), (1, columns))
    compiled = [r.getMessage() for r in caplog.records if "XLA compilation of" in r.getMessage()]
    assert sum("_normal" in message for message in compiled) == 1, compiled
