"""Maxima by comparison: values, derivatives at ties, and compiled derivatives behind LayerNorm."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.tree_util import Partial

import gnjax
from gnjax.networks import construct
from gnjax.networks.equations import beside, maxima
from gnjax.networks.equations.maxima import ByComparison, differentiates_maxima
from gnjax.networks.equations.rewritten import rewritten
from gnjax.operators.of_networks import function_hessian
from tests.references import jacobian

_RNG = np.random.default_rng(0)
_X = jnp.asarray(_RNG.standard_normal((4, 6)))


def _by_comparison(function):
    return lambda *args: ByComparison()(function, *args)


def _needs(function, *args):
    return differentiates_maxima(jax.make_jaxpr(function)(*args).jaxpr)


def _normalised(h, axes):
    mean = h.mean(axes, keepdims=True)
    return (h - mean) * jax.lax.rsqrt(((h - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


_FUNCTIONS = {
    "of two": lambda x: jnp.maximum(x, x[::-1]) - jnp.minimum(x, 0.2),
    "over an axis": lambda x: x.max(axis=1) - x.min(axis=1),
    "over both axes": lambda x: x.max() * x.min(),
    "relu6 by hand": lambda x: jnp.minimum(jnp.maximum(3 * x, 0.0), 1.0),
    "clip": lambda x: jnp.clip(x, -0.5, 0.5) * x,
    "celu": jax.nn.celu,
    "largest norm": lambda x: jnp.linalg.norm(x, ord=jnp.inf, axis=1),
    "scan": lambda x: jax.lax.scan(lambda h, row: (jnp.maximum(h, row), h), x[0], x)[0],
    "checkpoint": jax.checkpoint(lambda x: (x * x).max(axis=0)),
    "branch": lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x.max(0), lambda x: x.min(0), x),
    "call": lambda x: jax.jit(lambda x: (x**3).max(axis=1))(x),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_values_and_derivatives_are_those_of_single_operations(name):
    function = _FUNCTIONS[name]
    assert _needs(function, _X)
    found = _by_comparison(function)
    np.testing.assert_array_equal(found(_X), function(_X))
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(
            jax.jit(derivative(found))(_X), derivative(function)(_X), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize(
    "function",
    [
        jax.nn.softmax,
        jax.nn.log_softmax,
        jax.nn.relu,
        lambda x: jax.lax.stop_gradient(x.max()) * x,
        lambda x: x * jnp.maximum(jnp.arange(6), 3)[None],
        lambda x: x[:, x.max(axis=0).argmax()],
        jnp.tanh,
    ],
)
def test_what_is_not_differentiated_is_left_alone(function):
    assert not _needs(function, _X)
    given = str(jax.make_jaxpr(function)(_X))
    assert str(jax.make_jaxpr(_by_comparison(function))(_X)) == given


# XLA takes some subnormal numbers for zero, and a tie halves its numbers.
_NUMBERS = st.floats(width=64).filter(lambda number: not 0 < abs(number) < 1e-300)


@given(st.lists(_NUMBERS, min_size=1, max_size=9), st.booleans())
def test_every_number_has_the_maximum_and_minimum_of_numpy(numbers, pairs):
    x = jnp.asarray(numbers)
    if pairs:
        function = lambda x: (jnp.maximum(x, x[::-1]), jnp.minimum(x, x[::-1]))  # noqa: E731
    else:
        function = lambda x: (x.max(), x.min())  # noqa: E731
    for found, expected in zip(_by_comparison(function)(x), function(x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_tie_is_shared_as_jax_shares_it():
    found = jax.grad(_by_comparison(lambda x: jnp.maximum(x[0], x[1])))(jnp.ones(2))
    np.testing.assert_array_equal(found, [0.5, 0.5])
    assert jax.grad(_by_comparison(lambda x: jnp.maximum(x, 0.0)))(0.0) == 0.5


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]))
def test_ties_of_many_are_shared_as_jax_shares_them(seed, axes):
    """Of c entries that are equal to the maximum each has 1 / c of the derivative."""
    x = np.random.default_rng(seed).integers(0, 3, (3, 2, 5)) / 3
    for function in (lambda x: x.max(axis=axes), lambda x: x.min(axis=axes)):
        expected, pullback = jax.vjp(function, jnp.asarray(x))
        found, pullback_found = jax.vjp(_by_comparison(function), jnp.asarray(x))
        np.testing.assert_array_equal(found, expected)
        u = jnp.asarray(np.random.default_rng(seed).standard_normal(expected.shape))
        np.testing.assert_allclose(pullback_found(u)[0], pullback(u)[0], rtol=0, atol=1e-14)


def test_integers_and_empty_results_pass():
    function = lambda x: x * jnp.arange(6).max() + x.max()  # noqa: E731
    np.testing.assert_array_equal(_by_comparison(function)(_X), function(_X))
    nothing = lambda x: x[:, :0].max(axis=0).sum() + x.max()  # noqa: E731
    assert _by_comparison(nothing)(_X) == _X.max()


_POOLS = {
    "points": lambda h: h.max(axis=1),
    "maxout": lambda h: h.reshape(*h.shape[:-1], -1, 4).max(axis=-1).mean(axis=1),
    "pairs": lambda h: jnp.maximum(h[..., 0::2], h[..., 1::2]).mean(axis=1),
    "relu by hand": lambda h: jnp.maximum(h, 0).mean(axis=1),
}


def _model(pool, axes, samples, positions, features, width):
    rng = np.random.default_rng(1)

    def layer(inputs, outputs):
        w = rng.standard_normal((inputs, outputs)) / inputs**0.5
        return jnp.asarray(w), jnp.asarray(0.1 * rng.standard_normal(outputs))

    pooled = jax.eval_shape(pool, jax.ShapeDtypeStruct((1, positions, width), float)).shape[-1]
    params = [layer(features, width), layer(width, width), layer(pooled, 3)]

    def apply(params, x):
        for w, b in params[:-1]:
            x = _normalised(x @ w + b[None, None], axes)
        w, b = params[-1]
        return pool(x) @ w + b[None]

    return (apply, params), jnp.asarray(rng.standard_normal((samples, positions, features)))


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(-1,), (0, 1)], ids=["LayerNorm", "BatchNorm"])
@pytest.mark.parametrize("pool", _POOLS)
def test_kernels_of_networks_with_maxima_are_those_of_single_operations(pool, axes):
    """Compiled, JAX's own derivative is wrong by up to 20% in some of these."""
    (apply, params), x = _model(_POOLS[pool], axes, 12, 33, 4, 48)
    units = np.eye(3 * len(x))
    with jax.disable_jit():
        _, pullback = jax.vjp(lambda params: apply(params, x).ravel(), params)
        rows = np.concatenate(
            [
                leaf.reshape(len(units), -1)
                for leaf in jax.tree.leaves(jax.vmap(pullback)(units)[0])
            ],
            axis=1,
        )
    expected = rows @ rows.T
    op = gnjax.ntk((apply, params), x, side="outputs")
    scale = np.abs(expected).max()
    np.testing.assert_allclose(op.as_matrix(), expected, rtol=0, atol=1e-11 * scale)
    np.testing.assert_allclose(op @ units, expected, rtol=0, atol=1e-11 * scale)


