"""Lanczos with its basis on the device: against dense eigenvalues, in both precisions."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.spectra.krylov import device_basis
from gnjax.spectra.krylov import device_run as module
from gnjax.spectra.krylov.device_basis import layout
from tests.held_out.matrices import rotated

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(float)
_EPS = {dtype: float(np.finfo(dtype).eps) for dtype in (_SINGLE, _DOUBLE)}


def _rotated(values, seed=0):
    return rotated(np.random.default_rng(seed), values)


def _pairs(matrix, k=4, dtype=_DOUBLE, sign=-1.0, rtol=None, rows=20, exact=None, **options):
    """Of the matrix as it is stored in a dtype, and that matrix in float64."""
    stored = jax.device_put(np.asarray(matrix, dtype))
    form = layout(len(matrix), dtype)
    rtol = rtol or (1e-10 if dtype == _DOUBLE else 1e-5)

    def product(v):
        assert v.dtype == dtype
        return jnp.matmul(stored, v, precision="highest")

    guess = module.ritz_vectors(product, form, k, sign=sign, rtol=rtol, rows=rows, **options)
    values, residuals = module.checked_vectors(exact or product, form, guess.vectors)
    order = np.argsort(-values, kind="stable")
    found = SimpleNamespace(
        values=values[order],
        residuals=residuals[order],
        vectors=guess.vectors[order],
        products=guess.products,
        reached=guess.reached,
        scale=guess.scale,
    )
    return found, np.asarray(stored, float)


def _random(size):
    return np.random.default_rng(3).uniform(0, 1, size)


_SPECTRA = {
    "separated": np.concatenate([[9.0, 8.0, 7.0, 6.0], _random(196)]),
    "clustered": np.concatenate([5 + 1e-4 * np.arange(6), _random(194)]),
    "repeated": np.concatenate([[5.0, 4.0, 4.0, 4.0, 3.0], _random(195)]),
    "graded": 10.0 ** -np.linspace(0, 12, 200),
    "negative": -1 - _random(200),
    "both signs": np.concatenate([[-7.0, -6.0, 5.0, 4.5], _random(196) - 0.5]),
    "rank 3": np.concatenate([[3.0, 2.0, 1.0], np.zeros(197)]),
    "one value": np.full(200, 2.0),
    "zero": np.zeros(200),
    "large": 1e25 * np.linspace(-1, 1, 200) ** 3,
    "small": 1e-25 * np.linspace(-1, 1, 200) ** 3,
}


@pytest.mark.parametrize("dtype", [_SINGLE, _DOUBLE], ids=str)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("name", list(_SPECTRA))
def test_an_eigenvalue_lies_within_every_residual(name, sign, dtype):
    found, stored = _pairs(_rotated(_SPECTRA[name]), dtype=dtype, sign=sign)
    true = np.linalg.eigvalsh(stored)[::-1]
    scale = np.abs(true).max()
    rounding = 200 * _EPS[dtype] * scale  # of a product: 200 terms
    nearest = np.abs(np.subtract.outer(found.values, true)).min(axis=1)
    assert (nearest <= found.residuals + rounding).all()
    lengths = np.linalg.norm(found.vectors.astype(float), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=0, atol=4 * _EPS[dtype])
    missed = found.vectors @ stored - found.values[:, None] * found.vectors
    np.testing.assert_allclose(
        np.linalg.norm(missed, axis=1), found.residuals, rtol=1e-3, atol=rounding
    )
    wanted = true[:4] if sign < 0 else true[-4:]
    assert (np.diff(found.values) <= 0).all()
    dense_end = name == "graded" and sign > 0  # a hundred eigenvalues within 1e-6 of each other
    assert found.reached == (not dense_end)
    if (
        name != "repeated" and not dense_end
    ):  # of which copies may be missing, and nobody claims the contrary
        tolerance = 1e-10 if dtype == _DOUBLE else 1e-5
        np.testing.assert_allclose(found.values, wanted, rtol=0, atol=10 * tolerance * scale)


@pytest.mark.parametrize("dtype", [_SINGLE, _DOUBLE], ids=str)
def test_the_scale_is_the_norm_although_restarts_leave_the_other_end(dtype):
    """A tolerance that starts as a share of 10 must not end as one of the last basis's 2."""
    matrix = _rotated(np.concatenate([[10.0], np.linspace(1, 2, 299)]))
    found, _ = _pairs(matrix, k=3, dtype=dtype, sign=1.0, rtol=1e-4, rows=14)
    assert found.reached
    assert found.scale == pytest.approx(10, rel=1e-5)
    assert found.residuals.max() <= 1e-4 * found.scale


