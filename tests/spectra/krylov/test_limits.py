"""A Krylov basis stays within its limits, and what does not converge there says so and why."""

import numpy as np
import pytest

import gnjax
from gnjax.spectra.krylov import lanczos as krylov
from gnjax.spectra.krylov import search

_SIZE = 3500
_VALUES = np.linspace(0, 1, _SIZE) ** 3  # the largest ones lie close together


class _Diagonal:
    shape, dtype = (_SIZE, _SIZE), np.dtype(float)

    def facts(self):
        return gnjax.operators.Facts(error=0.0, symmetric=True)

    def mv(self, v):
        return (_VALUES * np.asarray(v).T).T

    def as_matrix(self):
        return np.diag(_VALUES)


def _largest(**limits):
    return gnjax.eigenvalues(_Diagonal(), k=3, limits=gnjax.Limits(**limits))


def test_a_basis_that_does_not_fit_is_refused_with_what_to_pass():
    with pytest.raises(ValueError, match=r"at least 12 vectors, .* limits allow 11;") as refused:
        _largest(basis_bytes=8 * _SIZE * 11)
    assert f"Limits(basis_bytes={8 * _SIZE * 12:_})" in str(refused.value)
    with pytest.raises(ValueError, match=r"limits allow 11; .*, vectors=12"):
        _largest(vectors=11)


@pytest.mark.parametrize("vectors", [12, 20])
def test_no_run_holds_more_vectors_than_it_may(monkeypatch, vectors):
    """Neither the first run, nor what follows a restart, nor the count."""
    rows = []
    steps = krylov._steps

    def counted(run, **options):
        rows.append(options["rows"])
        return steps(run, **options)

    monkeypatch.setattr(krylov, "_steps", counted)
    _largest(vectors=vectors)
    assert max(rows) <= vectors
    assert search.least_rows(3) == 12


def test_a_basis_too_small_to_converge_says_so_with_errors_that_hold():
    found = _largest(vectors=12)
    assert not found.converged
    assert "NOT CONVERGED" in str(found)
    assert "did not converge within" in str(found.certificate)
    assert "basis of 12 vectors" in str(found.certificate)
    nearest = np.abs(_VALUES[:, None] - found.values).min(axis=0)
    assert (nearest <= found.errors).all()
    same = _largest(basis_bytes=8 * _SIZE * 12)
    np.testing.assert_array_equal(found.values, same.values)
    assert _largest(vectors=200).converged


def test_fifty_million_parameters_are_refused_before_any_product():
    class Huge:
        shape, dtype = (50_000_000, 50_000_000), np.dtype(float)

        def facts(self):
            return gnjax.operators.Facts(error=0.0, symmetric=True)

        def mv(self, v):
            msg = "a product was made"
            raise AssertionError(msg)

        def as_matrix(self):
            return np.zeros((1, 1))

    with pytest.raises(ValueError, match=r"needs a Krylov basis of at least 12 vectors, 4.8 GB"):
        gnjax.eigenvalues(Huge(), k=3)
