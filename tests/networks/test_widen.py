"""Float32 written into a model is computed in float64; bfloat16 stays and is certified as such."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.equations.widen import Widened, traced

X = jax.device_put(np.random.default_rng(0).standard_normal((3, 4)))


def _scanned(x):
    return jax.lax.scan(lambda c, a: (jnp.tanh(c + a), 2 * c), jnp.zeros(4, x.dtype), x)[1]


def _normed(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-6)


def _dropped(x):
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), 2 * x, 0)


@jax.custom_vjp
def _own(z):
    return jnp.tanh(z)


_own.defvjp(lambda z: (jnp.tanh(z), z), lambda z, g: (3 * g * (1 - jnp.tanh(z) ** 2),))

FUNCTIONS = {
    "relu at zero": lambda x: jax.nn.relu(x - x[:1, :1]),
    "softmax": jax.nn.softmax,
    "gelu": jax.nn.gelu,
    "norm": _normed,
    "scale": lambda x: x / jnp.sqrt(5).astype(x.dtype),
    "scan": _scanned,
    "remat": jax.checkpoint(lambda x: jnp.sin(x) * x),
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "while": lambda x: (
        jax.lax.stop_gradient(jax.lax.while_loop(lambda a: a.sum() < 9, lambda a: a + 1, x)) * x
    ),
    "scatter": lambda x: jnp.zeros_like(x).at[jnp.array([0, 0, 1])].add(x),
    "dropout": _dropped,
    "fft": lambda x: jnp.abs(jnp.fft.fft(x)) ** 2,
    "own reverse mode": _own,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_in_float32_and_its_derivative_are_those_in_float64(name):
    """A rule of its own is kept; the reverse mode of "own" is three times the derivative."""
    plain = FUNCTIONS[name]

    def single(x):
        return plain(x.astype(jnp.float32)).astype(x.dtype)

    _, shape, wider = traced(single, X)
    assert isinstance(wider, Widened)
    assert shape.dtype == jnp.float64

    def found(x):
        return wider(single, x)

    @jax.jit
    def computed(x):
        return found(x), plain(x), jax.jacrev(found)(x), jax.jacrev(plain)(x)

    value, expected, rows, exact = computed(X)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(rows, exact, rtol=0, atol=1e-13)
    if name != "own reverse mode":
        np.testing.assert_allclose(jax.jit(jax.jacfwd(found))(X), exact, rtol=0, atol=1e-13)


def test_functions_without_float32_are_left_alone():
    assert traced(jax.nn.softmax, X)[2] is None


class Layers(nn.Module):
    dtype: object

    @nn.compact
    def __call__(self, x):
        h = nn.gelu(nn.LayerNorm(dtype=self.dtype)(nn.Dense(5, dtype=self.dtype)(x)))
        return nn.Dense(2, dtype=self.dtype)(h)


@pytest.mark.parametrize("call", [gnjax.gauss_newton, gnjax.hessian])
def test_bfloat16_is_computed_and_certified_and_float32_is_not(call):
    variables = jax.jit(Layers(jnp.float64).init)(jax.random.key(0), X)
    y = np.ones((3, 2))
    exact, single, half = (
        call((Layers(dtype), variables), X, y=y)
        for dtype in (jnp.float64, jnp.float32, jnp.bfloat16)
    )
    g = np.asarray(exact.as_matrix())
    size = float(np.linalg.norm(g, 2))
    np.testing.assert_allclose(single.as_matrix(), g, rtol=0, atol=1e-13 * size)
    assert single.error(size).value < 1e-11 * size
    gap = np.linalg.norm(half.as_matrix() - g, 2)
    assert 1e-5 * size < gap < half.error(size).value < size


def _spaced(dtype):
    return jnp.linspace(0.1, 0.7, 2, dtype=dtype)[None]


def _length(z):
    return z / jnp.sqrt(jnp.square(z).sum(1)[:, None] + 1e-3)


GRID = np.linspace(-2, 2, 7, dtype=np.float32)  # as a network of splines keeps its knots
SINGLE = {
    "a cast": lambda p, x: jnp.tanh((x @ p).astype(jnp.float32)),
    "a grid": lambda p, x: jnp.tanh(jnp.float32(x @ p) - jnp.asarray(GRID)[None, :2]) ** 2,
    "a grid that is made": lambda p, x: jnp.sin(
        x @ p * jnp.linspace(0.1, 0.7, 2, dtype="f4")[None]
    ),
    "a constant": lambda p, x: _length(jnp.float32(x @ p)),
}
DOUBLE = {
    "a cast": lambda p, x: jnp.tanh(x @ p),
    "a grid": lambda p, x: jnp.tanh(x @ p - GRID.astype(float)[None, :2]) ** 2,
    "a grid that is made": lambda p, x: jnp.sin(x @ p * _spaced("f8")),
    "a constant": lambda p, x: _length(x @ p),
}
MATRICES = {
    "gauss_newton": lambda model: gnjax.gauss_newton(model, X, side="outputs"),
    "side": lambda model: gnjax.gauss_newton(model, X, side="parameters"),
    "ntk": lambda model: gnjax.ntk(model, X),
    "hessian": lambda model: gnjax.hessian(model, X, np.zeros((3, 2))),
    "own loss": lambda model: gnjax.gauss_newton(model, X, loss=lambda f: jnp.cosh(f).sum()),
}


@pytest.mark.parametrize(
    ("name", "matrix"),
    [*((name, "gauss_newton") for name in SINGLE), *(("a constant", m) for m in MATRICES)],
)
def test_an_answer_is_about_the_model_in_float64_and_says_so(name, matrix):
    """The class: float32 inside, and an answer that is neither the model's own nor a named one."""
    p = np.random.default_rng(4).standard_normal((4, 2))
    op, plain = (MATRICES[matrix]((models[name], p)) for models in (SINGLE, DOUBLE))
    spectrum, expected = gnjax.eigenvalues(op), gnjax.eigenvalues(plain)
    errors = spectrum.errors + expected.errors
    assert (np.abs(spectrum.values - expected.values) <= errors).all()
    words = "float32 inside of the network is computed in float64"
    assert words in str(spectrum.certificate)
    assert words not in str(expected.certificate)
    assert "float32 inside computed in float64" in repr(op)
    assert "float32" not in repr(plain)
