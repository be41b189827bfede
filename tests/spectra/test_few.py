"""A few eigenvalues from one end: against dense ones, repeated, hidden, and of low rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.spectra import eigenvalues as spectrum
from gnjax.spectra import few as module
from gnjax.spectra import lanczos as krylov
from gnjax.spectra.host_products import host_product


def _rotated(rng, values):
    basis = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2


def _counted(matrix, **options):
    """The extremes of a matrix, and how many products they took."""
    products = []

    def apply(rows):
        products.append(len(rows))
        return rows @ matrix

    found = module.extremes(
        apply, len(matrix), **{"rtol": 1e-10, "noise": 1e-14, "most": len(matrix)} | options
    )
    return found, sum(products)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_sylvesters_count_is_that_of_the_dense_matrix(seed, sign):
    """Of eigenvalues beyond t, all are in T or outside the run: for copies, and for unconverged."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(-1, 2, 120))
    values[rng.integers(0, 120, 4)] = values[[2, -3, -3, 2]]
    matrix = _rotated(rng, values)
    run = krylov.lanczos(
        lambda rows: rows @ matrix,
        krylov.random_rows(120, 1, seed),
        max_steps=25,
        noise=0.0,
    )
    found = module._ritz(run, sign)
    end = module._End(lambda rows: rows @ matrix, 120, 5, sign, 1e-10, 1e-14, 120)
    verdicts = []
    distinct = np.unique(values)[:: 1 if sign > 0 else -1]
    for t in (distinct[:15] + distinct[1:16]) / 2:
        outside = (sign * values < sign * t).sum() - (sign * found.values < sign * t).sum()
        verdict = module._any_beyond(end, found, float(t))
        if verdict is not None:
            verdicts.append(verdict)
            assert verdict == (outside > 0)
    assert len(verdicts) > 5


def test_a_copy_is_found_though_one_vector_sees_none():
    rng = np.random.default_rng(0)
    values = np.concatenate([[5.0, 4.0, 4.0, 3.0], rng.uniform(0, 1, 196)])
    found, _ = _counted(_rotated(rng, values), k=3, sign=-1.0)
    np.testing.assert_allclose(found.values, [5.0, 4.0, 4.0], atol=1e-9)


def test_what_is_far_from_the_rest_is_counted_in_few_products():
    """And the largest alone needs no second run: its copies change nothing."""
    rng = np.random.default_rng(1)
    values = np.concatenate([[9.0, 8.0, 7.0, 6.0], rng.uniform(0, 1, 396)])
    matrix = _rotated(rng, values)
    _, one = _counted(matrix, k=1, sign=-1.0)
    found, four = _counted(matrix, k=4, sign=-1.0)
    np.testing.assert_allclose(found.values, values[:4], atol=1e-9)
    assert one <= 16
    assert four <= 36


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_images_are_those_of_the_vectors(sign):
    """Of unconverged pairs too, after runs from one vector and from several."""
    rng = np.random.default_rng(3)
    values = np.concatenate([[-6.0, -6.0, 5.0, 4.0, 4.0, 3.0], rng.uniform(0, 1, 94)])
    matrix = _rotated(rng, values)
    found, _ = _counted(matrix, k=4, sign=sign, rtol=1e-3)
    np.testing.assert_allclose(found.images, found.vectors @ matrix, rtol=0, atol=1e-12)
    residuals = found.images - found.values[:, None] * found.vectors
    np.testing.assert_allclose(np.linalg.norm(residuals, axis=1), found.residuals, atol=1e-12)
    assert found.residuals.max() > 1e-9


@pytest.mark.parametrize("spread", [0.5, 4.0])
@pytest.mark.parametrize("rtol", [1e-2, 1e-6, 1e-12])
def test_a_run_ends_soon_after_its_residuals_are_small(monkeypatch, spread, rtol):
    """With few looks at them, not many products more than with a look after each."""
    rng = np.random.default_rng(4)
    matrix = _rotated(rng, np.exp(spread * rng.standard_normal(300)))
    looks = []

    def steps():
        looks.clear()
        end = module._End(lambda rows: rows @ matrix, 300, 5, -1.0, rtol, 1e-14, 300)
        return len(module._run(end, 1).run.basis)

    ritz = module._ritz
    monkeypatch.setattr(module, "_ritz", lambda *args: looks.append(1) or ritz(*args))
    seldom, few = steps(), len(looks)
    monkeypatch.setattr(module, "_LOOK", 1)
    always, many = steps(), len(looks)
    assert always <= seldom <= always + 4
    assert few <= 3 + 0.6 * many


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("rank", [0, 1, 3, 20])
def test_low_rank_has_as_many_zeros_as_are_asked_for(monkeypatch, rank, sign, which):
    monkeypatch.setattr(spectrum, "_DENSE_UP_TO", 100)
    factor = np.random.default_rng(rank).standard_normal((300, rank))
    op = gnjax.dense(sign * factor @ factor.T)
    found = gnjax.eigenvalues(op, k=8, which=which)
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    kept = slice(0, 8) if which == "largest" else slice(-8, None)
    assert (np.abs(found.values - dense[kept]) <= found.errors + 1e-10).all()


def test_where_all_are_equal_no_copy_can_matter():
    found, products = _counted(3.0 * np.eye(150), k=6, sign=1.0)
    np.testing.assert_allclose(found.values, 3.0, rtol=1e-14)
    assert products <= 8


class _Own:
    """A user's operator, written for jax arrays, on vectors and on columns."""

    def __init__(self, matrix):
        self.matrix, self.shapes = jnp.asarray(matrix), set()
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    def mv(self, v):
        self.shapes.add(v.shape)
        assert isinstance(v, jax.Array)
        return self.matrix @ v.at[0].multiply(1.0)

    def as_matrix(self):
        return self.matrix


def test_operators_of_ones_own_get_jax_arrays(monkeypatch):
    """Vectors from the first run; columns from the second where a copy is found."""
    monkeypatch.setattr(spectrum, "_DENSE_UP_TO", 50)
    values = np.concatenate([[5.0, 4.0, 4.0, 3.0], np.linspace(0, 1, 96)])
    op = _Own(_rotated(np.random.default_rng(2), values))
    found = gnjax.eigenvalues(op, k=3, which="largest")
    np.testing.assert_allclose(found.values, values[:3], atol=1e-9)
    assert op.shapes == {(100,), (100, 2)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 3])
def test_host_products_are_those_of_the_matrix(rows, dtype):
    rng = np.random.default_rng(3)
    weights = [jnp.asarray(rng.standard_normal(shape)) for shape in ((5, 7), (7, 3))]
    model = (lambda w, x: jnp.tanh(x @ w[0]) @ w[1], weights)
    x, y = rng.standard_normal((11, 5)), np.arange(11) % 3
    network = gnjax.hessian(model, x, y, loss="cross_entropy")
    for op in (network, gnjax.dense(np.asarray(network.as_matrix(), dtype))):
        block = rng.standard_normal((rows, op.shape[0]))
        images = host_product(op)(block)
        assert images.dtype == np.float64
        accurate = 1e-12 if op.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(images, block @ np.asarray(op.as_matrix()), atol=accurate)
