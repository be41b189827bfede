"""Zeros that a matrix has by the shapes of its factor are counted, and can be left out."""

import dataclasses

import jax
import numpy as np
import pytest

import gnjax

MODEL = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
X = np.random.default_rng(0).standard_normal((5, 3))


def _op(**options):
    return gnjax.gauss_newton(MODEL, X, **options)


def test_zeros_of_a_gauss_newton_matrix_are_p_less_n_k():
    found = gnjax.eigenvalues(_op())  # 26 parameters, 10 rows
    assert (len(found), found.zeros) == (26, 16)
    exact = np.linalg.eigvalsh(np.asarray(_op(side="outputs").as_matrix()))[::-1]
    np.testing.assert_allclose(found.nonzero.values, exact, atol=1e-12)
    computed = found.nonzero
    assert (computed.zeros, computed.nonzero is computed) == (0, True)
    assert len(found.nonzero.errors) == 10
    assert str(found).startswith("10 eigenvalues ")
    assert "and 16 zeros by structure" in str(found)
    assert "zeros" not in str(gnjax.eigenvalues(_op(side="outputs")))
    assert "10 eigenvalues and 16 zeros" in gnjax.plot(found).axes[0].get_title(loc="left").replace(
        chr(10), " "
    )


@pytest.mark.parametrize(
    ("options", "zeros"),
    [
        ({"k": 12}, 2),
        ({"k": 8}, 0),
        ({"k": 18, "which": "smallest"}, 16),
        ({"k": 16, "which": "smallest"}, 16),
        ({"vectors": True}, 16),
    ],
)
def test_a_part_of_the_spectrum_counts_its_own_zeros(options, zeros):
    found = gnjax.eigenvalues(_op(), **options)
    assert found.zeros == zeros
    assert len(found.nonzero) == len(found) - zeros
    assert (found.nonzero.values > 0).all()
    if found.vectors is not None:
        assert found.nonzero.vectors.shape == (10, 26)


def test_zeros_that_were_computed_stay():
    """Of a factor with a zero column one zero is computed, and the other is known by its shape."""
    found = gnjax.eigenvalues(gnjax.factored(np.array([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]])))
    assert (len(found), found.zeros, found.nonzero.values.tolist()) == (3, 1, [4.0, 0.0])


def test_a_shift_has_no_zeros():
    found = gnjax.eigenvalues(_op() + 0.5)
    assert found.zeros == 0
    assert found.values[-1] == pytest.approx(0.5)
    alone = dataclasses.replace(found, values=np.zeros(3), errors=np.zeros(3), zeros=3)
    assert str(alone).startswith("0 eigenvalues and 3 zeros by structure (")
