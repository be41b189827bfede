"""The usual evidence for products with large networks, beside the truth in float64."""

import math
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks import alike
from gnjax.networks.rounding import chosen_samples, looks
from gnjax.numerics.evidence import evidence, gathering

_N, _D, _K = 12, 5, 3
_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((_N, _D))
_Y = np.arange(_N) % _K


@pytest.fixture(autouse=True)
def _large_at_any_size(monkeypatch):
    """Every network counts as large, and nothing is remembered from other tests."""
    monkeypatch.setattr(chosen_samples, "_SMALL", 0.0)
    alike._earlier_answers.clear()


def _tanh(p, x):
    return jnp.tanh(x @ p[0]) @ p[1]


def _normed(p, x):
    z = x @ p[0]
    z = (z - z.mean(-1, keepdims=True)) / jnp.sqrt(z.var(-1, keepdims=True) + 1e-5)
    return jax.nn.gelu(z) @ p[1]


def _recurrent(p, x):
    step = lambda h, _: (jnp.tanh(h @ p[0] @ p[0].T + x), None)  # noqa: E731
    return jax.lax.scan(step, x, None, length=6)[0] @ p[0] @ p[1]


def _batch_normed(p, x):
    z = x @ p[0]
    return jnp.tanh(z - z.mean(0, keepdims=True)) @ p[1]


_NETWORKS = {"tanh": _tanh, "norm": _normed, "scan": _recurrent, "batch norm": _batch_normed}


