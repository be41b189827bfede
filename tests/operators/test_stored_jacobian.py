"""Products from a stored Jacobian are those of the operator, and what is stored."""

import re
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.models import CNN
from gnjax.networks.jacobians import items_of
from gnjax.operators.facts import error_of
from gnjax.operators.of_networks import linearised as linearisation
from gnjax.operators.of_networks import stored_jacobian as module
from gnjax.spectra.krylov.host_products import host_product
from tests.networks import CASES

_WITHOUT_LAYERS = {"batch norm of the batch", "linen, tied", "residual"}


def _made(model, x, kind, **options):
    if kind == "ntk":
        return gnjax.ntk(model, x, **options)
    return gnjax.gauss_newton(model, x, loss="cross_entropy", side=kind, **options)


def _agree(op, **options):
    """With the operator's own products, which test_curvature compares with dense matrices."""
    kept = gnjax.with_jacobian(op, **options)
    assert (kept.shape, kept.dtype) == (op.shape, op.dtype)
    v = np.random.default_rng(0).standard_normal((op.shape[0], 3))
    expected = np.asarray(op.mv(jax.device_put(v)))
    atol = 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(kept.mv(jax.device_put(v)), expected, rtol=0, atol=atol)
    np.testing.assert_allclose(kept.mv(jax.device_put(v[:, 0])), expected[:, 0], rtol=0, atol=atol)
    return kept


def _room(memory):
    return gnjax.Limits(jacobian_bytes=memory)


def _forms(kept):
    return [item.form for item in kept.items]


def _bytes(kept):
    return sum(part.nbytes for part in jax.tree.leaves(kept.blocks))


def _least(op):
    """The memory that what is kept takes at least, from the message that asks for it."""
    with pytest.raises(ValueError, match="pass limits=") as refused:
        gnjax.with_jacobian(op, limits=_room(1))
    return int(re.search(r"jacobian_bytes=(\d+)", str(refused.value))[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parameters", "outputs", "ntk"])
@pytest.mark.parametrize("case", ["cnn with stride", "batch norm of the batch", "attention"])
def test_products_are_those_of_the_operator(case, kind):
    _agree(_made(*CASES[case](), kind))


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(set(CASES) - _WITHOUT_LAYERS))
def test_products_with_every_layer_kept_as_a_pair(case, monkeypatch):
    def pairs(net, traced, memory):
        forms = {True: "columns", False: "pair"}
        return tuple(replace(i, form=forms[i.layer is None]) for i in items_of(net, traced))

    monkeypatch.setattr(module, "_items", pairs)
    kept = _agree(_made(*CASES[case](), "parameters"))
    assert len(kept.blocks[0].pairs) == _forms(kept).count("pair") > 0


@pytest.mark.slow
@pytest.mark.parametrize("side", ["parameters", "outputs"])
@pytest.mark.parametrize("only", ["dense[12]/*", "dense2/kernel"])
def test_batches_masks_and_filters_in_several_blocks(side, only, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1e2)
    model, x = CASES["mlp relu"]()
    _, params = gnjax.functional(model)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 4 > 0, params)
    kept = _agree(_made(model, x, side, mask=mask, only=only, batch_size=3))
    assert len(kept.blocks) > 1
    assert "pair" in _forms(kept)


def test_many_columns_go_some_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "_COLUMNS", 2)
    _agree(_made(*CASES["mlp relu"](), "parameters"))


def _network(width, positions):
    """Two layers of 12 channels on that many positions, the second averaged over them."""
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal(shape)) for shape in ((12, width), (width, 3))]
    x = rng.standard_normal((4, positions, 12))
    return (lambda p, x: (jnp.tanh(x @ p[0]) @ p[1]).mean(axis=1), params), x


@pytest.mark.parametrize(("positions", "form"), [(1, "pair"), (2, "pair"), (40, "columns")])
def test_a_layer_is_kept_as_a_pair_where_that_is_less_work(positions, form):
    kept = _agree(gnjax.ntk(*_network(20, positions)))
    assert _forms(kept) == [form, form]
    pair = kept.items[0].width
    assert pair == (positions * (12 + 3 * 20) if form == "pair" else 3 * 12 * 20)


def test_layers_are_kept_as_pairs_as_memory_asks():
    """In 8 bytes and for 4 samples, rows take 1440 and 360 numbers, pairs 1056 and 392."""
    op = gnjax.ntk(*_network(40, 8))
    sizes = {
        memory: gnjax.with_jacobian(op, limits=_room(memory)) for memory in (57_600, 57_599, 45_312)
    }
    assert [_forms(kept) for kept in sizes.values()] == [
        ["columns", "columns"],
        ["pair", "columns"],
        ["pair", "columns"],
    ]
    assert [_bytes(kept) for kept in sizes.values()] == [57_600, 45_312, 45_312]
    assert _least(op) == 45_312
    _agree(op, limits=_room(45_312))


def test_eigenvalues_have_the_error_of_the_network():
    model, x = CASES["cnn with stride"]()
    op = gnjax.ntk(model, x)
    kept = gnjax.with_jacobian(op)
    error = error_of(op, 1.0)
    assert error.kind == "measured"
    assert 0 < error.value < 1e-10
    assert error_of(kept, 1.0) == error
    assert error_of(gnjax.linearised(op), 1.0) == error
    found = gnjax.eigenvalues(kept)
    np.testing.assert_allclose(found.values, gnjax.eigenvalues(op).values, rtol=1e-9, atol=1e-12)


