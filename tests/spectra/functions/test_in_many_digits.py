"""Solutions, inverses and traces of f(A) beside ball arithmetic, on held-out matrices and networks.

Every error that is stated has to contain the distance from the exact number, for each way to
compute it: by a matrix, by a factor, by conjugate gradients, by quadratures without a spread.
"""

from contextlib import nullcontext, suppress

import flint
import jax
import numpy as np
import pytest

import gnjax
from tests.held_out import campaigns, many_digits, networks
from tests.held_out.matrices import SHAPES, symmetric

_DIGITS = 60
_NO_SMALL_SIDE = gnjax.Limits(whole_rows=1)
_KINDS = ("definite", "graded spectrum", "graded rows", "repeated", "integer Gram", "outlier")
_DAMPINGS = (0.0, 1e-10, 1e-6, 1e-2, 1.0)  # times the norm

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")


def _shifted(balls, shift):
    size = balls.nrows()
    rows = [[balls[i, j] + (shift if i == j else 0) for j in range(size)] for i in range(size)]
    return flint.arb_mat(rows)


def _wide(column):
    return flint.arb_mat([[flint.arb(entry)] for entry in column])


def _distance(x, exact):
    """|x - x*| in many digits."""
    with flint.ctx.workdps(_DIGITS):
        pairs = enumerate(np.asarray(x, float).tolist())
        return float(np.linalg.norm([float((flint.arb(v) - exact[i, 0]).mid()) for i, v in pairs]))


def _asked(op, balls, values, shift, rng, limits):
    """(what, distance, stated error) of every answer about A + s I; nothing where it is refused."""
    size = balls.nrows()
    b = rng.standard_normal(size)
    x = gnjax.solve(op, b, damping=shift, limits=limits)
    with flint.ctx.workdps(_DIGITS):
        exact = _shifted(balls, flint.arb(shift))
        inverse = exact.inv()
        solution = inverse * _wide(b)
        of_f = {
            "log": sum((v.log() for v in values), flint.arb(0)),
            "inverse": sum((1 / v for v in values), flint.arb(0)),
            "sqrt": sum((v.sqrt() for v in values), flint.arb(0)),
        }
        yield f"solve {x.method}", _distance(x.value, solution), x.error
        if limits is _NO_SMALL_SIDE:
            return
        d = gnjax.inverse_diagonal(op, damping=shift)
        for i in range(size):
            far = abs(flint.arb(float(d.values[i])) - inverse[i, i])
            yield f"diagonal {d.method}", float(far.mid()), d.errors[i]
        for name, number in of_f.items():
            t = gnjax.trace_of(name, op, damping=shift)
            yield name, float(abs(flint.arb(t.value) - number).mid()), t.error


def _check(asked, where):
    count = 0
    for what, far, error in asked:
        assert far <= error, (where, what, far, error)
        assert np.isfinite(error), (where, what)
        count += 1
    return count


@pytest.mark.parametrize("kind", _KINDS)
def test_every_answer_about_a_matrix_lies_within_its_error(kind):
    count = 0
    for index, size in enumerate((1, 3, 8, 20)):
        rng = np.random.default_rng([11, index])
        matrix = symmetric(rng, kind, size)
        balls = many_digits.exact(matrix)
        truth = many_digits.eigenvalues(matrix, _DIGITS)
        for damping in _DAMPINGS:
            shift = damping * float(truth[0].mid())
            with flint.ctx.workdps(_DIGITS):
                values = [v + flint.arb(shift) for v in truth]
            for limits in (gnjax.Limits(), _NO_SMALL_SIDE):
                is_regular = float(values[-1].mid()) > 1e-8 * float(values[0].mid())
                with nullcontext() if is_regular else suppress(ValueError):
                    answers = _asked(gnjax.dense(matrix), balls, values, shift, rng, limits)
                    count += _check(answers, (kind, size, damping))
    assert count > 100


def test_every_answer_about_a_factor_lies_within_its_error():
    count = 0
    for index, (n, p) in enumerate(SHAPES):
        rng = np.random.default_rng([12, index])
        factor = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-3, 3, (n, 1))
        with flint.ctx.workdps(_DIGITS):
            balls = many_digits.exact(factor)
            gram = balls * balls.transpose()
        truth = many_digits.of_stored_factor(factor)
        for damping in _DAMPINGS[1:]:
            shift = damping * float(truth.values[0].mid())
            with flint.ctx.workdps(_DIGITS):
                values = [v + flint.arb(shift) for v in truth.padded(n)]
            for limits in (gnjax.Limits(), _NO_SMALL_SIDE):
                answers = _asked(gnjax.factored(factor), gram, values, shift, rng, limits)
                count += _check(answers, (n, p, damping))
    assert count > 300


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense tanh 3-4-2", "layer norm, fast variance"])
def test_every_answer_about_a_network_lies_within_its_error(name):
    """log det, effective dimension, variances and solutions of n G + s I, from exact Jacobians."""
    count = 0
    for draw, case in campaigns.network_cases(3, 18, names=(name,), samples=(4,)):
        if case.loss != "mse":
            continue
        with flint.ctx.workdps(_DIGITS):
            params = networks.lifted(case)
            _, jacobian = networks.outputs_and_jacobian(case.architecture, params, case.numbers)
            rows = many_digits.exact(jacobian)
            gram = rows.transpose() * rows
        truth = many_digits.of_factor(rows)
        if not truth.rank:
            continue
        model = case.architecture.jax, jax.device_put(dict(case.params))
        op = len(case.x) * gnjax.gauss_newton(model, case.x)
        rng = np.random.default_rng(0)
        for damping in (1e-4, 1.0):
            shift = damping * float(truth.values[0].mid())
            with flint.ctx.workdps(_DIGITS):
                values = [v + flint.arb(shift) for v in truth.padded(op.shape[0])]
            answers = list(_asked(op, gram, values, shift, rng, gnjax.Limits()))
            count += _check(answers, (draw, case.regime, case.dtype, damping))
            share = gnjax.effective_dimension(op, damping=shift)
            with flint.ctx.workdps(_DIGITS):
                exact = sum((v - flint.arb(shift)) / v for v in values)
                far = abs(flint.arb(share.value) - exact)
            assert float(far.mid()) <= share.error, (draw, case.regime)
    assert count > 200
