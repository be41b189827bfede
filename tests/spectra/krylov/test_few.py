"""A few eigenvalues from one end: against dense ones, repeated, hidden, and of low rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.operators import NetworkHessian
from gnjax.spectra.krylov import few as module
from gnjax.spectra.krylov import hidden, search
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov.host_products import host_product
from gnjax.spectra.krylov.ritz_places import position_errors
from tests.held_out.matrices import rotated


def _counted(matrix, **options):
    """The outer Ritz pairs of a matrix, and how many products they took."""
    products = []

    def apply(rows):
        products.append(len(rows))
        return rows @ matrix

    found = module.outer_ritz_pairs(
        apply, len(matrix), **{"rtol": 1e-10, "noise": 1e-14, "most": len(matrix)} | options
    )
    return found, sum(products)


def test_the_chances_of_all_random_starts_that_may_decide_add_up_to_the_one_stated(monkeypatch):
    """Every run has two of them, its own and a second one, and runs follow from up to 2 k vectors.

    Here none excludes an eigenvalue further out, so that all are asked.
    """
    levels, values = [], np.append(np.linspace(0.0, 1.0, 396), [2.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr(hidden, "excludes", lambda search, pairs, level: levels.append(level))
    monkeypatch.setattr(hidden, "any_beyond", lambda *given: levels.append(given[-1]) or True)
    _counted(np.diag(values), k=4, sign=-1.0)
    assert len(levels) == 2 * 4  # from 1, 2, 4 and 8 vectors
    assert sum(levels) <= hidden.MISSED


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_sylvesters_count_is_that_of_the_dense_matrix(seed, sign):
    """Of eigenvalues beyond t, all are in T or outside the run: for copies, and for unconverged."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.uniform(-1, 2, 120))
    values[rng.integers(0, 120, 4)] = values[[2, -3, -3, 2]]
    matrix = rotated(rng, values)
    run = krylov.lanczos(
        lambda rows: rows @ matrix,
        krylov.random_rows(120, 1, seed),
        max_steps=25,
        noise=0.0,
    )
    found = module.ritz_pairs(run, sign)
    end = search.Search(lambda rows: rows @ matrix, 120, 5, sign, 1e-10, 1e-14, 120)
    verdicts = []
    distinct = np.unique(values)[:: 1 if sign > 0 else -1]
    for t in (distinct[:15] + distinct[1:16]) / 2:
        outside = (sign * values < sign * t).sum() - (sign * found.values < sign * t).sum()
        verdict = hidden.any_beyond(end, found, float(t))
        if verdict is not None:
            verdicts.append(verdict)
            assert verdict == (outside > 0)
    assert len(verdicts) > 5


def test_a_copy_is_found_though_one_vector_sees_none():
    rng = np.random.default_rng(0)
    values = np.concatenate([[5.0, 4.0, 4.0, 3.0], rng.uniform(0, 1, 196)])
    found, _ = _counted(rotated(rng, values), k=3, sign=-1.0)
    np.testing.assert_allclose(found.values, [5.0, 4.0, 4.0], atol=1e-9)


