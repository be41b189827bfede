"""Losses of optax that equal named ones: every matrix is that of the function, with its factor."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gnjax
from gnjax.networks.losses import of_optax

RNG = np.random.default_rng(0)
N, T, K = 5, 2, 3
W = RNG.standard_normal((4, T * K))
X = RNG.standard_normal((N, 4))
LABELS = np.arange(N * T).reshape(N, T) % K
REAL = RNG.standard_normal((N, T, K))
BITS = RNG.uniform(size=(N, T, K))
SOFT = np.asarray(optax.smooth_labels(jax.nn.one_hot(LABELS, K), 0.1))
PER_SAMPLE, PER_TOKEN = RNG.uniform(0.5, 2, size=N), RNG.uniform(0.5, 2, size=(N, T))
PER_OUTPUT = RNG.uniform(0.5, 2, size=(N, T, K))


def _apply(w, x):
    return jnp.tanh(x @ w).reshape(len(x), T, K)


MODEL = _apply, W
SOFTMAX = optax.softmax_cross_entropy_with_integer_labels

# loss: its targets, the weights of its terms, the named loss, and how it is said
CASES = {
    "l2_loss": (REAL, PER_OUTPUT, "squared_error", "squared_error (optax.l2_loss)"),
    "squared_error": (
        REAL,
        PER_OUTPUT,
        "squared_error",
        "2 x squared_error (optax.squared_error)",
    ),
    "softmax_cross_entropy": (
        SOFT,
        PER_TOKEN,
        "cross_entropy",
        "cross_entropy (optax.softmax_cross_entropy, summed over tokens)",
    ),
    "safe_softmax_cross_entropy": (
        SOFT,
        PER_TOKEN,
        "cross_entropy",
        "cross_entropy (optax.safe_softmax_cross_entropy, summed over tokens)",
    ),
    "softmax_cross_entropy_with_integer_labels": (
        LABELS,
        PER_TOKEN,
        "cross_entropy",
        "cross_entropy (optax.softmax_cross_entropy_with_integer_labels, summed over tokens)",
    ),
    "sigmoid_binary_cross_entropy": (
        BITS,
        PER_OUTPUT,
        "binary_cross_entropy",
        "binary_cross_entropy (optax.sigmoid_binary_cross_entropy)",
    ),
}


def _own(loss):
    """The same loss as a function that nobody recognises."""
    return lambda f, y: loss(f, y)


def _same(op, own):
    expected = np.asarray(own.as_matrix())
    assert op.shape == expected.shape
    atol = 1e-12 * np.linalg.norm(expected)
    np.testing.assert_allclose(op.as_matrix(), expected, rtol=0, atol=atol)


WEIGHTED = [(name, weighted) for name in CASES for weighted in ("", "terms")] + [
    ("squared_error", "samples"),
    ("softmax_cross_entropy_with_integer_labels", "samples"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weighted"), WEIGHTED)
def test_matrices_are_those_of_the_function(name, weighted):
    """G, H and the Fisher matrices, with their factors and means, and without the generic way."""
    y, of_terms, named, _ = CASES[name]
    loss = getattr(optax, name)
    weights = {"": None, "samples": PER_SAMPLE, "terms": of_terms}[weighted]
    for make in (gnjax.gauss_newton, gnjax.hessian):
        op = make(MODEL, X, y, loss=loss, weights=weights)
        _same(op, make(MODEL, X, y, loss=_own(loss), weights=weights))
        target = op.net.target
        assert target is None or target.loss == named  # None: the squared error has B = I
    kernel = gnjax.ntk(MODEL, X, y=y, loss=loss, weights=weights, side="parameters")
    _same(kernel, gnjax.ntk(MODEL, X, y=y, loss=_own(loss), weights=weights, side="parameters"))
    if weights is None:
        for terms in (False, True):
            fisher = gnjax.empirical_fisher(MODEL, X, y, loss=loss, terms=terms)
            _same(fisher, gnjax.empirical_fisher(MODEL, X, y, loss=_own(loss), terms=terms))
        batches = [(X[:3], y[:3]), (X[3:], y[3:])]
        streamed = gnjax.gauss_newton(MODEL, batches, loss=loss)
        _same(streamed, gnjax.gauss_newton(MODEL, X, y, loss=_own(loss)))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_says_the_loss_and_its_factor(name):
    y, of_terms, _, said = CASES[name]
    op = gnjax.gauss_newton(MODEL, X, y, loss=getattr(optax, name))
    assert repr(op).endswith(f", loss {said}>")
    with_terms = gnjax.gauss_newton(MODEL, X, y, loss=getattr(optax, name), weights=of_terms)
    assert "summed over tokens" not in repr(with_terms)  # it is the mean by these weights


def test_the_rank_is_that_of_the_named_loss():
    """The generic way has its root of a singular B up to rounding only, and is wider."""
    model = gnjax.models.MLP((8, 16, 3), activation="tanh", key=jax.random.key(0))
    x, y = np.random.default_rng(0).standard_normal((20, 8)), np.arange(20) % 3
    kappa, named, own = (
        gnjax.condition_number(gnjax.gauss_newton(model, x, y, loss=loss))
        for loss in (SOFTMAX, "cross_entropy", _own(SOFTMAX))
    )
    assert (kappa.rank, kappa.rank_source, kappa.resolved) == (40, "analytic", True)
    assert kappa.value == pytest.approx(named.value, rel=1e-12)
    assert (own.rank, own.rank_source, own.resolved) == (40, "analytic", True)
    assert own.interval[0] <= kappa.value <= own.interval[1]


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (optax.softmax_cross_entropy, 2 * SOFT),  # no probabilities
        (optax.softmax_cross_entropy, SOFT.astype(np.float32) * 1.00001),
        (optax.sigmoid_binary_cross_entropy, 3 * BITS - 1),
        (optax.huber_loss, REAL),
        (optax.log_cosh, REAL),
    ],
)
def test_targets_that_mean_something_else_leave_a_function(loss, y):
    op = gnjax.gauss_newton(MODEL, X, y, loss=loss)
    assert repr(op).endswith(f", loss {loss.__name__} (a function)>")
    _same(op, gnjax.gauss_newton(MODEL, X, y, loss=_own(loss)))


def test_a_function_of_another_version_with_other_values_stays_a_function(monkeypatch):
    """The name alone is not trusted."""
    monkeypatch.setattr(optax, "l2_loss", lambda f, y: 0.7 * (f - y) ** 2)
    op = gnjax.gauss_newton(MODEL, X, REAL, loss=optax.l2_loss)
    assert callable(op.net.target.loss)
    np.testing.assert_allclose(
        op.as_matrix(), 1.4 * gnjax.gauss_newton(MODEL, X).as_matrix(), rtol=1e-12, atol=1e-14
    )
    monkeypatch.setattr(optax, "l2_loss", lambda f, y: ((f - y) ** 2).sum() / 2)  # another shape
    assert of_optax.equal_loss(optax.l2_loss, REAL, op.net.shapes, N, op.dtype) is None


def test_traced_targets_leave_a_function():
    """Inside of a compiled step nobody sees whether a label is -1, which optax counts."""

    @jax.jit
    def product(y, v):
        return gnjax.gauss_newton(MODEL, X, y, loss=SOFTMAX) @ v

    v = jnp.asarray(RNG.standard_normal(W.size))
    expected = gnjax.gauss_newton(MODEL, X, LABELS, loss=SOFTMAX) @ v
    np.testing.assert_allclose(product(LABELS, v), expected, rtol=1e-12, atol=1e-14)


def test_labels_are_recognised_inside_of_a_compiled_step():
    @jax.jit
    def product(w, v):
        return gnjax.gauss_newton((_apply, w), X, LABELS, loss=SOFTMAX) @ v

    of_optax._same_values.cache_clear()
    v = jnp.asarray(RNG.standard_normal(W.size))
    expected = gnjax.gauss_newton(MODEL, X, LABELS, loss=_own(SOFTMAX)) @ v
    np.testing.assert_allclose(product(W, v), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("loss", "y", "words"),
    [
        (optax.softmax_cross_entropy, LABELS, "for labels pass optax.softmax_cross_entropy_with"),
        (optax.l2_loss, LABELS, r"jax.nn.one_hot\(y, classes\) makes them of labels"),
        (SOFTMAX, LABELS - 1, "takes a label of -1 for the last class"),
        (SOFTMAX, LABELS + 1, "labels that name no output"),
        (optax.squared_error, None, "compares with targets, its second argument"),
    ],
)
def test_targets_of_another_loss_are_refused(loss, y, words):
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton(MODEL, X, y, loss=loss)
