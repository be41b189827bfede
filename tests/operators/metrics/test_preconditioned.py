"""P^{-1/2} A P^{-1/2} against dense algebra, with P as optax, or numpy, has it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg
import scipy.sparse.linalg
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from tests.references import gauss_newton

X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.random.default_rng(1).standard_normal((30, 3))


def _model():
    net = gnjax.models.MLP((4, 5, 3), activation="tanh", key=jax.random.key(1))
    return gnjax.functional(net)


APPLY, PARAMS = _model()


def _loss(params, x=X, y=Y):
    return jnp.square(APPLY(params, x) - y).sum() / (2 * len(x))


_slope = jax.jit(jax.grad(_loss))


def _dense():
    return gauss_newton(APPLY, PARAMS, X)


@partial(jax.jit, static_argnums=0)
def _step(update, gradient, state, params):
    """The updates, the optimiser's state after them, and the parameters that they lead to."""
    updates, state = update(gradient, state, params)
    return updates, state, optax.apply_updates(params, updates)


def _trained(optimiser, steps=5):
    params = _model()[1]
    state, start = optimiser.init(params), params
    for _ in range(steps):
        _, state, params = _step(optimiser.update, _slope(params), state, params)
    return state, start


def _agrees(op, matrix, metric):
    """All eigenvalues within 1e-10 of the largest, and within their own errors; kappa as well."""
    exact = scipy.linalg.eigvalsh(matrix, metric)[::-1]
    found = gnjax.eigenvalues(op)
    off = np.abs(found.values - exact)
    assert off.max() < 1e-10 * exact[0]
    assert (off <= found.errors + 1e-13 * exact[0]).all()
    assert found.errors.max() < 1e-9 * exact[0]
    kappa = gnjax.condition_number(op)
    if kappa.resolved:
        assert kappa.value == pytest.approx(exact[0] / exact[kappa.rank - 1], rel=1e-9)
    return kappa


def test_a_tree_and_an_operator_of_diagonal_entries():
    model, matrix = _model(), _dense()
    op = gnjax.gauss_newton(model, X)
    tree = jax.tree.map(lambda leaf: 0.1 + np.square(leaf), model[1])
    metric = np.asarray(ravel_pytree(tree)[0])
    scaled = gnjax.preconditioned(op, tree)
    assert _agrees(scaled, matrix, np.diag(metric)).resolved
    _agrees(
        gnjax.preconditioned(op, gnjax.diagonal(metric - 0.05), damping=0.05),
        matrix,
        np.diag(metric),
    )
    root = np.diag(metric**-0.5)
    assert np.abs(scaled.as_matrix() - root @ matrix @ root).max() < 1e-10
    v = np.random.default_rng(2).standard_normal((len(matrix), 3))
    assert np.abs(scaled @ v - root @ matrix @ root @ v).max() < 1e-10


def test_both_sides_have_the_same_non_zero_eigenvalues():
    metric = np.random.default_rng(3).uniform(0.1, 2, len(_dense()))
    outputs = gnjax.preconditioned(gnjax.ntk(_model(), X), gnjax.diagonal(metric))
    exact = scipy.linalg.eigvalsh(len(X) * _dense(), np.diag(metric))[::-1]
    found = gnjax.eigenvalues(outputs).values
    assert np.abs(found[: len(exact)] - exact).max() < 1e-10 * exact[0]
    assert np.abs(found[len(exact) :]).max() < 1e-10 * exact[0]
    assert outputs.twin.op.side == "parameters"
    v = np.random.default_rng(4).standard_normal(90)
    assert np.abs(outputs @ v - np.asarray(outputs.as_matrix()) @ v).max() < 1e-9
    factor = outputs.factorisation().form()
    assert np.abs(factor @ factor.T - outputs.as_matrix()).max() < 1e-9


def test_a_hessian_is_scaled_too():
    op = gnjax.hessian(_model(), X, Y)
    flat, unravel = ravel_pytree(_model()[1])
    matrix = np.asarray(jax.jit(jax.hessian(lambda v: _loss(unravel(v))))(flat))
    metric = np.random.default_rng(5).uniform(0.1, 2, len(matrix))
    found = gnjax.eigenvalues(gnjax.preconditioned(op, gnjax.diagonal(metric)))
    exact = scipy.linalg.eigvalsh(matrix, np.diag(metric))[::-1]
    off = np.abs(found.values - exact)
    assert off.max() < 1e-10 * exact[0]
    assert (off <= found.errors).all()


def test_the_diagonal_and_the_layers_of_the_matrix_itself():
    op, matrix = gnjax.gauss_newton(_model(), X), _dense()
    diagonal = np.asarray(ravel_pytree(gnjax.metrics.diagonal_of(op))[0])
    assert np.abs(diagonal - np.diag(matrix)).max() < 1e-12
    _agrees(gnjax.preconditioned(op, "diagonal"), matrix, np.diag(np.diag(matrix)))
    layers = scipy.linalg.block_diag(matrix[:25, :25], matrix[25:, 25:]) + 1e-4 * np.eye(43)
    _agrees(gnjax.preconditioned(op, "layers", damping=1e-4), matrix, layers)
    batches = gnjax.gauss_newton(_model(), [(X[:15], Y[:15]), (X[15:], Y[15:])])
    _agrees(gnjax.preconditioned(batches, "layers", damping=1e-4), matrix, layers)