@pytest.mark.parametrize("dtype", [_SINGLE, _DOUBLE], ids=str)
def test_many_restarts_with_the_fewest_vectors_lead_to_the_same(monkeypatch, dtype):
    """A spectrum that is dense at its end takes more than 30 cycles."""
    matrix = _rotated(np.linspace(0, 1, 900) ** 2)
    restarts = []
    restart = module._restart
    monkeypatch.setattr(module, "_restart", lambda *a: restarts.append(1) or restart(*a))
    found, stored = _pairs(matrix, k=5, dtype=dtype, rows=16)
    true = np.linalg.eigvalsh(stored)[::-1][:5]
    assert len(restarts) > 30
    assert found.reached
    tolerance = 1e-9 if dtype == _DOUBLE else 2e-5
    np.testing.assert_allclose(found.values, true, rtol=0, atol=tolerance)
    assert found.residuals.max() <= tolerance


@pytest.mark.parametrize("size", [1, 2, 5, 40])
@pytest.mark.parametrize("dtype", [_SINGLE, _DOUBLE], ids=str)
def test_a_basis_that_spans_everything_has_all_eigenvalues(size, dtype):
    matrix = _rotated(np.linspace(-1, 2, size), seed=size)
    found, stored = _pairs(matrix, k=size, dtype=dtype, rows=2 * size + 6, rtol=1e-15)
    true = np.linalg.eigvalsh(stored)[::-1]
    np.testing.assert_allclose(found.values, true, rtol=0, atol=50 * size * _EPS[dtype])
    assert found.products == size


def test_past_the_rank_are_zeros_and_nothing_else():
    """Five values of a matrix of rank two, in the fewest vectors."""
    matrix = _rotated(np.concatenate([[2.0, 1.0], np.zeros(298)]))
    for dtype in (_SINGLE, _DOUBLE):
        found, _ = _pairs(matrix, k=5, dtype=dtype, rows=16)
        np.testing.assert_allclose(found.values, [2, 1, 0, 0, 0], atol=100 * _EPS[dtype])


def test_what_follows_a_breakdown_is_looked_at():
    """Random directions find copies that the first Krylov space does not have."""
    found, _ = _pairs(np.diag(np.repeat([3.0, 2.0], 100)), k=2)
    np.testing.assert_allclose(found.values, [3.0, 3.0], rtol=1e-12)


def test_values_in_float32_are_not_rounded_to_float32():
    """A Rayleigh quotient in float64 is off by the square of the residual and by the product."""
    values = np.concatenate([[4.0, 3.0, 2.0], _random(197)])
    wide = np.asarray(_rotated(values).astype(_SINGLE), float)
    found, _ = _pairs(wide, 3, _SINGLE, rtol=1e-6, exact=lambda v: wide @ np.asarray(v, float))
    true = np.linalg.eigvalsh(wide)[::-1][:3]
    assert np.abs(found.values - true).max() < 1e-11
    assert 1e-9 < found.residuals.max() < 1e-5


