"""Products from one linearisation are those of the operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks import network
from gnjax.numerics.memory.device import Device
from gnjax.operators.of_networks.linearised import Linearised, linearised
from tests.networks import CASES

_MAKERS = {
    "parameters": lambda *a: gnjax.gauss_newton(*a, loss="cross_entropy", side="parameters"),
    "outputs": lambda *a: gnjax.gauss_newton(*a, loss="cross_entropy", side="outputs"),
    "ntk": gnjax.ntk,
    "hessian": lambda model, x: gnjax.hessian(
        model, x, np.zeros(len(x), int), loss="cross_entropy"
    ),
    "functional": lambda model, x: gnjax.functional_hessian(model, x, np.ones((len(x), 3))),
}


def _agree(op, columns):
    """With the operator's own products, which test_curvature compares with dense matrices."""
    kept = linearised(op)
    assert isinstance(kept, Linearised)
    assert (kept.shape, kept.dtype) == (op.shape, op.dtype)
    v = np.random.default_rng(0).standard_normal((op.shape[0], columns))
    expected = np.asarray(op.mv(jax.device_put(v)))
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(kept.mv(jax.device_put(v)), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(kept.mv(jax.device_put(v[:, 0])), expected[:, 0], rtol=0, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("cnn with stride", "parameters"),
        ("cnn with stride", "outputs"),
        ("batch norm of the batch", "parameters"),
        ("linen, tied", "ntk"),
        ("mlp relu", "hessian"),
        ("mlp relu", "functional"),
    ],
)
def test_products_are_those_of_the_operator(case, kind):
    _agree(_MAKERS[kind](*CASES[case]()), columns=2)


@pytest.mark.parametrize("side", ["parameters", "outputs"])
def test_batches_masks_and_filters(side):
    model, x = CASES["mlp relu"]()
    _, params = gnjax.functional(model)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 3 > 0, params)
    options = {"mask": mask, "only": "dense[12]/*", "batch_size": 3}
    _agree(gnjax.gauss_newton(model, x, side=side, **options), columns=2)


def _tanh_network(samples=40):
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal(shape)) for shape in ((5, 7), (7, 3))]
    model = (lambda params, x: jnp.tanh(x @ params[0]) @ params[1], params)
    return model, jax.device_put(rng.standard_normal((samples, 5))), np.arange(samples) % 3


@pytest.mark.parametrize(
    ("fit", "evaluations", "widths"),
    [(100, 1, {7}), (4, 1, {3, 4}), (12, 3, {3, 4}), (1, 1, {None}), (0.1, 1, {None})],
)
def test_columns_go_together_as_far_as_the_caches_reach(monkeypatch, fit, evaluations, widths):
    model, x, _ = _tanh_network()
    net = gnjax.ntk(model, x).net
    room = Device(batch=1.0, columns=fit * net.batch * net.written, stores=True)
    monkeypatch.setattr(network, "device", lambda: room)
    seen = set()

    def product(v):
        seen.add(v.shape[1] if v.ndim > 1 else None)
        return 2 * v

    v = jax.device_put(np.arange(35.0).reshape(5, 7))
    doubled = network.columns(net, product, v, evaluations=evaluations)
    np.testing.assert_array_equal(doubled, 2 * v)
    assert seen == widths


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hessian", "parameters", "outputs"])
def test_columns_apart_are_those_together(monkeypatch, kind):
    model, x, y = _tanh_network()
    if kind == "hessian":
        op = gnjax.hessian(model, x, y, loss="cross_entropy", batch_size=15)
    else:
        op = gnjax.gauss_newton(model, x, loss="cross_entropy", side=kind, batch_size=15)
    together = np.asarray(op.mv(jax.device_put(np.eye(op.shape[0]))))
    room = Device(batch=1.0, columns=7 * op.net.batch * op.net.written, stores=True)
    monkeypatch.setattr(network, "device", lambda: room)
    np.testing.assert_allclose(
        op.mv(jax.device_put(np.eye(op.shape[0]))), together, rtol=0, atol=1e-12
    )
    _agree(op, columns=5)
    assert op.mv(jax.device_put(np.ones((op.shape[0], 0)))).shape == (op.shape[0], 0)


def test_what_does_not_fit_is_left_as_it_is():
    model, x = CASES["mlp relu"]()
    op = gnjax.ntk(model, x)
    assert linearised(op, limits=gnjax.Limits(linearisation_bytes=100.0)) is op


@pytest.mark.parametrize(("depth", "linearises"), [(2, True), (24, False)])
def test_the_gradient_of_a_network_of_few_equations_is_linearised_for_many_products(
    depth, linearises
):
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal((4, 4))) for _ in range(depth)]

    def model(params, x):
        for matrix in params:
            x = jnp.tanh(x @ matrix)
        return x

    x = jax.device_put(rng.standard_normal((6, 4)))
    op = gnjax.hessian((model, params), x, x, loss="mse")
    product = op.facts().product()
    v = jax.device_put(rng.standard_normal(op.shape[0]))
    kept = jax.make_jaxpr(op._multiplied)(v)
    np.testing.assert_allclose(product(v), op.mv(v), rtol=0, atol=1e-10)
    assert ("tanh" not in str(kept)) == linearises


def test_other_operators_are_left_as_they_are():
    op = gnjax.dense(np.eye(3))
    assert linearised(op) is op
