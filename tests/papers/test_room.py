"""The papers are a room of their own: the engine works without it, and it adds to it by facts."""

from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

import gnjax
from gnjax import papers
from gnjax.conditioning.ends import ends_of_spectrum
from gnjax.conditioning.methods import METHODS, Method
from gnjax.operators.stored.matrices import Dense
from gnjax.spectra.whole import dense_spectrum


@pytest.mark.parametrize("name", papers.__all__)
def test_a_name_that_has_moved_is_not_at_the_top(name):
    assert name not in gnjax.__all__
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(gnjax, name)


def test_a_name_that_has_moved_says_where_it_is():
    with pytest.raises(AttributeError, match=r"it is gnjax\.papers\.linear_gauss_newton now"):
        gnjax.linear_gauss_newton  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'magic'$"):
        gnjax.magic  # noqa: B018


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class _Own(Dense):
    """A matrix with a method that nobody else has, and one in place of the engine's."""

    def facts(self):
        return replace(
            super().facts(),
            positive=True,
            scaled=lambda w: _Own(w * self.matrix, w * self.stored_error),
            methods=(_method("own"), _method("krylov")),
        )


def _method(name):
    def ends(problem):
        return ends_of_spectrum(problem, dense_spectrum(problem.op))

    return Method(name, "", "", lambda problem: "", lambda problem: float(name == "krylov"), ends)


def test_an_operator_brings_its_methods_through_multiples_and_damping():
    """Any operator can do what those of linear networks do; other operators know nothing of it."""
    matrix = np.diag([4.0, 2.0, 1.0])
    op = _Own(jax.device_put(matrix), jax.device_put(0.0))
    for problem in (op, 2 * op, 0.5 * (3 * op)):
        for method in ("auto", "own", "krylov"):
            k = gnjax.condition_number(problem, method=method)
            np.testing.assert_allclose(k.value, 4.0, rtol=1e-12)
    small = gnjax.Limits(matrix_rows=1)  # too small for the engine's own dense method
    assert gnjax.condition_number(op + 1.0, limits=small).method == "damped"
    with pytest.raises(ValueError, match="method='own' is not one of auto, stated, krylov"):
        gnjax.condition_number(matrix, method="own")
    assert "own" not in METHODS


@pytest.mark.parametrize("widths", [(6, 8, 4), (6, 8, 8, 4)])
def test_a_multiple_of_a_linear_network_keeps_its_methods(widths):
    weights = gnjax.initializers.chain(jax.random.key(0), widths, "kaiming_normal")
    op = papers.linear_gauss_newton(weights)
    auto = gnjax.condition_number(op)
    twice = gnjax.condition_number(2 * op)
    assert twice.method == auto.method
    assert abs(twice.value / auto.value - 1) < 1e-12
    assert gnjax.condition_number(2 * op, method="krylov").products > 0
