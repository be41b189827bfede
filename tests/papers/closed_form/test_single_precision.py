"""Closed forms in 32-bit mode: their error contains what converting float64 input rounds."""

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax import papers
from gnjax.papers.closed_form import leaky_relu, normalised
from tests.precision import single_precision

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")

_rng = np.random.default_rng(0)
_V, _W, _X = (
    _rng.standard_normal((7, 3)),
    _rng.standard_normal((2, 7)),
    _rng.standard_normal((5, 3)),
)
_SIGMA = _X.T @ _X / 5

_CASES = {
    "leaky": lambda limits: leaky_relu.leaky_relu_gauss_newton(_V, _W, _X.T, 1 / 3, limits=limits),
    "leaky, d > n": lambda limits: leaky_relu.leaky_relu_gauss_newton(
        _V, _W, _X[:2].T, 1 / 3, limits=limits
    ),
    "batch": lambda limits: normalised.batch_norm_gauss_newton(_V, _W, _X),
    "frozen": lambda limits: normalised.batch_norm_gauss_newton(_V, _W, _X, statistics="frozen"),
    "layer": lambda limits: normalised.layer_norm_gauss_newton(_V, _W, _X),
    "sum": lambda limits: papers.linear_gauss_newton([_V, _W], _SIGMA, 1 / 3),
}


@pytest.mark.parametrize("formed", [False, True])
@pytest.mark.parametrize("case", _CASES)
def test_the_matrix_is_within_its_error_of_that_in_double_precision(case, formed):
    """Its error there is some 10^8 times smaller. Columns of factors may be rotated."""
    limits = gnjax.Limits(factor_work=0.0) if formed else gnjax.Limits()
    exact = np.asarray(_CASES[case](limits).as_matrix())
    with single_precision():
        op = _CASES[case](limits)
        assert op.dtype == jnp.float32
        factor = np.asarray(op.factor, float) if isinstance(op, gnjax.operators.Factored) else None
        matrix = np.asarray(op.as_matrix(), float) if factor is None else factor @ factor.T
        error = float(op.stored_error)
    values, found = (np.linalg.eigvalsh(m) for m in (exact, matrix))
    if factor is not None:
        values, found = (np.sqrt(np.maximum(v, 0)) for v in (values, found))
    floor = 1e-7 * values[-1] if factor is not None else 0  # the root of float64's rounding
    assert (np.abs(values - found) <= error + floor * (values < floor)).all()
    assert error <= 1e-3 * values[-1]
