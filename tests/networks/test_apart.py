"""Whether equations keep samples apart: what is shown is so, and what mixes them is not shown."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax.networks import alike, coupling
from gnjax.networks.equations.apart import arguments_of, keeps_apart

_N, _T, _D = 4, 3, 6
_RNG = np.random.default_rng(0)
_X = jnp.asarray(_RNG.standard_normal((_N, _T, _D)))
_W = jnp.asarray(_RNG.standard_normal((_D, _D)))
_TOKENS = jnp.asarray(_RNG.integers(0, _D, (_N, _T)))
_MASK = jnp.tril(jnp.ones((_T, _T), bool))


def _shown(function, x):
    closed_jaxpr = jax.make_jaxpr(function)(_W, x)
    return keeps_apart(closed_jaxpr, arguments_of((_W, False), (x, True)))


def _attention(w, x):
    scores = jnp.einsum("btd,bsd->bts", x @ w, x)
    return jax.nn.softmax(jnp.where(_MASK, scores, -1e9)) @ x


def _recurrent(w, x):
    step = lambda h, row: (jnp.tanh(h @ w + row), h[:, :2])  # noqa: E731
    last, rows = jax.lax.scan(step, jnp.zeros((x.shape[0], _D)), x.swapaxes(0, 1))
    return last + rows.swapaxes(0, 1).sum(axis=(1, 2))[:, None]


def _through_rows(w, x):
    """Positions of all samples as rows of one matrix, and back."""
    rows = jax.nn.gelu(x.reshape(-1, _D) @ w)
    return rows.reshape(x.shape)


def _convolved(w, x):
    image = x[..., None]
    z = jax.lax.conv_general_dilated(
        image, w[:3, :3, None, None], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.lax.reduce_window(z, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def _layer_normed(w, x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) @ w


_APART = {
    "attention": (_attention, _X),
    "recurrent": (_recurrent, _X),
    "rows": (_through_rows, _X),
    "convolution": (_convolved, _X),
    "layer norm": (_layer_normed, _X),
    "table": (lambda w, t: jnp.cumsum(w[t], axis=1) + jnp.arange(_T)[None, :, None], _TOKENS),
    "largest": (lambda w, x: jax.lax.top_k(x @ w, 2)[0], _X),
    "own places": (lambda w, x: jnp.take_along_axis(x @ w, jnp.argsort(x, axis=-1), -1), _X),
    "last": (lambda w, x: x[:, -1] @ w, _X),
    "updated": (lambda w, x: jax.lax.dynamic_update_slice(x, x[:, :1] * 2, (0, 1, 0)) @ w, _X),
    "mapped": (lambda w, x: jax.vmap(lambda row: jnp.sort(row @ w, axis=0))(x), _X),
    "checkpoint": (lambda w, x: jax.checkpoint(lambda x: jnp.sin(x @ w))(x), _X),
    "steps": (lambda w, x: jax.lax.fori_loop(0, 3, lambda i, h: jnp.sin(h @ w), x), _X),
    "branch": (lambda w, x: jax.lax.cond(w[0, 0] > 0, jnp.sin, jnp.cos, x), _X),
}
_COUPLED = {
    "mean": lambda w, x: x @ w - x.mean(0, keepdims=True),
    "batch norm": lambda w, x: (x @ w) / jnp.sqrt(jnp.var(x @ w, axis=0, keepdims=True) + 1e-5),
    "sums so far": lambda w, x: jnp.cumsum(x, axis=0) @ w,
    "place in the batch": lambda w, x: x @ w + jnp.arange(x.shape[0])[:, None, None],
    "random": lambda w, x: x @ w * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape),
    "neighbours": lambda w, x: jnp.roll(x, 1, axis=0) @ w,
    "backwards": lambda w, x: x[::-1] @ w,
    "sorted": lambda w, x: jnp.sort(x, axis=0) @ w,
    "kernel": lambda w, x: jnp.einsum("btd,std->bs", x, x),
    "first for all": lambda w, x: x @ w + x[:1],
    "some samples": lambda w, x: jnp.concatenate([x[:2], x[:2]]) @ w,
    "by place": lambda w, x: x[jnp.arange(x.shape[0])[::-1]] @ w,
    "until all have ended": lambda w, x: jax.lax.while_loop(
        lambda h: jnp.abs(h).max() > 1.0, lambda h: h / 2, x @ w
    ),
    "branch of all": lambda w, x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x @ w),
    "other axes": lambda w, x: (x @ w).swapaxes(0, 1)[:, :_T].reshape(-1, _T, _D)[: x.shape[0]],
}


@pytest.mark.parametrize("name", _APART)
def test_equations_of_usual_layers_show_it(name):
    function, x = _APART[name]
    assert _shown(function, x)


@pytest.mark.parametrize("name", _COUPLED)
def test_samples_that_meet_anywhere_are_not_shown_to_be_apart(name):
    assert not _shown(_COUPLED[name], _X)


_STEPS = {
    "transposed": lambda w, x: x.swapaxes(0, 1),
    "other axis": lambda w, x: jnp.moveaxis(x, 0, -1),
    "product": lambda w, x: x @ w if x.shape[-1] == _D else x,
    "joined": lambda w, x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:, None],
    "reshaped": lambda w, x: x.reshape(_N, -1, 2) if x.size % (2 * _N) == 0 else x,
    "sum": lambda w, x: x - x.sum(axis=0, keepdims=True),
    "sum of the last": lambda w, x: x - x.sum(axis=-1, keepdims=True),
    "reversed": lambda w, x: x[..., ::-1],
    "softmax": lambda w, x: jax.nn.softmax(x, axis=1),
    "doubled": lambda w, x: jnp.concatenate([x, 2 * x], axis=-1),
    "halved": lambda w, x: x[..., : max(1, x.shape[-1] // 2)],
    "places": lambda w, x: x + jnp.arange(x.shape[-1]).reshape((1,) * (x.ndim - 1) + (-1,)),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(_STEPS)), max_size=6))
def test_what_is_shown_of_random_functions_is_so(names):
    """Other samples change nothing in a sample whose function is shown to keep it apart."""

    def function(w, x):
        for name in names:
            x = _STEPS[name](w, x)
        return x

    if not _shown(function, _X):
        return
    value = np.asarray(function(_W, _X))
    others = np.asarray(function(_W, _X.at[1:].set(_X[1:] ** 2 + 1)))
    assert value.shape[0] == _N
    np.testing.assert_array_equal(others[0], value[0])
    # nor does the place in the batch
    turned = np.asarray(function(_W, _X[::-1]))
    np.testing.assert_allclose(turned[::-1], value, rtol=0, atol=1e-12)


def test_a_rule_of_a_derivative_that_couples_is_seen():
    """The outputs are apart, and their derivative is not."""

    @jax.custom_jvp
    def through(z):
        return z

    @through.defjvp
    def _(primals, tangents):
        return primals[0], tangents[0] - tangents[0].mean(0, keepdims=True)

    x = np.asarray(_X[:, 0])
    assert gnjax.ntk((lambda w, x: through(x @ w), _W), x).net.coupled
    assert not gnjax.ntk((lambda w, x: x @ w, _W), x).net.coupled


def test_a_model_that_reads_how_many_samples_there_are_is_coupled():
    x = np.asarray(_X[:, 0])
    assert gnjax.ntk((lambda w, x: x @ w / x.shape[0], _W), x).net.coupled


def test_making_an_operator_compiles_no_network():
    """Programs that XLA compiles while operators of networks are made, by what they are called."""
    names = []

    def listen(event, duration, **details):
        if "backend_compile" in event:
            names.append(str(details.get("fun_name")))

    model = gnjax.models.MLP((_D, 7, 3), activation="relu", key=jax.random.key(0))
    x, y = np.asarray(_X[:, 0]), np.arange(_N) % 3
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for make in (gnjax.hessian, gnjax.gauss_newton, partial(gnjax.ntk, y=y)):
            call = make if isinstance(make, partial) else partial(make, y=y)
            call(model, x, loss="cross_entropy")
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not [name for name in names if "jit(<lambda>)" in name or "_responses" in name]


def test_a_network_that_is_nearly_the_same_is_not_evaluated_again(monkeypatch):
    alike._earlier_answers.clear()
    evaluated, by_numpy = [], coupling._by_numpy
    monkeypatch.setattr(
        coupling, "_by_numpy", lambda net, x: evaluated.append(len(x)) or by_numpy(net, x)
    )
    x, w = np.random.default_rng(0).standard_normal((5, 3)), np.ones((3, 2))
    model = lambda p, x: jax.nn.softmax(x @ p)  # noqa: E731
    gnjax.ntk((model, w), x)
    assert evaluated == [5, 1]  # all samples, and the first one alone
    gnjax.ntk((model, 1.01 * w), x)
    assert evaluated == [5, 1]
    gnjax.ntk((model, 1.2 * w), x)
    assert evaluated == [5, 1, 5, 1]
    with pytest.raises(ValueError, match="logits"):  # what was found is checked for every loss
        gnjax.gauss_newton((model, 1.2 * w), x, [0, 1, 0, 1, 1], loss="cross_entropy")
    assert evaluated == [5, 1, 5, 1]


def test_other_samples_of_a_network_are_evaluated():
    """A token beyond the vocabulary makes outputs NaN, whatever they were at other tokens."""
    table = np.random.default_rng(0).standard_normal((4, 3))
    model = lambda p, x: jnp.take(p, x, axis=0, mode="fill")  # noqa: E731
    gnjax.ntk((model, table), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="past the vocabulary"):
        gnjax.ntk((model, table), np.array([0, 1, 4]))
    gnjax.ntk((model, table), np.array([0, 1, 3]))
