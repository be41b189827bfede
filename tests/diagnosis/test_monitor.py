"""The monitor's rows against dense matrices, its products, and what it compiles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import gnjax
from gnjax.diagnosis import monitor as module
from tests.precision import single_precision

WIDTHS = (4, 8, 3)
X = np.random.default_rng(0).standard_normal((20, 4))
Y = np.random.default_rng(1).integers(0, 3, 20)
OPTIONS = {"loss": "cross_entropy"}


def mlp(seed: int = 0, widths: tuple[int, ...] = WIDTHS) -> nnx.Module:
    return gnjax.models.MLP(widths, activation="tanh", key=jax.random.key(seed))


def tree_like(model: nnx.Module, seed: int) -> nnx.State:
    rng = np.random.default_rng(seed)
    state = nnx.state(model, nnx.Param)
    return jax.tree.map(lambda leaf: rng.uniform(0.2, 2.0, leaf.shape), state)


def test_a_row_agrees_with_the_dense_matrices():
    model = mlp()
    metric, update = tree_like(model, 1), tree_like(model, 2)
    monitor = gnjax.Monitor(X, Y, rtol=1e-6, probes=400, **OPTIONS)
    row = monitor(0, model, metric=metric, update=update, rate=0.5)
    op = gnjax.hessian(model, X, Y, **OPTIONS)
    matrix = np.asarray(op.as_matrix())
    gram = np.asarray(gnjax.gauss_newton(model, X, y=Y, **OPTIONS).as_matrix())
    root = np.asarray(op.ravel(metric)) ** -0.5
    u = np.asarray(op.ravel(update))
    scaled = root[:, None] * matrix * root
    for name, dense in (("sharpness", matrix), ("gauss_newton", gram), ("preconditioned", scaled)):
        largest = np.linalg.eigvalsh(dense)[-1]
        assert abs(row[name] - largest) <= row[f"{name}_error"] <= 2e-6 * np.linalg.norm(dense, 2)
    assert row.at_least <= np.linalg.eigvalsh(matrix)[-1]
    assert row.at_least == pytest.approx(row.sharpness, rel=1e-9)
    assert abs(row.directional - u @ matrix @ u / (u @ u)) <= row.directional_error
    assert row.directional_error < 1e-9 * row.sharpness
    assert abs(row.trace - np.trace(matrix)) < 5 * row.trace_standard_error
    assert row.threshold == 4.0
    assert row.kappa_low <= gnjax.condition_number(gram).value <= row.kappa_high


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_single_precision_states_its_rounding():
    x = X.astype(np.float32)
    with single_precision():
        apply, params = gnjax.functional(mlp())
        row = gnjax.Monitor(x, Y, rtol=1e-6, kappa=False, **OPTIONS)(0, (apply, params))
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    true = gnjax.eigenvalues(gnjax.hessian((apply, wide), x, Y, **OPTIONS), k=1).values[0]
    assert row.at_least <= true
    assert abs(row.sharpness - true) <= row.sharpness_error <= 1e-3 * true
    assert row.certificate.kind == "measured"


def test_a_warm_start_takes_a_third_of_the_products():
    monitor = gnjax.Monitor(X, Y, rtol=1e-2, kappa=False, gauss_newton=False, **OPTIONS)
    rng, model = np.random.default_rng(0), mlp()
    products = []
    for step in range(5):
        products.append(monitor(step, model).products)
        state = nnx.state(model, nnx.Param)
        moved = jax.tree.map(lambda w: w + 1e-3 * rng.standard_normal(w.shape), state)
        nnx.update(model, moved)
    assert max(products[1:]) <= products[0] / 3, products


def test_two_products_a_warm_row_are_a_lower_bound_within_their_error():
    """Also after another structure, for which there is no vector to start from."""
    options = {"rtol": 1e-6, "kappa": False, "gauss_newton": False, **OPTIONS}
    monitor = gnjax.Monitor(X, Y, warm_steps=2, **options)
    rng, model = np.random.default_rng(0), mlp()
    for step in range(5):
        row = monitor(step, model)
        values = np.linalg.eigvalsh(np.asarray(gnjax.hessian(model, X, Y, **OPTIONS).as_matrix()))
        assert row.at_least <= values[-1]
        assert np.abs(values - row.sharpness).min() <= row.sharpness_error
        assert row.sharpness > 0.99 * values[-1]
        assert (row.products == 2) == (step > 0)
        state = nnx.state(model, nnx.Param)
        moved = jax.tree.map(lambda w: w + 3e-3 * rng.standard_normal(w.shape), state)
        nnx.update(model, moved)
    assert monitor(5, mlp(widths=(4, 9, 3))).products > 2


def test_a_metric_that_comes_later_is_measured_fully_once():
    """Its first run has no vector of a row before."""
    options = {"rtol": 1e-6, "kappa": False, "gauss_newton": False, **OPTIONS}
    monitor, model = gnjax.Monitor(X, Y, warm_steps=2, **options), mlp()
    metric = tree_like(model, 1)
    monitor(0, model)
    row = monitor(1, model, metric=metric)
    assert row.preconditioned_error <= 1e-5 * row.preconditioned
    assert monitor(2, model, metric=metric).products == 4


def test_only_every_second_step_has_a_row():
    monitor = gnjax.Monitor(X, Y, every=2, **OPTIONS)
    assert [monitor(step, mlp()) is None for step in range(4)] == [False, True, False, True]
    assert [row.step for row in monitor.history] == [0, 2]
    assert "2 rows" in repr(monitor)


def test_new_weights_compile_nothing(caplog):
    monitor = gnjax.Monitor(X, Y, kappa=False, **OPTIONS)
    for step in range(2):
        monitor(step, mlp(step))
    with jax.log_compiles(), caplog.at_level("DEBUG", logger="jax"):
        for step in range(2, 5):
            monitor(step, mlp(0))
    compiled = [r.getMessage() for r in caplog.records if "XLA compilation of" in r.getMessage()]
    assert not [message for message in compiled if "_advanced" in message], compiled


def test_another_structure_starts_anew():
    monitor = gnjax.Monitor(X, Y, rtol=1e-6, kappa=False, **OPTIONS)
    monitor(0, mlp())
    other = mlp(0, (4, 5, 3))
    row = monitor(1, other)
    true = gnjax.eigenvalues(gnjax.hessian(other, X, Y, **OPTIONS), k=1).values[0]
    assert abs(row.sharpness - true) <= row.sharpness_error


def test_an_eigenvalue_that_overtakes_is_found_at_the_tenth_row():
    """A diagonal Hessian, of which one eigenvector never leads to another."""

    def apply(params, x):
        return x * params["scales"] * params["weights"]

    def model(second: float):
        return apply, {"scales": np.array([[3.0, second, 1.0]]), "weights": np.ones((1, 3))}

    monitor = gnjax.Monitor(np.ones((1, 3)), np.zeros((1, 3)), kappa=False, only="weights")
    assert monitor(0, model(1.0)).sharpness == pytest.approx(9, rel=1e-3)
    monitor._vectors = {"hessian": jnp.array([1.0, 0.0, 0.0])}  # what many more rows lead to
    rows = [monitor(step, model(3.2)) for step in range(1, 11)]
    assert all(row.at_least <= 3.2**2 for row in rows)
    assert rows[-1].sharpness == pytest.approx(3.2**2, rel=1e-3)


def test_the_metric_of_an_optimiser_in_its_loop():
    model = mlp()
    optimizer = optax.adam(1e-2)
    apply, params = gnjax.functional(model)
    state = jax.jit(optimizer.init)(params)

    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, X), Y).mean()

    @jax.jit
    def trained(params, state):
        update, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, update), state, update

    monitor = gnjax.Monitor(X, Y, **OPTIONS)
    for step in range(3):
        params, state, update = trained(params, state)
        row = monitor(step, (apply, params), metric=state, optimizer=optimizer, update=update)
    hessian = gnjax.hessian((apply, params), X, Y, **OPTIONS)
    op = gnjax.preconditioned(hessian, state, optimizer=optimizer)
    true = np.linalg.eigvalsh(np.asarray(op.as_matrix()))[-1]
    assert abs(row.preconditioned - true) <= row.preconditioned_error
    assert row.preconditioned_error < 0.05 * true


def test_the_state_of_an_optimiser_alone_is_uncertified():
    """Adamax keeps a state that looks like Adam's, and divides by other numbers."""
    apply, params = gnjax.functional(mlp())
    optimizer = optax.adamax(1e-2)
    gradient = jax.tree.map(np.ones_like, params)
    _, state = jax.jit(optimizer.update)(gradient, jax.jit(optimizer.init)(params))
    monitor = gnjax.Monitor(X, Y, kappa=False, **OPTIONS)
    alone = monitor(0, (apply, params), metric=state)
    assert alone.preconditioned > 0
    assert alone.preconditioned_error == np.inf
    assert alone.certificate.kind == "unknown"
    assert "pass the optimiser beside its state" in str(alone.certificate)
    beside = monitor(1, (apply, params), metric=state, optimizer=optimizer)
    # after gradients of ones P is the same number for all parameters: that of 0.1 / (1 - 0.9^2)
    share = 0.1 / (1 - 0.9**2)
    true = beside.sharpness * 1e-2 * share / 0.999
    assert beside.preconditioned == pytest.approx(true, rel=0.02)
    assert beside.certificate.kind == "measured"
    assert alone.sharpness_error == pytest.approx(beside.sharpness_error, rel=10)