def test_a_loss_with_a_maximum():
    """The hinge loss max(0, 1 - y f) ^ 2 has the output Hessian 2 where it is not zero."""
    model = gnjax.models.MLP((3, 4, 1), activation="tanh", key=jax.random.key(0))
    x, y = _X[:, :3], jnp.sign(_X[:, :1])
    op = gnjax.gauss_newton(model, x, loss=lambda f, y: jnp.maximum(0.0, 1 - f * y).sum() ** 2, y=y)
    apply, params = gnjax.functional(model)
    rows = jacobian(apply, params, x)
    active = (1 - apply(params, x) * y > 0).ravel()
    expected = 2 * rows[active].T @ rows[active] / len(x)
    np.testing.assert_allclose(op.as_matrix(), expected, rtol=0, atol=1e-13)


def test_the_hessian_of_a_function_with_maxima():
    w = jnp.asarray(_RNG.standard_normal(6))
    op = gnjax.hessian_of(lambda w: (jnp.maximum(w, w[::-1]) ** 3).sum(), w)
    with jax.disable_jit():
        expected = jax.hessian(lambda w: (jnp.maximum(w, w[::-1]) ** 3).sum())(w)
    np.testing.assert_allclose(op.as_matrix(), expected, rtol=0, atol=1e-13)
    value = partial(op.objective, op.net.x, None)
    assert "max" not in str(jax.make_jaxpr(value)(list(op.net.leaves)))