def test_what_is_far_from_the_rest_is_counted_in_few_products():
    """And the largest alone needs no second run: its copies change nothing."""
    rng = np.random.default_rng(1)
    values = np.concatenate([[9.0, 8.0, 7.0, 6.0], rng.uniform(0, 1, 396)])
    matrix = rotated(rng, values)
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
    matrix = rotated(rng, values)
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
    matrix = rotated(rng, np.exp(spread * rng.standard_normal(300)))
    looks = []

    def steps():
        looks.clear()
        end = search.Search(lambda rows: rows @ matrix, 300, 5, -1.0, rtol, 1e-14, 300)
        return len(module._search(end, 1, 10**6, 1e-3).run.basis)

    ritz = module.ritz_pairs
    monkeypatch.setattr(module, "ritz_pairs", lambda *args: looks.append(1) or ritz(*args))
    seldom, few = steps(), len(looks)
    monkeypatch.setattr(module, "_LOOK", 1)
    always, many = steps(), len(looks)
    assert always <= seldom <= always + 4
    assert few <= 3 + 0.6 * many


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("rank", [0, 1, 3, 20])
def test_low_rank_has_as_many_zeros_as_are_asked_for(rank, sign, which):
    factor = np.random.default_rng(rank).standard_normal((300, rank))
    op = gnjax.dense(sign * factor @ factor.T)
    found = gnjax.eigenvalues(op, k=8, which=which, limits=gnjax.Limits(whole_rows=100))
    assert found.method == "krylov"
    dense = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    kept = slice(0, 8) if which == "largest" else slice(-8, None)
    assert (np.abs(found.values - dense[kept]) <= found.errors + 1e-10).all()


def test_where_all_are_equal_no_copy_can_matter():
    found, products = _counted(3.0 * np.eye(150), k=6, sign=1.0)
    np.testing.assert_allclose(found.values, 3.0, rtol=1e-14)
    assert products <= 9  # one, and twice the four random rows that follow a breakdown
    assert np.isfinite(found.count.value)


class _Own:
    """A user's operator, written for jax arrays, on vectors and on columns."""

    def __init__(self, matrix):
        self.matrix, self.shapes = jax.device_put(matrix), set()
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    def facts(self):
        return gnjax.operators.Facts(symmetric=True)  # so that all products are those of the run

    def mv(self, v):
        self.shapes.add(v.shape)
        assert isinstance(v, jax.Array)
        return self.matrix @ v.at[0].multiply(1.0)

    def as_matrix(self):
        return self.matrix


def test_operators_of_ones_own_get_jax_arrays():
    """Vectors from the first run; columns from the second where a copy is found."""
    values = np.concatenate([[5.0, 4.0, 4.0, 3.0], np.linspace(0, 1, 96)])
    op = _Own(rotated(np.random.default_rng(2), values))
    found = gnjax.eigenvalues(op, k=3, which="largest", limits=gnjax.Limits(whole_rows=50))
    assert found.method == "krylov"
    np.testing.assert_allclose(found.values, values[:3], atol=1e-9)
    assert op.shapes == {(100,), (100, 2)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 3])
def test_host_products_are_those_of_the_matrix(rows, dtype):
    rng = np.random.default_rng(3)
    weights = [jax.device_put(rng.standard_normal(shape)) for shape in ((5, 7), (7, 3))]
    model = (lambda w, x: jnp.tanh(x @ w[0]) @ w[1], weights)
    x, y = rng.standard_normal((11, 5)), np.arange(11) % 3
    network = gnjax.hessian(model, x, y, loss="cross_entropy")
    for op in (network, gnjax.dense(np.asarray(network.as_matrix(), dtype))):
        block = rng.standard_normal((rows, op.shape[0]))
        images = host_product(op)(block)
        assert images.dtype == np.float64
        accurate = 1e-12 if op.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(images, block @ np.asarray(op.as_matrix()), atol=accurate)


def _reflected(rng, values):
    """H D H with a reflection H: products that are exact but for rounding, at any size."""
    v = rng.standard_normal(len(values))
    v /= np.linalg.norm(v)

    def apply(rows):
        inner = (rows - 2 * np.outer(rows @ v, v)) * values
        return inner - 2 * np.outer(inner @ v, v)

    return apply