@pytest.mark.parametrize("make", [optax.adam, optax.amsgrad, optax.rmsprop, optax.nadam])
def test_before_the_first_step_of_the_optimiser_a_row_has_no_preconditioned_sharpness(make):
    apply, params = gnjax.functional(mlp())
    optimizer = make(1e-2)
    monitor = gnjax.Monitor(X, Y, **OPTIONS)
    state = jax.jit(optimizer.init)(params)
    for beside in (None, optimizer):
        row = monitor(0, (apply, params), metric=state, optimizer=beside)
        assert row.preconditioned is None
        assert "no preconditioned: the optimiser has made no step yet" in str(row)
    update, state = jax.jit(optimizer.update)(jax.tree.map(np.ones_like, params), state)
    row = monitor(1, (apply, optax.apply_updates(params, update)), metric=state)
    assert row.preconditioned > 0
    assert not row.without


def test_a_row_with_an_optimiser_and_no_state_says_that_the_state_is_missing():
    row = gnjax.Monitor(X, Y, **OPTIONS)(0, mlp(), optimizer=optax.adam(1e-2))
    assert row.preconditioned is None
    assert "no preconditioned: optimizer= came without metric=" in str(row)
    assert gnjax.Monitor(X, Y, **OPTIONS)(0, mlp()).without == ""