def _in_a_scan():
    def step(h, w):
        return jnp.maximum(h @ w, 0.0), None

    return (lambda w, x: jax.lax.scan(step, x, w)[0]), jnp.ones((2, 3, 3))


_OPERATORS = {
    "the model": lambda: gnjax.ntk(
        ((lambda w, x: jnp.maximum(x @ w, 0.0)), jnp.eye(3)), jnp.ones((2, 3))
    ),
    "the model, over an axis": lambda: gnjax.gauss_newton(
        ((lambda w, x: (x @ w).max(axis=1)), jnp.ones((3, 4))), jnp.ones((2, 3))
    ),
    "the model, in a scan": lambda: gnjax.ntk(_in_a_scan(), jnp.ones((2, 3))),
    "the model, of whole batches": lambda: gnjax.ntk(
        ((lambda w, x: jnp.maximum(x @ w, 0.0) + jnp.ones((2, 1))), jnp.eye(3)), jnp.ones((2, 3))
    ),
    "the loss": lambda: gnjax.gauss_newton(
        ((lambda w, x: x @ w), jnp.eye(3)),
        jnp.ones((2, 3)),
        loss=lambda f: (jnp.maximum(f, 0.0) + f**2).sum(),
    ),
    "loss_fn": lambda: gnjax.hessian_of(lambda w: (jnp.maximum(w, 0) ** 2 + w).sum(), jnp.ones(4)),
}
_WRONG = {
    "outputs": lambda value: value + jax.lax.stop_gradient(1e-3 + 0 * value),
    "derivatives": lambda value: value + 1e-3 * (value - jax.lax.stop_gradient(value)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _OPERATORS)
@pytest.mark.parametrize("what", _WRONG)
def test_a_wrong_rule_is_refused_with_the_name_of_its_function(name, what, monkeypatch):
    _OPERATORS[name]()
    further, better = maxima._further, maxima._better

    def better_wrongly(*args):
        value, count = better(*args)
        return _WRONG[what](value), count

    monkeypatch.setattr(maxima, "_further", lambda *args: _WRONG[what](further(*args)))
    monkeypatch.setattr(maxima, "_better", better_wrongly)
    # without what was found for these shapes before
    for module in (construct, function_hessian):
        monkeypatch.setattr(module, "compare_maxima", beside.compare_maxima.__wrapped__)
    words = f"the {what} of {name.split(',')[0]} with its maxima .* please report it"
    with pytest.raises(ValueError, match=words):
        _OPERATORS[name]()


def test_a_network_without_maxima_is_not_evaluated_once_more(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(beside, "_derivative_by_steps", fail)
    gnjax.ntk(gnjax.models.MLP((3, 4, 2), activation="relu", key=jax.random.key(0)), _X[:, :3])


@pytest.mark.slow
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_operation_by_operation_no_right_rule_is_refused(name):
    beside.compare_by_steps(name, _FUNCTIONS[name], _X)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [(-1,), (0, 1)], ids=["LayerNorm", "BatchNorm"])
@pytest.mark.parametrize("pool", _POOLS)
def test_networks_whose_compiled_derivative_is_wrong_are_not_refused(pool, axes):
    (apply, params), x = _model(_POOLS[pool], axes, 12, 33, 4, 48)
    found, _ = rewritten(Partial(apply), params, x)
    beside.compare_maxima("the model", found, params, x)
