"""Metrics of optax's optimisers, asked of them, beside formulas written out in NumPy."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from flax import linen, nnx
from flax.training.train_state import TrainState
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.operators.metrics.optimisers import limit_of_optimizer, optimizer_entries
from tests.references import gauss_newton

X = np.random.default_rng(0).standard_normal((30, 4)) * np.geomspace(10, 0.1, 4)
Y = np.random.default_rng(1).standard_normal((30, 3))
APPLY, PARAMS = gnjax.functional(
    gnjax.models.MLP((4, 5, 3), activation="tanh", key=jax.random.key(0))
)
RATE, B1, B2, STEPS = 1e-2, 0.9, 0.999, 5


@jax.jit
@jax.grad
def _slope(params):
    return jnp.square(APPLY(params, X) - Y).mean()


@partial(jax.jit, static_argnums=0)
def _step(update, gradient, state, params):
    updates, state = update(gradient, state, params)
    return state, optax.apply_updates(params, updates)


def _trained(optimizer, steps=STEPS):
    """The parameters and the state after some steps, and the gradients (steps, p) of these."""
    params, state, gradients = PARAMS, optimizer.init(PARAMS), []
    for _ in range(steps):
        gradient = _slope(params)
        gradients.append(np.asarray(ravel_pytree(gradient)[0]))
        state, params = _step(optimizer.update, gradient, state, params)
    return params, state, np.array(gradients)


def _asked(optimizer, steps=STEPS):
    """P by asking the optimiser after its steps, and the gradients of these."""
    params, state, gradients = _trained(optimizer, steps)
    op = gnjax.gauss_newton((APPLY, params), X)
    metric = gnjax.metrics.optimizer_metric(op, state, optimizer)
    return metric.as_matrix().diagonal(), gradients


def _mean(values, decay):
    """The running mean after each step of values (steps, p), not corrected, the last at zero."""
    mean, means = np.zeros_like(values[0]), []
    for value in [*values, np.zeros_like(values[0])]:
        mean = decay * mean + (1 - decay) * value
        means.append(mean)
    return np.array(means)


NEXT = STEPS + 1  # the number of the next update
SHARE = (1 - B1) / (1 - B1**NEXT)  # of the next gradient in the mean of gradients


def _adam(gradients, eps=1e-8):
    root = np.sqrt(_mean(gradients**2, B2)[-1] / (1 - B2**NEXT))
    return (root + eps) / (RATE * SHARE)


def _nadam(gradients):
    share = (1 - B1) * (B1 / (1 - B1 ** (NEXT + 1)) + 1 / (1 - B1**NEXT))
    return _adam(gradients) * SHARE / share


def _amsgrad(gradients):
    corrected = _mean(gradients**2, B2) / (1 - B2 ** np.arange(1, NEXT + 1))[:, None]
    return (np.sqrt(corrected.max(0)) + 1e-8) / (RATE * SHARE)


def _adamax(gradients):
    largest = np.zeros_like(gradients[0])
    for gradient in gradients:
        largest = np.maximum(B2 * largest, np.abs(gradient) + 1e-8)
    return B2 * largest / (RATE * SHARE)


def _yogi(gradients):
    moment = np.full_like(gradients[0], 1e-6)
    for square in gradients**2:
        moment = moment - (1 - B2) * np.sign(moment - square) * square
    return (np.sqrt(moment / (1 - B2**NEXT)) + 1e-3) / (RATE * SHARE)


def _radam(gradients):
    infinite = 2 / (1 - B2) - 1
    rho = infinite - 2 * NEXT * B2**NEXT / (1 - B2**NEXT)
    assert rho > 5  # from here on it divides
    top, bottom = (rho - 4) * (rho - 2) * infinite, (infinite - 4) * (infinite - 2) * rho
    return _adam(gradients) / np.sqrt(top / bottom)


def _adabelief(gradients):
    mean, moment = np.zeros((2, *gradients[0].shape))
    for gradient in gradients:
        mean = B1 * mean + (1 - B1) * gradient
        moment = B2 * moment + (1 - B2) * (gradient - mean) ** 2 + 1e-16
    # at the mean itself, where g - mu is 0
    return (np.sqrt((B2 * moment + 1e-16) / (1 - B2**NEXT)) + 1e-16) / (RATE * SHARE)


def _centred(gradients):
    mean, square = _mean(gradients, 0.9)[-2], _mean(gradients**2, 0.9)[-2]
    return np.sqrt(0.9 * (square - mean**2) + 1e-8) / RATE


def _centred_corrected(gradients):
    decay, share = 0.5, 1 - 0.5**STEPS
    mean, square = _mean(gradients, decay)[-2] / share, _mean(gradients**2, decay)[-2]
    after = 1 - decay**NEXT
    square = (decay * square + (1 - decay) * mean**2) / after
    return np.sqrt(square - mean**2 + 1e-8) / RATE


def _adadelta(gradients):
    of_gradients, of_steps = np.zeros((2, *gradients[0].shape))
    for gradient in [*gradients, np.zeros_like(gradients[0])]:
        of_gradients = 0.9 * of_gradients + 0.1 * gradient**2
        ratio = np.sqrt(of_steps + 1e-6) / np.sqrt(of_gradients + 1e-6)
        of_steps = 0.9 * of_steps + 0.1 * (ratio * gradient) ** 2
    return 1 / (RATE * ratio)


def _clipped(gradients):
    lengths = np.linalg.norm(gradients, axis=1)
    assert (lengths > 0.1).all()
    return _adam(0.1 * gradients / lengths[:, None])


FORMULAS = {
    "adam": (optax.adam(RATE), _adam),
    "adam with eps": (optax.adam(RATE, eps=1e-3), partial(_adam, eps=1e-3)),
    "adamw": (optax.adamw(RATE, weight_decay=0.3), _adam),
    "half": (optax.adam(RATE, mu_dtype="bfloat16"), _adam),
    "nadam": (optax.nadam(RATE), _nadam),
    "amsgrad": (optax.amsgrad(RATE), _amsgrad),
    "adamax": (optax.adamax(RATE), _adamax),
    "yogi": (optax.yogi(RATE), _yogi),
    "radam": (optax.radam(RATE), _radam),
    "adabelief": (optax.adabelief(RATE), _adabelief),
    "adagrad": (optax.adagrad(RATE), lambda g: np.sqrt((g**2).sum(0) + 0.1 + 1e-7) / RATE),
    "adadelta": (optax.adadelta(RATE), _adadelta),
    "rmsprop": (optax.rmsprop(RATE), lambda g: np.sqrt(_mean(g**2, 0.9)[-1] + 1e-8) / RATE),
    "rmsprop outside": (
        optax.rmsprop(RATE, eps_in_sqrt=False, momentum=0.5, eps=1e-2),
        lambda g: (np.sqrt(_mean(g**2, 0.9)[-1]) + 1e-2) / RATE,
    ),
    "centred": (optax.rmsprop(RATE, centered=True), _centred),
    "centred corrected": (
        optax.rmsprop(RATE, decay=0.5, centered=True, bias_correction=True),
        _centred_corrected,
    ),
    "clipped": (optax.chain(optax.clip_by_global_norm(0.1), optax.adam(RATE)), _clipped),
    "injected": (
        optax.inject_hyperparams(optax.adam)(RATE, eps=1e-3),
        partial(_adam, eps=1e-3),
    ),
    "accumulated": (optax.MultiSteps(optax.adam(RATE), 1), _adam),
    "adam without its rate": (optax.scale_by_adam(), lambda g: RATE * _adam(g)),
    "momentum": (optax.sgd(RATE, 0.9), lambda g: np.full(g.shape[1], 1 / RATE)),
    "nesterov": (optax.sgd(RATE, 0.9, nesterov=True), lambda g: np.full(g.shape[1], 1 / 0.019)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_metric_is_that_of_its_formula(name):
    optimizer, formula = FORMULAS[name]
    P, gradients = _asked(optimizer)
    np.testing.assert_allclose(P, formula(gradients), rtol=1e-10)


def test_a_schedule_free_adam_divides_as_adam_does():
    P, gradients = _asked(optax.contrib.schedule_free_adamw(RATE))
    ratio = P / _adam(gradients)
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)


def test_rates_may_differ_among_parameters():
    labels = jax.tree.map(lambda leaf: "fast" if leaf.ndim > 1 else "slow", PARAMS)
    slow, fast = optax.adam(RATE), optax.adam(10 * RATE)
    P, gradients = _asked(optax.multi_transform({"fast": fast, "slow": slow}, labels))
    factors = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 10.0 if leaf.ndim > 1 else 1), PARAMS)
    np.testing.assert_allclose(P, _adam(gradients) / ravel_pytree(factors)[0], rtol=1e-10)


def test_gradients_that_accumulate_and_a_rate_that_begins_at_zero():
    """The next update that is not zero counts, and weighs the gradient as it does."""
    warm = optax.adam(optax.linear_schedule(0.0, RATE * STEPS, STEPS))
    params, state, gradients = _trained(optax.MultiSteps(optax.adam(RATE), 4), 8)
    op = gnjax.gauss_newton((APPLY, params), X)
    metric = gnjax.metrics.optimizer_metric(op, state, optax.MultiSteps(optax.adam(RATE), 4))
    means = gradients.reshape(2, 4, -1).mean(1)
    root = np.sqrt(_mean(means**2, B2)[-1] / (1 - B2**3)) + 1e-8
    P = root * (1 - B1**3) / (RATE * (1 - B1))
    np.testing.assert_allclose(metric.as_matrix().diagonal(), P, rtol=1e-6)  # means in float32
    gradient = jax.tree.map(jnp.ones_like, PARAMS)
    _, state = warm.update(gradient, warm.init(PARAMS), PARAMS)
    metric = gnjax.metrics.optimizer_metric(gnjax.gauss_newton((APPLY, PARAMS), X), state, warm)
    at_second = (np.sqrt(B2 * (1 - B2) / (1 - B2**2)) + 1e-8) * (1 - B1**2) / (RATE * (1 - B1))
    np.testing.assert_allclose(metric.as_matrix().diagonal(), at_second, rtol=1e-6)


NOT_DIAGONAL = {
    "lamb": optax.lamb(RATE),
    "lars": optax.lars(RATE),
    "muon": optax.contrib.muon(RATE),
    "galore": optax.contrib.galore(RATE),
}
NO_RESPONSE = {"lion": optax.lion(RATE), "signs": optax.sign_sgd(RATE), "no rate": optax.adam(0.0)}


@pytest.mark.parametrize("name", [*NOT_DIAGONAL, *NO_RESPONSE, "adan"])
def test_an_optimiser_without_a_diagonal_metric_is_refused(name):
    optimizer = {**NOT_DIAGONAL, **NO_RESPONSE, "adan": optax.adan(RATE)}[name]
    words = "no diagonal metric" if name in NOT_DIAGONAL else "do not respond to the gradient"
    words = "depend on its means" if name == "adan" else words
    with pytest.raises(ValueError, match=words):
        _asked(optimizer)


def _catalogue():
    """The optimisers of optax that take a rate and nothing else."""
    for room in (optax, optax.contrib):
        for name, make in sorted(vars(room).items()):
            if inspect.isfunction(make) and not name.startswith(("_", "scale_by", "schedule")):
                parameters = inspect.signature(make).parameters.values()
                needed = [p.name for p in parameters if p.default is p.empty]
                if needed == ["learning_rate"] or (
                    not needed and "learning_rate" in inspect.signature(make).parameters
                ):
                    yield f"{room.__name__}.{name}", make


@pytest.mark.filterwarnings("ignore:Specifying a key", "ignore:`optimistic_adam` is deprecated")
@pytest.mark.slow
def test_every_optimiser_of_optax_has_the_metric_of_its_differences_or_is_refused():
    """The other road: the difference of two updates, at a small gradient and at its negative."""
    taken = []
    for name, make in _catalogue():
        optimizer = make(RATE)
        try:
            params, state, _ = _trained(optimizer, 7)
        except (TypeError, ValueError):  # it wants values of the loss, too
            continue
        op = gnjax.gauss_newton((APPLY, params), X)
        try:
            metric = gnjax.metrics.optimizer_metric(op, state, optimizer)
        except ValueError:
            continue
        taken.append(name)
        if "mean of gradients" in metric.evidence.reason or "noisy" in name:
            continue  # asked at another gradient; and another noise at each update
        size = 1e-9 * np.random.default_rng(2).uniform(1, 2, metric.parameters)
        up, down = (
            ravel_pytree(optimizer.update(op.unravel(sign * size), state, params)[0])[0]
            for sign in (1, -1)
        )
        response = np.asarray(down - up) / (2 * size)
        found = 1 / metric.as_matrix().diagonal()
        np.testing.assert_allclose(response, found, rtol=1e-4, err_msg=name)
    assert {"optax.adam", "optax.adamax", "optax.yogi", "optax.adafactor"} <= set(taken)
    assert not {"optax.lamb", "optax.lion", "optax.contrib.muon"} & set(taken)
    assert len(taken) > 20


def _kappa(matrix, P):
    """kappa of P^{-1/2} G P^{-1/2}, from its dense matrix."""
    values = np.linalg.eigvalsh(matrix / np.sqrt(np.outer(P, P)))
    return values[-1] / values[0]


@pytest.mark.parametrize("name", ["adamax", "yogi", "adam with eps", "adabelief"])
def test_kappa_is_certified_with_the_optimiser_and_uncertified_with_a_state_alone(name):
    """States of these look like Adam's; kappa was certified for another P, up to 4 times off."""
    optimizer, formula = FORMULAS[name]
    params, state, gradients = _trained(optimizer)
    op = gnjax.gauss_newton((APPLY, params), X)
    true = _kappa(gauss_newton(APPLY, params, X), formula(gradients))
    kappa = gnjax.condition_number(gnjax.preconditioned(op, state, optimizer=optimizer))
    assert kappa.resolved
    assert kappa.value == pytest.approx(true, rel=1e-5)
    alone = gnjax.condition_number(gnjax.preconditioned(op, state))
    assert not alone.resolved
    assert alone.certificate.kind == "unknown"
    assert alone.interval[1] == np.inf
    assert "pass the optimiser beside its state" in str(alone.certificate)
    found = gnjax.eigenvalues(gnjax.preconditioned(op, state))
    assert np.isinf(found.errors).all()


