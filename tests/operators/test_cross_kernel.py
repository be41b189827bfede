"""The kernel between two sets of samples, beside J J'^T by automatic differentiation."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from gnjax.networks.jacobians import pieces
from gnjax.networks.kernels import grams, sample_blocks
from tests.precision import single_precision
from tests.references import jacobian

_RNG = np.random.default_rng(0)


def _drawn(**shapes):
    return {name: _RNG.standard_normal(shape) for name, shape in shapes.items()}


def _dense(p, x):
    return jnp.tanh(x @ p["a"] + p["bias"][None]) @ p["b"]


def _convolution(p, x):
    h = jax.lax.conv_general_dilated(
        x, p["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.tanh(h).reshape(len(x), -1) @ p["head"]


def _lookup(p, x):
    return jnp.tanh(jnp.take(p["table"], x, axis=0)).mean(axis=1) @ p["head"]


def _recurrent(p, x):
    def step(h, row):
        return jnp.tanh(h @ p["cell"] + row), None

    h = jax.lax.scan(step, jnp.zeros((len(x), 3)), jnp.swapaxes(x, 0, 1))[0]
    return h @ p["head"]


def _odd(p, x):
    """A parameter in no layer, twice, and one number for each sample."""
    return jnp.sin(x * p["w"][None]).sum(1) + (x * p["w"][None] ** 2).sum(1)


CASES = {
    "dense": (_dense, _drawn(a=(4, 5), bias=(5,), b=(5, 2)), _RNG.standard_normal((9, 4))),
    "convolution": (
        _convolution,
        _drawn(conv=(3, 3, 1, 2), head=(18, 2)),
        _RNG.standard_normal((9, 3, 3, 1)),
    ),
    "lookup": (_lookup, _drawn(table=(30, 3), head=(3, 2)), _RNG.integers(0, 6, (9, 4))),
    "recurrent": (_recurrent, _drawn(cell=(3, 3), head=(3, 2)), _RNG.standard_normal((9, 4, 3))),
    "one output": (_odd, _drawn(w=(4,)), _RNG.standard_normal((9, 4))),
}


def _exact(apply, params, x, x2):
    return np.asarray(jacobian(apply, params, x)) @ np.asarray(jacobian(apply, params, x2)).T


def _assert_is(kernel, exact):
    """Matrix and products from both sides, within the stated error, which is of rounding's size."""
    largest = np.linalg.norm(exact, 2)
    assert 0 < kernel.error.value < 1e-12 * max(largest, 1)
    assert kernel.error.kind == "measured"
    assert kernel.shape == exact.shape
    spare = 1e-13 * largest  # rounding of the reference
    assert np.linalg.norm(kernel.as_matrix() - exact, 2) <= kernel.error.value + spare
    for side, matrix in ((kernel, exact), (kernel.T, exact.T)):
        v = np.random.default_rng(1).standard_normal((matrix.shape[1], 2))
        np.testing.assert_allclose(side @ v, matrix @ v, rtol=0, atol=1e-12 * largest)
        np.testing.assert_allclose(side @ v[:, 0], matrix @ v[:, 0], rtol=0, atol=1e-12 * largest)


# Where both sets have four samples they are computed by the same programs, as in most tests below.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("dense", 1, 8), ("convolution", 6, 3), *((name, 4, 4) for name in CASES)],
)
def test_it_is_the_product_of_two_jacobians(name, first, second):
    apply, params, x = CASES[name]
    near, far = x[:first], x[first : first + second]
    _assert_is(gnjax.ntk((apply, params), near, far), _exact(apply, params, near, far))


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_it_is_a_block_of_the_kernel_of_all_samples(loss):
    apply, params, x = CASES["dense"]
    only = lambda path: path != "bias"  # noqa: E731
    whole = gnjax.ntk((apply, params), x[:8], loss=loss, only=only)
    kernel = gnjax.ntk((apply, params), x[:4], x[4:8], loss=loss, only=only)
    rows = 4 * whole.net.rows
    _assert_is(kernel, np.asarray(whole.as_matrix())[:rows, rows:])


