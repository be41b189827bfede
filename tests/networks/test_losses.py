"""Factors of output Hessians against diag(p) - p p^T in many digits, and what losses refuse."""

import warnings

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import gnjax
from gnjax.networks.losses import targets
from gnjax.networks.losses.output_hessian import root_rows
from gnjax.networks.losses.targets import Target
from gnjax.networks.output_shapes import flat_outputs

DIGITS = 60
EPS = np.finfo(np.float64).eps


def _outputs(margin, k, top):
    f = np.random.default_rng(k + top).standard_normal(k)
    f[top] += margin
    return f


def _softmax(f):
    """p in many digits, from the stored logits."""
    powers = [mp.exp(mp.mpf(float(v)) - mp.mpf(float(max(f)))) for v in f]
    return [power / mp.fsum(powers) for power in powers]


def _roots(loss, outputs, y=None):
    """R (n, k, r) of a loss at outputs (n, k)."""
    target = Target(y, None, loss, flat_outputs(outputs.shape[1]))
    return jax.vmap(root_rows)(target, outputs).swapaxes(1, 2)


_compiled_roots = jax.jit(_roots, static_argnums=0)


def _factor(f):
    return np.asarray(_compiled_roots("cross_entropy", f[None]))[0]


def _exact_product(factor):
    matrix = mp.matrix(np.asarray(factor, float).tolist())
    return matrix * matrix.T


def _slack(f):
    """Relative rounding: exp turns the error of f into one of p, and k sums and products follow."""
    return 2 * EPS * (4 + 2 * np.ptp(f) + 3 * len(f))


SATURATED = [
    (margin, k, top)
    for margin in (0.0, 1.0, 10.0, 40.0)
    for k in (2, 3, 7)
    for top in {0, 1, k - 1}
]


@pytest.mark.parametrize(("margin", "k", "top"), SATURATED)
def test_factor_of_the_softmax_has_the_entries_of_its_hessian(margin, k, top):
    """Every entry of R R^T, in 60 digits, to a relative error of rounding."""
    f = _outputs(margin, k, top)
    factor = _factor(f)
    assert factor.shape == (k, k - 1)
    with mp.workdps(DIGITS):
        p, found = _softmax(f), _exact_product(factor)
        for i in range(k):
            for j in range(k):
                others = mp.fsum(p[m] for m in range(k) if m != i)
                truth = p[i] * others if i == j else -p[i] * p[j]
                assert abs(found[i, j] - truth) <= _slack(f) * abs(truth)


@pytest.mark.parametrize("top", [0, 2, 4])
def test_margin_of_seven_hundred(top):
    """Probabilities of 1e-304: their squares underflow, what is left has all of its digits."""
    f = _outputs(700.0, 5, top)
    factor = _factor(f)
    with mp.workdps(700):
        p, found = _softmax(f), _exact_product(factor)
        for i in range(5):
            truth = p[i] * mp.fsum(p[m] for m in range(5) if m != i)
            assert abs(found[i, i] - truth) <= _slack(f) * truth
        others = [i for i in range(5) if i != top]
        for i in others:
            assert abs(found[i, top] + p[i] * p[top]) <= _slack(f) * p[i]


@pytest.mark.parametrize(("margin", "top"), [(0.0, 0), (10.0, 1), (40.0, 0), (40.0, 3), (300.0, 2)])
def test_singular_values_of_the_factor_keep_their_digits(margin, top):
    """R has full column rank; all k - 1 eigenvalues of R^T R, in many digits, are those of B."""
    f = _outputs(margin, 4, top) + 30 * np.arange(4) * (margin > 0)
    with mp.workdps(500):
        p = _softmax(f)
        matrix = mp.matrix(_factor(f).tolist())
        hessian = mp.matrix(4, 4)
        for i in range(4):
            for j in range(4):
                hessian[i, j] = (p[i] if i == j else 0) - p[i] * p[j]
        truth = sorted(mp.eigsy(hessian, eigvals_only=True))[1:]
        found = sorted(mp.eigsy(matrix.T * matrix, eigvals_only=True))
        for value, exact in zip(found, truth, strict=True):
            assert abs(value - exact) <= 16 * _slack(f) * exact  # k steps of a bound of k each