def test_a_state_alone_is_a_guess_in_every_operator():
    params, state, _ = _trained(optax.adam(RATE))
    for op in (gnjax.hessian((APPLY, params), X, Y), gnjax.ntk((APPLY, params), X[:4])):
        scaled = gnjax.preconditioned(op, state)
        assert gnjax.eigenvalues(scaled, k=1).certificate.kind == "unknown"
        assert gnjax.trace(scaled).certificate.kind == "unknown"
    for beside, kind in ((None, "unknown"), (optax.adam(RATE), "measured")):
        metric = gnjax.metrics.optimizer_metric(op, state, beside)
        assert gnjax.trace(metric).certificate.kind == kind
        assert gnjax.logdet(metric).certificate.kind == kind


STEADY = 1 - 1e-9  # the decay of second moments that small gradients do not move
LIMITS = {
    "gradient descent": (optax.sgd(RATE), 2.0),
    "momentum": (optax.sgd(RATE, 0.8), 3.6),
    "nesterov": (optax.sgd(RATE, 0.8, nesterov=True), 2 * 1.8**2 / (1 + 2 * 0.8)),
    "adam": (optax.adam(RATE, b2=STEADY), 3.8),
    "adamw": (optax.adamw(RATE, b2=STEADY, weight_decay=3.0), 3.8 * (1 - 0.015)),
    "nadam": (optax.nadam(RATE, b2=STEADY), 2 * 1.9**2 / (1 + 2 * 0.9)),
    "rmsprop": (optax.rmsprop(RATE, decay=STEADY), 2.0),
    "schedule free": (optax.contrib.schedule_free_adamw(RATE), None),
    "two means": (optax.chain(optax.trace(0.5), optax.trace(0.9), optax.scale(-RATE)), None),
}


