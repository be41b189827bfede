"""The smallest eigenvalues of networks from the rows of J, against singular values of a dense J."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from tests.references import jacobian
from tests.spectra.preconditioned_ends import prescribed

LIMITS = gnjax.Limits(whole_rows=10)


def _network(widths, samples):
    model = gnjax.models.MLP(widths, activation="tanh", key=jax.random.key(0))
    return model, np.random.default_rng(0).standard_normal((samples, widths[0]))


def _exact(model, x):
    values = np.linalg.svd(np.asarray(jacobian(*gnjax.functional(model), x)), compute_uv=False) ** 2
    return values[::-1]


@pytest.mark.parametrize(("widths", "samples"), [((4, 30, 3), 20), ((5, 4, 2), 60)])
@pytest.mark.parametrize("rows_bytes", [12e9, 3e5])
def test_smallest_eigenvalues_of_networks(widths, samples, rows_bytes):
    """Of J J^T and of J^T J, with J held in float64 and in float32."""
    model, x = _network(widths, samples)
    op = gnjax.ntk(model, x) if samples == 20 else gnjax.gauss_newton(model, x)
    limits = gnjax.Limits(whole_rows=10, rows_bytes=rows_bytes)
    several = gnjax.eigenvalues(op, k=4, which="smallest", limits=limits)
    scale = 1.0 if samples == 20 else 1 / samples
    exact = scale * _exact(model, x)[:4][::-1]
    assert several.method == "sketched"
    assert several.converged
    assert (np.abs(several.values - exact) <= several.errors).all()
    assert (several.errors <= 2e-3 * several.values).all()
    assert several.certificate.kind == "measured"


def test_a_repeated_eigenvalue_counts_as_often_as_it_occurs():
    """Blocks of equal samples: every eigenvalue twice."""
    j = np.random.default_rng(1).standard_normal((20, 50))
    whole = np.block([[j, np.zeros_like(j)], [np.zeros_like(j), j]])
    several = gnjax.eigenvalues(gnjax.factored(whole), k=4, which="smallest", limits=LIMITS)
    exact = np.linalg.svd(whole, compute_uv=False)[::-1][:4][::-1] ** 2
    assert several.method == "sketched"
    assert (np.abs(several.values - exact) <= several.errors).all()


def test_a_singular_matrix_is_left_to_lanczos():
    j = np.random.default_rng(2).standard_normal((30, 50))
    j[-1] = j[0]
    several = gnjax.eigenvalues(gnjax.factored(j), k=2, which="smallest", limits=LIMITS)
    assert several.method != "sketched"
    exact = np.linalg.svd(j, compute_uv=False)[::-1][:2][::-1] ** 2
    assert (np.abs(several.values - exact) <= several.errors + 1e-12 * 50).all()


def test_an_interrupted_search_keeps_what_it_knows():
    """Ctrl-C at the first product of the search: values from above, and nothing certain below."""
    model, x = _network((4, 30, 3), 20)
    op = gnjax.ntk(model, x)

    def interrupt(made, expected):
        if made > 60:
            raise KeyboardInterrupt

    several = gnjax.eigenvalues(op, k=2, which="smallest", limits=LIMITS, progress=interrupt)
    exact = _exact(model, x)[:2][::-1]
    assert (np.abs(several.values - exact) <= several.errors).all()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_property_eigenvalues_beside_far_smaller_ones(data):
    """A few eigenvalues stand alone below the others, some below a factor's working precision."""
    rows = data.draw(st.sampled_from([16, 28, 60]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    values = np.sort(rng.uniform(0.5, 1.0, rows))[::-1]
    values[-data.draw(st.integers(1, 2)) :] *= 10.0 ** -data.draw(st.floats(2, 26))
    j = prescribed.factor(values, int(rows * data.draw(st.floats(1.0, 4.0))))
    memory = data.draw(st.sampled_from([1e9, 5.0 * j.size]))
    limits = gnjax.Limits(whole_rows=10, rows_bytes=memory)
    about = {"k": 4, "which": "smallest", "rtol": 10.0 ** -data.draw(st.floats(3, 12))}
    several = gnjax.eigenvalues(gnjax.factored(j), **about, limits=limits)
    sigma = np.linalg.svd(j, compute_uv=False)[-4:]
    unsure = 1e-14 * (2 * sigma + 1e-14)  # of LAPACK's squares
    assert (np.abs(several.values - sigma**2) <= several.errors + unsure).all()
