"""Training against plain NumPy loops, and what masks, seeds and switches must not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.models import CNN, MLP
from gnjax.models.mlp import mlp_weights
from gnjax.papers.training import minibatch as training
from gnjax.papers.training.recipe import Recipe

N, D, K = 23, 5, 3
RECIPES = {
    "sgd": Recipe("sgd", 0.1, 8, "mse"),
    "scaled": Recipe("sgd", 0.1, 8, "mse", scale=2 / K),
    "momentum": Recipe("sgd", 0.1, 8, "cross_entropy", momentum=0.9, decay=1e-2, drop_after=2),
    "adamw": Recipe("adamw", 0.01, 10, "cross_entropy", decay=1e-2),
    "one batch": Recipe("sgd", 0.1, 100, "cross_entropy"),
}


@pytest.fixture(name="samples")
def _samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.integers(0, K, N), rng.normal(size=(K, D))


def _linear(w, x):
    return jnp.matmul(x, w.T, precision="highest")


def _begin(samples, recipe, *, shuffled=True, **options):
    x, y, w = samples
    key = jax.random.key(1) if shuffled else None
    return training.begin((_linear, w), x, y, recipe, key, **options)


def _slope_and_loss(w, x, y, recipe):
    """The gradient and the loss of a batch, f = W x, written out."""
    f, target = x @ w.T, np.eye(K)[y]
    if recipe.loss == "mse":
        loss, residual = ((f - target) ** 2).sum(1) / 2, f - target
    else:
        p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
        loss, residual = -np.log(p[np.arange(len(y)), y]), p - target
    return recipe.scale * residual.T @ x / len(x), recipe.scale * loss.mean()


def _by_hand(samples, recipe, epochs, mask=1.0, *, shuffled=True):
    """PyTorch's update rules."""
    x, y, w = samples
    w, v, square, t, mean_losses = w * mask, 0.0, 0.0, 0, []
    for epoch in range(epochs):
        key = jax.random.fold_in(jax.random.key(1), epoch)
        order = np.asarray(jax.random.permutation(key, N)) if shuffled else np.arange(N)
        rate = recipe.rate * (recipe.drop if 0 < recipe.drop_after <= epoch else 1)
        total = 0.0
        for start in range(0, N, recipe.batch):
            batch = order[start : start + recipe.batch]
            slope, loss = _slope_and_loss(w, x[batch], y[batch], recipe)
            slope, total, t = slope * mask, total + loss * len(batch), t + 1
            if recipe.optimizer == "sgd":
                v = recipe.momentum * v + slope + recipe.decay * w
                w = w - rate * v
            else:
                v = 0.9 * v + 0.1 * slope
                square = 0.999 * square + 0.001 * slope**2
                step = (v / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
                w = w - rate * (step + recipe.decay * w)
        mean_losses.append(total / N)
    return w, mean_losses


@pytest.mark.parametrize("name", RECIPES)
def test_training_is_the_update_rule_written_out(samples, name):
    problem, state = _begin(samples, RECIPES[name], dtype="float64")
    state, losses = training.train(problem, state, 4)
    expected, mean_losses = _by_hand(samples, RECIPES[name], 4)
    np.testing.assert_allclose(state.params, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(losses, mean_losses, rtol=1e-11)
    assert int(state.epoch) == 4


@pytest.mark.parametrize("scan", [True, False])
def test_without_a_key_every_epoch_takes_the_samples_as_they_stand(samples, scan):
    problem, state = _begin(samples, RECIPES["momentum"], shuffled=False, dtype="float64")
    state, losses = training.train(problem, state, 4, scan=scan)
    expected, mean_losses = _by_hand(samples, RECIPES["momentum"], 4, shuffled=False)
    np.testing.assert_allclose(state.params, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(losses, mean_losses, rtol=1e-11)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_pruned_weights_stay_zero_with_all_that_the_optimiser_remembers(samples, name):
    mask = np.random.default_rng(1).integers(0, 2, (K, D))
    problem, state = _begin(samples, RECIPES[name], mask=mask, dtype="float64")
    state, _ = training.train(problem, state, 3)
    remembered = [m for m in jax.tree.leaves(state.optimizer) if m.shape == (K, D)]
    assert remembered
    for leaf in (state.params, *remembered):
        np.testing.assert_array_equal(np.asarray(leaf) != 0, mask == 1)
    expected, _ = _by_hand(samples, RECIPES[name], 3, mask)
    np.testing.assert_allclose(state.params, expected, rtol=1e-11, atol=1e-13)


def test_every_sample_is_seen_once_in_an_epoch_in_an_order_of_its_own(samples):
    problem, state = _begin(samples, RECIPES["sgd"])
    orders = []
    for epoch in range(2):
        size, at = problem.recipe.batch, jnp.asarray(epoch)
        whole, rest = training._batches(len(problem.x), size, state.key, at)
        assert whole.shape == (2, 8)
        orders.append([*np.ravel(whole), *np.asarray(rest)])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(N))
    assert orders[0] != orders[1]


def _networks(norm="batch"):
    return [MLP((D, 4, K), norm=norm, key=jax.random.key(seed)) for seed in range(2)]


def _leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.statistics))]


