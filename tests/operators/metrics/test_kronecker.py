"""K-FAC and EK-FAC against loops over samples, with sensitivities from taps and jax.jacrev.

The models below take an array e for every layer that is added to what the layer computes, and
return the inputs of the layers. The derivative of the outputs with respect to e is the sensitivity,
and the output Hessian is jax.hessian of the loss of one sample: no code of the library is used.
"""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.flatten_util import ravel_pytree

import gnjax
from tests.precision import single_precision
from tests.references import gauss_newton

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kfac_jax.json"
RNG = np.random.default_rng(0)


def _normal(*shape, scale=0.5):
    return scale * RNG.standard_normal(shape)


def mlp(p, x, e):
    """Two dense layers, on one sample (d,)."""
    one = x @ p["one"]["kernel"] + p["one"]["bias"] + e["one"][0]
    h = jnp.tanh(one)
    two = h @ p["two"]["kernel"] + p["two"]["bias"] + e["two"][0]
    return two, {"one": x[None], "two": h[None]}


def cnn(p, x, e):
    """A convolution with strides and padding, a norm's scale, and a dense layer; x (7, 7, 2)."""
    padded = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    patches = jnp.stack(
        [padded[i : i + 3, j : j + 3].reshape(-1) for i in (0, 2, 4, 6) for j in (0, 2, 4, 6)]
    )  # written out: positions of a convolution with stride 2
    z = patches @ p["conv"]["kernel"].reshape(18, -1) + p["conv"]["bias"][None] + e["conv"]
    h = jnp.tanh(z).mean(axis=0) * p["scale"]
    return h @ p["head"]["kernel"] + e["head"][0], {"conv": patches, "head": h[None]}


def language(p, x, e):
    """An embedding, a position table, a layer on every token, a running mean; x (t,) integers."""
    h = p["embed"]["kernel"][x] + e["embed"] + p["place"]
    z = h @ p["mix"]["kernel"] + p["mix"]["bias"][None] + e["mix"]
    g = jnp.cumsum(jnp.tanh(z), axis=0) / jnp.arange(1, 1 + len(x))[:, None]
    inputs = {"embed": jax.nn.one_hot(x, len(p["embed"]["kernel"])), "mix": h, "head": g}
    return (g @ p["head"]["kernel"] + e["head"]), inputs


def real_cnn(p, x):
    dims = ("NHWC", "HWIO", "NHWC")
    z = jax.lax.conv_general_dilated(
        x, p["conv"]["kernel"], (2, 2), ((1, 1), (1, 1)), dimension_numbers=dims
    )
    h = jnp.tanh(z + p["conv"]["bias"][None, None, None]).mean(axis=(1, 2)) * p["scale"][None]
    return h @ p["head"]["kernel"]


def cross_entropy(f, y):
    logs = jax.nn.log_softmax(f)
    found = -jnp.take_along_axis(logs, jnp.maximum(y, 0)[..., None], -1)[..., 0]
    return jnp.where(y < 0, 0.0, found).sum()


def squared(f, y):
    return jnp.square(f - y).sum() / 2


PARAMS = {
    "mlp": {
        "one": {"kernel": _normal(4, 5), "bias": _normal(5)},
        "two": {"kernel": _normal(5, 3), "bias": _normal(3)},
    },
    "cnn": {
        "conv": {"kernel": _normal(3, 3, 2, 3), "bias": _normal(3)},
        "head": {"kernel": _normal(3, 2)},
        "scale": _normal(3),
    },
    "language": {
        "embed": {"kernel": _normal(5, 4)},
        "head": {"kernel": _normal(4, 5)},
        "mix": {"kernel": _normal(4, 4), "bias": _normal(4)},
        "place": _normal(3, 4),
    },
}
LABELS = np.array([[1, 2, -1], [0, 3, 4], [2, 2, 1], [4, -1, -1]])
ONE = {"one": 1, "two": 1}
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
# the model, x, y, the loss, the positions of each layer, and the weights of the samples
CASES = {
    "mlp": (mlp, _normal(9, 4, scale=1.0), RNG.integers(0, 3, 9), cross_entropy, ONE, None),
    "cnn": (cnn, _normal(5, 7, 7, 2), _normal(5, 2), squared, {"conv": 16, "head": 1}, WEIGHTS),
    "language": (
        language,
        RNG.integers(0, 5, (4, 3)),
        LABELS,
        cross_entropy,
        {"embed": 3, "mix": 3, "head": 3},
        None,
    ),
}


