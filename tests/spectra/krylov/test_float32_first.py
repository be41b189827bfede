"""A few eigenvalues from products in float32, proved in float64: as dense ones, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.operators import prepare
from gnjax.spectra.krylov import float32_first as single
from gnjax.spectra.krylov.host_products import host_product

_RTOL = 1e-5


def _tanh(params, x):
    return jnp.tanh(x @ params[0]) @ params[1]


def _case(apply=_tanh, samples=40):
    rng = np.random.default_rng(0)
    shapes = ((5, 9), (9, 3))
    params = [jnp.asarray(rng.standard_normal(shape)) for shape in shapes]
    return (apply, params), rng.standard_normal((samples, 5)), rng.integers(0, 3, samples)


def _hessian(apply=_tanh):
    return gnjax.hessian(*_case(apply), loss="cross_entropy")


_OPERATORS = {
    "hessian": _hessian,
    "functional": lambda: gnjax.functional_hessian(*_case(), loss="cross_entropy"),
    "gauss_newton": lambda: gnjax.gauss_newton(*_case()[:2], side="parameters"),
    "ntk": lambda: gnjax.ntk(*_case(samples=20)[:2]),
}


def _few(op, k, which="largest"):
    """By a run, though the operators here are small enough for their matrices."""
    limits = gnjax.Limits(whole_rows=20)
    found = gnjax.eigenvalues(op, k=k, which=which, rtol=_RTOL, limits=limits)
    assert found.method == "krylov"
    return found


def _single(op, k=4, sign=-1.0, rtol=_RTOL):
    """What is found, and how many rows were multiplied in float64."""
    product, rows = host_product(op), []

    def exact(block):
        rows.append(len(block))
        return product(block)

    found = single.ritz_pairs_from_float32(op, exact, k, sign=sign, rtol=rtol, most=op.shape[0])
    return found, sum(rows)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("name", list(_OPERATORS))
def test_values_and_residuals_are_those_in_float64(name, sign):
    """And one product more than there are values was made in float64."""
    op = _OPERATORS[name]()
    matrix = np.asarray(op.as_matrix())
    found, rows = _single(op, sign=sign)
    assert rows == 5
    dense = np.linalg.eigvalsh(matrix)[::-1]
    scale = np.abs(dense).max()
    missed = found.vectors @ matrix - found.values[:, None] * found.vectors
    residuals = np.linalg.norm(missed, axis=1)
    np.testing.assert_allclose(residuals, found.residuals, rtol=1e-6, atol=1e-12 * scale)
    assert (residuals <= _RTOL * scale).all()
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(4), rtol=0, atol=1e-12)
    which, wanted = ("largest", dense[:4]) if sign < 0 else ("smallest", dense[-4:])
    public = _few(op, 4, which)
    np.testing.assert_array_equal(public.values, found.values)
    nearest = np.abs(np.subtract.outer(public.values, dense)).min(axis=1)
    assert (nearest <= public.errors).all()
    if name != "ntk" or sign < 0:  # whose smallest are no further apart than the residuals
        np.testing.assert_allclose(found.values, wanted, rtol=0, atol=_RTOL * scale)
    assert np.isfinite(found.count.value)
    assert found.count.kind == "measured"
    assert (np.abs(found.values - wanted) <= found.errors).all()
    assert found.errors.max() <= 4 * _RTOL * scale
    assert found.products > rows


def test_values_are_not_rounded_to_float32():
    """A Ritz value is off by the square of its residual only, where nothing of float32 is in it."""
    op = _hessian()
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    found, _ = _single(op, k=3, rtol=2e-6)
    assert np.abs(found.values - dense[:3]).max() < 1e-11 * dense[0]
    assert np.abs(found.values - found.values.astype(np.float32)).max() > 1e-9 * dense[0]


def test_repeated_eigenvalues_are_counted():
    """Outputs that share no weight see the same kernel: every eigenvalue three times."""
    x = np.random.default_rng(0).standard_normal((12, 8))
    op = gnjax.ntk((lambda w, x: x @ w, jnp.ones((8, 3))), x)
    found, _ = _single(op, k=6)
    distinct = np.linalg.svd(x, compute_uv=False)[:2] ** 2
    np.testing.assert_allclose(found.values, np.repeat(distinct, 3), rtol=1e-9)


def _cancelling(params, x):
    """Outputs are differences of numbers a thousand times as large."""
    hidden = jnp.tanh(x @ params[0])
    return ((hidden @ params[1]) ** 2 + 1e6) ** 2 * 1e-8 - 1e4


def _wide(params, x):
    return _tanh(params, x) * jnp.asarray(np.linspace(1, 2, 3)[None])


def _overflowing(params, x):
    return _tanh([1e-30 * params[0] * 1e30, params[1] * 1e25 * 1e25], x) * 1e-25 * 1e-25


@pytest.mark.parametrize("apply", [_cancelling, _overflowing, _wide])
def test_what_float32_cannot_do_is_left_to_float64(apply):
    op = _hessian(apply)
    assert _single(op)[0] is None
    found = _few(op, 4)
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    assert (np.abs(found.values - dense[:4]) <= found.errors).all()
    assert found.errors.max() <= 2 * _RTOL * found.values[0]


@pytest.mark.parametrize("rtol", [1e-10, 5e-7])
def test_small_tolerances_take_no_product_in_float32(monkeypatch, rtol):
    monkeypatch.setattr(single, "in_float32", lambda op: pytest.fail("asked for"))
    assert _single(_hessian(), rtol=rtol) == (None, 0)
    assert _single(gnjax.dense(np.eye(30)), rtol=rtol) == (None, 0)


def test_other_operators_and_float32_itself_are_left_alone():
    assert _single(gnjax.dense(np.eye(30))) == (None, 0)
    light = prepare._narrowed(_hessian())
    assert light.dtype == np.float32
    assert _single(light) == (None, 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_null_space_among_the_wanted_is_seen(rank):
    x = rank * np.arange(10.0)[:, None]
    op = gnjax.ntk((lambda w, x: x @ w, jnp.ones((1, 3))), x)
    found = _few(op, 5)
    np.testing.assert_allclose(found.values, rank * np.array([285.0] * 3 + [0.0] * 2), atol=1e-9)


@pytest.mark.parametrize("fault", ["image", "residual"])
def test_a_run_that_is_not_what_float64_says_counts_for_nothing(fault):
    """E larger on the Ritz vectors than it was taken to be, or residuals above the tolerance."""
    op = _hessian()
    product = host_product(op)
    rough, _ = _single(op)
    assert single._proved(product, rough, 4, _RTOL) is not None
    nudge = np.random.default_rng(0).standard_normal(rough.vectors.shape)
    size = 2e-6 * rough.scale if fault == "image" else 0.1
    moved = nudge * size / np.linalg.norm(nudge, axis=1, keepdims=True)
    if fault == "image":
        wrong = single.OuterRitzPairs(
            rough.values, rough.residuals, rough.scale, rough.vectors, rough.images + moved
        )
    else:
        vectors = np.linalg.qr((rough.vectors + moved).T)[0].T
        wrong = single.OuterRitzPairs(
            rough.values, rough.residuals, rough.scale, vectors, product(vectors)
        )
    assert single._proved(product, wrong, 4, _RTOL) is None


def test_a_jacobian_stored_on_the_way_keeps_the_rules_of_float32(monkeypatch):
    """It is made when some products have been, outside of where they were prepared."""
    rules = []

    def making(op):
        config = jax.config
        rules.append((config.jax_default_matmul_precision, str(config.jax_numpy_dtype_promotion)))
        return gnjax.with_jacobian(op)

    monkeypatch.setattr(prepare, "with_jacobian", making)
    monkeypatch.setattr(prepare, "products_before", lambda op: 1)
    rng = np.random.default_rng(0)
    params = [jnp.asarray(rng.standard_normal(shape)) for shape in ((5, 8), (8, 3))]
    model = (lambda p, x: jnp.tanh(x @ p[0]) @ p[1], params)
    op = gnjax.ntk(model, rng.standard_normal((40, 5)))
    light = prepare.in_float32(op)
    with jax.numpy_dtype_promotion("strict"):
        product = single._product(light)
        row = rng.standard_normal((1, op.shape[0]))
        images = [product(row) for _ in range(2)]
    assert len(rules) == 1
    assert rules[0][0] == "highest"
    assert "STANDARD" in rules[0][1].upper()
    np.testing.assert_allclose(images[1], images[0], rtol=0, atol=1e-5 * np.abs(images[0]).max())


def test_strict_promotion_of_types_is_no_obstacle():
    """Constants in float64 are promoted for the attempt in float32 alone."""
    op = _hessian(_wide)
    with jax.numpy_dtype_promotion("strict"):
        found = _few(op, 2)
    assert len(found) == 2
