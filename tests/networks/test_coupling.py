"""Samples that depend on each other are found wherever they are, or declared, or refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from gnjax.networks import coupling
from gnjax.networks.arguments import samples
from tests.networks import CASES
from tests.references import jacobian

RNG = np.random.default_rng(3)
X = RNG.standard_normal((40, 5))
W = {"a": RNG.standard_normal((5, 8)), "b": RNG.standard_normal((8, 2))}


def _dropped(p, x, rate):
    """Dropout with a fixed key: each place in the batch has its own mask."""
    hidden = jnp.tanh(x @ p["a"])
    keep = jax.random.bernoulli(jax.random.key(1), 1 - rate, hidden.shape)
    return jnp.where(keep, hidden / (1 - rate), 0) @ p["b"]


def _experts(p, x, capacity):
    """Samples choose one of two experts, which takes the first ``capacity`` of them."""
    first = x[:, 0] > 0
    taken = jnp.where(first, jnp.cumsum(first), jnp.cumsum(~first)) <= capacity
    hidden = jnp.where(first[:, None], jnp.tanh(x @ p["a"]), jnp.sin(x @ p["a"]))
    return jnp.where(taken[:, None], hidden, 0) @ p["b"]


def _normed(p, x):
    """BatchNorm in training mode; its scale is a parameter."""
    hidden = x @ p["a"]
    hidden = (hidden - hidden.mean(0)[None]) / jnp.sqrt(hidden.var(0) + 1e-5)[None]
    return (p["scale"][None] * hidden + 1) @ p["b"]


def _mixed(p, x, strength):
    """Every sample gets a little of the mean of all."""
    hidden = jnp.tanh(x @ p["a"])
    return (hidden + strength * hidden.mean(0)[None]) @ p["b"]


def _plain(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


def _single(apply, dtype=jnp.float32):
    """The same model, computing in float32 inside (which 64-bit mode widens), or in bfloat16."""

    def inner(p, x):
        half = jax.tree.map(lambda leaf: leaf.astype(dtype), p)
        return apply(half, x.astype(dtype)).astype(x.dtype)

    return inner


GRAPH = jax.device_put(np.asarray(RNG.random((40, 40)) < 0.1, float))
ZERO_HEAD = {**W, "b": np.zeros((8, 2))}
COUPLED = {
    "dropout at one unit in 300": (lambda p, x: _dropped(p, x, 1 / 300), W),
    "dropout before a zero head": (lambda p, x: _dropped(p, x, 0.02), ZERO_HEAD),
    "experts that are full": (lambda p, x: _experts(p, x, 18), W),
    "graph network": (lambda p, x: jnp.tanh(GRAPH @ x @ p["a"]) @ p["b"], W),
    "batch norm": (_normed, {**W, "scale": np.ones(8)}),
    "batch norm with scale zero": (_normed, {**W, "scale": np.zeros(8)}),
    "weak, 1e-7": (lambda p, x: _mixed(p, x, 1e-7), W),
    "weak, 1e-13": (lambda p, x: _mixed(p, x, 1e-13), W),
    "float32 inside, weak, 3e-6": (_single(lambda p, x: _mixed(p, x, 3e-6)), W),
    "float32 inside, dropout": (_single(lambda p, x: _dropped(p, x, 1 / 300)), W),
}
APART = {
    "plain": (_plain, W),
    "float32 inside": (_single(_plain), W),
    "experts with room": (lambda p, x: _experts(p, x, 40), W),
    "one-hundredth of every weight": (_plain, jax.tree.map(lambda w: w / 100, W)),
    "large weights": (_plain, jax.tree.map(lambda w: 1e6 * w, W)),
    "relu, float32 inside": (_single(lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"]), W),
}


@pytest.mark.parametrize("case", COUPLED)
def test_coupled_samples_are_found_and_differentiated_as_one_function(case):
    apply, params = COUPLED[case]
    op = gnjax.ntk((apply, params), X)
    assert op.net.coupled
    j = np.asarray(jacobian(apply, params, X))
    exact = 1e-12 if "float32" not in case else 1e-5  # of j, which computes in float32
    np.testing.assert_allclose(op.as_matrix(), j @ j.T, atol=exact * np.abs(j @ j.T).max())


@pytest.mark.parametrize("case", APART)
def test_samples_that_do_not_couple_are_taken_one_by_one(case):
    assert not gnjax.ntk(APART[case], X).net.coupled


@pytest.mark.parametrize("case", ["mlp relu", "cnn with stride", "attention", "batch norm frozen"])
def test_networks_that_do_not_couple(case):
    assert not gnjax.ntk(*CASES[case]()).net.coupled


def test_coupling_at_one_sample_in_the_middle():
    """Neither the first nor the last sample shows it."""

    def apply(p, x):
        return _plain(p, x) * jnp.where(jnp.arange(len(x)) == 17, 1.5, 1.0)[:, None]

    op = gnjax.ntk((apply, W), X)
    assert op.net.coupled


def test_what_is_declared_holds_or_is_refused():
    plain, dropped = (_plain, W), COUPLED["dropout at one unit in 300"]
    assert gnjax.ntk(plain, X, coupled=True).net.coupled
    np.testing.assert_allclose(
        gnjax.ntk(plain, X, coupled=True).as_matrix(), gnjax.ntk(plain, X).as_matrix(), atol=1e-11
    )
    assert not gnjax.ntk(plain, X, coupled=False).net.coupled
    y = np.zeros((40, 2))
    for call in (
        lambda **o: gnjax.gauss_newton(dropped, X, **o),
        lambda **o: gnjax.ntk(dropped, X, **o),
        lambda **o: gnjax.hessian(dropped, X, y, **o),
        lambda **o: gnjax.functional_hessian(dropped, X, y, **o),
    ):
        assert call().net.coupled
        with pytest.raises(ValueError, match=r"coupled=False, but .* differ by .*e-"):
            call(coupled=False)
    with pytest.raises(ValueError, match="take a single sample"):
        gnjax.ntk(COUPLED["graph network"], X, coupled=False)
    with pytest.raises(ValueError, match="neither True nor False"):
        gnjax.ntk(plain, X, coupled="no")


@pytest.mark.parametrize("case", COUPLED)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_batches_of_coupled_samples_are_refused(case, batch_size):
    """In batches of one, pairs are compared. Experts are full in the whole batch only."""
    if case == "experts that are full":
        assert not gnjax.ntk(COUPLED[case], X, batch_size=batch_size).net.coupled
        return
    if batch_size == 1 and "dropout" in case:
        return  # no unit is dropped at the first two places of this key
    with pytest.raises(ValueError, match=r"batch_size|raises"):
        gnjax.ntk(COUPLED[case], X, batch_size=batch_size)


def test_windows_cover_every_sample_once_in_equal_runs():
    x = jnp.arange(11)
    parts = list(samples.windows(x, 4))
    assert all(len(part) == 4 for part, _ in parts)
    np.testing.assert_array_equal(np.concatenate([part[skip:] for part, skip in parts]), x)


def test_kinks_in_coarse_formats_are_no_coupling(monkeypatch):
    """One derivative in 200 differs; that goes to the exchange, which finds nothing."""
    x = RNG.standard_normal((200, 5))
    gaps = coupling._gaps
    asked = []
    monkeypatch.setattr(coupling, "_kept_apart", lambda net, x: False)  # so that all are evaluated

    def one_differs(whole, alone, limit):
        value, image = alone[0], np.array(alone[1])
        image[3] += 1
        found = gaps(whole, (value, image), limit)
        asked.append(found.share)
        return found

    monkeypatch.setattr(coupling, "_gaps", one_differs)
    assert not gnjax.ntk((_single(_plain, jnp.bfloat16), W), x).net.coupled
    assert gnjax.ntk((_plain, W), x).net.coupled
    assert not gnjax.ntk((_plain, W), x, coupled=False).net.coupled
    np.testing.assert_allclose(asked, 1 / 200, rtol=1e-15)


def test_frozen_dropout_of_a_module_is_refused_with_the_way_out():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(5, 8, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)
            self.last = nnx.Linear(8, 2, rngs=rngs)

        def __call__(self, x):
            return self.last(self.drop(jnp.tanh(self.first(x))))

    model = Net(nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"drop.*model\.eval"):
        gnjax.ntk(model, X)
    model.eval()
    assert not gnjax.ntk(model, X).net.coupled