def _zeros(kind):
    """Nothing, for what is added to every layer."""
    widths = {
        name: leaf["kernel"].shape[-1]
        for name, leaf in PARAMS[kind].items()
        if name in CASES[kind][4]
    }
    return {name: jax.device_put(np.zeros((t, widths[name]))) for name, t in CASES[kind][4].items()}


def _plain(kind):
    """(params, x) to outputs of a batch."""
    if kind == "cnn":
        return real_cnn
    model = CASES[kind][0]
    return jax.vmap(lambda p, x: model(p, x, _zeros(kind))[0], (None, 0))


def _derivatives(model, params, zeros, loss):
    """(x, y) of a sample to the inputs of the layers, B, J and the sensitivities."""

    def derivatives(x, y):
        flat, unravel = ravel_pytree(params)

        def outputs(v, x, e):
            return model(unravel(v), x, e)[0].reshape(-1)

        f, inputs = model(params, x, zeros)
        b = jax.hessian(lambda g: loss(g, y))(f).reshape(f.size, f.size)
        jacobian, deltas = jax.jacrev(outputs, (0, 2))(flat, x, zeros)
        return inputs, b, jacobian, deltas

    return derivatives


class Reference:
    """The operator, and G and the factors of every layer by loops over samples."""

    def __init__(self, kind):
        model, x, y, loss, positions, weights = CASES[kind]
        self.params = params = jax.device_put(PARAMS[kind])
        derivatives = jax.jit(_derivatives(model, params, _zeros(kind), loss))
        total = float((y >= 0).sum()) if loss is cross_entropy else float(weights.sum())
        p = sum(leaf.size for leaf in jax.tree.leaves(params))
        self.matrix, self.left, self.right, share = np.zeros((p, p)), {}, {}, 0.0
        for i, (xi, yi) in enumerate(zip(x, y, strict=True)):
            inputs, b, jacobian, deltas = jax.tree.map(np.asarray, derivatives(xi, yi))
            w = 1.0 if weights is None else weights[i]
            b = w * b / total
            self.matrix += jacobian.T @ b @ jacobian
            counted = w if loss is squared else float(np.mean(np.atleast_1d(yi) >= 0))
            share += counted
            for name, t in positions.items():
                for place in range(t):
                    a = inputs[name][place]
                    if "bias" in params[name]:
                        a = np.append(a, 1.0)
                    delta = deltas[name][:, place]
                    self.left[name] = self.left.get(name, 0) + counted / t * np.outer(a, a)
                    self.right[name] = self.right.get(name, 0) + delta.T @ b @ delta
        self.left = {name: left / share for name, left in self.left.items()}
        name = "cross_entropy" if loss is cross_entropy else "squared_error"
        self.op = gnjax.gauss_newton((_plain(kind), params), x, y=y, loss=name, weights=weights)

    def own(self, name):
        """The places of a layer in the vector of parameters, biases last."""
        leaves, structure = jax.tree.flatten(self.params)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = zip(np.split(np.arange(ends[-1]), ends[:-1]), leaves, strict=True)
        tree = jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in parts])
        rows = tree[name]["kernel"].reshape(-1, tree[name]["kernel"].shape[-1])
        return np.concatenate([rows, tree[name]["bias"][None]]) if "bias" in tree[name] else rows

    def metric(self):
        """P without damping, and the places that no layer has."""
        metric, rest = np.zeros_like(self.matrix), set(range(len(self.matrix)))
        for name in self.left:
            own = self.own(name).ravel()
            metric[np.ix_(own, own)] = np.kron(self.left[name], self.right[name])
            rest -= set(own)
        return metric, sorted(rest)


_reference = functools.cache(Reference)


@pytest.fixture(scope="module", params=CASES)
def reference(request):
    return _reference(request.param)


def _close(found, exact):
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() < 1e-10 * np.abs(exact).max()


def _agrees(op, matrix, metric):
    """All eigenvalues within 1e-10 of the largest, and within their own errors."""
    exact = scipy.linalg.eigvalsh(matrix, metric)[::-1]
    found = gnjax.eigenvalues(op)
    off = np.abs(found.values - exact)
    assert off.max() < 1e-10 * exact[0]
    assert (off <= found.errors + 1e-12 * exact[0]).all()
    assert found.errors.max() < 1e-6 * exact[0]