@pytest.mark.parametrize("name", LIMITS)
def test_steps_on_a_quadratic_loss_grow_above_the_limit_and_shrink_below_it(name):
    """The other road: the optimiser itself, on w^2 lambda P / 2 for lambda around its limit."""
    optimizer, expected = LIMITS[name]
    model = lambda w, x: x * w  # noqa: E731
    start = jnp.full((1, 1), 1e-60)
    _, state = optimizer.update(jnp.ones((1, 1)), optimizer.init(start), start)
    later = {"count": jnp.int32(2_000_000_000), "mu": 0 * start, "nu": 0 * start + 1}
    for field, value in {**later, "trace": start}.items() if expected else ():
        if optax.tree_utils.tree_get(state, field) is not None:  # after many steps
            state = optax.tree_utils.tree_set(state, **{field: value})
    net = gnjax.gauss_newton((model, start), np.ones((1, 1)))
    entries, _ = optimizer_entries(net, state, optimizer)
    limit = limit_of_optimizer(net, state, optimizer)
    assert (limit is None) is (expected is None)
    if expected is None:
        return
    assert limit == pytest.approx(expected, rel=1e-6)

    @jax.jit
    def size(factor):
        """|w| after many steps."""

        def step(_, now):
            w, state = now
            updates, state = optimizer.update(factor * limit * entries[0] * w, state, w)
            return w + updates, state

        w, _ = jax.lax.fori_loop(0, 300, step, (start, state))
        return jnp.abs(w).max()

    assert size(0.9) < 1e-62
    assert size(1.01) > 1e-59