def _weights(dtype, size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (_D, 7), (7, _K)
    return [jnp.asarray(size * rng.standard_normal(shape), dtype) for shape in shapes]


def _hessian(apply, dtype, size=1.0, loss="cross_entropy", **options):
    model = (lambda p, x: apply(p, x.astype(p[0].dtype))), _weights(dtype, size)
    return gnjax.hessian(model, np.asarray(_X, dtype), _Y, loss=loss, **options)


def _in_32_bits(make):
    """The operator in float32 throughout, and a function that multiplies with it."""
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of 32-bit mode
        op = make()
        product = op.facts().product()
        product(jnp.ones(op.shape[0], jnp.float32))
        return op, op.facts().error(1.0)


@pytest.mark.parametrize("size", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("name", _NETWORKS)
def test_the_error_in_float32_covers_the_distance_to_float64(name, size):
    op, error = _in_32_bits(partial(_hessian, _NETWORKS[name], np.float32, size))
    with jax.enable_x64(False):
        matrix = np.asarray(op.as_matrix(), np.float64)
    # the same numbers, which float32 holds, in float64
    weights = [np.asarray(w, np.float64) for w in _weights(np.float32, size)]
    exact = gnjax.hessian(
        (_NETWORKS[name], weights),
        np.asarray(np.asarray(_X, np.float32), np.float64),
        _Y,
        loss="cross_entropy",
    ).as_matrix()
    distance = np.linalg.norm(matrix - exact)
    assert distance <= error.value
    if size <= 1:  # larger weights in a loop make rounding grow
        assert error.value <= 1e-2 * np.linalg.norm(exact)
    assert error.kind == "measured"


def test_a_sure_classifier_is_seen_by_the_second_look_alone():
    """p - 1 of the right class is lost in float32, and moved weights move it as little."""
    sure = lambda p, x: 40.0 * _tanh(p, x)  # noqa: E731
    op, error = _in_32_bits(partial(_hessian, sure, np.float32, 3.0))
    with jax.enable_x64(False):
        matrix = np.asarray(op.as_matrix(), np.float64)
    weights = [np.asarray(w, np.float64) for w in _weights(np.float32, 3.0)]
    exact = gnjax.hessian(
        (sure, weights),
        np.asarray(np.asarray(_X, np.float32), np.float64),
        _Y,
        loss="cross_entropy",
    ).as_matrix()
    assert np.linalg.norm(matrix - exact) <= error.value


def test_what_was_seen_serves_a_network_that_has_moved_little(monkeypatch):
    calls, look = [], alike.found_for_alike

    def counted(name, net, second_look):
        return look(name, net, lambda: calls.append(name) or second_look())

    monkeypatch.setattr("gnjax.networks.rounding.errors.found_for_alike", counted)
    x = jnp.asarray(_X)
    for factor, count in ((1.0, 1), (1.01, 1), (1.2, 2), (1.21, 2)):
        weights = [factor * w for w in _weights(float)]
        gnjax.hessian((_tanh, weights), x, _Y, loss="cross_entropy").facts().error(1.0)
        assert len(calls) == count
    gnjax.hessian((_tanh, weights), 3 * x, _Y, loss="cross_entropy").facts().error(1.0)
    assert len(calls) == 3  # inputs of another size


@pytest.mark.parametrize("make", [gnjax.hessian, gnjax.gauss_newton])
def test_no_evidence_is_an_unknown_error(make):
    op = make((_tanh, _weights(float)), _X, _Y, loss="cross_entropy")
    limits = gnjax.Limits(evidence="none")
    few = gnjax.eigenvalues(op, k=1, limits=limits)
    assert np.isinf(few.errors).all()
    assert few.certificate.kind == "unknown"
    assert "evidence='none'" in str(few.certificate)
    usual = gnjax.eigenvalues(op, k=1)
    assert usual.certificate.kind != "unknown"
    np.testing.assert_allclose(few.values, usual.values, rtol=1e-9)


def test_kappa_without_evidence_is_not_resolved():
    op = gnjax.gauss_newton((_tanh, _weights(float)), _X[:2])
    assert gnjax.condition_number(op).resolved
    answer = gnjax.condition_number(op, limits=gnjax.Limits(evidence="none"))
    assert not answer.resolved
    assert math.isinf(answer.interval[1])


@pytest.mark.parametrize("make", [gnjax.hessian, gnjax.gauss_newton])
def test_usual_and_thorough_evidence_are_of_one_size(make):
    op = make((_tanh, _weights(float)), _X, _Y, loss="cross_entropy")
    usual = gnjax.eigenvalues(op, k=1).errors[0]
    thorough = gnjax.eigenvalues(op, k=1, limits=gnjax.Limits(evidence="thorough")).errors[0]
    assert thorough / 20 <= usual <= 200 * thorough


def test_another_kind_of_evidence_is_refused():
    with pytest.raises(ValueError, match="evidence='little' is not one of usual, thorough, none"):
        gnjax.Limits(evidence="little")


def test_the_evidence_is_that_of_the_question_that_asks():
    assert evidence() == "usual"
    with gathering("none"):
        assert evidence() == "none"
    assert evidence() == "usual"


def test_moved_numbers_differ_by_the_last_bit():
    tree = {"a": jnp.asarray(_X, jnp.float32), "b": jnp.arange(3)}
    moved = looks.moved_by_one_rounding(tree, seed=0)
    eps = np.finfo(np.float32).eps
    relative = np.abs(np.asarray(moved["a"], float) / np.asarray(tree["a"], float) - 1)
    assert (relative > 0).all()
    assert (relative <= 2 * eps).all()
    np.testing.assert_array_equal(moved["b"], tree["b"])


def test_ctrl_c_in_the_evidence_leaves_the_answer_with_an_unknown_error(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    op = _hessian(_tanh, float)
    expected = gnjax.eigenvalues(op, k=1).values
    monkeypatch.setattr("gnjax.operators.of_networks.hessian.product_by_looks", interrupted)
    answer = gnjax.eigenvalues(_hessian(_tanh, float), k=1)
    np.testing.assert_allclose(answer.values, expected, rtol=1e-9)
    assert np.isinf(answer.errors).all()
    assert "Ctrl-C" in str(answer.certificate)


@pytest.mark.slow
def test_one_question_compiles_the_derivative_of_a_network_once():
    """Large programs, as those of a derivative; a second question about it compiles none."""
    times = []

    def listen(event, duration, **details):
        if "backend_compile" in event and duration > 0.2:
            times.append(details.get("fun_name"))

    width, depth = 24, 6
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.standard_normal((width, width)) / 5) for _ in range(depth)]

    def apply(p, x):
        for w in p:
            x = jax.nn.gelu(x @ w) + x
        return x[:, :_K]

    x = rng.standard_normal((64, width))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for factor in (1.0, 1.01):
            model = apply, [factor * w for w in weights]
            op = gnjax.hessian(model, x, np.arange(64) % _K, loss="cross_entropy")
            gnjax.eigenvalues(op, k=1, rtol=1e-2)
            assert len(times) <= 1, times
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_a_model_that_refuses_moved_numbers_has_an_unknown_error():
    """It checks a sum that random roundings change, as an integrator checks its last time."""

    def checked(p, x):
        reached = 0.0 * p[0].sum() + 0.1 + 0.2
        out = _tanh(p, x)
        return eqx.error_if(out, reached != 0.1 + 0.2, "the last time was missed")

    op = gnjax.gauss_newton((checked, _weights(float)), _X[:2])
    answer = gnjax.condition_number(op)
    assert not answer.resolved
    assert answer.certificate.kind == "unknown"
    assert "the model refuses it" in str(answer.certificate)


def test_a_model_in_bfloat16_is_told_what_makes_its_error_smaller():
    def coarse(p, x):
        half = jnp.bfloat16
        return _tanh([w.astype(half) for w in p], x.astype(half)).astype(float)

    weights = [w.astype(jnp.bfloat16).astype(float) for w in _weights(float)]
    answers = [
        gnjax.eigenvalues(gnjax.gauss_newton((apply, weights), _X), k=1)
        for apply in (coarse, _tanh)
    ]
    in_16_bits, in_64_bits = answers
    assert "the same weights computed in float32" in str(in_16_bits.certificate)
    assert "16 bits" not in str(in_64_bits.certificate)
    assert in_64_bits.errors[0] < 1e-6 * in_16_bits.errors[0]
