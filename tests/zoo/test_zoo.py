"""Gauss-Newton matrices, kernels and Hessians of models as users write them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from tests.zoo import images, language, made, modern, others, science

CASES = {
    "gpt, float32 layers, dropout off": language.gpt,
    "bert, padding mask": language.bert,
    "scanned and rematerialised": language.scanned,
    "gru": language.gru,
    "lstm": language.lstm,
    "vit, float32 layers": images.vit,
    "u-net with group norm": images.unet,
    "batch norm, evaluated": images.batch_norm_evaluated,
    "batch norm and dropout in training": images.batch_norm_training,
    "train state": images.train_state,
    "equinox autoencoder": images.equinox_autoencoder,
    "equinox logistic regression": images.equinox_logistic,
    "haiku resnet": images.haiku_resnet,
    "haiku mlp, huber loss": images.haiku_mlp,
    "graphs": others.graphs,
    "one graph": others.one_graph,
    "mixture of experts": others.experts,
    "deep equilibrium": others.deq,
    "lora": others.lora,
    "two heads": others.two_heads,
    "spectrum inside": others.spectrum_inside,
    "rotary transformer, shared keys, gated layers": modern.llama,
    "encoder and decoder": modern.translator,
    "mlp-mixer": modern.mixer,
    "depthwise convolution, a class for every pixel": modern.pixel_classes,
    "dilated causal convolutions": modern.wavenet,
    "two towers of embeddings": modern.two_towers,
    "contrastive, coupled by its batch": modern.contrastive,
    "physics-informed": science.pinn,
    "neural differential equation": science.neural_ode,
    "sines of coordinates": science.siren,
    "variational autoencoder": science.vae,
    "normalising flow": science.flow,
    "diffusion": science.diffusion,
    "counts, loss of one's own": science.poisson,
}


@pytest.fixture(autouse=True)
def _users_rely_on_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def _close(actual, expected, size):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * float(size))


def _flat(outputs):
    leaves = jax.tree.leaves(outputs)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _as_outputs(flat, like):
    """What :func:`_flat` has made of outputs, back in their shapes."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf[0].size for leaf in leaves])[:-1]
    parts = zip(jnp.split(flat, ends, axis=1), leaves, strict=True)
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])


def _references(case):
    """J (n k, p), G and H, by dense differentiation of the plain network."""
    y = case.options.get("y")
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), gnjax.functional(case.model)[1])

    def compute(params, inputs):
        v, unravel = ravel_pytree(params)

        def outputs(v):
            return case.reference(unravel(v), inputs)

        f = outputs(v)
        flat = _flat(f)
        j = jax.jacrev(lambda v: _flat(outputs(v)).reshape(-1))(v)
        b = jax.hessian(lambda f: case.mean_loss(_as_outputs(f.reshape(flat.shape), outputs(v)), y))
        h = jax.hessian(lambda v: case.mean_loss(outputs(v), y))(v)
        return j, j.T @ b(flat.reshape(-1)) @ j, h

    sizes = [(str(path), leaf.size) for path, leaf in jax.tree_util.tree_leaves_with_path(params)]
    kept = np.concatenate([np.full(size, case.kept in path) for path, size in sizes])
    j, g, h = (np.asarray(found) for found in jax.jit(compute)(params, case.x))
    return j[:, kept], g[kept][:, kept], h[kept][:, kept]


@pytest.mark.parametrize("name", CASES)
def test_model_equals_dense_differentiation(name):
    """Products with G and H, both whole and the kernel, to 1e-12 of the largest eigenvalue.

    The norm of the difference of two symmetric matrices bounds that of all their eigenvalues.
    """
    case = CASES[name]()
    j, g, h = _references(case)
    v = np.random.default_rng(0).standard_normal(len(g))
    other = {key: value for key, value in case.options.items() if key in ("has_aux", "only")}
    kernel = gnjax.ntk(case.model, case.x, **other)
    assert kernel.net.coupled == case.coupled == ("coupled samples" in repr(kernel))
    _close(kernel.as_matrix(), j @ j.T, np.linalg.norm(j, 2) ** 2)
    for call, expected in ((gnjax.gauss_newton, g), (gnjax.hessian, h)):
        op = call(case.model, case.x, **case.options)
        size = np.linalg.norm(expected, 2)
        _close(op.mv(v), expected @ v, size * np.linalg.norm(v))
        assert np.linalg.norm(np.asarray(op.as_matrix()) - expected, 2) <= 1e-12 * size


