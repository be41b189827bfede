"""A function that was written down again is the same function, unless what it reads has changed."""

from __future__ import annotations

import functools
import types

import flax.linen
import haiku
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from gnjax.networks.arguments.same_function import compared

SCALE = 2.0


def network(p, x):
    return jnp.tanh(x @ p["w"]) * SCALE


def around(function, *read):
    return lambda p, x: (function(p, x), read)[0]


def counting(function):
    """A function that counts its calls in a list, as one that looks for evaluations does."""
    calls = []

    def called(p, x):
        calls.append(len(x))
        return function(p, x)

    return called


def numbered(function):
    """A function that counts its calls in a variable outside of itself."""
    calls = 0

    def called(p, x):
        nonlocal calls
        calls += 1
        return function(p, x)

    return called


def counted(function):
    """A function that counts its calls in an attribute of itself."""

    @functools.wraps(function)
    def called(p, x):
        called.calls += 1
        return function(p, x)

    called.calls = 0
    return called


def with_attribute(value):
    """A function that reads an attribute of itself, which is ``value``."""

    def scaled(p, x):
        return x @ p * scaled.scale

    scaled.scale = value
    return scaled


def with_helper(value):
    """A function that reads an attribute of another function, which is ``value``."""

    def helper(x):
        return x

    helper.scale = value
    return lambda p, x: helper(x @ p) * helper.scale


def with_partial(value):
    """A function that reads an attribute of a partial function, which is ``value``."""
    helper = functools.partial(jnp.multiply, 1.0)
    helper.scale = value
    return lambda p, x: helper(x @ p) * helper.scale


WITH_ATTRIBUTE = [with_attribute, with_helper, with_partial]


def wrapped(function):
    """The function behind one that carries its name, and the function itself, as attributes."""

    @functools.wraps(function)
    def outer(p, x):
        return function(p, x)

    return outer


class Linear:
    def __call__(self, p, x):
        return x @ p


ARRAY = jnp.ones(3)
LINEN = flax.linen.Dense(3)
JITTED = jax.jit(network)
PAIRS = {
    "a lambda around a function": (lambda: around(network), True),
    "numbers": (lambda: around(network, 1, 2.0, "three"), True),
    "a NumPy array": (lambda: around(network, np.arange(3.0)), True),
    "the same JAX array": (lambda: around(network, ARRAY), True),
    "another JAX array": (lambda: around(network, jnp.ones(3)), False),
    "a Linen module": (lambda: around(LINEN.apply), True),
    "functions of JAX": (lambda: around(lambda p, x: jax.nn.relu(x @ p)), True),
    "a jitted function": (lambda: around(JITTED), True),
    "a function jitted again": (lambda: around(jax.jit(network)), False),
    "partial": (lambda: functools.partial(around(network), 1.0), True),
    "an object of a class of Flax": (lambda: around(nnx.Linear(2, 2, rngs=nnx.Rngs(0))), False),
    "a method of an object": (lambda: around([].append), False),
    "an object of a class": (lambda: around(Linear()), False),
    "a module of the caller's": (lambda: around(network, types.ModuleType("mine")), False),
    "a list": (lambda: around(network, [1]), False),
    "a dictionary": (lambda: around(network, {"width": 3}), False),
    "a function that sets a variable": (lambda: numbered(network), False),
    "an attribute": (lambda: with_attribute(2.0), True),
    "an attribute of another function": (lambda: with_helper(2.0), True),
    "an attribute of a partial function": (lambda: with_partial(2.0), True),
    "an attribute that may change unseen": (lambda: with_attribute([2.0]), False),
    "a wrapped function": (lambda: wrapped(with_attribute(2.0)), True),
    "a function that sets an attribute": (lambda: counted(network), False),
    "variables by a text": (lambda: lambda p, x: x @ p * globals()["SCALE"], False),
    "code in a text": (lambda: lambda p, x: eval("x @ p * SCALE"), False),
    "a large NumPy array": (lambda: around(network, np.zeros(2_000_000)), False),
}


@pytest.mark.parametrize("case", PAIRS)
def test_functions_are_the_same_where_all_they_read_is(case):
    make, alike = PAIRS[case]
    first, second = compared(make()), compared(make())
    assert (first == second) == alike
    assert not alike or hash(first) == hash(second)


