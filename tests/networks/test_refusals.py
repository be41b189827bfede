"""The class: a refusal names what is at fault, and is not JAX's own error or a sentence about x."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax

W, X, Y = np.ones((3, 2)), np.ones((4, 3)), np.ones((4, 2))


def _dense(p, x):
    return x @ p


def _with_rule(backward):
    """tanh with a reverse rule (x, g) of its own."""

    @jax.custom_vjp
    def function(x):
        return jnp.tanh(x)

    function.defvjp(lambda x: (jnp.tanh(x), x), lambda x, g: (backward(x, g),))
    return function


def _on_host(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(np.cos, shape, x, vmap_method="sequential")


NOT_LINEAR = {
    "clipped": _with_rule(lambda x, g: jnp.clip(g, -1, 1)),
    "divided by its length": _with_rule(lambda x, g: g / jnp.linalg.norm(g)),
    "chosen by its size": _with_rule(lambda x, g: jnp.where(jnp.abs(g) > 1, 0, g)),
}
MATRICES = {
    "gauss_newton": lambda model: gnjax.gauss_newton(model, X),
    "ntk": lambda model: gnjax.ntk(model, X),
    "hessian": lambda model: gnjax.hessian(model, X, Y),
    "empirical_fisher": lambda model: gnjax.empirical_fisher(model, X, Y),
    "batches": lambda model: gnjax.gauss_newton(model, [(X, None)]),
}


@pytest.mark.parametrize("rule", NOT_LINEAR)
@pytest.mark.parametrize("matrix", MATRICES)
def test_a_reverse_rule_that_is_not_linear_is_refused_with_what_to_do(rule, matrix):
    function = NOT_LINEAR[rule]
    with pytest.raises(ValueError, match=r"custom_vjp .* not linear .* leave that to the optimis"):
        MATRICES[matrix]((lambda p, x: function(x @ p), W))


ONCE = _with_rule(lambda x, g: g * _on_host(x))  # JAX does not differentiate what NumPy computes

TWICE = {
    "hessian": lambda: gnjax.hessian((lambda p, x: ONCE(x @ p), W), X, Y),
    "functional_hessian": lambda: gnjax.functional_hessian((lambda p, x: ONCE(x @ p), W), X, Y),
    "batches": lambda: gnjax.hessian((lambda p, x: ONCE(x @ p), W), [(X, Y)]),
    "hessian_of": lambda: gnjax.hessian_of(lambda p: ONCE(p).sum(), W),
    "hessian of a loss": lambda: gnjax.hessian((_dense, W), X, loss=lambda f: ONCE(f)),
    "gauss_newton of a loss": lambda: gnjax.gauss_newton((_dense, W), X, loss=lambda f: ONCE(f)),
}


@pytest.mark.parametrize("what", TWICE)
def test_a_rule_that_has_no_derivative_is_refused_where_a_matrix_needs_it(what):
    with pytest.raises(ValueError, match=r"differentiated twice: .* write the rule with jax.numpy"):
        TWICE[what]()


def test_a_rule_that_is_linear_is_taken():
    function = _with_rule(lambda x, g: g * (1 - jnp.tanh(x) ** 2))
    found, plain = (
        gnjax.hessian((lambda p, x, f=f: f(x @ p), W), X, Y) for f in (function, jnp.tanh)
    )
    np.testing.assert_allclose(found.as_matrix(), plain.as_matrix(), rtol=1e-12, atol=1e-14)


def _raising(error):
    def function(*args):
        raise error

    return function


OWN = [
    ValueError("the schedule has no name"),
    RuntimeError("the cache is empty"),
    AttributeError("'Config' object has no attribute 'depth'"),
    IndexError("list index out of range"),
    TypeError("unsupported operand type(s) for +: 'dict' and 'int'"),
    AssertionError(),
    KeyError("w"),
]


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("who", "call"),
    [
        ("the model", lambda function: gnjax.ntk((function, W), X)),
        ("the loss", lambda function: gnjax.hessian((_dense, W), X, Y, loss=function)),
        ("loss_fn", lambda function: gnjax.hessian_of(function, W)),
    ],
    ids=["model", "loss", "loss_fn"],
)
def test_an_error_is_told_as_the_functions_own(error, who, call):
    with pytest.raises(ValueError, match=f"{who} raises {type(error).__name__} .line .* test_ref"):
        call(_raising(error))


@pytest.mark.parametrize(
    ("apply", "x", "words"),
    [
        (_dense, np.ones((4, 5)), r"raises TypeError .*contracting"),
        (lambda p, x: x[:, 0, 0] * p[0, 0], X, r"raises IndexError .*Too many indices"),
        (lambda p, x: p[x[:, 0]], X, r"raises TypeError .*; .*tokens are integers"),
    ],
    ids=["product", "axes", "tokens"],
)
def test_an_error_of_a_model_is_told_with_its_line_and_its_x(apply, x, words):
    place = rf"\(line \d+ of test_refusals.py\) at an x of shape \({len(x)}, {x.shape[1]}\)"
    with pytest.raises(ValueError, match=words) as raised:
        gnjax.ntk((apply, W), x)
    assert re.search(place, str(raised.value))
    assert str(raised.value.__cause__).splitlines()[0].rstrip(".") in str(raised.value)


UNTRACEABLE = {
    "segment_max": lambda p, x: jax.ops.segment_max(x @ p, jnp.asarray(x[:, 0], int)),
    "unique": lambda p, x: jnp.unique(x)[:, None] * p[:1],
    "nonzero": lambda p, x: x[jnp.nonzero(x[:, 0])] @ p,
    "mask": lambda p, x: (x @ p)[x[:, 0] > 0],
    "if": lambda p, x: x @ p if x.sum() > 0 else x @ p * 2,
    "numpy": lambda p, x: np.tanh(np.asarray(x @ p)),
    "float": lambda p, x: x @ p * float(x.sum()),
    "list": lambda p, x: x @ p * [1.0, 2.0][x[0, 0].astype(int)],
    "repeat": lambda p, x: jnp.repeat(x @ p, x[:, 0].astype(int), axis=0),
    "shape": lambda p, x: (x @ p).reshape(x[:, 0].sum().astype(int), -1),
    "item": lambda p, x: x @ p * x.sum().item(),
}


@pytest.mark.parametrize(
    ("name", "who"),
    [
        *((name, "the model") for name in UNTRACEABLE),
        *((name, who) for name in ("segment_max", "float") for who in ("the loss", "loss_fn")),
    ],
)
def test_a_function_that_jax_cannot_trace_is_not_told_about_shapes(name, who):
    apply = UNTRACEABLE[name]
    call = {
        "the model": lambda: gnjax.gauss_newton((apply, W), X),
        "the loss": lambda: gnjax.hessian((_dense, W), X, loss=lambda f: apply(W, X * f[0]).sum()),
        "loss_fn": lambda: gnjax.hessian_of(lambda p: apply(p, X * p[0, 0]).sum(), W),
    }[who]
    words = rf"^{who} cannot be traced by JAX \(line \d+ of test_refusals.py\): .*num_segments="
    with pytest.raises(ValueError, match=words) as raised:
        call()
    assert "of shape" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(3), "has dtype int64; .* counters out of the parameters"),
        ("mean", "is of type str"),
        (np.array(np.nan), "of the model contains NaN or Inf"),
        (float("nan"), "of the model contains NaN or Inf"),
    ],
    ids=["counter", "name", "nan", "number of Python"],
)
def test_a_parameter_is_refused_with_its_path(value, words):
    params = {"w": W, "norm": {"num_batches_tracked": value}}
    with pytest.raises(ValueError, match=f"the parameter norm/num_batches_tracked {words}"):
        gnjax.ntk((lambda p, x: x @ p["w"], params), X)


def test_a_module_of_pytorch_is_refused_with_a_way_onward():
    """By the name of its class's module: torch is never imported."""
    base = type("Module", (), {"__module__": "torch.nn.modules.module"})
    net = type("Net", (base,), {})()
    for model in (net, (net, {})):
        with pytest.raises(ValueError, match=r"gnjax\.from_torch\(module\)"):
            gnjax.ntk(model, X)


