"""The twin of a Gauss-Newton matrix or NTK: the same non-zero eigenvalues, and no larger."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.models import MLP
from gnjax.operators.facts import rank_of
from tests.networks import CASES

RNG = np.random.default_rng(1)
DRAWN = RNG.standard_normal((5, 4))
TWICE = DRAWN[[0, 1, 2, 0, 3, 4, 0, 2]]
MODEL = MLP((4, 6, 3), activation="tanh", key=jax.random.key(0))  # 51 parameters
LABELS = np.array([0, 1, 2, 0, 1, 0, 2, 2])


def _cosh(f, y):
    return jnp.cosh(f - y).sum()


OPS = {
    "squared error": lambda **o: gnjax.gauss_newton(MODEL, TWICE, **o),
    "cross-entropy": lambda **o: gnjax.gauss_newton(MODEL, TWICE, loss="cross_entropy", **o),
    "targets": lambda **o: gnjax.gauss_newton(
        MODEL, TWICE, loss=_cosh, y=np.eye(3)[LABELS] * 2, **o
    ),
    "ntk": lambda **o: gnjax.ntk(MODEL, TWICE),
    "few parameters": lambda **o: gnjax.gauss_newton(MODEL, TWICE, only="dense2/bias", **o),
    "ntk of few parameters": lambda **o: gnjax.ntk(MODEL, TWICE, only="dense2/bias"),
}
SIZES = {
    "squared error": 24,
    "cross-entropy": 16,
    "targets": 24,
    "ntk": 24,
    "few parameters": 3,
    "ntk of few parameters": 3,
}


@pytest.mark.parametrize("side", ["parameters", "outputs"])
@pytest.mark.parametrize("case", OPS)
def test_twin_has_the_non_zero_eigenvalues(case, side):
    op = OPS[case](side=side)
    twin = op.twin
    assert twin.shape == (SIZES[case],) * 2
    truth = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    found = np.linalg.eigvalsh(np.asarray(twin.as_matrix()))[::-1]
    few = min(len(truth), len(found))
    np.testing.assert_allclose(found[:few], truth[:few], rtol=0, atol=1e-12 * truth[0])
    np.testing.assert_allclose(truth[few:], 0, atol=1e-12 * truth[0])
    v = jax.device_put(RNG.standard_normal(len(found)))
    np.testing.assert_allclose(
        twin.mv(v), twin.as_matrix() @ v, rtol=0, atol=1e-12 * truth[0] * np.linalg.norm(v)
    )
    assert (truth > 1e-12 * truth[0]).sum() <= rank_of(op).value == rank_of(twin).value


@pytest.mark.parametrize("case", ["squared error", "targets", "ntk"])
def test_equal_samples_count_once_in_the_rank_and_in_kappa(case):
    """Of the 8 samples 5 differ: J has 24 rows and the rank 15, whatever the targets are."""
    op = OPS[case]()
    assert rank_of(op).value == 15
    kappa = gnjax.condition_number(op)
    assert kappa.resolved
    assert kappa.rank == 15
    values = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[::-1]
    assert kappa.value == pytest.approx(values[0] / values[14], rel=1e-6)


def test_operators_that_are_smallest_are_their_own_twins():
    x = DRAWN
    for op in (
        gnjax.gauss_newton(MODEL, x, side="outputs"),
        gnjax.gauss_newton(MODEL, x, only="dense2/bias"),
        gnjax.ntk(MODEL, x),
    ):
        assert op.twin is op
    assert gnjax.gauss_newton(MODEL, x).twin.side == "outputs"
    assert rank_of(gnjax.gauss_newton(MODEL, x)).value == 15
    assert rank_of(gnjax.gauss_newton(MODEL, x, loss="cross_entropy")).value == 10


def test_equal_samples_of_a_coupled_batch_keep_their_rows():
    """Their place may matter; that their rows are equal here is found modulo a prime."""
    model, x = CASES["batch norm of the batch"]()
    op = gnjax.ntk(model, x[[0, 1, 2, 3, 4, 0]])
    assert op.net.coupled
    assert op.twin.shape == op.shape
    assert rank_of(op).value == 15 == np.linalg.matrix_rank(np.asarray(op.factor()))


def test_sides():
    """G is (p, p) unless another side is asked for; R has k - 1 columns for the cross-entropy."""
    n, k, p = 8, 3, 51
    assert gnjax.gauss_newton(MODEL, TWICE).shape == (p, p)
    assert gnjax.gauss_newton(MODEL, TWICE, side="auto").shape == (n * k, n * k)
    assert gnjax.gauss_newton(MODEL, TWICE, side="outputs", loss="cross_entropy").shape == (16, 16)
    assert gnjax.ntk(MODEL, TWICE).shape == (n * k, n * k)


def test_rows_of_saturated_samples_are_independent():
    """Logits up to a few hundred: rows of size 1e-50 and less, and none of them is lost."""
    saturated = (lambda w, x: 60 * x @ w, jax.device_put(RNG.standard_normal((4, 3))))
    op = gnjax.gauss_newton(saturated, DRAWN[:3], loss="cross_entropy", side="outputs")
    sizes = np.linalg.norm(op.factor(), axis=1)
    assert 0 < sizes.min() < 1e-20
    assert np.linalg.matrix_rank(op.factor() / sizes[:, None]) == 6


@pytest.mark.parametrize("twin_first", [False, True])
def test_the_rounding_of_the_jacobian_is_measured_once_for_both_sides(twin_first):
    x = jax.random.normal(jax.random.key(0), (30, 3))
    model = gnjax.models.MLP((3, 2), key=jax.random.key(1))
    op = gnjax.ntk(model, x)
    alone = gnjax.ntk(model, x).twin.jacobian_errors
    assert not twin_first or op.twin is not op
    measured = op.jacobian_errors
    assert op.twin is not op
    assert op.twin.jacobian_errors is measured
    assert alone.whole.value == pytest.approx(measured.whole.value, rel=1e-9)