DIFFERENT = {
    "numbers of another type": (1, 1.0),
    "signed zeros": (0.0, -0.0),
    "numbers": (1, 2),
    "entries of a tuple": ((1, 2), (1, 3)),
    "entries of a NumPy array": (np.zeros(2), np.ones(2)),
    "another function": (jnp.tanh, jnp.sin),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_enclosed_counts(case):
    first, second = (compared(around(network, value)) for value in DIFFERENT[case])
    assert first != second


def test_a_default_counts():
    first, second = (compared(lambda p, x, scale=scale: p * x * scale) for scale in (1.0, 2.0))
    assert first != second


@pytest.mark.parametrize("make", WITH_ATTRIBUTE)
def test_the_eigenvalue_is_that_of_the_attribute(make):
    """With W = 1 and the samples e_1, e_2, e_3 the Gauss-Newton matrix is scale^2 I / 3."""
    for scale in (1.0, 2.0, 3.0):
        op = gnjax.gauss_newton((make(scale), jnp.ones((3, 1))), np.eye(3))
        np.testing.assert_allclose(gnjax.eigenvalues(op).values, scale**2 / 3, rtol=1e-12)


def test_an_attribute_that_changed_counts():
    function = with_attribute(1.0)
    before = compared(wrapped(function))
    function.scale = 2.0
    assert compared(wrapped(function)) != before


def test_a_global_that_changed_counts_also_behind_another_function(monkeypatch):
    before = compared(around(network))
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert compared(around(network)) != before


@pytest.mark.parametrize("counter", [counting, numbered, counted])
def test_a_model_may_count_its_own_calls(counter):
    op = gnjax.ntk((counter(network), {"w": np.ones((3, 7))}), np.ones((2, 3)))
    np.testing.assert_allclose(op.as_matrix() @ np.ones(14), op.mv(np.ones(14)), rtol=1e-12)


def test_a_function_that_imports_is_known_by_identity():
    def make():
        def function(p, x):
            import math

            return p * x * math.pi

        return function

    assert compared(make()) != compared(make())


def test_a_function_that_calls_itself():
    def make():
        def power(p, x, n=3):
            return x if n == 0 else p * power(p, x, n - 1)

        return power

    assert compared(make()) == compared(make())


def test_kappa_follows_a_global_that_changed(monkeypatch):
    """The answer with the new global is that of a process that never saw the old one."""
    params = {"w": np.random.default_rng(0).standard_normal((3, 2))}
    x = np.random.default_rng(1).standard_normal((4, 3))

    def trace():
        op = gnjax.ntk((around(network), params), x)
        return float(np.trace(np.asarray(op.as_matrix())))

    before = trace()
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert trace() == pytest.approx(4 * before, rel=1e-12)


SETTINGS = {"scale": 1.0}


class Scaled:
    """A model, or a loss, with a factor that somebody may set anew."""

    scale = 1.0

    def __call__(self, p, x):
        return x @ p * self.scale

    def method(self, p, x):
        return x @ p * self.scale

    def loss(self, f, y):
        return self.scale**2 * jnp.square(f - y).sum() / 2


def _of_dictionary(p, x):
    return x @ p * SETTINGS["scale"]


def _of_relu(p, x):
    return jax.nn.relu(x @ p) * SETTINGS["scale"]


class ScaledNnx(nnx.Module):
    """A module that reads a setting from outside."""

    def __init__(self):
        self.w = nnx.Param(jnp.ones((3, 1)))

    def __call__(self, x):
        return x @ self.w[...] * SETTINGS["scale"]


class ScaledLinen(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x):
        w = self.param("w", flax.linen.initializers.ones, (3, 1))
        return x @ w * SETTINGS["scale"]


def _scaled_haiku():
    def model(x):
        return x @ haiku.get_parameter("w", (3, 1), init=jnp.ones) * SETTINGS["scale"]

    transformed = haiku.without_apply_rng(haiku.transform(model))
    return transformed, transformed.init(jax.random.key(0), jnp.eye(3))


@jax.custom_jvp
def _surrogate(h):
    """h, with the derivative that a setting says."""
    return h


_surrogate.defjvp(lambda primals, tangents: (primals[0], tangents[0] * SETTINGS["scale"]))


_OBJECT, _NNX, _LINEN = Scaled(), ScaledNnx(), (ScaledLinen(), {"params": {"w": jnp.ones((3, 1))}})
_HAIKU = _scaled_haiku()
_EYE, _W, _Y = np.eye(3), np.ones((3, 1)), np.zeros((3, 1))
CHANGING = {
    "a model that reads a dictionary": lambda: gnjax.gauss_newton((_of_dictionary, _W), _EYE),
    "one with a rule of its own inside": lambda: gnjax.gauss_newton((_of_relu, _W), _EYE),
    "a derivative rule": lambda: gnjax.gauss_newton((lambda p, x: _surrogate(x @ p), _W), _EYE),
    "an object": lambda: gnjax.gauss_newton((_OBJECT, _W), _EYE),
    "a method": lambda: gnjax.gauss_newton((_OBJECT.method, _W), _EYE),
    "an NNX module": lambda: gnjax.gauss_newton(_NNX, _EYE),
    "a Linen module": lambda: gnjax.gauss_newton(_LINEN, _EYE),
    "a function of Haiku": lambda: gnjax.gauss_newton(_HAIKU, _EYE),
    "with keywords": lambda: gnjax.gauss_newton(
        gnjax.functional((lambda p, x, shift: _OBJECT(p, x) + shift, _W), shift=1.0), _EYE
    ),
    "with extras": lambda: gnjax.gauss_newton(
        (lambda p, x: (_OBJECT(p, x), None), _W), _EYE, has_aux=True
    ),
    "after functional": lambda: gnjax.gauss_newton(gnjax.functional((_OBJECT, _W)), _EYE),
    "a loss": lambda: gnjax.gauss_newton((lambda p, x: x @ p, _W), _EYE, _Y, loss=_OBJECT.loss),
    "a loss of a Hessian": lambda: gnjax.hessian(
        (lambda p, x: x @ p, _W), _EYE, _Y, loss=_OBJECT.loss
    ),
    "a function": lambda: gnjax.hessian_of(lambda p: _OBJECT.loss(_EYE @ p, 0.0) / 3, _W),
    "a function of a module": lambda: gnjax.hessian_of(
        lambda module: jnp.square(module(_EYE)).sum() / 6, _NNX
    ),
}  # of each the matrix is scale^2 I / 3


@pytest.mark.parametrize("case", CHANGING)
def test_eigenvalues_follow_what_changes_unseen(case, monkeypatch):
    """Class: a program of yesterday's numbers, as of a trunk in a dictionary that is trained on."""
    for scale in (1.0, 3.0, 1.0, 2.0):
        monkeypatch.setattr(_OBJECT, "scale", scale)
        monkeypatch.setitem(SETTINGS, "scale", scale)
        values = gnjax.eigenvalues(CHANGING[case]()).values
        np.testing.assert_allclose(values, scale**2 / 3, rtol=1e-12)


@pytest.mark.parametrize("case", CHANGING)
def test_what_changes_unseen_under_an_operator_is_refused(case, monkeypatch):
    op = CHANGING[case]()
    monkeypatch.setattr(_OBJECT, "scale", 7.0)
    monkeypatch.setitem(SETTINGS, "scale", 7.0)
    with pytest.raises(ValueError, match="has changed since the operator was made"):
        gnjax.linearised(op).mv(np.ones(3))


@pytest.mark.parametrize("read", [_OBJECT.loss, lambda f, y: _OBJECT.loss(f, y)])
def test_a_monitor_follows_what_changes_unseen(read, monkeypatch):
    """In the model, whose outputs are scaled, or in the loss."""
    for model, loss in (
        ((_OBJECT, _W), "squared_error"),
        (_NNX, "squared_error"),
        ((lambda p, x: x @ p, _W), read),
    ):
        monitor = gnjax.Monitor(_EYE, _Y, loss=loss)
        for step, scale in enumerate((1.0, 1.0, 3.0, 2.0)):
            monkeypatch.setattr(_OBJECT, "scale", scale)
            monkeypatch.setitem(SETTINGS, "scale", scale)
            row = monitor(step, model)
            np.testing.assert_allclose(row.sharpness, scale**2 / 3, rtol=1e-9)


def test_the_constants_of_equations_count():
    """Arrays that a jaxpr's text does not show, at its top and inside of a branch."""
    arrays = [np.zeros(3)]

    def model(p, x):
        return jax.lax.cond(x.sum() > 0, lambda f: f + arrays[0][None], lambda f: f, x @ p)

    args = np.ones((2, 3)), np.ones((4, 2))
    before = compared(model, *args)
    assert compared(model, *args) == before
    arrays[0] = np.ones(3)
    assert compared(model, *args) != before


def test_a_global_that_changes_under_an_operator_is_refused(monkeypatch):
    """Else the program of the new global would serve later operators of the old one."""
    op = gnjax.ntk((around(network), {"w": np.ones((3, 7))}), np.ones((2, 3)))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    with pytest.raises(ValueError, match="has changed since the operator was made"):
        op.mv(np.ones(14))