@pytest.mark.parametrize("scan", [True, False])
def test_side_by_side_is_one_by_one(samples, scan):
    x, y, _ = samples
    recipe = RECIPES["momentum"]
    begun = [
        training.begin(net, x, y, recipe, jax.random.key(seed), dtype="float64")
        for seed, net in enumerate(_networks())
    ]
    problem = begun[0][0]
    both = training.stack([state for _, state in begun])
    both, losses = training.train(problem, both, 2, scan=scan)
    assert losses.shape == (2, 2)
    for index, (_, state) in enumerate(begun):
        alone, own = training.train(problem, state, 2, scan=not scan)
        np.testing.assert_allclose(losses[:, index], own, rtol=1e-10)
        for a, b in zip(_leaves(training.member(both, index)), _leaves(alone), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_seed_gives_the_same_bits_again_and_another_key_does_not(samples):
    runs = [training.train(*_begin(samples, RECIPES["momentum"]), 3) for _ in range(2)]
    np.testing.assert_array_equal(runs[0][0].params, runs[1][0].params)
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    problem, state = _begin(samples, RECIPES["momentum"])
    other = training.replace(state, key=jax.random.key(2))
    assert not np.array_equal(training.train(problem, other, 3)[0].params, runs[0][0].params)


def test_epochs_can_be_trained_in_parts(samples):
    problem, state = _begin(samples, RECIPES["adamw"])
    whole, losses = training.train(problem, state, 5)
    part, first = training.train(problem, state, 2)
    part, last = training.train(problem, part, 3)
    np.testing.assert_array_equal(whole.params, part.params)
    np.testing.assert_array_equal(losses, [*first, *last])
    assert training.train(problem, state, 0)[1].shape == (0,)


def test_convolutions_leave_the_scan_on_a_cpu_only(monkeypatch, samples):
    x, y, _ = samples
    images = np.random.default_rng(0).normal(size=(N, 4, 4, 1))
    network = CNN((4, 4, 1), K, filters=(2,), key=jax.random.key(0))
    problem, state = training.begin(network, images, y, RECIPES["sgd"], jax.random.key(0))
    dense = training.begin(_networks(None)[0], x, y, RECIPES["sgd"], jax.random.key(0))
    assert training._convolves_on_cpu(problem, state)
    assert training._convolves_on_cpu(problem, training.stack([state, state]))
    assert not training._convolves_on_cpu(*dense)
    looped, losses = training.train(problem, state, 1)
    scanned, same = training.train(problem, state, 1, scan=True)
    np.testing.assert_allclose(losses, same, rtol=1e-5)
    for a, b in zip(_leaves(looped), _leaves(scanned), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not training._convolves_on_cpu(problem, state)


def test_the_network_is_handed_out_in_float64_with_its_statistics(samples):
    x, y, _ = samples
    network = _networks()[0]
    before = [np.asarray(w) for w in mlp_weights(network)]
    recipe = Recipe("sgd", 0.1, N, "cross_entropy")
    problem, state = training.begin(network, x, y, recipe, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype("float32")}
    state, _ = training.train(problem, state, 1)
    found = training.trained(network, state)
    assert {w.dtype for w in mlp_weights(found)} == {jnp.dtype("float64")}
    for w, old, kept in zip(mlp_weights(found), before, mlp_weights(network), strict=True):
        np.testing.assert_array_equal(kept, old)
        assert not np.array_equal(w, old)
    # One step on the whole batch: flax keeps 0.99 of the old mean, which is 0.
    hidden = x @ before[0].T
    np.testing.assert_allclose(found.norm1.mean[...], 0.01 * hidden.mean(0), atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": "lion"},
        {"rate": 0.0},
        {"batch": 0},
        {"loss": "hinge"},
        {"momentum": 1.0},
        {"decay": -1.0},
        {"scale": 0.0},
    ],
)
def test_a_wrong_recipe_is_refused(wrong):
    right = {"optimizer": "sgd", "rate": 0.1, "batch": 8, "loss": "mse"}
    with pytest.raises(ValueError, match=str(next(iter(wrong)))):
        Recipe(**right | wrong)


def _evaluated(outputs, y, loss):
    """(loss, right) of a network that looks its outputs up by the integer sample 0, 1, ..."""
    recipe = Recipe("sgd", 0.1, 4, loss)
    samples = np.arange(len(outputs))
    look_up = (lambda table, x: table[x], outputs)
    return training.evaluated(*training.begin(look_up, samples, y, recipe, jax.random.key(0)))


@pytest.mark.parametrize("tokens", [(), (6,)])
def test_labels_that_do_not_count_are_in_no_mean(tokens):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(N, *tokens, K)), rng.integers(-1, K, (N, *tokens))
    kept, labels = f[y >= 0], y[y >= 0]
    p = np.exp(kept) / np.exp(kept).sum(-1, keepdims=True)
    expected = -np.log(p[np.arange(len(labels)), labels]).mean(), (kept.argmax(-1) == labels).mean()
    np.testing.assert_allclose(_evaluated(f, y, "cross_entropy"), expected, rtol=1e-5)
    likely = np.where(np.maximum(y, 0)[..., None] == np.arange(K), 0.8, 0.1)  # sum to 1 for K = 3
    _, right = _evaluated(f, likely, "cross_entropy")
    np.testing.assert_allclose(right, (f.argmax(-1) == likely.argmax(-1)).mean(), rtol=1e-5)


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("tokens", [(), (6,)])
def test_training_steps_on_the_labels_that_count(tokens, scan):
    """Outputs that are looked up have the softmax minus the label as slope, over their number."""
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(N, *tokens, K)), rng.integers(-1, K, (N, *tokens))
    y[:4] = -1  # nothing counts in the first step
    recipe = Recipe("sgd", 0.5, 4, "cross_entropy", scale=2.0)
    look_up = (lambda table, x: table[x], f)
    problem, state = training.begin(look_up, np.arange(N), y, recipe, None, dtype="float64")
    state, losses = training.train(problem, state, 1, scan=scan)
    p = np.exp(f) / np.exp(f).sum(-1, keepdims=True)
    one_hot, counts = np.eye(K)[np.maximum(y, 0)], y >= 0
    of_step = [max(counts[i - i % 4 : i - i % 4 + 4].sum(), 1) for i in range(N)]
    share = counts[..., None] / np.reshape(of_step, (N, *(1 for _ in f.shape[1:])))
    np.testing.assert_allclose(state.params, f - 0.5 * 2 * share * (p - one_hot), rtol=1e-12)
    np.testing.assert_allclose(losses, [2 * -np.log((p * one_hot).sum(-1))[counts].mean()])


@pytest.mark.parametrize("k", [1, 4])
def test_right_answers_of_the_binary_cross_entropy_have_the_sign_of_their_class(k):
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=(N, k)), rng.integers(0, 2, (N, k))
    losses = np.log1p(np.exp(np.where(y == 1, -f, f))).sum(1)
    expected = losses.mean(), ((f > 0) == (y == 1)).mean()
    np.testing.assert_allclose(_evaluated(f, y, "binary_cross_entropy"), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_one_output_chooses_no_class(shape):
    f = np.random.default_rng(0).normal(size=shape)
    loss, right = _evaluated(f, np.zeros(shape), "mse")
    assert loss == pytest.approx((f**2).sum() / 2 / N)
    assert np.isnan(right)


@pytest.mark.parametrize(
    ("loss", "y", "words"),
    [("cross_entropy", [-1, -1], "no sample counts"), ("binary_cross_entropy", [-1, 0], "of -1")],
)
def test_labels_that_cannot_be_trained_on_are_refused(loss, y, words):
    outputs = np.ones((2, K if loss == "cross_entropy" else 1))
    with pytest.raises(ValueError, match=words):
        _evaluated(outputs, np.array(y), loss)