def test_modules_with_a_shape_and_transformed_functions_are_models_in_the_place_of_samples():
    """Class: what looks like an array, or like a tuple of samples, and is a model."""
    eqx, hk = pytest.importorskip("equinox"), pytest.importorskip("haiku")
    for given in (eqx.nn.LayerNorm(3), hk.transform(lambda x: hk.Linear(2)(x))):
        with pytest.raises(ValueError, match="the model comes first and the samples second"):
            gnjax.ntk(X, given)


def test_a_model_and_samples_that_changed_places_are_named():
    model = gnjax.models.MLP((3, 4, 2), key=jax.random.key(0))
    for given in (model, (_dense, W)):
        for call in (
            lambda given=given: gnjax.gauss_newton(X, given, Y),
            lambda given=given: gnjax.hessian({"a": X}, given, Y),
            lambda given=given: gnjax.ntk(X, given),
            lambda given=given: gnjax.diagnose(X, given),
            lambda given=given: gnjax.block_spectra((X, X), given),
        ):
            with pytest.raises(ValueError, match="the model comes first and the samples second"):
                call()
        with pytest.raises(ValueError, match=r"made of samples, gnjax.Monitor\(x, y\)"):
            gnjax.Monitor(given, X)
        with pytest.raises(ValueError, match="the number of the step comes first"):
            gnjax.Monitor(X, Y)(given, 0)
