"""The pencil of a sum of Kronecker products: one R for all shifts, and images without a product."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gnjax
from gnjax import papers
from gnjax.papers.kronecker import locate, pencil

WIDTHS = [(30, 40, 40, 6), (30, 12, 20, 6)]  # of full rank, and a staircase


def _located(widths, sign):
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    reduced = papers.linear_gauss_newton(weights).on_range().reduced
    return reduced, locate.locate(reduced, pencil.compressions(reduced), sign, 1e-3)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("shift", [0.3, 1.7])
def test_it_is_definite_where_the_operator_minus_any_shift_is(widths, sign, shift):
    """Sylvester's law with the R of another shift: as many negative eigenvalues."""
    reduced, located = _located(widths, sign)
    moved = located.pencil.at(shift * located.ritz.value)
    eye = np.eye(reduced.size)
    congruent, roots = (np.asarray(found) for found in pencil.product_with(moved, eye))
    dense = np.asarray(pencil.product(reduced.operator, reduced.groups, eye))
    plain = sign * (dense - moved.shift * eye)
    assert_allclose(congruent, roots @ plain @ roots.T, atol=1e-10 * np.abs(congruent).max())
    counts = [(np.linalg.eigvalsh(matrix) < 0).sum() for matrix in (congruent, plain)]
    assert counts[0] == counts[1]
    assert (counts[0] == 0) == (sign * (1 - shift) > 0)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_floor_of_a_deflation_belongs_to_the_shifted_pencil(widths, sign):
    """What is deflated leaves a Schur complement that the floor makes positive definite."""
    _, located = _located(widths, sign)
    moved = located.pencil.at(located.ritz.value * (1 - sign * 1e-3))
    known = located.deflation(moved)
    assert len(known.rows)
    image = np.asarray(pencil.product_with(moved, known.rows)[0])
    inner = known.rows @ image.T
    residual = image - inner @ known.rows
    floor = np.linalg.norm(residual, 2) ** 2 / np.linalg.eigvalsh(inner)[0]
    assert known.floor == pytest.approx(floor, rel=1e-6)