def test_kappa_is_there_where_it_is_asked_for():
    row = gnjax.Monitor(X, Y, kappa=True, gauss_newton=False, **OPTIONS)(0, mlp())
    assert row.kappa is not None
    assert gnjax.Monitor(X, Y, kappa=False, **OPTIONS)(0, mlp()).kappa is None


def test_kappa_of_a_matrix_that_is_not_small_is_not_computed_unasked(monkeypatch):
    """At 192 rows it took fifty times as long as all else in a row."""
    monkeypatch.setattr(module, "condition_number", lambda op: pytest.fail("it was computed"))
    x, y = np.tile(X, (3, 1)), np.tile(Y, 3)  # 60 samples of 2 directions
    assert gnjax.Monitor(x, y, **OPTIONS)(0, mlp(widths=(4, 20, 3))).kappa is None


def test_every_row_is_given_to_a_logger():
    logged = []
    monitor = gnjax.Monitor(X, Y, every=2, kappa=False, on_row=logged.append, **OPTIONS)
    for step in range(5):
        monitor(step, mlp(step), rate=0.5)
    assert logged == monitor.history
    assert [row.step for row in logged] == [0, 2, 4]
    numbers = logged[0].numbers()
    assert numbers["threshold"] == 4.0
    assert not {"step", "certificate", "kappa"} & set(numbers)
    assert all(type(value) is float for value in numbers.values())