def test_the_layer_that_saves_most_is_the_first_to_change():
    """Rows take 8000 and 1600 numbers a sample, pairs of 8 positions 1920 and 640."""
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal(shape)) for shape in ((40, 40), (40, 8))]
    model = (lambda p, x: jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]).mean(axis=1)[:, :5], params)
    op = gnjax.ntk(model, rng.standard_normal((4, 8, 40)))
    whole = _bytes(gnjax.with_jacobian(op))
    assert _forms(gnjax.with_jacobian(op)) == ["columns", "columns"]
    assert _forms(_agree(op, limits=_room(whole - 1))) == ["pair", "columns"]


@pytest.mark.parametrize("form", ["pair", "columns"])
def test_kernels_that_are_transposed_and_reshaped_before_they_act(form):
    """As torch holds them: (outputs, inputs), here with the outputs in two axes."""
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal(shape)) for shape in ((2, 10, 12), (3, 20))]

    def apply(p, x):
        return (jnp.tanh(x @ p[0].reshape(20, 12).T) @ p[1].T).mean(axis=1)

    x = rng.standard_normal((4, {"pair": 1, "columns": 40}[form], 12))
    for side in ("parameters", "outputs"):
        kept = _agree(gnjax.gauss_newton((apply, params), x, side=side))
        assert _forms(kept) == [form, form]


def test_a_jacobian_larger_than_the_memory_given_is_refused():
    op = gnjax.ntk(*CASES["mlp relu"]())
    with pytest.raises(
        ValueError, match=r"takes at least 0\.0 GB, and limits allow 1 bytes; pass limits="
    ):
        gnjax.with_jacobian(op, limits=_room(1))
    with pytest.raises(ValueError, match="pass limits="):
        gnjax.with_jacobian(op, limits=_room(float("nan")))
    assert _bytes(gnjax.with_jacobian(op, limits=_room(_least(op)))) <= _least(op)


def test_what_has_no_jacobian_is_refused():
    model, x = CASES["mlp relu"]()
    hessian = gnjax.hessian(model, x, np.zeros((len(x), 3)))
    for op in (gnjax.dense(np.eye(3)), hessian, np.eye(3)):
        with pytest.raises(ValueError, match=f"have a Jacobian to store, got {type(op).__name__}"):
            gnjax.with_jacobian(op)


def _cnn(samples=4, **options):
    model = CNN((12, 12, 2), 3, filters=(8, 4), padding=1, activation="tanh", key=jax.random.key(1))
    x = np.random.default_rng(0).standard_normal((samples, 12, 12, 2))
    return gnjax.ntk(model, x, **options)


def _multiplications_of_a_sample():
    """Both convolutions keep 12 x 12 positions; the dense layer takes all of them."""
    return 144 * 9 * (2 * 8 + 8 * 4) + 144 * 4 * 3


def test_a_jacobian_pays_after_k_products_and_its_compilation():
    without = 2 * _multiplications_of_a_sample()
    for samples in (4, 8):
        expected = 3 + module._COMPILED / (2 * samples * without)
        assert module.products_before(_cnn(samples)) == pytest.approx(expected)


def test_a_jacobian_is_not_made_unasked_where_it_gains_little_or_does_not_fit(monkeypatch):
    dense = gnjax.ntk(*CASES["mlp relu"]())
    coupled = gnjax.ntk(*CASES["batch norm of the batch"]())
    positions = gnjax.ntk(*_network(20, 40))
    assert {module.products_before(op) for op in (dense, coupled, positions)} == {np.inf}
    op = _cnn()
    spread = replace(op, net=replace(op.net, x=SimpleNamespace(devices=lambda: {0, 1})))
    assert module.products_before(spread) == np.inf
    with_j = 4 * 3 * (9 * 16 + 8 + 9 * 32 + 4 + 3) + 4 * (576 + 3 * 3) + 576 * 3
    gain = 2 * _multiplications_of_a_sample() / with_j
    for factor, pays in ((0.99, True), (1.01, False)):
        monkeypatch.setattr(module, "_GAIN", factor * gain)
        assert (module.products_before(op) < np.inf) == pays
    monkeypatch.setattr(module, "_GAIN", 2)
    monkeypatch.setattr(module, "LIMITS", _room(_least(op) - 1))
    assert module.products_before(op) == np.inf


@pytest.mark.parametrize("linear", [True, False])
def test_many_products_are_made_with_a_jacobian_in_the_end(linear, monkeypatch):
    if not linear:
        monkeypatch.setattr(linearisation, "fits", lambda op, limits: False)
    made = []

    making = module.with_jacobian

    def stored(op):
        made.append(op)
        return making(op)

    monkeypatch.setattr(module, "with_jacobian", stored)
    monkeypatch.setattr(module, "products_before", lambda op: 3)
    op = _cnn()
    product = host_product(op)
    rows = np.random.default_rng(0).standard_normal((2, op.shape[0]))
    expected = np.asarray(op.mv(rows.T)).T
    for few, jacobians in ((rows[:1], 0), (rows, 0), (rows[:1], 1), (rows, 1)):
        found = product(few)
        assert len(made) == jacobians
        np.testing.assert_allclose(found, expected[: len(few)], rtol=0, atol=1e-12 * expected.max())


def test_a_jacobian_that_was_made_is_used(monkeypatch):
    kept = gnjax.with_jacobian(_cnn())
    monkeypatch.setattr(module, "with_jacobian", None)
    monkeypatch.setattr(module, "products_before", None)
    product = host_product(kept)
    row = np.ones((1, kept.shape[0]))
    np.testing.assert_array_equal(product(row)[0], kept.mv(jax.device_put(row[0])))
