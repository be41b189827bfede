"""Proofs that a function is affine, and refusals where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.models import CNN, MLP, LinearCNN, LinearNet, freeze_statistics
from gnjax.networks.model import functional
from gnjax.papers.closed_form.affine import is_affine, what_bends

_RNG = np.random.default_rng(0)
_W = jax.device_put(_RNG.standard_normal((4, 4)))
_X = jax.device_put(_RNG.standard_normal((3, 4)))


def _scanned(body):
    return lambda x: jax.lax.scan(lambda c, w: (body(c, w), c[0]), x, jnp.stack([_W, _W + 1]))[0]


@jax.custom_jvp
def _own_rule(x):
    return 3 * x


_own_rule.defjvp(lambda primals, tangents: (3 * primals[0], 3 * tangents[0]))

AFFINE = {
    "sum": lambda x: x @ _W + 1 - x[:, ::-1],
    "quotient": lambda x: (-x / 3 + jnp.tanh(_W)[0][None]).sum(axis=0),
    "gather": lambda x: x[jnp.array([2, 0, 0]), 1],
    "update": lambda x: jnp.zeros((5, 4)).at[1:4].add(x).at[0].set(2 * x[0]),
    "dynamic slice": lambda x: jax.lax.dynamic_slice(x, (1, 0), (1, 4)),
    "chosen by a constant": lambda x: jnp.where(_W[:3] > 0, x, 2 * x),
    "both branches equal": lambda x: jnp.where(x > 0, x, 1.0 * x),
    "leaky relu with slope 1": lambda x: jax.nn.leaky_relu(x, 1.0),
    "cumulated and padded": lambda x: jnp.pad(jnp.cumsum(x, axis=1), 1),
    "float32 inside": lambda x: (x.astype(jnp.float32) @ _W.astype(jnp.float32)).astype(x.dtype),
    "mean pool": lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2), (1, 2), "VALID"),
    "calls": lambda x: jax.checkpoint(jax.jit(_own_rule))(x).T.reshape(2, 6),
    "scan": _scanned(lambda c, w: c @ w),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c @ _W + i, x),
    "branch": lambda x: jax.lax.cond(_W[0, 0] > 0, lambda y: y, lambda y: 2 * y, x),
    "constant": lambda x: jnp.exp(_W),
}
BENT = {
    "product": lambda x: x * x,
    "matrix product": lambda x: x @ x.T,
    "division by": lambda x: 1 / x,
    "relu": jax.nn.relu,
    "relu far from its kink": lambda x: jax.nn.relu(x + 1e9) - 1e9,
    "leaky relu": lambda x: jax.nn.leaky_relu(x, 0.5),
    "chosen by x": lambda x: jnp.where(x > 0, x, 2 * x),
    "rounded": lambda x: jnp.round(x),
    "integer": lambda x: x.astype(int),
    "indexed by x": lambda x: _W[x[0].astype(int)],
    "branch by x": lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: y, lambda y: 2 * y, x),
    "scan": _scanned(lambda c, w: c @ w * c),
    "loop that bends late": lambda x: jax.lax.fori_loop(
        0, 3, lambda i, c: (c[1], c[2], c[0] * c[0]), (x, x, x)
    )[0],
    "loop that x ends": lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c + 1, x),
    "softmax": jax.nn.softmax,
    "maximum": lambda x: x.max(axis=1),
    "own rule": jax.jit(lambda x: jax.checkpoint(jax.nn.silu)(x)),
    "power": lambda x: x**2,
}


@pytest.mark.parametrize("name", AFFINE)
def test_affine_functions_are_proved(name):
    """F(u + v) + F(0) = F(u) + F(v) holds as well, so that the list itself is checked."""
    f = AFFINE[name]
    assert is_affine(f, _X)
    u, v = _X, _RNG.standard_normal(_X.shape)
    sides = jax.jit(lambda u, v: (f(u + v) + f(jnp.zeros_like(u)), f(u) + f(v)))
    left, right = sides(u, v)
    rtol = 1e-5 if name == "float32 inside" else 1e-12
    np.testing.assert_allclose(left, right, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", BENT)
def test_other_functions_are_not(name):
    assert not is_affine(BENT[name], _X)


def test_every_output_counts_and_the_operation_is_named():
    assert what_bends(lambda x: (x + 1, jnp.exp(x)), _X) == "exp"
    assert what_bends(lambda x: {"a": x, "b": _W}, _X) == ""
    assert is_affine(lambda pair: pair[0] @ _W + pair[1], (_X, _X))
    assert not is_affine(lambda pair: pair[0] * pair[1], (_X, _X))


def _models():
    key, images = jax.random.key(1), jax.device_put(_RNG.standard_normal((3, 8, 8, 3)))
    options = {"key": key}
    normed = MLP((4, 5, 2), activation="linear", norm="batch", **options)
    yield "mlp", MLP((4, 5, 2), activation="linear", **options), _X, True
    yield "slope 1", MLP((4, 5, 2), activation="leaky_relu", slope=1.0, **options), _X, True
    yield "frozen batch norm", freeze_statistics(normed, _X), _X, True
    yield "residual", LinearNet(4, 2, depth=3, width=4, skip=0.5, key=key), _X, True
    cnn = LinearCNN(12, 3, filters=2, kernel=4, stride=2, key=key)
    yield "linear cnn", cnn, jax.device_put(_RNG.standard_normal((3, 12))), True
    yield "cnn", CNN((8, 8, 3), 2, filters=(3,), activation="linear", **options), images, True
    yield "batch norm of the batch", normed, _X, False
    yield "layer norm", MLP((4, 5, 2), activation="linear", norm="layer", **options), _X, False
    yield "relu", MLP((4, 5, 2), **options), _X, False


@pytest.mark.parametrize(
    ("name", "model", "x", "expected"), list(_models()), ids=lambda v: str(v)[:25]
)
def test_models(name, model, x, expected):
    if name == "batch norm of the batch":
        model.train()
    apply, params = functional(model)
    assert is_affine(lambda inputs: apply(params, inputs), x) == expected