@pytest.mark.parametrize("after", [3, 30])
def test_work_that_is_stopped_returns_the_best_values_so_far(after):
    matrix = _rotated(np.linspace(0, 1, 400) ** 2)
    asked = iter(range(10**6))
    found, stored = _pairs(matrix, k=4, rows=14, stop=lambda: next(asked) + 1 >= after)
    true = np.linalg.eigvalsh(stored)
    assert not found.reached
    assert found.products == after
    assert len(found.values) == min(4, after)
    nearest = np.abs(np.subtract.outer(found.values, true)).min(axis=1)
    assert (nearest <= found.residuals + 1e-13).all()
    assert found.residuals.max() > 1e-6


def test_the_work_ends_after_the_products_that_are_allowed(monkeypatch):
    monkeypatch.setattr(module, "most_products", lambda rows: 25)
    found, _ = _pairs(_rotated(np.linspace(0, 1, 400) ** 2), k=4, rows=14)
    assert not found.reached
    assert found.products == 25


def test_what_is_not_finite_is_refused():
    matrix = np.eye(50)
    matrix[3, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or Inf"):
        _pairs(matrix)


def test_sums_over_many_numbers_keep_their_digits():
    """Eight million terms one after the other in float32 lose two digits, and 10^8 lose all."""
    form = layout(2**23 + 3, _SINGLE)
    vector = np.random.default_rng(0).uniform(0.5, 1.5, form.size).astype(np.float32)
    row = device_basis.as_row(form, vector)
    exact = np.linalg.norm(vector.astype(float))
    assert abs(device_basis.norm(row) / exact - 1) < 5e-7
    basis = device_basis.with_row(device_basis.empty_basis(form, 3), row, 0, 1 / exact)
    shares = np.asarray(device_basis._shares(basis, row), float).sum(axis=0)
    assert abs(shares[0] / exact - 1) < 5e-7
    left, inside, length = device_basis.orthogonalised(basis, row, 1, 0.0)
    assert abs(inside[0] / exact - 1) < 5e-7
    assert length < 1e-6 * exact
    assert left.shape == (form.slabs, form.width)


def test_no_second_basis_is_held():
    """Not by any compiled step, and not between steps."""
    form = layout(2**18, _SINGLE)
    rows = 30
    basis = device_basis.empty_basis(form, rows)
    row = device_basis.random_row(form, 0)
    matrix = np.zeros((20, rows))
    coefficients = np.zeros(rows)
    steps = {
        "rotation": device_basis._rotated_piece.lower(basis, matrix, 0),
        "storing": device_basis.with_row.lower(basis, row, 0, 1.0),
        "products": device_basis._shares.lower(basis, row),
        "subtraction": device_basis._less.lower(basis, row, coefficients),
        "combination": device_basis.combination.lower(basis, coefficients),
        "row": device_basis.row_of.lower(basis, 0),
    }
    for name, lowered in steps.items():
        taken = lowered.compile().memory_analysis()
        assert taken.temp_size_in_bytes < 3 * row.nbytes, name
        if name in ("rotation", "storing"):
            assert taken.alias_size_in_bytes == basis.nbytes
    pointer = basis.unsafe_buffer_pointer()
    basis = device_basis.rotated(device_basis.with_row(basis, row, 0, 1.0), matrix)
    assert basis.unsafe_buffer_pointer() == pointer
    largest = []

    def product(v):
        alive = sum(array.nbytes for array in jax.live_arrays() if array is not row)
        largest.append(alive)
        return v * jnp.linspace(0, 1, v.size, dtype=v.dtype)

    del basis
    before = sum(array.nbytes for array in jax.live_arrays() if array is not row)
    guess = module.ritz_vectors(
        product,
        form,
        2,
        sign=-1.0,
        rtol=1e-3,
        rows=10,
        stop=lambda: len(largest) > 15,
    )
    assert max(largest) - before < 11.5 * row.nbytes  # ten in the basis, and the product's
    largest.clear()
    module.checked_vectors(product, form, guess.vectors)
    assert max(largest) - before < 3 * row.nbytes  # without the basis