def test_a_logger_that_is_no_function_is_refused():
    with pytest.raises(ValueError, match="on_row='log' is no function"):
        gnjax.Monitor(X, Y, on_row="log")


def test_rows_are_saved_and_read_as_tables():
    row = gnjax.Monitor(X, Y, **OPTIONS)(0, mlp())
    assert gnjax.answers.MonitorRow.from_json(row.to_json()) == row
    assert dict(row)["sharpness"] == row["sharpness"] == row.sharpness
    with pytest.raises(KeyError, match="no_such"):
        row["no_such"]
    assert "step 0: sharpness" in str(row)


def test_a_monitor_draws_itself():
    monitor = gnjax.Monitor(X, Y, **OPTIONS)
    for step in range(2):
        monitor(step, mlp(step), rate=0.1)
    axes = gnjax.plot(monitor).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["largest of H", "largest of G", "2 / rate"]


def test_the_limit_of_gradient_descent_is_not_said_to_be_that_of_adam():
    """Adam's is (2 + 2 b1) / ((1 - b1) rate), and its state does not hold b1."""
    monitor = gnjax.Monitor(X, Y, kappa=False, **OPTIONS)
    apply, params = gnjax.functional(mlp())
    optimizer = optax.adam(1e-2)
    _, state = optimizer.update(jax.tree.map(np.ones_like, params), optimizer.init(params))
    row = monitor(0, (apply, params), metric=state, rate=1e-2)
    assert "2 / rate for gradient descent 200" in str(row)
    labels = [text.get_text() for text in gnjax.plot(monitor).axes[0].get_legend().get_texts()]
    assert labels[-1] == "2 / rate, for H in gradient descent"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0 is not an integer of at least 1"),
        ({"rtol": 2.0}, "rtol=2.0 is not between 0 and 1"),
        ({"probes": -1}, "probes=-1"),
        ({"steps": 1}, "steps=1"),
    ],
)
def test_settings_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gnjax.Monitor(X, Y, **options)