def _in_five_frameworks(w, v):
    """tanh(x W) V in Flax NNX, Flax Linen, Equinox, Haiku and plain JAX."""
    eqx, hk = pytest.importorskip("equinox"), pytest.importorskip("haiku")
    yield (lambda p, x: jnp.tanh(x @ p[0]) @ p[1], [w, v])

    def sequential(rngs):
        keys = {"use_bias": False, "param_dtype": jnp.float64, "rngs": rngs}
        return nnx.Sequential(nnx.Linear(3, 4, **keys), jnp.tanh, nnx.Linear(4, 2, **keys))

    model = made(sequential, 0)
    model.layers[0].kernel[...], model.layers[2].kernel[...] = jax.device_put((w, v))
    yield model
    layers = [nn.Dense(4, use_bias=False), jnp.tanh, nn.Dense(2, use_bias=False)]
    yield nn.Sequential(layers), {"params": {"layers_0": {"kernel": w}, "layers_2": {"kernel": v}}}
    biases = {"use_bias": False, "use_final_bias": False}
    mlp = eqx.filter_jit(eqx.nn.MLP)(3, 2, 4, 1, jnp.tanh, **biases, key=jax.random.key(0))
    where = lambda m: [layer.weight for layer in m.layers]  # noqa: E731
    yield eqx.tree_at(where, mlp, jax.device_put([w.T, v.T]))
    forward = hk.transform(lambda x: hk.nets.MLP([4, 2], with_bias=False, activation=jnp.tanh)(x))
    yield forward, {"mlp/~/linear_0": {"w": w}, "mlp/~/linear_1": {"w": v}}


def test_one_network_in_five_frameworks_has_one_condition_number():
    rng = np.random.default_rng(6)
    w, v, x = (rng.standard_normal(shape) for shape in ((3, 4), (4, 2), (5, 3)))
    found = [
        gnjax.condition_number(gnjax.gauss_newton(model, x, loss="cross_entropy")).value
        for model in _in_five_frameworks(w, v)
    ]
    assert len(found) == 5
    np.testing.assert_allclose(found, found[0], rtol=1e-10)


def _dense(p, x):
    return x @ p


W, X = np.ones((3, 2)), np.arange(12.0).reshape(4, 3) / 7
WRONG = {
    "complex inputs": (lambda: gnjax.ntk((_dense, W), X + 1j), "two arrays"),
    "integer outputs": (lambda: gnjax.ntk((lambda p, x: x @ p > 0, W), X), "floating point"),
    "arrays of unequal length": (lambda: gnjax.ntk((_dense, W), (X, X[:2])), "same number of"),
    "no module": (lambda: gnjax.ntk(_dense, X), "a model is"),
    "no samples": (lambda: gnjax.ntk((_dense, W), X[:0]), "at least one sample"),
    "an empty list": (lambda: gnjax.gauss_newton((_dense, W), []), "at least one sample"),
    "words": (lambda: gnjax.ntk((_dense, W), ["a", "b"]), "real numbers"),
    "training mode of Linen": (lambda: _linen_call(train=True), "train=False"),
    "dropout without a key": (lambda: _linen_call(train=True, mutable=["batch_stats"]), "rngs="),
    "an argument that is missing": (lambda: _linen_call(), "missing 1 required"),
    "dropout of NNX": (lambda: gnjax.ntk(made(images.ViT, 0), X), r"model\.eval"),
    "dropout of Equinox": (lambda: _equinox_dropout(), "a key"),
    "no state of Haiku": (lambda: _haiku_without_state(), "params, state"),
    "an output for the batch": (lambda: gnjax.ntk((lambda p, x: (x @ p).mean(0), W), X), "sample"),
}


def _linen_call(**call):
    module, variables, _, x, _ = images._normed()
    return gnjax.ntk(gnjax.functional((module, variables), **call), x)


def _equinox_dropout():
    eqx = pytest.importorskip("equinox")
    layers = [eqx.nn.Linear(3, 2, key=jax.random.key(0)), eqx.nn.Dropout(0.5)]
    return gnjax.ntk(eqx.nn.Sequential(layers), X)


def _haiku_without_state():
    hk = pytest.importorskip("haiku")
    model = hk.transform_with_state(lambda x: hk.Linear(2)(x))
    return gnjax.ntk((model, jax.jit(model.init)(jax.random.key(0), X)[0]), X)


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_wrong_is_refused_in_one_sentence(name):
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words) as refusal:
        call()
    assert len(str(refusal.value).splitlines()[0]) > 20