def test_the_operator_is_the_reference_matrix(reference):
    _close(np.asarray(reference.op.as_matrix()), reference.matrix)


def test_the_factors_of_every_layer(reference):
    metric = gnjax.metrics.kfac(reference.op, damping=0.1)
    found = {block.name.split("/")[0]: block for block in metric.blocks}
    for name, left in reference.left.items():
        block = found[name]
        assert block.name.endswith("bias") == ("bias" in reference.params[name])
        held = block.left.matrix[0]
        _close(np.diag(held) if held.ndim == 1 else held, left)
        _close(block.right.matrix[0], reference.right[name])
        assert (block.indices[0] == reference.own(name)).all()


def test_the_factors_and_the_rows_of_j_in_a_compiled_function(reference):
    names, op = [], reference.op

    def factors(op):
        layers, others = gnjax.metrics.kfac_factors(op)
        names.append([(layer.name, layer.places) for layer in layers])
        return [(layer.left, layer.right) for layer in layers], others, op.rows()

    layers, others, rows = jax.jit(factors)(op)
    _close(np.asarray(rows.T @ rows), reference.matrix)
    for (name, places), (left, right) in zip(names[0], layers, strict=True):
        layer = name.split("/")[0]
        _close(np.diag(left[0]) if left.ndim == 2 else left[0], reference.left[layer])
        _close(right[0], reference.right[layer])
        assert (places[0] == reference.own(layer)).all()
    diagonal = {int(at): one for own, part in others for at, one in zip(own, part, strict=True)}
    assert sorted(diagonal) == reference.metric()[1]
    for place, entry in diagonal.items():
        np.testing.assert_allclose(entry, reference.matrix[place, place], rtol=1e-10)


def test_the_places_of_a_layer_are_those_of_its_parameters(reference):
    places = reference.op.places("layer")
    assert sorted(np.concatenate(list(places.values()))) == list(range(len(reference.matrix)))
    for name in reference.left:
        assert sorted(places[name]) == sorted(reference.own(name).ravel())


@pytest.mark.slow
@pytest.mark.parametrize("terms", [False, True])
@pytest.mark.parametrize("kind", ["mlp", "language"])
def test_the_factors_of_an_empirical_fisher_count_the_labels_that_count(kind, terms):
    """A is that of the Gauss-Newton matrix; B has the gradients of the losses by jax.jacrev."""
    model, x, y, loss, positions, _ = CASES[kind]
    y = y if y.ndim == 2 else np.where(np.arange(len(y)) % 4 == 1, -1, y)
    params, zeros, name = jax.device_put(PARAMS[kind]), _zeros(kind), "cross_entropy"
    both = (
        gnjax.gauss_newton((_plain(kind), params), x, y=y, loss=name),
        gnjax.empirical_fisher((_plain(kind), params), x, y, loss=name, terms=terms),
    )
    gauss_newton_metric, metric = (gnjax.metrics.kfac(op, damping=0.0) for op in both)

    def losses(e, xi, yi):
        f = model(params, xi, e)[0]
        pairs = zip(jnp.atleast_2d(f), np.atleast_1d(yi), strict=True)
        each = jnp.stack([loss(f_t, y_t) for f_t, y_t in pairs])
        return each if terms else each.sum()[None]

    total = (y >= 0).sum()
    right = {layer: 0.0 for layer in positions}
    for xi, yi in zip(x, y, strict=True):
        for layer, delta in jax.jacrev(losses)(zeros, xi, yi).items():
            scale = 1 / total if terms else len(x) / total**2
            right[layer] += scale * np.einsum("cto,ctp->op", delta, delta)
    for block, expected in zip(metric.blocks, gauss_newton_metric.blocks, strict=True):
        if (layer := block.name.split("/")[0]) in positions:
            _close(block.left.matrix, expected.left.matrix)
            _close(block.right.matrix[0], right[layer])


@pytest.mark.parametrize("make", [gnjax.metrics.kfac, gnjax.metrics.ekfac])
def test_one_sample_that_counts_leaves_nothing_of_an_empirical_fisher_to_approximate(make):
    """The ignored sample is 1000 times as large, so that it would be seen in A."""
    model = (lambda w, x: x @ w, np.zeros((1, 2)))
    x, y = np.array([[1.0], [1000.0]]), np.array([0, -1])
    op = gnjax.empirical_fisher(model, x, y, loss="cross_entropy")
    _close(make(op, damping=0.0).as_matrix(), np.full((2, 2), 0.5) * [[1, -1], [-1, 1]])