def test_batches_and_negative_metrics_are_refused():
    with pytest.raises(ValueError, match="measures on one batch"):
        gnjax.Monitor([(X, Y)])
    model = mlp()
    negative = jax.tree.map(lambda leaf: -leaf, tree_like(model, 0))
    with pytest.raises(ValueError, match="not positive"):
        gnjax.Monitor(X, Y, **OPTIONS)(0, model, metric=negative)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_samples_that_become_coupled_in_training_are_seen(batch_size):
    """Class: a gate that opens later, behind which samples see the mean of their batch."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((9, 3)), rng.standard_normal((9, 2))
    weights = {"w": rng.standard_normal((3, 4)), "o": rng.standard_normal((4, 2))}

    def apply(p, x):
        h = jnp.tanh(x @ p["w"]) @ p["o"]
        return h + jax.nn.relu(p["g"]) * h.mean(0, keepdims=True)

    monitor = gnjax.Monitor(x, y, rtol=1e-8, batch_size=batch_size)
    monitor(0, (apply, {**weights, "g": -1.0}))
    opened = apply, {**weights, "g": 2.0}
    if batch_size:
        with pytest.raises(ValueError, match="depend on the whole batch"):
            monitor(1, opened)
        return
    flat, unravel = jax.flatten_util.ravel_pytree(opened[1])
    loss = lambda flat: jnp.square(apply(unravel(flat), x) - y).sum() / 18  # noqa: E731
    exact = np.linalg.eigvalsh(jax.hessian(loss)(flat))
    row = monitor(1, opened)
    assert abs(row.sharpness - exact[-1]) <= row.sharpness_error + 1e-12
    assert np.isfinite(row.kappa_high)


@pytest.mark.parametrize("rate", [0.0, -1.0, np.nan])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        gnjax.Monitor(np.eye(3))(0, (lambda p, x: x @ p, np.ones((3, 1))), rate=rate)


def test_rounding_is_measured_once_for_each_matrix_until_the_tenth_row(monkeypatch):
    """Class: minutes for rounding, again when a metric comes and whenever the norm doubles."""
    measured = []
    measure = module.Monitor._measured_rounding

    def counted(self, name, scale):
        measured.append((len(self.history), name))
        return measure(self, name, scale)

    monkeypatch.setattr(module.Monitor, "_measured_rounding", counted)
    monitor = gnjax.Monitor(X, Y, kappa=False, **OPTIONS)
    for step in range(11):
        model = mlp()
        model.dense2.kernel[...] *= 2.0**step
        metric = tree_like(model, 1) if step >= 3 else None
        row = monitor(step, model, metric=metric)
        matrix = np.asarray(gnjax.hessian(model, X, Y, **OPTIONS).as_matrix())
        nearest = np.abs(np.linalg.eigvalsh(matrix) - row.sharpness).min()
        assert nearest <= row.sharpness_error
    names = ["hessian", "gauss_newton"]
    assert measured == [
        *((0, name) for name in names),
        (3, "preconditioned"),
        *((10, name) for name in names),
    ]


@pytest.mark.slow
def test_the_usual_evidence_of_a_large_network_compiles_nothing_more(monkeypatch, caplog):
    """With a metric, too: by products of the row's own program, and one look at some samples."""
    monkeypatch.setattr(module, "is_small", lambda net, evaluations: False)
    model = mlp()
    monitor = gnjax.Monitor(X, Y, kappa=False, rtol=1e-6, **OPTIONS)
    monitor(0, model)
    monitor.history.clear()  # the next row measures rounding again
    monitor._roundings.clear()
    monitor(0, model)
    metric = tree_like(model, 1)
    root = np.asarray(gnjax.hessian(model, X, Y, **OPTIONS).ravel(metric)) ** -0.5
    with jax.log_compiles():
        row = monitor(1, model, metric=metric)
    programs = [r.getMessage() for r in caplog.records if "Finished XLA" in r.getMessage()]
    assert not [text for text in programs if "curvature_product" in text or "linear" in text]
    matrix = np.asarray(gnjax.hessian(model, X, Y, **OPTIONS).as_matrix())
    largest = np.linalg.eigvalsh(root[:, None] * matrix * root)[-1]
    assert abs(row.preconditioned - largest) <= row.preconditioned_error < 1e-4 * largest


@pytest.mark.parametrize(
    ("optimizer", "limit"),
    [
        (optax.sgd(0.1), 2.0),
        (optax.sgd(0.1, momentum=0.8), 3.6),
        (optax.adam(1e-3), 3.8),
        (optax.adam(1e-3, b1=0.5), 3.0),
        (optax.nadam(1e-3), 2 * 1.9**2 / 2.8),
        (optax.rmsprop(1e-3), 2.0),
        (optax.sgd(0.1, momentum=0.99), 3.98),
    ],
)
def test_the_optimiser_at_hand_is_asked_for_its_limit(optimizer, limit, tmp_path):
    """Gradient descent, momentum and means of gradients, from how their later updates respond."""
    apply, params = gnjax.functional(mlp())
    state, gradients = optimizer.init(params), tree_like(mlp(), 3)
    gradients = jax.tree.unflatten(jax.tree.structure(params), jax.tree.leaves(gradients))
    for _ in range(50):
        _, state = optimizer.update(gradients, state, params)
    monitor = gnjax.Monitor(X, Y, kappa=False, **OPTIONS)
    row = monitor(0, (apply, params), metric=state, optimizer=optimizer, rate=1e-3)
    assert row.preconditioned_threshold == pytest.approx(limit, rel=3e-3)
    assert f"limit of preconditioned {row.preconditioned_threshold:.4g}" in str(row)
    axes = gnjax.plot(monitor).axes[0]
    (dashed,) = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert dashed.get_ydata()[0] == row.preconditioned_threshold
