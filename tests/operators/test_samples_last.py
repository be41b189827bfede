"""Linear maps with the samples last: the same maps, with nothing left to be transposed."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks import jaxprs
from gnjax.networks.equations.samples_last import with_samples_last
from gnjax.operators.of_networks.linearised import linearised

_N = 70  # samples: enough to be worth turning


def _tanh(w, x):
    return jnp.tanh(x @ w["a"] + w["b"]) @ w["c"]


def _normalised(w, x):
    """Means over features and over the batch, a gate by sample, a feature taken out."""
    h = x @ w["a"]
    h = (h - h.mean(1, keepdims=True)) / jnp.sqrt(1 + h.var(1, keepdims=True))
    h = h * jax.nn.sigmoid(h[:, :1]) + h.mean(0, keepdims=True)
    return jnp.concatenate([jax.nn.softmax(h) @ w["c"], h[:, 1:2] ** 2], axis=1)


def _transposed(w, x):
    """Kernels of samples, written with their transposes."""
    h = jnp.tanh((w["a"].T @ x.T).T + w["b"])
    return (h @ (h.T @ h) / len(x)) @ w["c"]


def _reshaped(w, x):
    h = jnp.tanh(x @ w["a"] + w["b"]).reshape(len(x), 2, -1)
    return jnp.einsum("nij,njk->nik", h, jnp.swapaxes(h, 1, 2)).reshape(len(x), -1)[:, :3]


def _network(apply, samples, features=4, hidden=6):
    rng = np.random.default_rng(samples)
    shapes = {"a": (features, hidden), "b": (1, hidden), "c": (hidden, 3)}
    w = {name: jax.device_put(rng.standard_normal(shape)) for name, shape in shapes.items()}
    return (apply, w), rng.standard_normal((samples, features)), rng.integers(0, 3, samples)


def _gap(op, columns):
    """Between products of the linearised operator and the operator's own, which are dense ones'."""
    v = np.random.default_rng(1).standard_normal((op.shape[0], columns))
    whole, first = map(jax.device_put, (v, v[:, 0]))
    expected = np.asarray(op.mv(whole))
    kept = linearised(op)
    gaps = [np.asarray(kept.mv(whole)) - expected, np.asarray(kept.mv(first)) - expected[:, 0]]
    return max(np.abs(gap).max() for gap in gaps) / np.abs(expected).max()


@pytest.mark.parametrize(
    ("apply", "samples"),
    [(_tanh, 63), (_tanh, 64), (_normalised, 64), (_transposed, 64), (_reshaped, 64)],
)
def test_products_are_those_of_the_hessian(apply, samples):
    model, x, _ = _network(apply, samples)
    targets = np.zeros((samples, 3 + (apply is _normalised)))
    assert _gap(gnjax.hessian(model, x, targets), 3) < 1e-12


@pytest.mark.parametrize(("features", "hidden"), [(_N, 6), (_N, _N)])
def test_weights_as_many_as_samples_are_no_samples(features, hidden):
    """What is turned is only a choice: a weight matrix with a row a sample may be, too."""
    model, x, y = _network(_tanh, _N, features, hidden)
    assert _gap(gnjax.hessian(model, x, y, loss="cross_entropy"), 2) < 1e-12


def test_samples_are_last_and_no_factor_is_left_to_be_transposed():
    """Every product is of rows with columns or of rows with rows, in float64."""
    model, x, y = _network(_tanh, _N, features=65, hidden=66)
    op = gnjax.hessian(model, x, y, loss="cross_entropy")
    linear = linearised(op).maps[0].linear
    matrices = [leaf.shape for leaf in jax.tree.leaves(linear) if leaf.ndim == 2]
    assert (65, _N) in matrices
    assert not [shape for shape in matrices if shape[0] == _N]
    closed = jaxprs.inlined(linear, jnp.zeros(op.shape[0]))
    dots = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert len(dots) == 8
    for eqn in dots:
        assert eqn.params["dimension_numbers"][0][0] == (1,)
    produced = [v.aval for eqn in closed.jaxpr.eqns for v in eqn.outvars]
    assert not [aval for aval in produced if aval.ndim == 2 and aval.shape[0] == _N]


def _step(kind, z, random):
    """What the rules know, and what they do not, on a matrix z of any shape."""
    n, f = z.shape
    if kind == "left":
        return random(_N, n) @ z
    if kind == "across":
        return jax.lax.dot_general(z, random(n, 3), (((0,), (0,)), ((), ())))
    if kind == "sums":
        return z * random(n, f) - random(1, f) * z.sum(1, keepdims=True)
    if kind == "transpose":
        return z.T
    if kind == "select":
        return jnp.where(random(n, f) > 0, z, -z) + z.mean(0)[None]
    if kind == "slices":
        return jnp.concatenate([z, 2 * z[:, ::-1]], axis=1)
    return jnp.broadcast_to(z[:, 0][:, None], (n, 4)) + z.sum()


_KINDS = ["left", "across", "sums", "transpose", "select", "slices", "columns"]
_SIZES = st.integers(1, 5) | st.just(_N)


@hypothesis.given(_SIZES, _SIZES, st.lists(st.sampled_from(_KINDS), max_size=6))
@hypothesis.settings(max_examples=25)
def test_random_linear_maps(rows, columns, kinds):
    def linear(v):
        z, rng = v.reshape(rows, columns), np.random.default_rng(len(kinds))
        for kind in kinds:
            z = _step(kind, z, lambda *shape: jnp.asarray(rng.standard_normal(shape)))
        return jnp.concatenate([z.reshape(-1), z.sum(0)])

    v = jax.device_put(np.random.default_rng(0).standard_normal(rows * columns))
    expected, found = jax.jit(lambda m, v: (linear(v), m(v)))(with_samples_last(linear, v, _N), v)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * (1 + np.abs(expected).max()))