@pytest.mark.parametrize("name", ["dense", "lookup", "one output"])
@pytest.mark.parametrize(("block", "held"), [(2, 0.0), (4, 1000.0), (4, 3e9)])
def test_blocks_that_reach_back_and_groups(name, monkeypatch, block, held):
    monkeypatch.setattr(sample_blocks, "_BLOCK", block)
    monkeypatch.setattr(sample_blocks, "LIMITS", gnjax.Limits(kernel_bytes=held))
    apply, params, x = CASES[name]
    exact = _exact(apply, params, x[:7], x[4:])
    found = gnjax.ntk((apply, params), x[:7], x[4:]).as_matrix()
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent", "lookup"])
def test_sequences_of_two_lengths(name):
    apply, params, x = CASES[name]
    kernel = gnjax.ntk((apply, params), x[:5], x[5:, :3])
    _assert_is(kernel, _exact(apply, params, x[:5], x[5:, :3]))


def test_masked_entries_and_trees_of_inputs():
    params = CASES["dense"][1]
    x = {"one": CASES["dense"][2], "two": CASES["dense"][2] ** 2}

    def apply(p, x):
        return _dense(p, x["one"] + x["two"])

    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 2 == 0, params)
    kept = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(mask)])
    near, far = ({name: leaf[part] for name, leaf in x.items()} for part in (np.s_[:4], np.s_[4:8]))
    j, j2 = (np.asarray(jacobian(apply, params, part))[:, kept] for part in (near, far))
    _assert_is(gnjax.ntk((apply, params), near, far, mask=mask), j @ j2.T)


def test_each_set_of_coupled_samples_is_a_batch_of_its_own():
    params, x = CASES["dense"][1:]

    def apply(p, x):
        h = x @ p["a"]
        return jnp.tanh(h - h.mean(0, keepdims=True)) @ p["b"]

    params = {name: params[name] for name in ("a", "b")}
    kernel = gnjax.ntk((apply, params), x[:4], x[4:8])
    assert kernel.left.net.coupled
    _assert_is(kernel, _exact(apply, params, x[:4], x[4:8]))


def test_in_single_precision_the_error_covers_the_distance():
    apply, params, x = CASES["dense"]
    exact = _exact(apply, params, x[:4], x[4:8])
    with single_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = gnjax.ntk((apply, params), x[:4], x[4:8])
        apart = np.linalg.norm(np.asarray(kernel.as_matrix(), float) - exact, 2)
        assert kernel.dtype == np.float32
        # the parameters and samples are rounded as well
        assert apart <= kernel.error.value + 1e-6 * np.linalg.norm(exact, 2)
        assert 1e-9 < kernel.error.value < 1e-3 * np.linalg.norm(exact, 2)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1e-9, 1.0])
def test_a_kernel_formed_wrongly_has_its_distance_as_its_error(monkeypatch, share):
    apply, params, x = CASES["dense"]
    exact = _exact(apply, params, x[:4], x[4:8])
    plain = pieces.by_positions

    def enlarged(use, pair, dtype):
        a, delta = plain(use, pair, dtype)
        return (1 + share) * a, delta

    monkeypatch.setattr(pieces, "by_positions", enlarged)
    jax.clear_caches()
    kernel = gnjax.ntk((apply, params), x[:4], x[4:8])
    before = kernel.error.value
    apart = np.linalg.norm(kernel.as_matrix() - exact, 2)
    jax.clear_caches()
    assert before < 1e-2 * apart <= kernel.error.value
    assert "not what differentiation says" in kernel.error.reason


