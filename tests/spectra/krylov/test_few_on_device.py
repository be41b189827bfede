"""When the basis of a few eigenvalues is on the device, and what the answer then claims."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.operators import prepare
from gnjax.operators.of_networks import stored_jacobian
from gnjax.operators.prepare import in_float64
from gnjax.operators.recast import narrowed, widened
from gnjax.spectra.krylov import device_run
from gnjax.spectra.krylov import few_on_device as module
from gnjax.spectra.krylov.search import least_rows


def _network(samples=60, tokens=None):
    rng = np.random.default_rng(0)
    params = [jax.device_put(rng.standard_normal(shape)) for shape in ((6, 20), (20, 4))]
    x, y = rng.standard_normal((samples, 6)), rng.integers(0, 4, samples)
    return (lambda p, x: jnp.tanh(x @ p[0]) @ p[1], params), x, y


def _hessian():
    return gnjax.hessian(*_network(), loss="cross_entropy")


def _limits(op, itemsize, vectors=20):
    """Room for so many vectors of numbers of a size, and for a run of the operator."""
    return gnjax.Limits(whole_rows=20, basis_bytes=itemsize * vectors * op.shape[0])


def _check(found, op, which, k, tolerance):
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix(), float))[::-1]
    wanted = dense[:k] if which == "largest" else dense[-k:]
    scale = np.abs(dense).max()
    assert found.converged
    nearest = np.abs(np.subtract.outer(found.values, dense)).min(axis=1)
    assert (nearest <= found.errors).all()
    np.testing.assert_allclose(found.values, wanted, rtol=0, atol=tolerance * scale)
    assert found.errors.max() <= 10 * tolerance * scale
    assert "no room to count" in str(found.certificate)
    assert found.certificate.kind == "unknown"


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_an_operator_in_float64_runs_in_float32_where_only_that_fits(which):
    """And neither values nor errors are those of float32."""
    op = _hessian()
    found = gnjax.eigenvalues(op, k=3, which=which, rtol=1e-4, limits=_limits(op, 4))
    _check(found, op, which, 3, 1e-4)
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    wanted = dense[:3] if which == "largest" else dense[-3:]
    assert np.abs(found.values - wanted).max() < 1e-7 * dense[0]  # the square of rtol, over a gap


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_an_operator_in_float32_has_values_and_residuals_in_float64(which):
    """Of the parameters as they are stored, which are not those in float64."""
    op = narrowed(_hessian())
    assert op.dtype == np.float32
    found = gnjax.eigenvalues(op, k=3, which=which, rtol=1e-4, limits=_limits(op, 4))
    wide = widened(op)
    _check(found, wide, which, 3, 1e-4)
    dense = np.linalg.eigvalsh(np.asarray(wide.as_matrix()))[::-1]
    wanted = dense[:3] if which == "largest" else dense[-3:]
    assert np.abs(found.values - wanted).max() < 1e-7 * dense[0]
    rounding = found.certificate.parts[0]
    assert rounding.value < 1e-12 * dense[0]


def _fixed_carry(p, x):
    """What computes in float32 whatever its parameters are cannot be widened."""
    step = lambda carry, row: (carry + row.sum(), None)  # noqa: E731
    total, _ = jax.lax.scan(step, jnp.zeros((), jnp.float32), p[0])
    return jnp.tanh(x @ p[0]) @ p[1] + total


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_in_32_bits_only_the_last_products_are_in_float64():
    model, x, y = _network()
    with jax.enable_x64(False):
        params = [jax.device_put(np.asarray(leaf, np.float32)) for leaf in model[1]]
        op = gnjax.hessian((model[0], params), x, y, loss="cross_entropy")
        fixed = gnjax.hessian((_fixed_carry, params), x, y, loss="cross_entropy")
        found = gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=_limits(op, 4))
        coarse = gnjax.eigenvalues(fixed, k=3, rtol=1e-4, limits=_limits(op, 4))
    _check(found, widened(op), "largest", 3, 1e-4)
    assert found.certificate.parts[0].value < 1e-12 * found.values[0]
    assert found.values.dtype == float
    assert coarse.certificate.parts[0].value > 1e-7 * coarse.values[0]
    assert in_float64(fixed) is None


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_batches_that_are_streamed():
    model, x, y = _network()
    batches = [(x[:30], y[:30]), (x[30:], y[30:])]
    with jax.enable_x64(False):
        op = gnjax.hessian(model, batches, loss="cross_entropy")
        assert op.dtype == np.float32
        found = gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=_limits(op, 4))
    whole = gnjax.hessian((model[0], op.net.leaves), x.astype(np.float32), y, loss="cross_entropy")
    _check(found, whole, "largest", 3, 1e-4)
    assert found.certificate.parts[0].value < 1e-12 * found.values[0]


@pytest.mark.parametrize("narrow", [False, True])
def test_vectors_are_unit_rows_with_unknown_angles(narrow):
    op = _hessian()
    if narrow:
        op = narrowed(op)
    found = gnjax.eigenvalues(op, k=3, rtol=1e-4, vectors=True, limits=_limits(op, 4))
    assert found.vectors.shape == (3, op.shape[0])
    assert found.vectors.dtype == np.float32
    assert np.isinf(found.angles).all()
    matrix = np.asarray(_hessian().as_matrix())
    missed = found.vectors @ matrix - found.values[:, None] * found.vectors
    assert (np.linalg.norm(missed, axis=1) <= found.errors + 1e-6).all()
    assert jax.tree.structure(op.unravel(found.vectors[0])).num_leaves == 2


def test_where_a_basis_is_in_host_memory_nothing_changes():
    op = _hessian()
    found = gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=_limits(op, 8))
    assert found.certificate.kind == "measured"
    assert module.bytes_on_device(op, 3, 1e-4, _limits(op, 8)) == 0
    assert module.bytes_on_device(op, 3, 1e-4, _limits(op, 8, 12)) == 0
    assert module.bytes_on_device(op, 3, 1e-4, _limits(op, 8, 12), neighbours=1) == 8
    assert module.bytes_on_device(op, 3, 1e-4, _limits(op, 8, 11)) == 4
    assert module.bytes_on_device(op, 3, 1e-4, _limits(op, 4, 12)) == 4


def test_what_fits_nowhere_is_refused_with_the_least_memory():
    op = _hessian()
    size, least = op.shape[0], least_rows(3)
    with pytest.raises(ValueError, match=r"12 vectors, .* GB in float32, .* allow 11") as no:
        gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=_limits(op, 4, 11))
    assert f"basis_bytes={4 * size * least:_}" in str(no.value)
    with pytest.raises(ValueError, match="GB in float64, and limits allow 11"):
        gnjax.eigenvalues(op, k=3, rtol=1e-10, limits=_limits(op, 8, 11))


def test_a_network_that_computes_in_float64_whatever_comes_needs_that_basis():
    (apply, params), x, y = _network()

    def wide(p, x):
        return apply(p, x) * jnp.asarray(np.linspace(1, 2, 4)[None])

    op = gnjax.hessian((wide, params), x, y, loss="cross_entropy")
    with pytest.raises(ValueError, match="GB in float64, and limits allow 10"):
        gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=_limits(op, 4))


def test_the_basis_has_as_many_vectors_as_are_stated(monkeypatch):
    """Twice the least where nothing is stated, and never more than there is room for."""
    op, rows = _hessian(), []
    run = module.ritz_vectors
    noted = lambda *args, **options: rows.append(options["rows"]) or run(*args, **options)  # noqa: E731
    monkeypatch.setattr(module, "ritz_vectors", noted)
    room = 4 * 23 * op.shape[0]
    for limits in ({}, {"vectors": 12}, {"basis_bytes": room - 1}):
        given = {"whole_rows": 20, "basis_bytes": room} | limits
        gnjax.eigenvalues(op, k=3, rtol=1e-4, limits=gnjax.Limits(**given))
    assert rows == [23, 12, 22]


def test_what_does_not_converge_says_so_with_errors_that_hold(monkeypatch):
    monkeypatch.setattr(device_run, "most_products", lambda rows: 40)

    class Diagonal:
        shape, dtype = (3500, 3500), np.dtype(np.float32)
        values = np.linspace(0, 1, 3500, dtype=np.float32) ** 3

        def facts(self):
            return gnjax.operators.Facts(error=0.0, symmetric=True)

        def mv(self, v):
            return self.values * np.asarray(v)

        def as_matrix(self):
            return np.diag(self.values)

    limits = gnjax.Limits(basis_bytes=4 * 3500 * 12)
    found = gnjax.eigenvalues(Diagonal(), k=3, rtol=1e-6, limits=limits)
    assert not found.converged
    assert "within 43 products and a basis of 12 vectors" in str(found.certificate)
    nearest = np.abs(np.subtract.outer(found.values, Diagonal.values.astype(float))).min(axis=1)
    assert (nearest <= found.errors).all()


def test_an_interrupted_run_returns_the_best_values_so_far():
    op = _hessian()

    def progress(done, expected):
        if done == 9:
            raise KeyboardInterrupt

    found = gnjax.eigenvalues(op, k=3, rtol=1e-5, limits=_limits(op, 4), progress=progress)
    assert not found.converged
    assert "interrupted after 12 products" in str(found.certificate)
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    assert (np.abs(np.subtract.outer(found.values, dense)).min(axis=1) <= found.errors).all()

    def at_once(done, expected):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gnjax.eigenvalues(op, k=3, rtol=1e-5, limits=_limits(op, 4), progress=at_once)


def test_a_jacobian_stored_on_the_way_keeps_the_rules_of_float32(monkeypatch):
    """It is made when some products have been, outside of where they were prepared."""
    rules = []

    making = stored_jacobian.with_jacobian

    def stored(op):
        config = jax.config
        rules.append((config.jax_default_matmul_precision, str(config.jax_numpy_dtype_promotion)))
        return making(op)

    monkeypatch.setattr(stored_jacobian, "with_jacobian", stored)
    monkeypatch.setattr(stored_jacobian, "products_before", lambda op: 1)
    model, x, _ = _network()
    light = prepare.in_float32(gnjax.ntk(model, x))
    with jax.numpy_dtype_promotion("strict"):
        product = module._under(prepare.float32_rules, light)
        row = jnp.ones(light.shape[0], np.float32)
        images = [np.asarray(product(row)) for _ in range(3)]
    assert len(rules) == 1
    assert rules[0][0] == "highest"
    assert "STANDARD" in rules[0][1].upper()
    np.testing.assert_allclose(images[2], images[0], rtol=0, atol=1e-5 * np.abs(images[0]).max())