def _spectrum(rng, size):
    """Scattered, graded, one outlier, repeated, of low rank."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.standard_normal(size)
    if kind == 1:
        return np.geomspace(1, 10 ** -rng.uniform(1, 12), size) * rng.choice([-1, 1], size)
    if kind == 2:
        return np.append(1 + 0.1 * rng.standard_normal(size - 1), 1e10)
    if kind == 3:
        return np.repeat(rng.standard_normal(size // 4 + 1), 4)[:size]
    if kind == 4:
        return np.append(rng.standard_normal(rank := rng.integers(12)), np.zeros(size - rank))
    return np.repeat([1.0, 2.0, 3.0], size // 3 + 1)[:size]


@pytest.mark.parametrize("most", [20, 200])
@pytest.mark.parametrize("rtol", [1e-2, 1e-6, 1e-10])
def test_stated_errors_hold_for_every_place_in_the_spectrum(rtol, most):
    """With restarts and without: the i-th eigenvalue, if counted; else an eigenvalue.

    A count may fail in 1 of 1000; of 100 draws none is expected to, and two would be 4 sigma off.
    """
    counted, wrong = 0, 0
    for seed in range(100):
        rng = np.random.default_rng([1, seed])
        values = _spectrum(rng, int(rng.choice([40, 90, 200])))
        size, k, sign = len(values), int(rng.choice([1, 2, 5])), float(rng.choice([-1, 1]))
        apply, noise = _reflected(rng, values), 4e-16 * size**0.5
        found = module.outer_ritz_pairs(
            apply, size, k, sign=sign, rtol=rtol, noise=noise, most=most
        )
        rounding = 25 * noise * np.abs(values).max()
        true = np.sort(sign * values)[:k] * sign
        true = true if sign < 0 else true[::-1]
        nearest = np.abs(np.subtract.outer(found.values, values)).min(axis=1)
        assert (nearest <= found.residuals + rounding).all()
        scale = np.abs(values).max()
        if found.converged:
            assert found.residuals.max() <= rtol * scale * 1.01 + rounding
        if np.isfinite(found.count.value):
            counted += 1
            assert found.count.failure <= 1e-3
            wrong += (np.abs(found.values - true) > found.errors + rounding).any()
    assert counted >= (90 if most == 200 else 40)
    assert wrong <= 1


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_huge_eigenvalue_over_a_bulk_near_one(k, sign):
    """rtol of the norm is as wide as the bulk: the errors of the places then are, too."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = np.append(1 + 0.1 * rng.standard_normal(3200), 1e10)
        apply = _reflected(rng, values)
        found = module.outer_ritz_pairs(
            apply, 3201, k, sign=sign, rtol=1e-10, noise=1e-14, most=3201
        )
        true = np.sort(values)[::-1][:k] if sign < 0 else np.sort(values)[:k][::-1]
        assert np.isfinite(found.count.value)
        assert (np.abs(found.values - true) <= found.errors + 1e-5).all()
        assert found.errors.max() <= 2.5  # rtol times the norm is 1


def test_a_basis_too_small_is_restarted_until_the_tolerance():
    rng = np.random.default_rng(0)
    values = np.concatenate([[5.0, 4.0, 4.0, 3.0], rng.uniform(0, 2, 496)])
    matrix = rotated(rng, values)
    found, products = _counted(matrix, k=4, sign=-1.0, most=24)
    whole, fewest = _counted(matrix, k=4, sign=-1.0)
    assert found.converged
    assert np.isfinite(found.count.value)
    assert found.products == products
    assert products <= 3 * fewest
    np.testing.assert_allclose(found.values, [5.0, 4.0, 4.0, 3.0], atol=1e-9)
    np.testing.assert_allclose(found.images, found.vectors @ matrix, atol=1e-12)
    lengths = np.linalg.norm(found.images - found.values[:, None] * found.vectors, axis=1)
    np.testing.assert_allclose(found.residuals, lengths, atol=1e-13)
    np.testing.assert_allclose(whole.values, found.values, atol=1e-9)


