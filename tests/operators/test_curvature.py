"""Batches that stream, Hessians of any function, and the empirical Fisher matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from gnjax.operators.facts import rank_of
from tests.references import hessian

RNG = np.random.default_rng(4)
X, LABELS = RNG.standard_normal((7, 3)), np.array([0, 1, 2, -1, 1, 0, 2])
WEIGHTS = {"a": RNG.standard_normal((3, 4)), "b": RNG.standard_normal((4, 3))}
BATCHES = [(X[:3], LABELS[:3]), (X[3:6], LABELS[3:6]), (X[6:], LABELS[6:])]


def _apply(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


MODEL = (_apply, WEIGHTS)


class Loader:
    """A loader as data libraries have them: lists [x, y], afresh in every pass."""

    def __init__(self, change=0.0):
        self.change, self.passes = change, 0

    def __iter__(self):
        self.passes += 1
        for x, y in BATCHES:
            yield [x + self.change * self.passes, y]


CALLS = {
    "gauss_newton": gnjax.gauss_newton,
    "hessian": gnjax.hessian,
    "functional_hessian": gnjax.functional_hessian,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_batches_are_the_mean_over_all_samples(name):
    """A list and a loader, batches of unequal size, labels that do not count; the error holds."""
    whole = CALLS[name](MODEL, X, y=LABELS, loss="cross_entropy")
    exact = np.asarray(whole.as_matrix())
    size = np.linalg.norm(exact, 2)
    v = RNG.standard_normal((len(exact), 2))
    for source in (BATCHES, Loader()):
        op = CALLS[name](MODEL, source, loss="cross_entropy")
        assert op.shape == whole.shape
        atol = 1e-12 * size
        np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=atol)
        np.testing.assert_allclose(op.mv(jax.device_put(v)), exact @ v, rtol=0, atol=10 * atol)
    error = op.error(float(size))
    assert error.kind == "measured"
    assert np.linalg.norm(op.as_matrix() - exact, 2) < error.value < 1e-11 * size
    assert rank_of(op).value == (12 if name == "gauss_newton" else 24)  # one label of 7 is -1
    top = gnjax.eigenvalues(op, k=2, which="largest")
    truth = np.linalg.eigvalsh(exact)[::-1][:2]
    np.testing.assert_allclose(top.values, truth, rtol=0, atol=1e-6 * size)


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_of_padding_counts_for_nothing(name):
    """Where it comes first, and where it comes last; nothing but padding is refused."""
    padding = X[:2], np.full(2, -1)
    exact = np.asarray(CALLS[name](MODEL, X, y=LABELS, loss="cross_entropy").as_matrix())
    size = np.linalg.norm(exact, 2)
    for source in ([padding, *BATCHES], [*BATCHES, padding]):
        op = CALLS[name](MODEL, source, loss="cross_entropy")
        np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=1e-12 * size)
        assert 0 < op.error(float(size)).value < 1e-11 * size
    with pytest.raises(ValueError, match=r"no sample counts: .*; give labels"):
        CALLS[name](MODEL, [padding], loss="cross_entropy")


def test_passes_that_differ_are_refused():
    with pytest.raises(ValueError, match="two passes over the batches differ, at batch 0"):
        gnjax.gauss_newton(MODEL, Loader(change=1e-3), loss="cross_entropy")
    loader = Loader()
    op = gnjax.gauss_newton(MODEL, loader, loss="cross_entropy")
    loader.change = 1e-3
    with pytest.raises(ValueError, match="without shuffling"):
        op.mv(jax.device_put(np.ones(op.shape[0])))


def test_memory_of_batches_is_that_of_one():
    """No evaluation sees more samples than a batch has, and none is kept."""
    sizes = []

    def apply(p, x):
        sizes.append(len(x))
        return _apply(p, x)

    op = gnjax.gauss_newton((apply, WEIGHTS), BATCHES, loss="cross_entropy")
    op.mv(jax.device_put(np.ones(op.shape[0])))
    assert max(sizes) <= 3
    assert all(np.size(leaf) < X.size for leaf in jax.tree.leaves((op.net.x, op.net.target)))


def _batch_norm(p, x):
    hidden = x @ p["a"]
    return (hidden / jnp.sqrt(jnp.square(hidden).mean(0))[None]) @ p["b"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gnjax.gauss_newton(MODEL, BATCHES, y=LABELS), "no place beside"),
        (lambda: gnjax.gauss_newton(MODEL, BATCHES, side="outputs"), "side of the parameters"),
        (lambda: gnjax.ntk(MODEL, BATCHES), "pass all samples as one x"),
        (lambda: gnjax.empirical_fisher(MODEL, BATCHES, None), "pass all samples as one x"),
        (
            lambda: gnjax.gauss_newton((_batch_norm, WEIGHTS), BATCHES, loss="cross_entropy"),
            "samples of a batch are",
        ),
        (lambda: gnjax.gauss_newton(MODEL, {1: 2}.values()), r"a batch is a pair \(x, y\)"),
        (lambda: gnjax.gauss_newton(MODEL, (x for x in BATCHES)), "passed over once"),
        (lambda: gnjax.hessian(MODEL, X), "pass them as y"),
        (lambda: gnjax.hessian(MODEL, X, LABELS, side="outputs"), "one side|side of the param"),
    ],
)
def test_what_cannot_stream_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def _dense(function, params):
    return hessian(function, jax.tree.map(lambda leaf: np.asarray(leaf, float), params))


def _check_hessian(op, exact):
    size = np.linalg.norm(exact, 2)
    np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=1e-12 * size)
    v = RNG.standard_normal((len(exact), 2))
    np.testing.assert_allclose(op.mv(jax.device_put(v)), exact @ v, rtol=0, atol=1e-11 * size)
    error = op.error(float(size))
    assert error.kind == "measured"
    assert np.linalg.norm(op.as_matrix() - exact, 2) < error.value < 1e-10 * size


def test_hessian_of_a_physics_informed_loss():
    """u'' = -u with its boundary, by derivatives inside the loss, and weight decay."""
    params = {"w": RNG.standard_normal((1, 4)), "b": RNG.standard_normal(4), "v": np.ones(4)}
    points = np.linspace(0, 1, 5)

    def loss(p, t):
        def u(s):
            return jnp.tanh(s * p["w"][0] + p["b"]) @ p["v"]

        residual = jax.vmap(jax.grad(jax.grad(u)))(t) + jax.vmap(u)(t)
        decay = sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(p))
        return jnp.square(residual).mean() + u(0.0) ** 2 + 1e-3 * decay

    op = gnjax.hessian_of(loss, params, points)
    exact = _dense(lambda p: loss(p, points), params)
    _check_hessian(op, exact)
    part = gnjax.hessian_of(loss, params, points, only="v").as_matrix()
    np.testing.assert_allclose(part, exact[4:8, 4:8], rtol=0, atol=1e-12 * np.abs(exact).max())


def test_hessian_of_a_module_and_of_a_function_with_its_own_reverse_mode():
    """A VAE with a fixed key in NNX, float32 inside, and jax.custom_vjp."""

    class VAE(nnx.Module):
        def __init__(self, rngs):
            self.encode = nnx.Linear(3, 4, rngs=rngs)
            self.decode = nnx.Linear(2, 3, rngs=rngs)

        def __call__(self, x, noise):
            mean, logs = jnp.split(self.encode(x), 2, axis=-1)
            return self.decode(_tanh(mean + jnp.exp(logs / 2) * noise)), mean, logs

    @jax.custom_vjp
    def _tanh(z):
        return jnp.tanh(z)

    _tanh.defvjp(lambda z: (jnp.tanh(z), z), lambda z, g: (g * (1 - jnp.tanh(z) ** 2),))

    def loss(model, x, noise):
        f, mean, logs = model(x, noise)
        divergence = (jnp.exp(logs) + mean**2 - 1 - logs).sum() / 2
        return (jnp.square(f - x).sum() / 2 + divergence).astype(jnp.float32)

    def plain(p, x, noise):
        code = x @ p["encode"]["kernel"][...] + p["encode"]["bias"][...][None]
        mean, logs = code[:, :2], code[:, 2:]
        z = jnp.tanh(mean + jnp.exp(logs / 2) * noise)
        f = z @ p["decode"]["kernel"][...] + p["decode"]["bias"][...][None]
        return ((f - x) ** 2).sum() / 2 + (jnp.exp(logs) + mean**2 - 1 - logs).sum() / 2

    noise = RNG.standard_normal((7, 2))
    model = VAE(nnx.Rngs(0))
    with jax.numpy_rank_promotion("allow"):
        op = gnjax.hessian_of(loss, model, X, noise)
        exact = _dense(lambda p: plain(p, X, noise), nnx.state(model, nnx.Param))
        _check_hessian(op, exact)


@pytest.mark.parametrize(
    ("loss", "params", "words"),
    [
        (lambda p: p, np.ones(3), "one real number"),
        (lambda p: 1j * p.sum(), np.ones(3), "one real number"),
        (lambda p: jnp.log(-p.sum()), np.ones(3), "NaN"),
        (lambda p: jnp.sqrt(p).sum(), np.zeros(3), "gradient of loss_fn has NaN or Inf"),
        (lambda p: (p.sum(), p), np.ones(3), "got tuple; return the loss alone"),
        (
            lambda p: float(p.sum()),
            np.ones(3),
            "cannot be traced by JAX .* with jax.numpy",
        ),
        (lambda p: p @ jnp.ones(4), np.ones(3), r"called as loss_fn\(params, \*args\)"),
        (lambda p, x: p.sum(), np.ones(3), "raises TypeError"),
        (3, np.ones(3), "must be a function"),
        (lambda p: p.sum(), np.ones(3, int), "dtype int"),
    ],
)
def test_functions_that_have_no_hessian_are_refused(loss, params, words):
    with pytest.raises(ValueError, match=words):
        gnjax.hessian_of(loss, params)


def test_empirical_fisher_is_the_second_moment_of_the_gradients():
    """By the gradient of every sample; labels that do not count give no gradient."""

    def losses(p):
        logs = jax.nn.log_softmax(_apply(p, X))
        found = -jnp.take_along_axis(logs, jnp.maximum(LABELS, 0)[:, None], axis=1)[:, 0]
        return jnp.where(LABELS < 0, 0, found) * 7 / 6  # the mean is over six labels

    @jax.jit
    def derivatives(params):
        theta, unravel = ravel_pytree(params)
        mean = jax.grad(lambda v: losses(unravel(v)).sum() / 7)(theta)
        return jax.jacrev(lambda v: losses(unravel(v)))(theta), mean

    g, mean = map(np.asarray, derivatives(WEIGHTS))
    exact = g.T @ g / 7
    op = gnjax.empirical_fisher(MODEL, X, LABELS, loss="cross_entropy")
    size = np.linalg.norm(exact, 2)
    np.testing.assert_allclose(op.as_matrix(), exact, rtol=0, atol=1e-12 * size)
    v = RNG.standard_normal(len(exact))
    np.testing.assert_allclose(op.mv(jax.device_put(v)), exact @ v, rtol=0, atol=1e-11 * size)
    assert np.linalg.norm(op.as_matrix() - exact, 2) < op.error(float(size)).value < 1e-11 * size
    gram = gnjax.empirical_fisher(MODEL, X, LABELS, loss="cross_entropy", side="outputs")
    np.testing.assert_allclose(gram.as_matrix(), g @ g.T / 7, rtol=0, atol=1e-12 * size)
    apart = gnjax.empirical_fisher(MODEL, X, LABELS, loss="cross_entropy", batch_size=2)
    np.testing.assert_allclose(apart.mv(jax.device_put(v)), exact @ v, rtol=0, atol=1e-11 * size)
    op = gnjax.hessian(MODEL, X, LABELS, loss="cross_entropy")
    slope = jax.jit(jax.grad(lambda p: op.objective(op.net.x, op.net.target, p)))
    found = np.concatenate([np.ravel(leaf) for leaf in slope(list(op.net.leaves))]) / 6
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-12)