class _Adapted(nnx.Module):
    """A linear map with a LoRA beside it, and one more map."""

    def __init__(self, rngs):
        inner = nnx.Linear(4, 5, rngs=rngs)
        self.first = nnx.LoRA(4, 2, 5, base_module=inner, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(5, 3, rngs=rngs)])

    def __call__(self, x):
        return self.layers[0](jnp.tanh(self.first(x)))


def test_a_trained_part_of_an_nnx_model():
    model = _Adapted(nnx.Rngs(0))
    model.first.lora_b[...] = jnp.ones((2, 5), jnp.float32)
    optimizer = nnx.Optimizer(model, optax.adam(RATE), wrt=nnx.LoRAParam)

    def loss(model):
        return jnp.square(model(X) - Y).mean()

    gradients = []
    for _ in range(STEPS):
        gradient = nnx.grad(loss, argnums=nnx.DiffState(0, nnx.LoRAParam))(model)
        leaves = jax.tree.leaves(gradient)
        gradients.append(np.concatenate([np.ravel(leaf) for leaf in leaves]).astype(float))
        optimizer.update(model, gradient)
    op = gnjax.gauss_newton(model, X, only=nnx.LoRAParam)
    for metric in (
        gnjax.metrics.optimizer_metric(op, optimizer),
        gnjax.metrics.optimizer_metric(op, optimizer.opt_state, optimizer.tx),
        gnjax.metrics.optimizer_metric(op, optimizer.opt_state, optimizer),
    ):
        np.testing.assert_allclose(
            metric.as_matrix().diagonal(), _adam(np.array(gradients)), rtol=1e-4
        )
    one = gnjax.gauss_newton(model, X, only="first/lora_a")
    P = gnjax.metrics.optimizer_metric(one, optimizer).as_matrix().diagonal()
    np.testing.assert_allclose(P, _adam(np.array(gradients))[:8], rtol=1e-4)
    assert gnjax.preconditioned(op, optimizer).shape == op.shape
    with pytest.raises(ValueError, match=r"does not respond .* only="):
        gnjax.preconditioned(gnjax.gauss_newton(model, X), optimizer)