def test_what_takes_too_many_products_says_so(monkeypatch):
    """The best values so far, an eigenvalue within each residual, and nothing counted."""
    monkeypatch.setattr(search, "_LEAST_PRODUCTS", 0)
    monkeypatch.setattr(search, "_CYCLES", 3)
    values = np.linspace(0, 1, 600) ** 2
    found, products = _counted(np.diag(values), k=3, sign=1.0, most=12)
    assert not found.converged
    assert np.isinf(found.count.value)
    assert found.products == products <= 4 * 12
    nearest = np.abs(np.subtract.outer(found.values, values)).min(axis=1)
    assert (nearest <= found.residuals + 1e-14).all()


def test_a_basis_never_has_fewer_rows_than_the_answer_needs():
    found, _ = _counted(np.diag(np.linspace(0, 1, 60) ** 4), k=5, sign=-1.0, most=2)
    np.testing.assert_allclose(found.values, np.linspace(0, 1, 60)[:-6:-1] ** 4, atol=1e-9)
    assert found.converged


def test_dropped_couplings_are_in_the_residuals():
    """Noise so large that every coupling of the bulk is dropped."""
    rng = np.random.default_rng(0)
    matrix = rotated(rng, np.append(rng.uniform(0.9, 1.1, 149), 100.0))
    found, _ = _counted(matrix, k=5, sign=-1.0, noise=1e-2)
    truth = np.linalg.norm(found.vectors @ matrix - found.values[:, None] * found.vectors, axis=1)
    assert (truth <= found.residuals + 1e-12).all()
    assert found.residuals[1:].max() > 1e-3


def test_places_are_bounded_where_intervals_overlap():
    """Three values within their residuals of each other, one across the edge, one above it."""
    values, residuals = np.array([0.0, 0.5, 0.9, 3.0, 5.0]), np.array([0.3, 0.3, 0.1, 0.2, 0.1])
    errors = position_errors(values, residuals, 4.0)
    np.testing.assert_allclose(errors[:3], np.linalg.norm(residuals[:3]))
    np.testing.assert_allclose(errors[3:], [0.2, 1.0])
    assert np.isinf(position_errors(values, residuals, 3.1)[3])


_ROWS = 500  # from which on three eigenvalues take a quarter of the products of the matrix


def _hessian(hidden_units):
    model = gnjax.models.MLP((8, hidden_units, 4), activation="tanh", key=jax.random.key(0))
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((20, 8)), rng.integers(0, 4, 20)
    return gnjax.hessian(model, x, labels, loss="cross_entropy")


@pytest.mark.parametrize("which", ["largest", "smallest"])
@pytest.mark.parametrize("of", [lambda op: op, lambda op: 0.5 * op + 0.1], ids=["H", "H / 2 + s I"])
def test_a_few_eigenvalues_of_a_hessian_take_fewer_products_than_its_matrix(which, of, monkeypatch):
    """Forming counts, and not the rows alone: these are far below ``Limits.whole_rows``."""
    op = of(_hessian(50))
    assert _ROWS < op.shape[0] < gnjax.Limits().whole_rows
    exact = np.linalg.eigvalsh(np.asarray(op))[::-1]

    def refuse(self):
        msg = "the matrix is formed"
        raise AssertionError(msg)

    monkeypatch.setattr(NetworkHessian, "as_matrix", refuse)
    for vectors in (False, True):
        found = gnjax.eigenvalues(op, k=3, which=which, vectors=vectors)
        wanted = exact[:3] if which == "largest" else exact[-3:]
        assert found.method == "krylov"
        assert found.converged
        assert (np.abs(found.values - wanted) <= found.errors + 1e-14).all()


@pytest.mark.parametrize(
    ("op", "method"),
    [
        (lambda: _hessian(8), "dense"),  # a few products more than its rows
        (lambda: gnjax.dense(rotated(np.random.default_rng(0), np.arange(600.0))), "dense"),
        (lambda: gnjax.factored(np.random.default_rng(0).standard_normal((600, 20))), "factored"),
    ],
)
def test_a_few_eigenvalues_come_from_the_whole_where_that_is_cheap(op, method):
    assert gnjax.eigenvalues(op(), k=3).method == method
