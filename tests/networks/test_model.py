"""What comes in as a model, inputs, losses and filters: taken as it is meant, or refused."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import gnjax
from gnjax.networks.network import parameter_names
from tests.networks import CASES
from tests.references import outputs_and_jacobian

RNG = np.random.default_rng(7)
X = RNG.standard_normal((6, 4))


def _close(actual, expected, rtol=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * np.abs(expected).max())


class Adapted(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.LoRALinear(
            4, 5, lora_rank=2, param_dtype=jnp.float64, lora_param_type=nnx.LoRAParam, rngs=rngs
        )
        self.last = nnx.Linear(5, 2, param_dtype=jnp.float64, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))


@pytest.mark.parametrize(
    "only", [nnx.LoRAParam, nnx.OfType(nnx.LoRAParam), "first/lora/*", ["*/lora_a", "*/lora_b"]]
)
def test_adapters_are_chosen_by_type_by_filter_and_by_pattern(only):
    model = Adapted(nnx.Rngs(0))
    lora_b = model.first.lora.lora_b
    lora_b[...] = jax.device_put(np.asarray(RNG.standard_normal((2, 5)), lora_b.dtype))
    op = gnjax.gauss_newton(model, X, only=only)
    assert op.shape == (4 * 2 + 2 * 5,) * 2
    assert parameter_names(op.net) == ["first/lora/lora_a", "first/lora/lora_b"]
    whole = gnjax.gauss_newton(model, X)
    names = parameter_names(whole.net)
    rows = np.repeat(["lora" in name for name in names], whole.net.counts)
    _close(op.as_matrix(), np.asarray(whole.as_matrix())[rows][:, rows])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": "kernel"}, "the one array of parameters has none; leave it out"),
        ({"mask": np.zeros((3, 2))}, "the mask is zero everywhere and leaves no parameter; set"),
        ({"mask": np.ones(3)}, r"parameters: it has shape \(3,\), and \(3, 2\) is needed"),
    ],
)
def test_a_choice_among_the_entries_of_one_array_is_refused_in_its_words(options, words):
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton((lambda w, x: x @ w, np.ones((3, 2))), np.ones((4, 3)), **options)


@pytest.mark.parametrize(
    ("only", "words"),
    [
        (nnx.LoRAParam, "NNX variables"),
        (int, "no type of NNX"),
        (3, "no pattern"),
        (["a", 3], "no pattern"),
        ([], "leave no parameter"),
    ],
)
def test_other_filters_are_refused(only, words):
    with pytest.raises(ValueError, match=words):
        gnjax.ntk(CASES["plain"]()[0], X, only=only)


def test_a_keyword_that_a_call_does_not_have_is_named():
    model = gnjax.functional(nnx.Linear(X.shape[1], 2, rngs=nnx.Rngs(0)), train=False)
    with pytest.raises(
        ValueError, match=r"keyword argument 'train'; .*functional\(model, name=value\)"
    ):
        gnjax.ntk(model, X)


class Normed(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x, train=False):
        x = flax.linen.BatchNorm(use_running_average=not train)(flax.linen.Dense(5)(x))
        return flax.linen.Dense(2)(flax.linen.Dropout(0.5, deterministic=not train)(x))


def test_batch_statistics_are_no_parameters():
    module = Normed()
    variables = jax.jit(module.init)(jax.random.key(0), X)
    for apply in (module.apply, lambda v, x: module.apply(v, x)):
        with pytest.raises(ValueError, match=r"batch_stats.*\(module, variables\)"):
            gnjax.ntk((apply, variables), X)
    taken = gnjax.ntk((module, variables), X)
    fixed = jax.tree.map(np.float64, {"batch_stats": variables["batch_stats"]})
    by_hand = gnjax.ntk(
        (lambda p, x: module.apply({"params": p, **fixed}, x), variables["params"]), X
    )
    _close(taken.as_matrix(), by_hand.as_matrix())
    assert taken.net.parameters == 4 * 5 + 5 + 5 + 5 + 5 * 2 + 2


def test_linen_in_training_mode_is_refused_with_what_to_pass():
    module = Normed()
    variables = jax.jit(module.init)(jax.random.key(0), X)
    params = variables["params"]

    def apply(p, x):
        return module.apply({**variables, "params": p}, x, train=True, mutable=["batch_stats"])[0]

    with pytest.raises(ValueError, match="random numbers"):
        gnjax.ntk((apply, params), X)
    with pytest.raises(ValueError, match="evaluation mode"):
        gnjax.ntk((lambda p, x: module.apply({**variables, "params": p}, x, train=True), params), X)


def test_captured_random_state_is_refused_with_a_sentence():
    rngs = nnx.Rngs(0)
    layer = nnx.Dropout(0.5, deterministic=False)
    with pytest.raises(ValueError, match="captured"):
        gnjax.ntk((lambda p, x: layer(x @ p, rngs=rngs), np.ones((4, 2))), X)


@jax.custom_vjp
def _tanh(z):
    return jnp.tanh(z)


_tanh.defvjp(lambda z: (jnp.tanh(z), z), lambda z, g: (g * (1 - jnp.tanh(z) ** 2),))
WEIGHTS = [RNG.standard_normal((4, 5)), RNG.standard_normal((5, 3))]


@pytest.mark.slow
def test_models_with_a_reverse_mode_of_their_own():
    """custom_vjp has no forward mode: J v is the transpose of J^T."""
    own = (lambda w, x: _tanh(x @ w[0]) @ w[1], WEIGHTS)
    plain = (lambda w, x: jnp.tanh(x @ w[0]) @ w[1], WEIGHTS)
    y = np.arange(6) % 3
    calls = (
        lambda model: gnjax.gauss_newton(model, X, loss="cross_entropy"),
        lambda model: gnjax.gauss_newton(model, X, loss="cross_entropy", side="outputs"),
        lambda model: gnjax.ntk(model, X, batch_size=4),
        lambda model: gnjax.hessian(model, X, y, loss="cross_entropy"),
    )
    for call in calls:
        op, expected = call(own), np.asarray(call(plain).as_matrix())
        assert op.net.forward == "transposed"
        v = jax.device_put(RNG.standard_normal((len(expected), 2)))
        _close(op.as_matrix(), expected, 1e-11)
        _close(op.mv(v), expected @ v, 1e-11)
        _close(gnjax.linearised(op).mv(v), expected @ v, 1e-11)
    k, exact = (gnjax.condition_number(gnjax.ntk(model, X)) for model in (own, plain))
    np.testing.assert_allclose(k.value, exact.value, rtol=1e-6)


def test_losses_of_optax_go_in_unchanged():
    """Elementwise ones are summed over the outputs."""
    model = CASES["mlp tanh layer norm"]()[0]
    labels = np.arange(6) % 3
    ones = np.eye(3)[labels]
    f, j = map(np.asarray, outputs_and_jacobian(*gnjax.functional(model), X))
    squared = gnjax.gauss_newton(model, X, loss=optax.l2_loss, y=ones)
    _close(squared.as_matrix(), j.T @ j / 6)
    sigmoid = 1 / (1 + np.exp(-f.ravel()))
    binary = gnjax.gauss_newton(model, X, loss=optax.sigmoid_binary_cross_entropy, y=ones)
    _close(binary.as_matrix(), (j.T * (sigmoid * (1 - sigmoid))) @ j / 6)
    softmax = optax.softmax_cross_entropy_with_integer_labels
    named = gnjax.gauss_newton(model, X, loss="cross_entropy")
    _close(gnjax.gauss_newton(model, X, loss=softmax, y=labels).as_matrix(), named.as_matrix())
    h = gnjax.hessian(model, X, ones, loss=optax.l2_loss)
    assert h.as_matrix().shape == squared.shape
    _close(h.as_matrix(), gnjax.hessian(model, X, ones).as_matrix())


def test_squared_error_and_mse_are_the_same_loss():
    model = CASES["plain"]()[0]
    y = RNG.standard_normal((6, 3))
    for call in (
        lambda loss: gnjax.gauss_newton(model, X, loss=loss),
        lambda loss: gnjax.hessian(model, X, y, loss=loss),
    ):
        np.testing.assert_array_equal(call("mse").as_matrix(), call("squared_error").as_matrix())


LOSSES = {
    "vector": (lambda f, y: jnp.ones(2) * f.sum(), np.zeros((6, 3)), "one number for each output"),
    "matrix": (lambda f, y: f[:, None] * f[None], np.zeros((6, 3)), "one number for each output"),
    "integers": (lambda f, y: 1, np.zeros((6, 3)), "real number"),
    "no target": (lambda f, y: f.sum(), None, "pass the targets as y"),
    "complex": ("cross_entropy", np.ones((6, 3), complex), "complex"),
    "words": ("cross_entropy", np.array(["a"] * 6), r"return_inverse=True\)\[1\] are labels"),
    "no probabilities": ("cross_entropy", np.ones((6, 3)), "sum to one"),
    "floating labels": (
        "cross_entropy",
        np.zeros(6),
        r"integer labels .* pass y\.astype\(int\)$",
    ),
    "a column of labels": (
        "cross_entropy",
        np.zeros((6, 1), int),
        r"pass y\.reshape\(\(6,\)\)$",
    ),
    "a scalar": ("cross_entropy", 1, "one target a sample"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_losses_and_targets_that_do_not_fit_are_refused(case):
    loss, y, words = LOSSES[case]
    model = CASES["plain"]()[0]
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton(model, X, loss=loss, y=y)
    if y is not None:
        with pytest.raises(ValueError, match=words):
            gnjax.hessian(model, X, y, loss=loss)


BAD = {
    "complex inputs": (lambda p, x: x @ p, np.ones((4, 2)), X + 0j, "real numbers"),
    "objects": (lambda p, x: x @ p, np.ones((4, 2)), np.array([None] * 4), "real numbers"),
    "a ragged list": (lambda p, x: x @ p, np.ones((4, 2)), [[1.0], [1.0, 2.0]], "array"),
    "no common shape": (lambda p, x: x + p[None], np.ones(3), X, "raises TypeError"),
    "one argument too many": (lambda p, x, train: x @ p, np.ones((4, 2)), X, "train"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_types_and_sizes_are_refused_with_a_sentence(case):
    apply, params, x, words = BAD[case]
    for call in (gnjax.ntk, gnjax.gauss_newton):
        with pytest.raises(ValueError, match=words):
            call((apply, params), x)


def test_no_more_samples_than_a_batch_are_evaluated_at_once():
    """The constructor, products and matrices of all operators; shapes are seen when traced."""
    sizes = []

    def apply(p, x):
        sizes.append(x.shape[0])
        return jnp.tanh(x @ p[0]) @ p[1]

    x = RNG.standard_normal((50, 4))
    y = np.arange(50) % 3
    for op in (
        gnjax.gauss_newton((apply, WEIGHTS), x, loss="cross_entropy", batch_size=8),
        gnjax.gauss_newton((apply, WEIGHTS), x, loss=lambda f: jnp.cosh(f).sum(), batch_size=8),
        gnjax.ntk((apply, WEIGHTS), x, batch_size=8),
        gnjax.hessian((apply, WEIGHTS), x, y, loss="cross_entropy", batch_size=8),
    ):
        op.mv(jax.device_put(np.ones(op.shape[0])))
    assert max(sizes) <= 8