@pytest.mark.parametrize(
    "given",
    [
        gnjax.dense,
        lambda p: gnjax.as_operator(scipy.sparse.linalg.aslinearoperator(p)),
        lambda p: gnjax.dense(p - np.eye(43)) + 1.0,
    ],
    ids=["a matrix", "products", "a sum"],
)
def test_a_metric_that_is_an_operator(given):
    root = np.random.default_rng(7).standard_normal((43, 43))
    metric = root @ root.T / 43 + np.eye(43)
    for call, matrix in ((gnjax.gauss_newton, _dense()), (gnjax.ntk, _dense() * len(X))):
        found = gnjax.eigenvalues(gnjax.preconditioned(call(_model(), X), given(metric)))
        exact = scipy.linalg.eigvalsh(matrix, metric)[::-1][: len(found)]
        assert np.abs(found.values[: len(exact)] - exact).max() < 1e-10 * exact[0]


def test_the_metric_of_its_own_blocks_is_one():
    """With one layer P is G + damping, and every eigenvalue is lambda / (lambda + damping)."""
    op = gnjax.gauss_newton(_model(), X, only="dense2/*")
    exact = gnjax.eigenvalues(op).values
    found = gnjax.eigenvalues(gnjax.preconditioned(op, "layers", damping=1e-3)).values
    assert np.abs(found - exact / (exact + 1e-3)).max() < 1e-10


BEFORE_THE_FIRST_STEP = {
    "rmsprop": optax.rmsprop(1.0, initial_scale=1.0, bias_correction=True),
    "centred": optax.rmsprop(1.0, initial_scale=1.0, bias_correction=True, centered=True),
    "yogi": optax.yogi(1.0),
    "adam": optax.adam(1.0),
    "adagrad": optax.adagrad(1.0, initial_accumulator_value=0.0),
}


@pytest.mark.parametrize("name", BEFORE_THE_FIRST_STEP)
def test_a_state_before_the_first_step_has_no_metric(name):
    """Whether its moments begin at 0 or above, nothing of the loss is in them."""
    optimiser = BEFORE_THE_FIRST_STEP[name]
    op = gnjax.gauss_newton(_model(), X)
    state = optimiser.init(_model()[1])
    # the moments that this one begins with stay large beside its first gradient
    asked = [] if name == "centred" else [optimiser]
    for beside in (None, *asked):
        with pytest.raises(ValueError, match="no gradient yet"):
            gnjax.preconditioned(op, state, optimizer=beside)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_moments_of_few_digits_are_widened(dtype):
    """nu / (1 - b2) = 1e5 is beyond float16, whose largest number is 65504."""
    params = {"w": jnp.ones((1, 1))}
    op = gnjax.gauss_newton((lambda p, x: x @ p["w"], params), np.ones((1, 1)))
    zeros, nu = {"w": jnp.zeros((1, 1), dtype)}, {"w": jnp.full((1, 1), 100.0, dtype)}
    state = optax.ScaleByAdamState(jnp.array(1), zeros, nu)
    for optimiser, factor in (
        (None, 1.0),
        (optax.scale_by_adam(), (1 + 0.9) * (0.999 / 1.999) ** 0.5),
    ):
        metric = gnjax.metrics.optimizer_metric(op, state, optimiser)
        assert abs(metric.as_matrix()[0, 0] / factor - 1e5**0.5) < 1e-4


def test_kappa_under_adam():
    state, params = _trained(optax.adam(1e-2))
    op = gnjax.gauss_newton((_model()[0], params), X)
    metric = gnjax.metrics.optimizer_metric(op, state, optax.adam(1e-2))
    scaled = gnjax.preconditioned(op, state, optimizer=optax.adam(1e-2))
    _agrees(scaled, _dense(), metric.as_matrix())


def test_the_state_of_an_nnx_optimiser():
    model = gnjax.models.MLP((4, 5, 3), activation="tanh", key=jax.random.key(1))
    optimiser = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimiser):
        optimiser.update(model, nnx.grad(lambda m: jnp.square(m(X) - Y).sum())(model))

    step(model, optimiser)
    nu = jax.tree.leaves(jax.jit(jax.grad(lambda p: 60 * _loss(p)))(_model()[1]))
    sizes = np.concatenate([np.abs(np.asarray(g)).ravel() for g in nu])
    # the next update divides by this root, and has this share of the gradient and this rate
    exact = (sizes * (0.999 / 1.999) ** 0.5 + 1e-8) * (1 + 0.9) / 1e-2
    op = gnjax.gauss_newton(_model(), X)
    found = gnjax.eigenvalues(gnjax.preconditioned(op, optimiser)).values
    wanted = scipy.linalg.eigvalsh(_dense(), np.diag(exact))[::-1]
    assert np.abs(found - wanted).max() < 1e-6 * wanted[0]  # its moments are in float32