@pytest.mark.parametrize(
    "call", [gnjax.metrics.kfac_factors, lambda op: gnjax.metrics.kfac(op, damping=1.0)]
)
def test_coupled_samples_have_no_factors(call):
    model = (lambda w, x: (x - x.mean(axis=0, keepdims=True)) @ w, np.ones((2, 1)))
    op = gnjax.gauss_newton(model, np.eye(3, 2))
    with pytest.raises(ValueError, match=r"samples of this model are coupled.*'layers'$"):
        call(op)


def test_an_operator_that_is_made_in_a_compiled_function_has_no_factors_there():
    def factors(w):
        op = gnjax.gauss_newton((lambda w, x: x @ w, w), np.eye(3, 2))
        return gnjax.metrics.kfac_factors(op)[0][0].left

    with pytest.raises(ValueError, match=r"are coupled.*make it outside"):
        jax.jit(factors)(np.ones((2, 1)))


@pytest.mark.parametrize("others", ["diagonal", "block"])
def test_kfac_in_place_of_the_gauss_newton_matrix(reference, others):
    exact, rest = reference.metric()
    for leaf in [[i] for i in rest] if others == "diagonal" else [rest]:
        exact[np.ix_(leaf, leaf)] = reference.matrix[np.ix_(leaf, leaf)]
    exact += 0.01 * np.eye(len(exact))
    metric = gnjax.metrics.kfac(reference.op, damping=0.01, others=others)
    _close(metric.as_matrix(), exact)
    _agrees(gnjax.preconditioned(reference.op, metric), reference.matrix, exact)
    v = RNG.standard_normal((len(exact), 2))
    _close(np.asarray(metric.solve(v)), np.linalg.solve(exact, v))


def test_ekfac_has_the_exact_diagonal_in_the_basis_of_kfac(reference):
    metric = gnjax.metrics.ekfac(reference.op, damping=0.01)
    exact = np.diag(np.diag(reference.matrix)).copy()
    for block in metric.blocks:
        name = block.name.split("/")[0]
        if name not in reference.left:
            continue
        own = reference.own(name).ravel()
        u = np.eye(block.indices.shape[1]) if block.left.basis is None else block.left.basis[0]
        v = block.right.basis[0]
        for basis, factor in ((u, reference.left[name]), (v, reference.right[name])):
            turned = basis.T @ factor @ basis
            assert np.abs(turned - np.diag(np.diag(turned))).max() < 1e-10 * np.abs(turned).max()
        basis = np.kron(u, v)
        inside = np.diag(basis.T @ reference.matrix[np.ix_(own, own)] @ basis)
        _close(block.values[0].ravel(), inside)
        exact[np.ix_(own, own)] = (basis * inside) @ basis.T
    exact += 0.01 * np.eye(len(exact))
    _close(metric.as_matrix(), exact)
    _agrees(gnjax.preconditioned(reference.op, metric), reference.matrix, exact)


def test_ekfac_is_nearer_to_the_matrix_than_kfac():
    """No eigenvalues in the same basis are nearer to a block of G than its diagonal there."""
    one = _reference("mlp")
    own = one.own("one").ravel()
    block = one.matrix[np.ix_(own, own)]
    distances = [
        np.linalg.norm(make(one.op, damping=0.0).as_matrix()[np.ix_(own, own)] - block)
        for make in (gnjax.metrics.ekfac, gnjax.metrics.kfac)
    ]
    assert distances[0] < distances[1]


def test_one_sample_and_one_output_leave_nothing_to_approximate():
    """A (x) B is the block of G itself, and G is inverted up to the damping."""
    model = lambda p, x: jnp.tanh(x @ p["kernel"] + p["bias"][None])  # noqa: E731
    params = {"kernel": jax.device_put(_normal(3, 1)), "bias": jax.device_put(_normal(1))}
    op = gnjax.gauss_newton((model, params), _normal(1, 3))
    metric = gnjax.metrics.kfac(op, damping=1e-3)
    _close(metric.as_matrix() - 1e-3 * np.eye(4), np.asarray(op.as_matrix()))
    exact = gnjax.eigenvalues(op).values[0]
    found = gnjax.eigenvalues(gnjax.preconditioned(op, metric))
    assert found.values[0] == pytest.approx(exact / (exact + 1e-3), rel=1e-10)