def test_factor_does_not_jump_where_logits_are_equal():
    """Rounding decides which of two equal logits is the largest; R moves by rounding only."""
    f = np.array([0.3, 2.0, -1.0, 2.0, 2.0])
    moved = f * (1 + EPS * np.array([1, -1, 1, 1, -1]))
    np.testing.assert_allclose(_factor(moved), _factor(f), rtol=0, atol=16 * EPS)


def test_factors_can_be_traced():
    """Monte Carlo arithmetic evaluates the equations of the factor."""
    f, y = _outputs(3.0, 4, 1)[None], np.full((1, 4), 0.25)
    for loss in ("cross_entropy", lambda f, y: jnp.cosh(f - y).sum()):
        traced = jax.make_jaxpr(lambda f, loss=loss: _roots(loss, f, y))(f)
        assert traced.jaxpr.eqns


def test_convex_losses_keep_directions_without_curvature():
    """B = a a^T and B = 0: the symmetric root, with as many columns as outputs."""
    a = np.array([3.0, 4.0, 0.0])
    f = np.random.default_rng(0).standard_normal((2, 3))
    factors = np.asarray(_compiled_roots(lambda f: (a @ f) ** 2 / 2, f))
    np.testing.assert_allclose(
        factors @ factors.swapaxes(1, 2), np.broadcast_to(np.outer(a, a), (2, 3, 3)), atol=1e-13
    )
    assert factors.shape == (2, 3, 3)
    assert not np.asarray(_compiled_roots(lambda f: f.sum(), f)).any()


def test_cross_entropy_of_one_class_is_refused():
    model = (lambda p, x: x @ p, np.ones((3, 1)))
    with pytest.raises(ValueError, match="one output is zero"):
        gnjax.gauss_newton(model, np.ones((4, 3)), loss="cross_entropy")
    with pytest.raises(ValueError, match="one output is zero"):
        gnjax.hessian(model, np.ones((4, 3)), np.zeros(4, int), loss="cross_entropy")


SAMPLES, LABELS = np.random.default_rng(0).standard_normal((5, 3)), np.array([0, 1, 0, 1, 1])


def _two_classes():
    return lambda w, x: x @ w, np.random.default_rng(1).standard_normal((3, 2))


OF_LABELS = {
    "gauss_newton": lambda **loss: gnjax.gauss_newton(_two_classes(), SAMPLES, LABELS, **loss),
    "hessian": lambda **loss: gnjax.hessian(_two_classes(), SAMPLES, LABELS, **loss),
    "batches": lambda **loss: gnjax.gauss_newton(_two_classes(), [(SAMPLES, LABELS)], **loss),
    "diagnose": lambda **loss: gnjax.diagnose(_two_classes(), SAMPLES, LABELS, **loss),
    "Monitor": lambda **loss: gnjax.Monitor(SAMPLES, LABELS, **loss)(0, _two_classes()),
}


@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_without_a_named_loss_warn_once_at_the_callers_line(name):
    call = OF_LABELS[name]
    targets._warn_one_hot.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
        call()
    said = [w for w in caught if 'loss="cross_entropy"' in str(w.message)]
    assert [(w.filename, w.lineno) for w in said] == [(__file__, call.__code__.co_firstlineno)]


@pytest.mark.parametrize("loss", ["squared_error", "mse", "cross_entropy"])
def test_labels_with_a_named_loss_do_not_warn(loss):
    targets._warn_one_hot.cache_clear()
    gnjax.gauss_newton(_two_classes(), SAMPLES, LABELS, loss=loss)  # a warning is an error in tests


class _Tensor:
    """What NumPy and this library read of a tensor of PyTorch, whose dtype NumPy does not know."""

    def __init__(self, array):
        self.array = array
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, f"torch.{array.dtype}"

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize(
    ("y", "loss"), [(LABELS, "cross_entropy"), (np.eye(2)[LABELS], "squared_error")]
)
def test_targets_may_be_tensors_of_pytorch_as_samples_may(y, loss):
    model = _two_classes()
    expected = gnjax.hessian(model, SAMPLES, y, loss=loss).as_matrix()
    samples, tensors = _Tensor(SAMPLES), _Tensor(y)
    for op in (
        gnjax.hessian(model, samples, tensors, loss=loss),
        gnjax.hessian(model, [(samples, tensors)], loss=loss),
    ):
        np.testing.assert_allclose(op.as_matrix(), expected, rtol=1e-12, atol=1e-14)