def test_a_metric_of_twelve_decades():
    """In a metric whose entries differ by 12 decades the small eigenvalues are still enclosed."""
    matrix = _dense()
    metric = np.geomspace(1e-6, 1e6, len(matrix))
    op = gnjax.gauss_newton(_model(), X)
    found = gnjax.eigenvalues(gnjax.preconditioned(op, gnjax.diagonal(metric)))
    root = np.diag(metric**-0.5)
    exact = np.linalg.svd(np.linalg.cholesky(matrix).T @ root, compute_uv=False) ** 2
    assert (np.abs(found.values - exact) <= found.errors + 1e-13 * exact[0]).all()
    assert found.errors[0] < 1e-11 * found.values[0]


class _Rolled:
    """An operator that is no symmetric matrix."""

    shape, dtype = (43, 43), np.dtype(np.float64)

    def mv(self, v):
        return jnp.roll(v, 1, axis=0)

    def as_matrix(self):
        return self.mv(jnp.eye(43))


def _flax_optimiser():
    model = gnjax.models.MLP((3, 4, 2), key=jax.random.key(0))
    return nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


@pytest.mark.parametrize(
    ("metric", "options", "words"),
    [
        (lambda: gnjax.diagonal(np.zeros(43)), {}, "43 of the 43 eigenvalues of its diagonal"),
        (lambda: "diagonal", {"damping": -1.0}, "is negative"),
        (lambda: np.ones(43), {}, r"shape \(43,\); write gnjax.diagonal\(entries\)"),
        (lambda: jnp.eye(43), {}, r"shape \(43, 43\); write gnjax.dense\(P\)"),
        (lambda: lambda v: v, {}, r"got a function; write gnjax.as_operator\(scipy"),
        (lambda: 2.0, {}, "does not look like"),
        (lambda: None, {}, "does not look like"),
        (lambda: gnjax.diagonal(np.ones(42)), {}, "on 42 parameters, and the operator on 43"),
        (
            lambda: "kfc",
            {},
            "neither 'diagonal' nor 'layers'; .* as opt_state of optax, and optimizer=",
        ),
        (lambda: optax.adam(0.1), {}, "this is an optimiser, .*: pass opt_state after a step"),
        (lambda: optax.adam, {}, "this is an optimiser, .*: pass opt_state after a step"),
        (_flax_optimiser, {}, "not one that this optimizer makes for the parameters"),
        (lambda: {"w": np.ones(43)}, {}, "does not look like"),
        (_Rolled, {}, "a metric must be symmetric"),
        (lambda: gnjax.dense(np.eye(2)), {}, r"a metric of 43 parameters, got shape \(2, 2\)"),
        (lambda: gnjax.dense(-np.eye(43)), {}, "is not positive definite"),
        (lambda: optax.sgd(0.1).init(_model()[1]), {}, "this one has none"),
        (lambda: optax.adam(0.1).init(_model()[1]), {}, "no gradient yet"),
        (lambda: optax.contrib.muon(0.1).init(_model()[1]), {}, "no gradient yet"),
        (lambda: optax.adafactor(0.1).init(_model()[1]), {}, "pass the optimiser beside"),
    ],
)
def test_what_is_no_metric_is_refused(metric, options, words):
    op = gnjax.gauss_newton(_model(), X)
    with pytest.raises(ValueError, match=words):
        gnjax.preconditioned(op, metric(), **options)


def test_an_optimiser_in_place_of_its_state_is_refused_wherever_a_state_is_taken():
    op = gnjax.gauss_newton(_model(), X)
    monitor = gnjax.Monitor(X, np.zeros((len(X), 3)))
    for call in (
        lambda: gnjax.metrics.optimizer_metric(op, optax.rmsprop(0.1)),
        lambda: gnjax.metrics.soap(op, optax.adam(0.1)),
        lambda: monitor(0, _model(), metric=optax.adam(0.1)),
    ):
        with pytest.raises(ValueError, match="this is an optimiser, and its metric is in its sta"):
            call()


def test_what_has_no_parameters_is_refused():
    with pytest.raises(ValueError, match="parameters of a network"):
        gnjax.preconditioned(gnjax.dense(np.eye(2)), np.ones(2))
    op = gnjax.gauss_newton(_model(), X[:2])
    with pytest.raises(ValueError, match=r"P is not positive definite: .* pass damping"):
        gnjax.preconditioned(op, "layers")


def test_the_factor_is_formed_once_for_its_values_and_their_error(monkeypatch):
    op = gnjax.preconditioned(gnjax.gauss_newton(_model(), X), gnjax.diagonal(np.full(43, 2.0)))
    formed, form = [], gnjax.operators.NetworkGram.factor
    monkeypatch.setattr(
        gnjax.operators.NetworkGram, "factor", lambda self: formed.append(1) or form(self)
    )
    gnjax.condition_number(op, method="factored")
    assert len(formed) == 1