def _is_first(path, _):
    return "first" if "dense1" in str(path) else "frozen"


FROZEN = jax.tree_util.tree_map_with_path(_is_first, PARAMS)
IS_FIRST = jax.tree.map(lambda label: label == "first", FROZEN)
IS_FROZEN = jax.tree.map(lambda label: label == "frozen", FROZEN)
PARTS = {
    "multi_transform": optax.multi_transform(
        {"first": optax.adam(RATE), "frozen": optax.set_to_zero()}, FROZEN
    ),
    "masked": optax.chain(
        optax.masked(optax.adam(RATE), IS_FIRST), optax.masked(optax.set_to_zero(), IS_FROZEN)
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_an_optimiser_with_a_frozen_part_goes_with_the_same_part(name):
    optimizer = PARTS[name]
    params, state, gradients = _trained(optimizer)
    op = gnjax.gauss_newton((APPLY, params), X, only="dense1/*")
    P = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    np.testing.assert_allclose(P, _adam(gradients[:, :25]), rtol=1e-10)
    assert gnjax.preconditioned(op, state, optimizer=optimizer).shape == (25, 25)
    whole = gnjax.gauss_newton((APPLY, params), X)
    with pytest.raises(ValueError, match="dense2/bias, dense2/kernel"):
        gnjax.preconditioned(whole, state, optimizer=optimizer)


def _as_dictionary(names):
    """A network of two arrays in a dictionary, of which the optimiser has some."""
    params = {"first": jnp.ones((4, 2)), "second": jnp.ones((2, 3))}
    return params, {name: params[name] for name in names}


@pytest.mark.parametrize("holes", [False, True])
def test_a_part_in_a_dictionary(holes):
    params, part = _as_dictionary(["second"])
    if holes:
        part = {"first": None, **part}  # as equinox.partition makes it
    optimizer = optax.adam(RATE)
    gradient = jax.tree.map(lambda leaf: jnp.arange(1.0, 7).reshape(2, 3), part)
    _, state = optimizer.update(gradient, optimizer.init(part), part)
    op = gnjax.gauss_newton((lambda p, x: x @ p["first"] @ p["second"], params), X, only="second")
    P = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    np.testing.assert_allclose(P / P[0], np.arange(1, 7), rtol=1e-6)


@pytest.mark.parametrize("whole", [False, True])
def test_a_train_state_has_both(whole):
    """Its params may be all variables of the module, or the parameters alone."""
    module = linen.Dense(3)
    variables = module.init(jax.random.key(0), X)
    params = variables if whole else variables["params"]
    state = TrainState.create(apply_fn=module.apply, params=params, tx=optax.adamax(RATE))
    gradient = jax.tree.map(lambda leaf: jnp.arange(1.0, 1 + leaf.size).reshape(leaf.shape), params)
    state = state.apply_gradients(grads=gradient)
    op = gnjax.gauss_newton(state, X)
    P = gnjax.metrics.optimizer_metric(op, state).as_matrix().diagonal()
    np.testing.assert_allclose(P / P[0], [1, 2, 3, *range(1, 13)], rtol=1e-6)
    assert gnjax.preconditioned(op, state).evidence.kind == "measured"


def test_a_parameter_that_never_had_a_gradient_divides_by_eps():
    params, optimizer = {"w": jnp.ones((2, 1))}, optax.adam(RATE)
    gradient = {"w": jnp.array([[2.0], [0.0]])}
    _, state = optimizer.update(gradient, optimizer.init(params), params)
    op = gnjax.gauss_newton((lambda p, x: x @ p["w"], params), np.eye(2))
    P = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    np.testing.assert_allclose(P[1] / P[0], 1e-8 / (2 * np.sqrt(B2 / (1 + B2))), rtol=1e-6)


def test_what_is_no_optimiser_and_what_wants_more_is_said():
    params, state, _ = _trained(optax.adam(RATE), 1)
    op = gnjax.gauss_newton((APPLY, params), X)
    momo = optax.contrib.momo(RATE)
    normalised = optax.chain(optax.normalize_by_update_norm(), optax.scale(-RATE))
    cases = (
        (state, "adam", "has no init and update"),
        (state, optax.adam, "has no init and update"),
        (state, optax.sgd(RATE), "not one that this optimizer makes for"),
        (jax.tree.map(jnp.ones_like, PARAMS), optax.adam(RATE), "not one that this optimizer"),
        (momo.init(params), momo, "where it takes more"),
        (optax.adam(RATE).init(params), optax.adam(RATE), "no gradient yet"),
        (normalised.init(params), normalised, "keeps nothing of them"),
        (optax.adafactor(RATE).init(params), None, "pass the optimiser beside its state"),
        (optax.ScaleByAdamState(jnp.array(1), {}, {"w": jnp.ones(2)}), None, "other parameters"),
        (optax.sgd(RATE).init(params), None, "pass the optimiser beside its state"),
    )
    for given, optimizer, words in cases:
        with pytest.raises(ValueError, match=words):
            gnjax.preconditioned(op, given, optimizer=optimizer)


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_in_single_precision():
    gradient = jax.tree.map(np.float32, _slope(PARAMS))
    with jax.enable_x64(False):
        params = jax.tree.map(np.float32, PARAMS)
        optimizer = optax.adamax(RATE)
        _, state = optimizer.update(gradient, optimizer.init(params), params)
        op = gnjax.gauss_newton((APPLY, params), np.float32(X))
        P = gnjax.metrics.optimizer_metric(op, state, optimizer).as_matrix().diagonal()
    largest = np.abs(np.asarray(ravel_pytree(gradient)[0], float)) + 1e-8
    np.testing.assert_allclose(P / P[0], largest / largest[0], rtol=1e-5)