def test_small_portions_of_rows_and_samples(monkeypatch):
    """The sums do not depend on how many samples and rows of R^T go at once."""
    one = _reference("language")
    whole = gnjax.metrics.ekfac(one.op, damping=0.01).as_matrix()
    monkeypatch.setattr("gnjax.operators.metrics.moments._NUMBERS", 700.0)
    _close(gnjax.metrics.ekfac(one.op, damping=0.01).as_matrix(), whole)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_no_sample_counts_twice_where_portions_do_not_divide_them(kind, monkeypatch):
    one = _reference(kind)
    assert len(CASES[kind][1]) % 2
    whole = gnjax.metrics.ekfac(one.op, damping=0.01).as_matrix()
    monkeypatch.setattr("gnjax.operators.metrics.moments.same_size", lambda count, most: 2)
    _close(gnjax.metrics.ekfac(one.op, damping=0.01).as_matrix(), whole)


def test_batches_have_the_metric_of_all_samples():
    one = _reference("mlp")
    _, x, y, *_ = CASES["mlp"]
    batches = [(x[:4], y[:4]), (x[4:], y[4:])]
    op = gnjax.gauss_newton((_plain("mlp"), one.params), batches, loss="cross_entropy")
    for make in (gnjax.metrics.kfac, gnjax.metrics.ekfac):
        _close(make(op, damping=0.1).as_matrix(), make(one.op, damping=0.1).as_matrix())


def test_a_scale_beside_a_kernel_is_no_bias():
    """Of two parameters of a fitting size that one is the bias whose columns are sum_t delta_t."""
    params = jax.tree.map(
        jnp.asarray, {"bias": _normal(3), "kernel": _normal(2, 3), "abacus": _normal(3)}
    )

    def model(p, x):
        return jnp.tanh((x @ p["kernel"]) + p["bias"][None]) * p["abacus"][None]

    op = gnjax.gauss_newton((model, params), _normal(6, 2))
    names = [block.name for block in gnjax.metrics.kfac(op, damping=0.1).blocks]
    assert names == ["kernel + bias", "abacus"]
    (layer,), _ = gnjax.metrics.kfac_factors(op)
    assert layer.name == "kernel + abacus"
    assert np.isnan(layer.left).all()


def _dense(p, h):
    return h @ p["kernel"] + p["bias"].reshape(*[1] * (h.ndim - 1), -1)


def _convolved(p, x):
    dims = ("NHWC", "HWIO", "NHWC")
    z = jax.lax.conv_general_dilated(x, p["kernel"], (1, 1), "VALID", dimension_numbers=dims)
    return z + p["bias"][None, None, None]


PEERS = {
    "mlp": (lambda p, x: _dense(p["two"], jnp.tanh(_dense(p["one"], x))), 1),
    "cnn": (
        lambda p, x: _dense(p["head"], jnp.tanh(_convolved(p["conv"], x)).reshape(len(x), -1)),
        1,
    ),
    "seq": (lambda p, x: _dense(p["head"], jnp.tanh(_dense(p["mix"], x))), 3),
}


@pytest.mark.parametrize("kind", PEERS)
def test_the_numbers_of_kfac_jax(kind):
    """Its blocks, for a loss that is summed over tokens; they are stored with their provenance.

    Its factors of shared layers are sums over positions, and ours have the mean in A.
    """
    stored = json.loads(FIXTURE.read_text())[kind]
    apply, tokens = PEERS[kind]
    params = {
        name: {leaf: jax.device_put(np.asarray(value)) for leaf, value in layer.items()}
        for name, layer in stored["params"].items()
    }
    loss = "squared_error" if kind == "cnn" else "cross_entropy"
    y = np.asarray(stored["y"])
    op = gnjax.gauss_newton((apply, params), np.asarray(stored["x"]), y=y, loss=loss)
    metric = gnjax.metrics.kfac(op, damping=0.0)
    assert len(metric.blocks) == len(stored["layers"])
    for block in metric.blocks:
        peer = stored["layers"][block.name.split("/")[0]]
        left, right = np.asarray(peer["left"]), np.asarray(peer["right"])
        ours = tokens * np.kron(block.left.matrix[0], block.right.matrix[0])
        _close(ours, peer["scale"] * np.kron(left, right))
        _close(block.left.matrix[0] / block.left.matrix[0][-1, -1], left / left[-1, -1])


