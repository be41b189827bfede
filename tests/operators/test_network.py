"""Gauss-Newton, NTK and Hessian of every kind of network against dense differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.models import MLP, linear
from gnjax.networks import layers
from tests.networks import CASES
from tests.references import hessian, outputs_and_jacobian


def _reference(model, x):
    """J (n k, p), and F (n, k), by plain differentiation in float64."""
    apply, params = gnjax.functional(model)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    f, j = map(np.asarray, outputs_and_jacobian(apply, params, x))
    return j, f, params


def _output_hessian(f, loss):
    """blockdiag(B_1, .., B_n)."""
    p = scipy.special.softmax(f, axis=1)
    blocks = [np.eye(f.shape[1]) if loss == "mse" else np.diag(q) - np.outer(q, q) for q in p]
    return scipy.linalg.block_diag(*blocks)


def _close(actual, expected, rtol=1e-12):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * scale)


_SQUARED = ["mlp relu", "plain", "batch norm of the batch"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "loss"),
    [*((case, "cross_entropy") for case in CASES), *((case, "mse") for case in _SQUARED)],
)
def test_every_network_equals_dense_differentiation(case, loss):
    """Matrices on both sides, products, and factors; eigenvalues by three roads to 1e-9."""
    model, x = CASES[case]()
    j, f, _ = _reference(model, x)
    b = _output_hessian(f, loss)
    expected = j.T @ b @ j / len(x)
    whole = gnjax.gauss_newton(model, x, loss=loss, side="parameters")
    _close(whole.as_matrix(), expected)
    v = np.random.default_rng(0).standard_normal((len(expected), 2))
    _close(whole.mv(jax.device_put(v)), expected @ v)
    _close(whole.mv(jax.device_put(v[:, 0])), expected @ v[:, 0])
    outputs = gnjax.gauss_newton(model, x, loss=loss, side="outputs")
    u = np.random.default_rng(1).standard_normal((outputs.shape[0], 2))
    gram = np.asarray(outputs.as_matrix())
    _close(outputs.mv(jax.device_put(u)), gram @ u)
    for op in (whole, outputs):
        factor = op.factor()
        _close(factor @ factor.T, op.as_matrix())
    top = min(expected.shape[0], gram.shape[0])
    truth = np.linalg.eigvalsh(expected)[::-1][:top]
    for values in (
        np.linalg.eigvalsh(gram)[::-1][:top],
        gnjax.eigenvalues(whole).values[:top],
        gnjax.eigenvalues(outputs).values[:top],
    ):
        _close(values, truth, rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_ntk_is_the_gram_of_the_jacobian(case):
    model, x = CASES[case]()
    j, _, _ = _reference(model, x)
    op = gnjax.ntk(model, x)
    _close(op.as_matrix(), j @ j.T)
    assert op.shape == (len(j), len(j))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mlp tanh layer norm", "cnn with stride", "plain"])
def test_batches_do_not_change_anything(case):
    model, x = CASES[case]()
    whole, split = gnjax.ntk(model, x), gnjax.ntk(model, x, batch_size=2)
    _close(split.as_matrix(), whole.as_matrix())
    u = jax.device_put(np.random.default_rng(1).standard_normal((whole.shape[0], 3)))
    _close(split.mv(u), whole.mv(u))
    a = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters", batch_size=3)
    b = gnjax.gauss_newton(model, x, loss="cross_entropy", side="parameters")
    _close(a.as_matrix(), b.as_matrix())


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "stride", "layout"),
    [
        (16, 16, 3, 1, ("NHWC", "HWIO", "NHWC")),
        (12, 14, 3, 2, ("NCHW", "OIHW", "NCHW")),
        (16, 16, 1, 1, ("NHWC", "HWIO", "NHWC")),
        (2, 16, 3, 1, ("NHWC", "HWIO", "NHWC")),
    ],
)
def test_convolutions_of_any_number_of_channels(inputs, outputs, size, stride, layout):
    """Some get channels of zeros on a CPU; see jaxprs."""
    rng = np.random.default_rng(0)

    def drawn(order, **lengths):
        return rng.standard_normal([lengths[axis] for axis in order])

    def apply(kernels, x):
        for kernel in kernels:
            x = jax.lax.conv_general_dilated(
                x, kernel, (stride, stride), "SAME", dimension_numbers=layout, precision="highest"
            )
            x = jnp.tanh(x)
        return x.reshape(len(x), -1)[:, :3]

    x = drawn(layout[0], N=2, H=5, W=4, C=inputs)
    first = drawn(layout[1], H=size, W=size, I=inputs, O=outputs)
    second = drawn(layout[1], H=size, W=size, I=outputs, O=inputs)
    model = apply, jax.device_put([first, second])
    j, _, _ = _reference(model, x)
    kernel = gnjax.ntk(model, x)
    assert len(layers.traced_layers(kernel.net.one, kernel.net.leaves, x[0]).layers) == 2
    _close(kernel.as_matrix(), j @ j.T)
    u = rng.standard_normal(len(j))
    for op in (kernel, gnjax.linearised(kernel)):
        _close(op.mv(u), j @ (j.T @ u))


@pytest.mark.parametrize("layout", [("NHWC", "HWIO", "NHWC"), ("CNHW", "OIWH", "NCHW")])
@pytest.mark.parametrize(
    ("strides", "padding", "lhs_dilation", "rhs_dilation"),
    [
        ((1, 1), ((0, 0), (0, 0)), (1, 1), (2, 3)),
        ((2, 1), ((3, 0), (1, 2)), (1, 1), (1, 2)),
        ((1, 2), ((1, 2), (2, 2)), (2, 3), (1, 1)),  # a transposed convolution
        ((2, 3), ((-1, 2), (1, -1)), (2, 1), (2, 1)),
    ],
)
def test_convolutions_with_dilations_and_uneven_borders(
    strides, padding, lhs_dilation, rhs_dilation, layout
):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 9, 8, 2))
    lengths = {"H": 2, "W": 3, "I": 2, "O": 4}
    weights = jax.device_put(rng.standard_normal([lengths[axis] for axis in layout[1]]))

    def apply(kernel, x):
        z = jax.lax.conv_general_dilated(
            x.transpose(["NHWC".index(axis) for axis in layout[0]]),
            kernel,
            strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            layout,
            precision="highest",
        )
        return jnp.tanh(z).reshape(len(x), -1)[:, ::3]

    model = apply, weights
    j, _, _ = _reference(model, x)
    kernel = gnjax.ntk(model, x)
    assert len(layers.traced_layers(kernel.net.one, kernel.net.leaves, x[0]).layers) == 1
    _close(kernel.as_matrix(), j @ j.T)
    _close(gnjax.gauss_newton(model, x, side="parameters").as_matrix(), j.T @ j / 3)


def test_blocks_of_many_samples_are_mirrored():
    """More samples than one block holds, so that both halves of the kernel are made."""
    model = MLP((3, 5, 2), key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((600, 3))
    j, _, _ = _reference(model, x)
    _close(gnjax.ntk(model, x).as_matrix(), j @ j.T)


@pytest.mark.parametrize("case", ["mlp relu", "cnn with stride", "linen, tied"])
def test_masked_weights_are_no_parameters(case):
    model, x = CASES[case]()
    j, _, params = _reference(model, x)
    rng = np.random.default_rng(8)
    mask = jax.tree.map(lambda leaf: rng.random(leaf.shape) < 0.6, params)
    kept = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(mask)])
    op = gnjax.gauss_newton(model, x, mask=mask, side="parameters")
    assert op.shape == (kept.sum(), kept.sum())
    expected = j[:, kept].T @ j[:, kept] / len(x)
    _close(op.as_matrix(), expected)
    v = rng.standard_normal(kept.sum())
    _close(op.mv(jax.device_put(v)), expected @ v)
    _close(gnjax.ntk(model, x, mask=mask).as_matrix(), j[:, kept] @ j[:, kept].T)


def test_blocks_of_layers_add_up():
    """On the output side G is the sum of the blocks of its layers."""
    model, x = CASES["mlp relu"]()
    blocks = [gnjax.ntk(model, x, only=f"dense{layer}/*").as_matrix() for layer in (1, 2, 3)]
    _close(sum(blocks), gnjax.ntk(model, x).as_matrix())
    whole = gnjax.gauss_newton(model, x, side="parameters").as_matrix()
    first = gnjax.gauss_newton(model, x, side="parameters", only=lambda path: "dense1" in path)
    _close(first.as_matrix(), whole[: first.shape[0], : first.shape[0]])


@pytest.mark.parametrize(
    ("case", "loss"),
    [("mlp tanh layer norm", "mse"), ("cnn with stride", "cross_entropy"), ("plain", "mse")],
)
def test_hessian_splits_into_gauss_newton_and_functional(case, loss):
    """Eq 17, each term by its own computation and H by plain differentiation."""
    model, x = CASES[case]()
    _, f, params = _reference(model, x)
    apply, _ = gnjax.functional(model)
    labels = np.arange(len(x)) % f.shape[1]
    y = labels if loss == "cross_entropy" else np.eye(f.shape[1])[labels]

    def mean_loss(p):
        out = apply(p, x)
        if loss == "mse":
            return jnp.square(out - y).sum() / 2 / len(x)
        return -jax.nn.log_softmax(out)[jnp.arange(len(x)), labels].mean()

    h = gnjax.hessian(model, x, y, loss=loss)
    dense = hessian(mean_loss, params)
    _close(h.as_matrix(), dense, rtol=1e-11)
    v = np.random.default_rng(0).standard_normal((len(dense), 2))
    _close(
        gnjax.hessian(model, x, y, loss=loss, batch_size=3).mv(jax.device_put(v)),
        dense @ v,
        rtol=1e-11,
    )
    part = gnjax.functional_hessian(model, x, y, loss=loss).as_matrix()
    g = gnjax.gauss_newton(model, x, loss=loss, side="parameters").as_matrix()
    _close(part, dense - g, rtol=1e-11)


def test_linear_network_equals_its_closed_form():
    model, _ = CASES["residual"]()
    x = np.random.default_rng(0).standard_normal((30, 4))
    weights = linear.weights(model)
    closed = gnjax.eigenvalues(papers.linear_gauss_newton(weights, x.T @ x / 30, skip=0.5))
    ours = gnjax.eigenvalues(gnjax.gauss_newton(model, x)).values
    _close(ours[: len(closed)], closed.values, rtol=1e-9)


def test_leaky_relu_equals_its_closed_form():
    """Eq 10 has no 1/n."""
    rng = np.random.default_rng(1)
    v, w, x = (rng.standard_normal(s) for s in ((6, 4), (2, 6), (4, 7)))
    model = (lambda p, x: jax.nn.leaky_relu(x @ p[0].T, 0.1) @ p[1].T, (v, w))
    closed = gnjax.eigenvalues(papers.leaky_relu_gauss_newton(v, w, x, 0.1)).values
    _close(gnjax.eigenvalues(gnjax.ntk(model, x.T)).values, closed, rtol=1e-9)


def test_custom_loss_weighs_by_its_output_hessian():
    model, x = CASES["mlp tanh layer norm"]()
    j, f, _ = _reference(model, x)
    y = np.random.default_rng(0).standard_normal(f.shape)
    loss = lambda out, target: jnp.cosh(out - target).sum()  # noqa: E731
    b = np.diag(np.cosh(np.asarray(f) - y).ravel())
    op = gnjax.gauss_newton(model, x, loss=loss, y=y, side="parameters")
    _close(op.as_matrix(), j.T @ b @ j / len(x))


def _deficient(spread):
    """p = 136 parameters, n k = 60 outputs: rank 60."""
    rng = np.random.default_rng(11)
    params = {"v": rng.standard_normal((16, 8)) / 4, "w": rng.standard_normal((8, 1)) / 3}
    x = rng.standard_normal((60, 16)) * np.geomspace(1, spread, 60)[:, None]
    return (lambda p, x: jnp.tanh(x @ p["v"]) @ p["w"], params), x


@pytest.mark.parametrize("method", ["auto", "dense", "factored", "krylov", "inverse"])
@pytest.mark.parametrize("spread", [1.0, 0.015])
def test_rank_deficient_networks(method, spread):
    """Rank 60 of 136; kappa 2.6e3, and 3e10 for samples of unequal size."""
    model, x = _deficient(spread)
    j, _, _ = _reference(model, x)
    sigma = np.linalg.svd(j, compute_uv=False)
    kappa = (sigma[0] / sigma[59]) ** 2
    k = gnjax.condition_number(gnjax.gauss_newton(model, x, side="parameters"), method=method)
    assert k.size == 136
    assert k.rank == 60
    assert k.resolved
    assert k.interval[0] <= kappa * (1 + 1e-9)
    assert kappa <= k.interval[1] * (1 + 1e-9)
    assert abs(k.value / kappa - 1) < 1e-3


def test_hundred_steps_past_the_rank():
    """The largest eigenvalue and the null space survive running past rank 60."""
    model, x = _deficient(1.0)
    op = gnjax.gauss_newton(model, x, side="parameters")
    density = gnjax.spectral_density(op, probes=3, steps=100)
    truth = np.linalg.eigvalsh(np.asarray(op.as_matrix()))
    np.testing.assert_allclose(density.nodes.max(), truth[-1], rtol=1e-10)
    assert density.nodes.min() > -1e-12 * truth[-1]


def test_kappa_of_a_hessian_is_refused_when_indefinite():
    model, x = CASES["mlp tanh layer norm"]()
    op = gnjax.hessian(model, x, np.full((5, 3), 10.0))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        gnjax.condition_number(op)


def test_large_batches_of_a_coupled_network_are_refused():
    model, x = CASES["batch norm of the batch"]()
    with pytest.raises(ValueError, match=r"model\.eval"):
        gnjax.gauss_newton(model, x, batch_size=2)


_bad_inputs = st.one_of(
    st.sampled_from([np.zeros((0, 3)), np.zeros((4, 2)), np.zeros((4, 3, 1)), np.zeros(())]),
    st.tuples(st.integers(0, 3), st.sampled_from([np.nan, np.inf])).map(
        lambda t: np.where(np.arange(12).reshape(4, 3) == t[0], t[1], 1.0)
    ),
    st.sampled_from([np.full((4, 3), "a"), np.full((4, 3), 1j), [["x"]]]),
)


@settings(max_examples=30)
@given(x=_bad_inputs)
def test_bad_inputs_are_refused_with_a_remedy(x):
    params = np.ones((3, 2))
    for call in (gnjax.ntk, gnjax.gauss_newton):
        with pytest.raises(ValueError, match=r".{20}"):
            call((lambda p, x: x @ p, params), x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (3, "a model is"),
        ((1, 2), "starts with int"),
        ((lambda p, x: (x @ p).sum(), np.ones((3, 2))), r"outputs \(4, ...\)"),
        ((lambda p, x: (x @ p).T, np.ones((3, 2))), r"outputs \(4, ...\)"),
        ((lambda p, x: x @ p[:, :0], np.ones((3, 2))), r"outputs \(4, ...\)"),
        ((lambda p, x: jnp.log(-jnp.abs(x @ p)), np.ones((3, 2))), "NaN"),
        ((lambda p, x: x @ p, np.full((3, 2), np.nan)), "parameter"),
        ((lambda p, x: x @ p, np.ones((3, 2), int)), "dtype int"),
        ((lambda p, x: x, {}), "no parameters"),
        (
            (lambda p, x: (x @ p).argmax(1, keepdims=True), np.ones((3, 2))),
            "floating point numbers",
        ),
        (nnx.Linear(7, 2, rngs=nnx.Rngs(0)), "raises TypeError"),
    ],
)
def test_bad_models_are_refused_with_a_remedy(model, words):
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton(model, np.ones((4, 3)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "hinge"}, "hinge"),
        ({"side": "left"}, "left"),
        ({"batch_size": 0}, "batch_size"),
        ({"only": "nothing/*"}, "leave no parameter"),
        ({"mask": {"a": 1}}, "structure"),
        ({"loss": lambda f: -jnp.square(f).sum()}, "not convex"),
    ],
)
def test_bad_options_are_refused_with_a_remedy(options, words):
    model, x = CASES["plain"]()
    with pytest.raises(ValueError, match=words):
        gnjax.gauss_newton(model, x, **options)


@pytest.mark.parametrize(
    ("y", "words"),
    [(np.zeros(5, int), "samples"), (np.full(6, 3), "labels"), (np.zeros((6, 2)), r"\(6, 3\)")],
)
def test_bad_targets_are_refused_with_a_remedy(y, words):
    model, x = CASES["plain"]()
    with pytest.raises(ValueError, match=words):
        gnjax.hessian(model, x, y, loss="cross_entropy")
