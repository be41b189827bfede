"""Sums and multiples of operators: the matrices, the facts that follow, scipy's door, refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.numerics.certificate import UNKNOWN
from gnjax.operators.algebra import LinearCombination
from gnjax.operators.facts import error_of, factorisation_of, rank_of, twin_of

_NUMBERS = st.floats(-4, 4).filter(lambda a: a == 0 or abs(a) > 1e-3)


def _pair(seed, size=6):
    rng = np.random.default_rng(seed)
    root, factor = rng.standard_normal((size, size)), rng.standard_normal((size, 4))
    return gnjax.dense(root + root.T), gnjax.factored(factor), root + root.T, factor @ factor.T


def _network(**options):
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    x = np.random.default_rng(0).standard_normal((2, 3))
    return model, x, gnjax.gauss_newton(model, x, **options)


_product = jax.jit(lambda op, v: op.mv(v))


@given(seed=st.integers(0, 2**32 - 1), a=_NUMBERS, b=_NUMBERS, s=_NUMBERS)
def test_every_sign_means_what_it_means_for_matrices(seed, a, b, s):
    one, two, first, second = _pair(seed)
    op = -(a * one - two * b) / 2 + s - 0.5 + (one + np.float64(s)) - (1.0 - two)
    exact = -(a * first - b * second) / 2 + first + second + (2 * s - 1.5) * np.eye(6)
    scale = 1e-13 * (np.linalg.norm(first) + np.linalg.norm(second) + 10) * 10
    np.testing.assert_allclose(op.as_matrix(), exact, atol=scale)
    v = np.random.default_rng(seed).standard_normal((6, 3))
    for product in (op @ v, op.mv(jax.device_put(v)), _product(op, v)):
        np.testing.assert_allclose(product, exact @ v, atol=scale * np.linalg.norm(v))
    np.testing.assert_allclose(v.T @ op, v.T @ exact, atol=scale * np.linalg.norm(v))
    np.testing.assert_allclose(op @ v[:, 0], exact @ v[:, 0], atol=scale * np.linalg.norm(v))
    found = gnjax.eigenvalues(op)
    truth = np.linalg.eigvalsh(exact)[::-1]
    assert (np.abs(found.values - truth) <= found.errors + scale).all()
    assert found.errors.max() < 1e3 * scale


def test_sums_of_lists_and_numbers_of_numpy_and_jax():
    one, two, first, second = _pair(0)
    total = sum([one, two])
    np.testing.assert_allclose(total.as_matrix(), first + second, rtol=1e-13)
    unsigned = np.uint8(2), jnp.uint32(2)  # whose negative wraps around
    for factor in (np.float32(2), np.float64(2), np.asarray(2.0), jnp.asarray(2.0), 2, *unsigned):
        np.testing.assert_allclose((factor * one).as_matrix(), 2 * first, rtol=1e-14)
        np.testing.assert_allclose((one * factor).as_matrix(), 2 * first, rtol=1e-14)
        shifted = (factor + one).as_matrix()
        np.testing.assert_allclose(shifted, first + 2 * np.eye(6), rtol=1e-13, atol=1e-14)
        lowered = (one - factor).as_matrix()
        np.testing.assert_allclose(lowered, first - 2 * np.eye(6), rtol=1e-13, atol=1e-14)


def test_scipy_takes_the_operator_and_finds_its_eigenvalues():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((40, 40))
    op = 2 * gnjax.dense(root @ root.T) + 0.5
    exact = 2 * root @ root.T + 0.5 * np.eye(40)
    linear = scipy.sparse.linalg.aslinearoperator(op)
    assert (linear.shape, linear.dtype) == ((40, 40), np.float64)
    block = rng.standard_normal((40, 3))
    for product in (linear @ block, linear.T @ block, linear.matmat(block), linear.H @ block):
        np.testing.assert_allclose(product, exact @ block, rtol=1e-11)
    values = scipy.sparse.linalg.eigsh(linear, k=2)[0]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(exact)[-2:], rtol=1e-11)
    x, failed = scipy.sparse.linalg.cg(op, block[:, 0], rtol=1e-12)
    assert not failed
    np.testing.assert_allclose(exact @ x, block[:, 0], atol=1e-9)


def test_facts_follow_from_the_facts_of_the_terms():
    indefinite, semidefinite, _, second = _pair(2)
    assert rank_of(3 * semidefinite).value == 4
    assert rank_of(semidefinite + 3 * semidefinite).value == 6
    assert rank_of(gnjax.factored(np.ones((6, 1))) + semidefinite).value == 5
    assert rank_of(semidefinite + 1e-9).value == 6
    assert factorisation_of(-semidefinite) is None
    assert factorisation_of(semidefinite + 1) is None
    assert factorisation_of(semidefinite + indefinite) is None
    factor = factorisation_of(2 * semidefinite + semidefinite / 3)
    np.testing.assert_allclose(factor.form() @ factor.form().T, (2 + 1 / 3) * second, rtol=1e-12)
    value, error = (2 * semidefinite + 3).facts().trace()
    assert abs(value - (2 * np.trace(second) + 18)) <= error.value + 1e-12
    _, _, op = _network()
    assert twin_of(3 * op).shape == twin_of(op).shape < op.shape
    for sign in (-3 * op, 3 * op + 1, op + op):  # zeros would be put at the wrong end, or are none
        assert twin_of(sign).shape == op.shape


@pytest.mark.parametrize("signs", [(1.0, 1.0), (1.0, -1.0)], ids=["one sign", "both signs"])
def test_errors_add_up_with_the_sizes_of_terms_that_cancel(signs):
    """The error of a Gram matrix grows with its own norm, not with that of a difference.

    The norm of a term is found where eigenvalues of both signs balance, too.
    """
    matrix = jax.device_put(5.0 * np.diag(np.tile(signs, 40)))

    class Rounded:
        shape, dtype = (80, 80), jnp.dtype("float64")

        def facts(self):
            return gnjax.operators.Facts(
                error=lambda norm: gnjax.Error(1e-3 * norm, "measured", 0.0, "a test"),
                symmetric=True,
            )

        def mv(self, v):
            return matrix @ v

        def as_matrix(self):
            return matrix

    difference = 2 * gnjax.dense(np.zeros((80, 80))) + 3 * gnjax.dense(np.eye(80))
    cancelling = difference - LinearCombination((Rounded(),), (0.6,))
    assert error_of(cancelling, 0.0).value >= 0.6 * 5e-3
    assert error_of(cancelling, 0.0).value <= 2 * 0.6 * 5e-3
    assert error_of(LinearCombination((Rounded(),), (-2.0,)), 10.0).value == pytest.approx(
        10 * 1e-3
    )
    unknown = gnjax.dense(np.eye(3)) + _Nobody()
    assert error_of(unknown, 1.0).kind == UNKNOWN
    assert not gnjax.condition_number(unknown).resolved


class _Nobody:
    """An operator that states no error."""

    shape, dtype = (3, 3), jnp.dtype("float64")

    def mv(self, v):
        return v

    def as_matrix(self):
        return jax.device_put(np.eye(3))


def test_damping_resolves_kappa_whatever_the_rank():
    _, _, op = _network()
    norm = gnjax.eigenvalues(op).values[0]
    for damping in (1e-3, 1e-30):
        found = gnjax.condition_number(op + damping)
        assert (found.method, found.resolved, found.rank) == ("damped", True, op.shape[0])
        truth = (norm + damping) / damping
        assert found.interval[0] <= truth * (1 + 1e-13)
        assert truth <= found.interval[1] * (1 + 1e-13)
        assert found.interval[1] / found.interval[0] < 1 + 1e-9
    with pytest.raises(ValueError, match="semidefinite by its structure"):
        gnjax.condition_number(gnjax.dense(np.eye(3)) + 1, method="damped")
    with pytest.raises(ValueError, match="not positive semidefinite"):
        gnjax.condition_number(gnjax.dense(-np.eye(3)) + 0.5)


def test_damping_of_a_full_rank_matrix_and_of_one_too_large_for_its_spectrum():
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((60, 60))
    values = np.linalg.svd(factor)[1] ** 2
    few = gnjax.Limits(matrix_rows=50, factor_bytes=1e3)
    for limits in (gnjax.Limits(), few):
        found = gnjax.condition_number(gnjax.factored(factor) + 0.125, limits=limits)
        truth = (values[0] + 0.125) / (values[-1] + 0.125)
        assert found.method == "damped"
        assert found.interval[0] <= truth <= found.interval[1]
        assert found.resolved


def test_multiples_of_a_linear_network_keep_its_structure():
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal(shape) for shape in ((8, 6), (7, 8), (5, 7))]
    linear = papers.linear_gauss_newton(weights)
    for factor in (0.3, 4.0):
        scaled = factor * linear
        exact = gnjax.condition_number(linear, method="factored")
        for method in ("krylov", "factored", "dense"):
            found = gnjax.condition_number(scaled, method=method)
            assert found.interval[0] <= exact.interval[1] * (1 + 1e-12), method
            assert exact.interval[0] <= found.interval[1] * (1 + 1e-12), method
            assert found.rank == exact.rank
            assert found.lambda_max == pytest.approx(factor * exact.lambda_max, rel=1e-3)
    shallow = papers.linear_gauss_newton(weights[:2])
    closed = gnjax.condition_number(0.3 * shallow)
    assert closed.method == "closed_form"
    assert closed.lambda_max == pytest.approx(0.3 * gnjax.condition_number(shallow).lambda_max)


def test_trees_of_parameters_go_there_and_back():
    model, x, op = _network(only="dense1/*")
    v = jax.device_put(np.random.default_rng(5).standard_normal(op.shape[0]))
    tree = op.unravel(v)
    np.testing.assert_array_equal(op.ravel(tree), v)
    assert not np.asarray(tree["dense2"]["kernel"]).any()
    plain = {name: dict(tree[name].items()) for name in ("dense1", "dense2")}
    plain = jax.tree.map(lambda leaf: leaf, jax.device_put(plain))
    for operator in (op, gnjax.linearised(op), gnjax.with_jacobian(op), 0.5 * op + 0.5 * op):
        image = operator.mv(plain)
        assert jax.tree.structure(image) == jax.tree.structure(plain)
        np.testing.assert_allclose(operator.ravel(image), op.mv(v), rtol=1e-12)
    mask = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) % 2, tree)
    halved = gnjax.hessian(model, x, np.zeros((2, 2)), mask=mask)
    vector = jax.device_put(np.arange(1.0, halved.shape[0] + 1))
    spread = jax.tree.leaves(halved.unravel(vector))
    kept = zip(spread, jax.tree.leaves(mask), strict=True)
    assert all(((np.asarray(leaf) != 0) == (m != 0)).all() for leaf, m in kept)
    np.testing.assert_array_equal(halved.ravel(halved.unravel(vector)), vector)


def test_a_product_of_a_tree_is_that_of_the_matrix():
    """Against a Jacobian by automatic differentiation of the plain function."""
    rng = np.random.default_rng(6)
    params = {"w": rng.standard_normal((3, 2)), "b": rng.standard_normal(2)}
    x = rng.standard_normal((5, 3))

    def apply(p, inputs):
        return jnp.tanh(inputs @ p["w"] + p["b"][None])

    op = gnjax.gauss_newton((apply, params), x)

    @jax.jit
    def product(params):
        _, image = jax.jvp(lambda p: apply(p, x), (params,), (params,))
        _, pull = jax.vjp(lambda p: apply(p, x), params)
        return jax.tree.map(lambda leaf: leaf / len(x), pull(image)[0])

    expected = product(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), op.mv(params), expected)


def test_refusals_say_what_to_do():
    one, two, *_ = _pair(7)
    _, _, op = _network()
    refused = [
        (lambda: one @ two, "no operator; multiply vectors"),
        (lambda: one @ np.ones(5), r"multiplies vectors \(6,\)"),
        (lambda: one @ np.ones(6, complex), "real vectors"),
        (lambda: op @ op.unravel(np.ones(26)), r"op.mv\(tree\)"),
        (lambda: one + gnjax.dense(np.eye(5)), "of one shape"),
        (lambda: one + np.eye(6), r"gnjax.dense\(matrix\)"),
        (lambda: one - [[1.0]], r"gnjax.dense\(matrix\)"),
        (lambda: one * np.nan, "finite number"),
        (lambda: one * "2", "must be a number"),
        (lambda: one / 0, "divided by zero"),
        (lambda: (one + two).unravel(np.ones(6)), "a LinearCombination does not act on them"),
        (lambda: gnjax.ntk(*_network()[:2]).unravel(np.ones(4)), "side='parameters'"),
        (lambda: op.unravel(np.ones(3)), r"has the shape \(26,\)"),
        (lambda: op.ravel({"w": np.ones(3)}), r"it has w \(3,\), and they are dense1/bias \(4,\)"),
    ]
    for call, words in refused:
        with pytest.raises(ValueError, match=words):
            call()


def test_an_operator_prints_as_one_line():
    dense = gnjax.dense(np.eye(3))
    assert repr(dense) == "<Dense: 3 x 3, float64>"
    assert repr(2 * dense) == "<LinearCombination: 3 x 3, float64>"
    model = gnjax.models.MLP((3, 4, 2), key=jax.random.key(0))
    op = gnjax.gauss_newton(model, np.ones((5, 3)), side="outputs")
    parameters = "20 of 26 parameters in known layers"  # the biases are in none
    expected = f"J J^T, 10 x 10, float64, {parameters}, 5 samples of 2 outputs, loss squared_error"
    assert repr(op) == f"<NetworkGram: {expected}>"
    y, asked = np.zeros(5, int), {"loss": "cross_entropy", "side": "outputs"}
    flat = gnjax.gauss_newton(model, np.ones((5, 3)), y=y, **asked)
    assert "5 x 5, " in repr(flat)
    assert "5 samples of 2 outputs (curved in 1 of 2 directions)" in repr(flat)
    assert repr(gnjax.preconditioned(op, "diagonal")) == "<Preconditioned: 10 x 10, float64>"
    assert repr(gnjax.linearised(op)) == "<Linearised: 10 x 10, float64>"
    assert repr(gnjax.with_jacobian(op)) == "<WithJacobian: 10 x 10, float64>"
    assert repr(gnjax.hessian(model, np.ones((5, 3)), np.ones((5, 2)))).startswith(
        "<NetworkHessian: H, 26 x 26"
    )


def test_an_operator_says_of_which_loss_it_is():
    """Also the squared error, whose targets are dropped; no loss enters a kernel without one."""
    model, x, _ = _network()
    y = np.array([0, 1])

    def huber(f, y):
        return jnp.sqrt(1 + (f - y) ** 2)

    said = {
        "squared_error": gnjax.gauss_newton(model, x),
        "cross_entropy": gnjax.gauss_newton(model, x, loss="cross_entropy", side="auto"),
        "huber (a function)": gnjax.hessian(model, x, np.ones((2, 2)), loss=huber),
        "binary_cross_entropy": gnjax.ntk(model, x, loss="binary_cross_entropy"),
        "mse": gnjax.empirical_fisher(model, x, y, loss="mse"),
    }
    for name, op in said.items():
        assert repr(op).endswith(f", loss {name}>")
    assert repr(said["cross_entropy"].twin).endswith(", loss cross_entropy>")
    streamed = gnjax.gauss_newton(model, [(x, y)], loss="squared_error")
    assert repr(streamed).startswith("<Streamed: J^T J, 26 x 26, float64, ")
    assert repr(streamed).endswith("batches of samples, loss squared_error>")
    for kernel in (gnjax.ntk(model, x), gnjax.ntk(model, x, x)):
        assert repr(kernel).endswith(", no loss>")
    assert repr(gnjax.Monitor(x, y, loss="mse")) == "<Monitor: loss mse, 0 rows>"