def test_damping_adds_up_and_is_asked_for():
    one = _reference("mlp")
    metric = gnjax.metrics.kfac(one.op, damping=0.1)
    more = gnjax.preconditioned(one.op, gnjax.metrics.kfac(one.op, damping=0.02), damping=0.08)
    found = gnjax.eigenvalues(gnjax.preconditioned(one.op, metric)).values
    assert np.abs(gnjax.eigenvalues(more).values - found).max() < 1e-12 * found[0]
    with pytest.raises(TypeError, match="damping"):
        gnjax.metrics.kfac(one.op)


def test_grouped_and_stacked_layers_have_a_factor_for_each_group():
    """A depthwise convolution, and two equal layers in a scan."""
    params = {
        "kernel": jax.device_put(_normal(3, 1, 2)),
        "stack": {"kernel": jax.device_put(_normal(2, 2, 2))},
    }

    def model(p, x):
        z = jax.lax.conv_general_dilated(
            x,
            p["kernel"],
            (1,),
            "VALID",
            dimension_numbers=("NHC", "HIO", "NHC"),
            feature_group_count=2,
        )
        h = jnp.tanh(z).sum(axis=1)
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), h, p["stack"]["kernel"])[0]

    x = _normal(4, 6, 2)
    op = gnjax.gauss_newton((model, params), x)
    metric = gnjax.metrics.kfac(op, damping=0.01)
    assert [block.indices.shape for block in metric.blocks] == [(2, 3, 1), (2, 2, 2)]
    exact = metric.as_matrix()
    _agrees(gnjax.preconditioned(op, metric), gauss_newton(model, params, x), exact)
    patches = np.stack([x[:, t : t + 3] for t in range(4)], axis=1)  # (n, t, 3, c)
    for channel, left in enumerate(metric.blocks[0].left.matrix):
        _close(left, np.einsum("nta,ntb->ab", *2 * [patches[..., channel]]) / 16)


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_float32():
    """The same metric in single precision, within the errors that it states."""
    _, x, y, *_ = CASES["mlp"]
    with single_precision():
        params = jax.device_put(PARAMS["mlp"])
        op = gnjax.gauss_newton(
            (_plain("mlp"), params), jax.device_put(x), y=y, loss="cross_entropy"
        )
        assert op.dtype == "float32"
        found = gnjax.eigenvalues(gnjax.preconditioned(op, gnjax.metrics.kfac(op, damping=0.1)))
    one = _reference("mlp")
    exact = scipy.linalg.eigvalsh(one.matrix, one.metric()[0] + 0.1 * np.eye(43))[::-1]
    assert (np.abs(found.values - exact) <= found.errors + 1e-5 * exact[0]).all()
    assert found.errors.max() < 1e-2 * exact[0]


def test_repr_says_what_each_parameter_has():
    text = repr(gnjax.metrics.kfac(_reference("language").op, damping=0.5))
    assert "K-FAC, damping 0.5" in text
    assert "Kronecker block of mix/kernel + mix/bias (5 x 4)" in text
    assert "exact diagonal of place" in text


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda op: gnjax.metrics.kfac(op, damping=-1.0), "negative"),
        (
            lambda op: gnjax.metrics.kfac(op, damping=1.0, others="none"),
            "neither 'diagonal' nor 'block'",
        ),
        (lambda op: gnjax.metrics.ekfac(gnjax.dense(np.eye(2)), damping=1.0), "got a Dense"),
        (lambda op: gnjax.preconditioned(op, gnjax.metrics.kfac(op, damping=0.0)), "pass damping="),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(_reference("mlp").op)


def test_a_metric_of_other_parameters_is_refused():
    one = _reference("mlp").op
    model = gnjax.models.MLP((3, 4, 2), key=jax.random.key(0))
    metric = gnjax.metrics.kfac(gnjax.gauss_newton(model, np.ones((5, 3))), damping=1.0)
    with pytest.raises(ValueError, match="the metric is on 26 parameters"):
        gnjax.preconditioned(one, metric)
