"""Modules of Equinox with state and models of Keras, beside the models themselves."""

import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax

X = np.random.default_rng(0).standard_normal((9, 4))


def _equinox():
    return pytest.importorskip("equinox")


def _normed(key=0, names=("samples", "samples")):
    """Two layers, each before a BatchNorm, and its state after some samples."""
    eqx = _equinox()

    class Normed(eqx.Module):
        layers: list
        norms: list

        def __init__(self):
            keys = jax.random.split(jax.random.key(key))
            self.layers = [eqx.nn.Linear(4, 5, key=keys[0]), eqx.nn.Linear(5, 2, key=keys[1])]
            pairs = zip((5, 2), names, strict=True)
            self.norms = [eqx.nn.BatchNorm(size, name, mode="batch") for size, name in pairs]

        def __call__(self, x, state):
            for layer, norm in zip(self.layers, self.norms, strict=True):
                x, state = norm(layer(jnp.tanh(x)), state)
            return x, state

    module, state = eqx.nn.make_with_state(Normed)()
    if names[0] == names[1]:
        _, state = _mapped(module, names[0])(3 * X + 1, state)
    return module, state


def _mapped(module, axis="samples"):
    return jax.vmap(module, axis_name=axis, in_axes=(0, None), out_axes=(0, None))


@pytest.mark.slow
@pytest.mark.parametrize("inference", [False, True], ids=["batch statistics", "running statistics"])
def test_an_equinox_module_goes_in_with_its_state(inference):
    """J by jax.jacobian of the module itself, mapped as its users do; both statistics."""
    eqx = _equinox()
    module, state = _normed()
    module = eqx.nn.inference_mode(module, inference)
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    flat, back = jax.flatten_util.ravel_pytree(params)

    def outputs(v):
        return _mapped(eqx.combine(back(v), rest))(X, state)[0].reshape(-1)

    J = np.asarray(jax.jacobian(outputs)(flat))
    op = gnjax.gauss_newton((module, state), X)
    assert op.net.coupled is not inference
    np.testing.assert_allclose(op.as_matrix(), J.T @ J / 9, atol=1e-13 * np.linalg.norm(J) ** 2)
    values = np.linalg.eigvalsh(J.T @ J / 9) + 0.01
    kappa = gnjax.condition_number(op + 0.01)
    assert kappa.value == pytest.approx(values[-1] / values[0], rel=1e-9)


def test_the_state_of_an_equinox_module_has_the_precision_of_its_parameters():
    """In training mode Equinox refuses a new state of another precision."""
    single = _cast(_normed(), jnp.float32)
    expected = np.asarray(gnjax.gauss_newton(_cast(single, float), X))
    np.testing.assert_allclose(gnjax.gauss_newton(single, X).as_matrix(), expected, atol=1e-12)


def _cast(tree, dtype):
    def cast(leaf):
        floating = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if floating else leaf

    return jax.tree.map(cast, tree)


def test_wrong_states_of_equinox_modules_are_refused():
    eqx = _equinox()
    module, state = _normed()
    linear = eqx.nn.Linear(4, 2, key=jax.random.key(0))
    cases = {
        "has a state; pass \\(module, state\\)": module,
        "has no state; pass module": (linear, state),
        "got dict beside it": (module, {}),
        "take means over axes of the names \\['a', 'b'\\]": _normed(names=("a", "b")),
    }
    for words, model in cases.items():
        with pytest.raises(ValueError, match=words):
            gnjax.gauss_newton(model, X)


@pytest.fixture
def keras(monkeypatch):
    """Keras on JAX, which adds vectors to rows."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    module = pytest.importorskip("keras", reason="Keras comes with `make test-torch`")
    module.utils.set_random_seed(0)
    with jax.numpy_rank_promotion("allow"):
        yield module


def _keras_normed(keras):
    layers = keras.layers
    inner = [layers.Dense(5, activation="tanh"), layers.BatchNormalization(), layers.Dropout(0.5)]
    last = [layers.Dense(2, trainable=False), layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *inner, *last])
    model(3 * X + 1, training=True)  # moves the statistics
    return model


def _keras_branches(keras):
    inputs = keras.Input((4,))
    branches = [keras.layers.Dense(3, activation=kind)(inputs) for kind in ("relu", "gelu")]
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Add()(branches)))


def _keras_own(keras):
    class Own(keras.Model):
        """Two layers of one name."""

        def __init__(self):
            super().__init__()
            self.first, self.last = (keras.layers.Dense(4, name="same") for _ in range(2))

        def call(self, x):
            return self.last(keras.ops.sin(self.first(x)))

    model = Own()
    model(X)
    return model


@pytest.mark.parametrize("made", [_keras_normed, _keras_branches, _keras_own])
def test_a_keras_model_goes_in_as_it_is(made, keras):
    """J by jax.jacobian of Keras in its own float32."""
    model = made(keras)
    fixed = [variable.value for variable in model.non_trainable_variables]
    values = [variable.value for variable in model.trainable_variables]
    rows = jax.jacobian(lambda v: model.stateless_call(v, fixed, np.float32(X))[0])(values)
    apply, params = gnjax.functional(model)
    order = [list(params).index(name) for name in sorted(params)]
    outputs = np.asarray(model(X))
    J = [np.asarray(rows[i], float).reshape(outputs.size, -1) for i in order]
    J = np.concatenate(J, axis=1)
    np.testing.assert_allclose(apply(params, X), outputs, atol=1e-6)
    op = gnjax.gauss_newton(model, X)
    np.testing.assert_allclose(op.as_matrix(), J.T @ J / 9, atol=1e-5 * np.linalg.norm(J) ** 2)
    assert gnjax.condition_number(op + 0.01).resolved


def test_keras_models_in_training_mode_couple_samples_and_unbuilt_ones_are_refused(keras):
    model = _keras_normed(keras)
    assert gnjax.gauss_newton(gnjax.functional(model, training=True), X).net.coupled
    with pytest.raises(ValueError, match="no variables yet; call it once"):
        gnjax.gauss_newton(keras.Sequential([keras.layers.Dense(2)]), X)


def test_a_keras_of_another_backend_is_refused(monkeypatch):
    """Known by its module's name alone, where Keras is not installed too."""
    layer = type("Layer", (), {})
    of_torch = SimpleNamespace(Layer=layer, backend=SimpleNamespace(backend=lambda: "torch"))
    monkeypatch.setitem(sys.modules, "keras", of_torch)
    with pytest.raises(ValueError, match=r"computes with torch; .* KERAS_BACKEND=jax"):
        gnjax.gauss_newton(layer(), X)