def test_regression_with_the_kernel_is_that_with_the_jacobian():
    apply, params, x = CASES["dense"]
    y = np.random.default_rng(2).standard_normal((4, 2))
    train = gnjax.ntk((apply, params), x[:4])
    test = gnjax.ntk((apply, params), x[4:8], x[:4])
    found = test @ np.linalg.solve(train.as_matrix() + 0.1 * np.eye(8), y.ravel())
    j, j2 = (np.asarray(jacobian(apply, params, part)) for part in (x[:4], x[4:8]))
    theta = np.linalg.solve(j.T @ j + 0.1 * np.eye(j.shape[1]), j.T @ y.ravel())  # ridge regression
    np.testing.assert_allclose(found, j2 @ theta, rtol=0, atol=1e-10 * np.abs(found).max())


def test_modules_go_in_as_everywhere():
    model = nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), jnp.tanh)
    x = CASES["dense"][2]
    whole = np.asarray(gnjax.ntk(model, x[:8]).as_matrix())
    _assert_is(gnjax.ntk(model, x[:4], x[4:8]), whole[:12, 12:])


def test_what_is_too_small_to_be_held_is_no_error_of_zero():
    apply, params, x = CASES["one output"]
    kernel = gnjax.ntk((lambda p, x: 1e-200 * apply(p, x), params), x[:4], x[4:8])
    assert np.abs(kernel.as_matrix()).max() <= kernel.error.value > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"x2": np.ones((2, 5))}, "the second samples, x2"),
        ({"x2": np.ones(4)}, "the second samples, x2"),
        ({"x2": np.full((2, 4), np.nan)}, "NaN or Inf"),
        ({"x2": [(np.ones((2, 4)), None)]}, "x2 is a sequence of batches"),
        ({"side": "parameters"}, "the side of the outputs only"),
        ({"y": np.ones((5, 2))}, "y belongs to x alone"),
        ({"weights": np.ones(5)}, "weights belongs to x alone"),
    ],
)
def test_what_makes_no_kernel_is_refused(options, said):
    apply, params, x = CASES["dense"]
    with pytest.raises(ValueError, match=said):
        gnjax.ntk((apply, params), x[:5], **{"x2": x[5:], **options})


def test_vectors_of_a_wrong_length_are_refused():
    apply, params, x = CASES["dense"]
    kernel = gnjax.ntk((apply, params), x[:5], x[5:])
    with pytest.raises(ValueError, match=r"multiplies vectors \(8,\).*kernel.T"):
        kernel @ np.ones(10)


@pytest.mark.parametrize("product", [lambda op, v: op @ v, lambda op, v: op.mv(jnp.asarray(v))])
@pytest.mark.parametrize("through", [lambda f: f, jax.jit], ids=["as it is", "compiled"])
def test_complex_vectors_are_refused(product, through):
    """Their imaginary parts were dropped, so that a product with 1j was zero."""
    apply, params, x = CASES["dense"]
    model, y = (apply, params), np.zeros((5, 2))
    gram = gnjax.gauss_newton(model, x[:5])
    for op in (
        gnjax.ntk(model, x[:5], x[5:7]),
        gram,
        gnjax.hessian(model, x[:5], y),
        gnjax.gauss_newton(model, [(x[:3], y[:3]), (x[3:5], y[3:])]),
        gnjax.with_jacobian(gram),
        2.0 * gram,
    ):
        with pytest.raises(ValueError, match="multiplies real vectors"):
            through(lambda v, op=op: product(op, v))(1j * np.ones(op.shape[1]))


def test_what_does_not_fit_is_refused_before_memory_is_taken(monkeypatch):
    apply, params, x = CASES["dense"]
    monkeypatch.setattr("gnjax.numerics.memory.free.free_memory", lambda: (1e9, "free"))
    monkeypatch.setattr(grams, "zeros", lambda *_: pytest.fail("memory was taken"))
    many = np.broadcast_to(x[:1], (20_000, 4))
    kernel = gnjax.ntk((apply, params), many, many)
    with pytest.raises(ValueError, match="for fewer samples at once"):
        kernel.as_matrix()
