"""Layers of every structure against dense differentiation: J, J J^T, J^T J, and products."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special

import gnjax
from gnjax.networks import jacobians, kernels, layers
from gnjax.operators.of_networks import stored_jacobian
from tests.references import jacobian, outputs_and_jacobian

_N = 3
RNG = np.random.default_rng(0)


def _drawn(*shape):
    return RNG.standard_normal(shape)


def _tied(p, x):
    """A table that is looked up, and that multiplies in the end."""
    h = jnp.tanh(jnp.take(p["table"], x, axis=0) @ p["inner"])
    return h @ p["table"].T


def _shared(p, x):
    """One square matrix as it is, transposed, and once more."""
    return jnp.tanh(jnp.tanh(jnp.tanh(x @ p) @ p.T) @ p)


def _cell(p, h, row):
    return jnp.tanh(h @ p["hidden"] + row @ p["input"])


def _unrolled(p, x):
    h = jnp.zeros((len(x), 3))
    for t in range(x.shape[1]):
        h = _cell(p, h, x[:, t])
    return h


def _recurrent(p, x):
    steps = jnp.swapaxes(x, 0, 1)
    h, _ = jax.lax.scan(lambda h, row: (_cell(p, h, row), None), jnp.zeros((len(x), 3)), steps)
    return h


def _carried(p, x):
    """The cell is carried from step to step, and comes out again, as NNX does it."""

    def step(state, row):
        cell, h = state
        return (cell, _cell(cell, h, row)), None

    state = (p, jnp.zeros((len(x), 3)))
    (cell, h), _ = jax.lax.scan(step, state, jnp.swapaxes(x, 0, 1))
    return h @ cell["hidden"]


def _stacked(p, x):
    """Layers stacked along the first axis, from the last to the first, each rematerialised."""

    @jax.checkpoint
    def block(h, layer):
        return h + jnp.tanh(h @ layer["kernel"].T)

    def step(h, layer):
        return block(h, layer), layer  # the layers come out again, and nobody reads them

    return jax.lax.scan(step, x, p, reverse=True)[0]


def _nested(p, x):
    """Steps of time inside stacked layers, a matrix that all share and others that nobody does."""

    def layer(h, kernels):
        def step(c, row):
            c = jnp.tanh(c @ kernels[0] + row[0] @ p["shared"] + c @ row[1])
            return c, c

        rows = jnp.swapaxes(h, 0, 1), kernels[1]
        return jnp.swapaxes(jax.lax.scan(step, h[:, 0], rows)[1], 0, 1), None

    return jax.lax.scan(layer, x, (p["kernels"], p["own"]))[0]


def _looked_up_in_a_loop(p, x):
    def step(h, token):
        return jnp.tanh(h @ p["hidden"] + jnp.take(p["table"], token, axis=0)), None

    return jax.lax.scan(step, jnp.zeros((len(x), 3)), x.T)[0]


def _parts(p, x):
    """Gates as parts of one matrix; the third part is used for nothing."""
    first, second, _ = jnp.split(p["gates"], 3, axis=1)
    return jnp.tanh(x @ first) * (x @ second) @ p["layers"][1]


def _experts(p, x):
    """A matrix for each expert, on either side of the product."""
    h = jnp.tanh(jnp.einsum("nec,ecd->ned", x, p["in"]))
    return jnp.einsum("edk,ned->nek", p["out"], h)


def _convolution(**options):
    layout = options.pop("layout", ("NHWC", "HWIO", "NHWC"))

    def apply(p, x):
        h = x.transpose(["NHWC".index(axis) for axis in layout[0]])
        settings = {"window_strides": (1, 1), "padding": "SAME", **options}
        h = jax.lax.conv_general_dilated(
            h, p["kernel"], dimension_numbers=layout, precision="highest", **settings
        )
        axes = [layout[2].index(axis) for axis in "NHWC"]
        return jnp.tanh(h.transpose(axes)).mean((1, 2)) @ p["head"]

    return apply


def _frames(p, x):
    """A convolution of every frame: a batch of images inside a sample."""
    flat = x.reshape(-1, *x.shape[2:])
    h = jax.lax.conv(flat.transpose(0, 3, 1, 2), p["kernel"], (1, 1), "VALID")
    return jnp.tanh(h).reshape(*x.shape[:2], -1).sum(1) @ p["head"]


_TOKENS = RNG.integers(0, 5, (_N, 4))
_CELL = {"hidden": _drawn(3, 3), "input": _drawn(2, 3)}
KNOWN = {
    "tied embedding": (_tied, {"inner": _drawn(3, 3), "table": _drawn(5, 3)}, _TOKENS),
    "one matrix three times": (_shared, _drawn(3, 3), _drawn(_N, 3)),
    "recurrent cell": (_recurrent, _CELL, _drawn(_N, 4, 2)),
    "carried cell": (_carried, _CELL, _drawn(_N, 4, 2)),
    "stacked layers": (_stacked, {"kernel": _drawn(3, 4, 4)}, _drawn(_N, 2, 4)),
    "nested loops": (
        _nested,
        {"kernels": _drawn(2, 2, 2), "own": _drawn(2, 3, 2, 2), "shared": _drawn(2, 2)},
        _drawn(_N, 3, 2),
    ),
    "table in a loop": (
        _looked_up_in_a_loop,
        {"hidden": _drawn(3, 3), "table": _drawn(20, 3)},
        _TOKENS,
    ),
    "parts of a matrix": (
        _parts,
        {"gates": _drawn(4, 9), "layers": _drawn(2, 3, 2)},
        _drawn(_N, 4),
    ),
    "experts": (_experts, {"in": _drawn(2, 3, 4), "out": _drawn(2, 4, 2)}, _drawn(_N, 2, 3)),
    "depthwise": (
        _convolution(feature_group_count=2, window_strides=(2, 1), rhs_dilation=(1, 2)),
        {"kernel": _drawn(2, 2, 1, 4), "head": _drawn(4, 3)},
        _drawn(_N, 5, 4, 2),
    ),
    "grouped, channels first": (
        _convolution(feature_group_count=2, layout=("NCHW", "OIHW", "NCHW")),
        {"kernel": _drawn(6, 2, 3, 2), "head": _drawn(6, 3)},
        _drawn(_N, 3, 4, 4),
    ),
    "frames": (
        _frames,
        {"kernel": _drawn(2, 2, 2, 2), "head": _drawn(8, 3)},
        _drawn(_N, 4, 3, 3, 2),
    ),
}


def _close(actual, expected, size):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * size)


def _case(name):
    apply, params, x = KNOWN[name]
    f, j = map(np.asarray, outputs_and_jacobian(apply, params, x))
    return (apply, jax.device_put(params)), x, f, j


def _softmax_hessians(f):
    """blockdiag of diag(p) - p p^T over samples and the axes before the last."""
    p = scipy.special.softmax(f, axis=-1).reshape(-1, f.shape[-1])
    return scipy.linalg.block_diag(*(np.diag(q) - np.outer(q, q) for q in p))


def _every_pair(net, traced, memory):
    return tuple(
        replace(item, form="columns" if item.layer is None else "pair")
        for item in jacobians.items_of(net, traced)
    )


@pytest.mark.parametrize("name", KNOWN)
def test_structure_is_found_and_equals_dense_differentiation(name, monkeypatch):
    """The kernel, G of some entries with a loss, and products with a pair for every use."""
    model, x, f, j = _case(name)
    kernel = gnjax.ntk(model, x)
    items = jacobians.items_of(kernel.net, jacobians.sample_trace(kernel.net))
    assert all(item.layer is not None for item in items)
    size = np.linalg.norm(j, 2) ** 2
    _close(kernel.as_matrix(), j @ j.T, size)
    monkeypatch.setattr(stored_jacobian, "_items", _every_pair)
    stored = gnjax.with_jacobian(kernel)
    assert {item.form for item in stored.items} == {"pair"}
    u = np.random.default_rng(1).standard_normal((len(j), 2))
    _close(stored.mv(jax.device_put(u)), j @ (j.T @ u), size)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 3 > 0, model[1])
    kept = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(mask)])
    op = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters", mask=mask)
    g = (j.T @ _softmax_hessians(f) @ j)[kept][:, kept] / float(op.net.total)
    assert op.net.total in (_N, f.size // f.shape[-1])
    _close(op.as_matrix(), g, np.linalg.norm(g, 2))


def _own_loss(f, y):
    return jnp.sum(jnp.cosh(f - y))


_LOSSES = {
    "squared_error": ("squared_error", lambda f, y: jnp.sum((f - y) ** 2) / 2),
    "binary": ("binary_cross_entropy", lambda f, y: jnp.sum(jnp.logaddexp(0.0, f) - y * f)),
    "own": (_own_loss, _own_loss),
}


@pytest.mark.parametrize(
    ("name", "loss"),
    [("tied embedding", "squared_error"), ("depthwise", "binary"), ("nested loops", "own")],
)
def test_roots_of_other_losses(name, loss):
    """The Jacobian weighted by a root of the output Hessian, and both matrices made of it."""
    model, x, f, j = _case(name)
    y = np.random.default_rng(2).uniform(size=f.shape)
    given, plain = _LOSSES[loss]
    b = np.asarray(jax.jit(jax.hessian(lambda f: plain(f.reshape(y.shape), y)))(f.ravel()))
    op = gnjax.gauss_newton(model, x, y=y, loss=given, side="parameters")
    assert op.net.total in (_N, y.size // y.shape[-1])
    g = j.T @ b @ j / float(op.net.total)
    _close(op.as_matrix(), g, np.linalg.norm(g, 2))
    rooted = jacobians.jacobian(op.net)
    _close(rooted.T @ rooted, j.T @ b @ j, np.linalg.norm(j.T @ b @ j, 2))
    _close(kernels.output_gram(op.net), rooted @ rooted.T, np.linalg.norm(rooted, 2) ** 2)


def test_coupled_samples_and_some_parameters():
    """A batch as one function, and one leaf of two chosen, where the other is used in the loop."""
    apply, params, x = KNOWN["recurrent cell"]

    def coupled(p, x):
        h = apply(p, x)
        return h - h.mean(axis=0, keepdims=True)

    j = np.asarray(jacobian(coupled, params, x))
    op = gnjax.ntk((coupled, params), x)
    assert op.net.coupled
    _close(op.as_matrix(), j @ j.T, np.linalg.norm(j, 2) ** 2)
    j = np.asarray(jacobian(apply, params, x))[:, :9]
    op = gnjax.ntk((apply, params), x, only="hidden")
    _close(op.as_matrix(), j @ j.T, np.linalg.norm(j, 2) ** 2)


def test_extras_beside_the_outputs_hide_no_layer():
    """A penalty reads the weights too, and no output depends on it."""

    def apply(p, x):
        return x @ p, {"penalty": jnp.square(p).sum()}

    x, p = _drawn(_N, 4), _drawn(4, 2)
    op = gnjax.ntk((apply, p), x, has_aux=True)
    assert op.net.layered == (0,)
    np.testing.assert_allclose(op.as_matrix(), np.kron(x @ x.T, np.eye(2)), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("case", KNOWN)
def test_a_network_lists_its_layers_in_the_order_of_its_trace(case):
    """So that the columns of J need no trace of their own."""
    net = gnjax.ntk(KNOWN[case][:2], KNOWN[case][2]).net
    assert net.layered == tuple(layer.leaf for layer in jacobians.sample_trace(net).layers)


def test_sum_over_uses_is_one_product_where_they_have_the_same_matrix():
    """An unrolled cell makes as many matrix products as a scanned one."""
    _, params, x = KNOWN["recurrent cell"]
    counts, leaf = {}, jnp.zeros((2, 3))
    for apply, uses in ((_unrolled, 4), (_recurrent, 1)):
        net = gnjax.ntk((apply, params), x).net
        traced = jacobians.sample_trace(net)
        layer = traced.layers[-1]
        assert layer.leaf == 1  # "input"
        assert len(layer.uses) == uses
        pairs = [
            (jnp.ones((*use.tapped.shape[:-1], 2)), jnp.ones((3, *use.tapped.shape)))
            for use in layer.uses
        ]
        made = jax.make_jaxpr(lambda pairs, layer=layer: layers.jacobian_rows(layer, leaf, pairs))
        names = [eqn.primitive.name for eqn in made(pairs).jaxpr.eqns]
        counts[uses] = names.count("dot_general")
        assert sum(use.positions for use in layer.uses) == 4
    assert counts == {4: 1, 1: 1}


def _changing(p, x):
    """The matrix itself is carried, and another one in every step."""

    def step(state, _):
        w, h = state
        return (0.9 * w, jnp.tanh(h @ w)), None

    return jax.lax.scan(step, (p, x), None, 3)[0][1]


def _rotated(p, x):
    """Two matrices change places in every step."""

    def step(state, _):
        a, b, h = state
        return (b, a, jnp.tanh(h @ a)), None

    return jax.lax.scan(step, (p, p.T, x), None, 3)[0][2]


def _returned(p, x):
    """The loop returns its layers transposed, and they are read."""
    h, again = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), w.T), x, p[None])
    return h * again.sum()


def _into_the_carry(p, x):
    """The matrix acts from the second step on, as what the step before has carried there."""

    def step(state, _):
        w, h = state
        return (p, jnp.tanh(h @ w) + h @ p), None

    return jax.lax.scan(step, (jnp.eye(3), x), None, 3)[0][1]


def _as_output(p, x):
    """The matrix is the output, and a product with it is used for nothing."""
    _ = x @ p
    return jnp.broadcast_to(p.reshape(1, -1), (len(x), p.size))


LOST = {
    "an output": lambda p, x: x @ p + p[:1],
    "a norm": lambda p, x: x @ (p / jnp.linalg.norm(p)),
    "both": lambda p, x: x @ (p / jnp.linalg.norm(p)) + x @ p,
    "both sides": lambda p, x: x @ (p @ p),
    "repeated entries": lambda p, x: x @ jnp.broadcast_to(p[:1], p.shape),
    "changed in a loop": _changing,
    "change places": _rotated,
    "into the carry": _into_the_carry,
    "as it is": _as_output,
    "read behind the loop": _returned,
    "a branch": lambda p, x: jax.lax.cond(x[0, 0] < 9, lambda: jnp.tanh(x @ p), lambda: x @ p),
}


@pytest.mark.parametrize("name", LOST)
def test_other_structures_are_left_to_differentiation(name):
    apply, p, x = LOST[name], KNOWN["one matrix three times"][1], _drawn(_N, 3)
    op = gnjax.ntk((apply, p), x)
    items = jacobians.items_of(op.net, jacobians.sample_trace(op.net))
    assert [item.layer for item in items] == [None]
    j = np.asarray(jacobian(apply, p, x))
    _close(op.as_matrix(), j @ j.T, np.linalg.norm(j, 2) ** 2)
