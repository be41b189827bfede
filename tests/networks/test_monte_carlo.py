"""Monte Carlo arithmetic against the spread that random signs of every rounding must give."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.tree_util import Partial

import gnjax
from gnjax.networks.construct import network
from gnjax.networks.jaxprs import ALL_CALLS, equations, evaluate, narrowest
from gnjax.networks.rounding import monte_carlo, numpy_operations
from gnjax.networks.rounding.monte_carlo import perturbed, products_and_changes
from gnjax.networks.rounding.numpy_operations import result_by_numpy
from gnjax.networks.rounding.random_signs import RandomSigns
from gnjax.numerics import host
from tests.networks import CASES

_U = 2.0**-53
_RNG = np.random.default_rng(0)


def _moves(f, *args, draws=200):
    """f perturbed less f, for many seeds."""
    closed, leaves = jax.make_jaxpr(f)(*args), [jnp.asarray(leaf) for leaf in jax.tree.leaves(args)]
    (plain,) = evaluate(closed.jaxpr, closed.consts, leaves, result_by_numpy, ALL_CALLS)
    moved = (_perturbed(closed, seed, leaves) for seed in range(draws))
    return np.stack([each - np.asarray(plain) for each in moved])


def _perturbed(closed, seed, leaves):
    return np.asarray(perturbed(RandomSigns(seed), closed.jaxpr, closed.consts, leaves)[0])


def _spread(f, *args):
    """The root mean square of what each entry moves, where squares would underflow too."""
    moves = _moves(f, *args)
    largest = np.abs(moves).max(axis=0) + np.finfo(float).tiny
    return largest * np.sqrt(np.square(moves / largest).mean(axis=0))


def test_one_operation_moves_by_one_rounding_up_or_down():
    x, y = np.array([1.1, 1.3, 1e-200]), np.array([0.5, -0.25, 3e-201])
    moves = _moves(jnp.add, x, y) / (x + y) / _U
    assert np.abs(moves).max() <= 2  # to a neighbour, which is up to 2 u away
    assert (moves.max(axis=0) >= 1).all()
    assert (moves.min(axis=0) <= -1).all()


def test_infinities_stay_where_they_are():
    """A causal mask writes -inf before a softmax; inf - inf would make every error unknown."""
    x = jnp.asarray([0.1, jnp.inf, -jnp.inf])
    moved = _perturbed(jax.make_jaxpr(lambda x: x + 1.0)(x), 0, [x])
    np.testing.assert_array_equal(moved[1:], [np.inf, -np.inf])
    assert moved[0] != 1.1


@pytest.mark.parametrize("masked", [-jnp.inf, -1e30])
def test_a_causal_mask_leaves_the_errors_known(masked):
    def attention(weights, x):
        scores = (x @ weights) @ jnp.swapaxes(x, -1, -2)
        seen = jnp.tril(jnp.ones((3, 3), bool))
        return jax.nn.softmax(jnp.where(seen, scores, masked)) @ x

    x = np.random.default_rng(1).standard_normal((4, 3, 2))
    op = gnjax.gauss_newton((attention, jnp.asarray([[1.0, 0.5], [-0.3, 2.0]])), x)
    assert op.error(1.0).kind == "measured"
    assert op.error(1.0).value < 1e-13


def test_signs_are_independent_and_balanced():
    x = np.full(2000, 1.25)
    signs = np.sign(_moves(lambda x: jnp.stack([2.0**10 * x, 2.0**10 * x, x * 2.0**10]), x))
    flat = signs.reshape(len(signs), -1)
    assert abs(flat.mean()) < 5 / flat.size**0.5
    correlations = np.corrcoef(flat[:, ::30].T)[~np.eye(200, dtype=bool)]
    assert np.abs(correlations).max() < 6.5 / 200**0.5
    assert np.isclose(correlations.std(), 200**-0.5, rtol=0.1)


EXACT = {
    "moved around": lambda x: jnp.pad(x.T.reshape(2, -1)[::-1], 1)[1:, None],
    "chosen": lambda x: jnp.where(x > 0, x, -x).max(axis=0),
    "indexed": lambda x: jnp.sort(x[jnp.array([1, 0])].at[0].set(3.0), axis=0),
    "widened": lambda x: x.astype(jnp.float32),
    "integers": lambda x: jnp.cumsum(jnp.arange(5)) * 3,
    "masks": lambda x: (x > 0).astype(x.dtype),
    "counts": lambda x: ((x > 0).astype(x.dtype).sum(axis=0) - 1) * 4,
    "halves": lambda x: jnp.square(jnp.cumsum(jnp.sign(x) / 2, axis=0) @ jnp.full((4, 2), 0.25)),
    "linear algebra of no entries": lambda x: x[:0] @ x,
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_operations_are_not_perturbed(name):
    x = _RNG.standard_normal((4, 4)).astype(jnp.bfloat16 if name == "widened" else float)
    assert not _moves(EXACT[name], x, draws=5).any()


def test_narrowing_rounds_in_the_narrow_type():
    x = _RNG.uniform(1, 2, 50)
    for dtype in (jnp.float32, jnp.bfloat16):
        u = float(jnp.finfo(dtype).eps) / 2
        spread = _spread(lambda x, dtype=dtype: x.astype(dtype).astype(x.dtype), x)
        assert (spread / np.asarray(x) >= u * 0.9).all()
        assert (spread / np.asarray(x) <= u * 2.1).all()
    assert not _moves(lambda x: jax.lax.reduce_precision(x, 11, 52) * 0, x).any()
    assert _spread(lambda x: jax.lax.reduce_precision(x, 8, 7), x).min() > 2.0**-9


def test_sums_that_cancel_are_seen():
    """Terms of size one, a sum near zero: the error is that of the terms."""
    x = _RNG.standard_normal(400)
    x = x - x.mean()
    ones = np.ones(400)
    assert _spread(jnp.sum, x) > 0.8 * _U * np.linalg.norm(x)
    assert _spread(lambda x: x @ ones, x) > 1.4 * _U * np.linalg.norm(x)
    image = _RNG.standard_normal((1, 10, 1))
    kernel = -image / image**2 * np.array([1.0, -1.0] * 5)[None, :, None]
    convolved = _spread(
        lambda a, b: jax.lax.conv_general_dilated(
            a, b.transpose(1, 0, 2), (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
        ),
        image,
        kernel,
    )
    assert convolved > 1.4 * _U * np.sqrt(10)


@pytest.mark.parametrize("terms", [10, 100, 700, 3000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_matrix_products_are_perturbed_by_as_much_as_they_are_rounded(terms, dtype):
    """Terms of one sign in one long run are the worst: at most three times the perturbation."""
    a, b = (np.abs(_RNG.standard_normal(s)).astype(dtype) for s in ((10, terms), (terms, 10)))
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    error = np.linalg.norm((np.asarray(product(a, b)) - exact).astype(float))
    moved = np.linalg.norm(_spread(product, a, b).astype(float))
    assert error < 3 * moved
    assert moved < (1 + terms**0.5 / 8) * 2 * np.finfo(dtype).eps * np.linalg.norm(exact)


FUNCTIONS = {
    "acos": (jnp.arccos, mpmath.acos, (-1, 1)),
    "acosh": (jnp.arccosh, mpmath.acosh, (1, 9)),
    "asin": (jnp.arcsin, mpmath.asin, (-1, 1)),
    "asinh": (jnp.arcsinh, mpmath.asinh, (-20, 20)),
    "atan": (jnp.arctan, mpmath.atan, (-9, 9)),
    "atan2": (lambda x: jnp.arctan2(x, 1.5), lambda z: mpmath.atan2(z, 1.5), (-9, 9)),
    "atanh": (jnp.arctanh, mpmath.atanh, (-0.5, 0.99)),
    "bessel_i1e": (jax.lax.bessel_i1e, lambda z: mpmath.besseli(1, z) * mpmath.exp(-z), (0, 9)),
    "cbrt": (jnp.cbrt, mpmath.cbrt, (0.01, 99)),
    "cos": (jnp.cos, mpmath.cos, (-10, 10)),
    "cosh": (jnp.cosh, mpmath.cosh, (-30, 30)),
    "digamma": (jax.lax.digamma, mpmath.digamma, (2, 20)),
    "erf": (jax.lax.erf, mpmath.erf, (-5, 5)),
    "erf_inv": (jax.lax.erf_inv, mpmath.erfinv, (-0.99, 0.99)),
    "erfc": (jax.lax.erfc, mpmath.erfc, (-5, 25)),
    "exp": (jnp.exp, mpmath.exp, (-300, 300)),
    "exp2": (jax.lax.exp2, lambda z: mpmath.mpf(2) ** z, (-500, 500)),
    "expm1": (jnp.expm1, mpmath.expm1, (-2, 2)),
    "lgamma": (jax.lax.lgamma, mpmath.loggamma, (3, 20)),
    "log": (jnp.log, mpmath.log, (0.1, 10)),
    "log1p": (jnp.log1p, mpmath.log1p, (-0.5, 0.5)),
    "logistic": (jax.lax.logistic, lambda z: 1 / (1 + mpmath.exp(-z)), (-50, 50)),
    "pow": (lambda x: x**2.7, lambda z: z ** mpmath.mpf(2.7), (0.01, 100)),
    "rsqrt": (jax.lax.rsqrt, lambda z: 1 / mpmath.sqrt(z), (0.01, 100)),
    "sin": (jnp.sin, mpmath.sin, (-10, 10)),
    "sinh": (jnp.sinh, mpmath.sinh, (-30, 30)),
    "tan": (jnp.tan, mpmath.tan, (-1.5, 1.5)),
    "tanh": (jnp.tanh, mpmath.tanh, (-20, 20)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_perturbed_by_as_much_as_they_err(name):
    """No value of 600 errs by more than four times its own spread."""
    f, exact, ends = FUNCTIONS[name]
    x = np.random.default_rng(0).uniform(*ends, 600)
    values = np.asarray(jax.jit(f)(x))
    with mpmath.workdps(40):
        errors = [float(abs(exact(mpmath.mpf(a)) - b)) for a, b in zip(x, values, strict=True)]
    assert (np.array(errors) <= 4 * _spread(f, x)).all()


def test_every_function_that_is_taken_for_accurate_is_compared():
    assert monte_carlo._FUNCTIONS.keys() <= FUNCTIONS.keys()


def _loop(x):
    return jax.lax.fori_loop(0, 4, lambda i, c: c * 1.5, x)


def _while(x):
    return jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]


def _scan(x):
    return jax.lax.scan(lambda c, w: (c * w, c), x, jnp.full(4, 1.5))[0]


def _branch(x):
    return jax.lax.cond(x[0] > 0, lambda y: y * 1.5 * 1.5, lambda y: y, x) * 1.5 * 1.5


@jax.custom_vjp
def _own_gradient(x):
    return x * 1.5 * 1.5


_own_gradient.defvjp(lambda x: (_own_gradient(x), None), lambda _, g: (g * 2.25,))
CALLS = {
    "loop": _loop,
    "while": _while,
    "scan": _scan,
    "branch": _branch,
    "own gradient": lambda x: _own_gradient(_own_gradient(x)),
    "checkpoint": jax.checkpoint(_loop),
    "jit": jax.jit(_branch),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_and_loops_are_entered(name):
    """Four products with 3/2: independent roundings, twice the spread of one."""
    x = _RNG.uniform(1, 2, 300)
    spread = np.sqrt(np.square(_moves(CALLS[name], x) / np.asarray(jax.jit(CALLS[name])(x))).mean())
    assert 1.8 * _U < spread < 4.5 * _U


def _remembering_nothing(w, x):
    """Three layers that share a matrix, in a scan inside a checkpoint."""

    def layer(h, _):
        return jnp.minimum(jax.nn.relu(h @ w), 3.0) + 0.1 * h, None

    return jax.checkpoint(lambda w, h: jax.lax.scan(layer, h, None, length=3)[0])(w, x)


def test_calls_that_differentiation_makes_are_entered():
    """The derivative of a checkpoint around a scan calls the functions with rules of their own."""
    rng = np.random.default_rng(5)
    w, x = rng.standard_normal((3, 3)), rng.standard_normal((4, 3))
    function = partial(_remembering_nothing, x=x)
    gradient = lambda w: jax.vjp(function, w)[1](jnp.ones((4, 3)))[0]  # noqa: E731
    names = {eqn.primitive.name for eqn in equations(jax.make_jaxpr(gradient)(w).jaxpr)}
    assert "closed_call" in names
    assert (_spread(gradient, w) < 100 * _U).all()
    jacobian = np.asarray(jax.jit(jax.jacrev(function))(w)).reshape(12, 9)
    kernel = gnjax.ntk((_remembering_nothing, w), x)
    exact = np.linalg.svd(jacobian, compute_uv=False) ** 2
    found = gnjax.eigenvalues(kernel)
    np.testing.assert_allclose(found.values[:9], exact, rtol=0, atol=1e-13 * exact[0])
    assert found.errors.max() < 1e-11 * exact[0]


def test_what_cannot_be_entered_is_perturbed_as_a_whole():
    matrix = np.diag([3.0, 2.0, 1.0])
    spread = _spread(jnp.linalg.eigvalsh, matrix)
    assert (spread > 8 * _U).all()
    assert (spread < 300 * _U).all()


DECOMPOSITIONS = {
    "eigvalsh": jnp.linalg.eigvalsh,
    "eigvals": lambda m: jnp.sort(jnp.linalg.eigvals(m).real),
    "svd": lambda m: jnp.linalg.svd(m, compute_uv=False)[::-1],
    "schur": lambda m: jnp.sort(jnp.diag(jax.scipy.linalg.schur(m)[0])),
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_small_eigenvalues_move_by_the_rounding_of_the_norm(name):
    """LAPACK errs relative to the norm, and so by far more than any part of a small eigenvalue."""
    matrix = np.stack([np.diag([1e9, 1.0]), np.diag([1e3, 1.0])])  # each has a norm of its own
    spread = _spread(jax.vmap(DECOMPOSITIONS[name]), matrix)[:, 0] / [1e9, 1e3]
    assert (spread > 0.5 * _U).all()
    assert (spread < 20 * _U).all()


@pytest.mark.parametrize("seed", [1, 2, 12, 18])
def test_the_error_covers_eigenvalues_of_a_graded_matrix(seed):
    """log eig(D (A + t B) D) for D with entries of very different sizes, at random A and B."""
    rng = np.random.default_rng(seed)
    d, root, change = 10.0 ** rng.uniform(-3, 3, 4), *rng.standard_normal((2, 4, 4))
    a, b, t = root @ root.T / 4 + np.eye(4), change + change.T, 0.05

    def model(p, x):
        matrix = np.outer(d, d) * (jnp.asarray(a) + p[0] * b)
        return jnp.log(jnp.linalg.eigvalsh(matrix))[None] * x[:, :1]

    exact = _squared_slopes(d, a, b, t)
    found = gnjax.eigenvalues(gnjax.gauss_newton((model, np.array([t])), np.ones((1, 1))))
    assert abs(found.values[0] - exact) <= found.errors[0]


def _squared_slopes(d, a, b, t):
    """The sum of the squared derivatives of log eig(D (A + t B) D) by t, in long arithmetic."""
    with mpmath.workdps(60):
        diagonal, step = mpmath.diag(d.tolist()), mpmath.mpf(10) ** -20

        def logs(s):
            matrix = mpmath.matrix(a.tolist()) + s * mpmath.matrix(b.tolist())
            found = mpmath.eigsy(diagonal * matrix * diagonal, eigvals_only=True)
            return [mpmath.log(value) for value in found]

        sides = zip(logs(t + step), logs(t - step), strict=True)
        return float(sum(((up - down) / (2 * step)) ** 2 for up, down in sides))


@pytest.mark.parametrize("name", ["batch norm of the batch", "cnn with stride", "linen, tied"])
def test_networks_differentiated_in_every_way(name):
    """<f, J t> by three roads: each moves by something near rounding, and all by about as much."""
    model, x = CASES[name]()
    net = network(model, x)
    leaves, f = list(net.leaves), partial(net.outputs, x=net.x)
    tangents = [_RNG.standard_normal(leaf.shape) for leaf in leaves]
    half = lambda t: jnp.square(f(t)).sum() / 2  # noqa: E731
    ways = {
        "jvp": lambda t: jnp.vdot(f(t), jax.jvp(f, (t,), (tangents,))[1]),
        "linearize": lambda t: jnp.vdot(f(t), jax.linearize(f, t)[1](tangents)),
        "grad": lambda t: sum(map(jnp.vdot, jax.grad(half)(t), tangents)),
    }
    spreads = [_spread_of(g, leaves) for g in ways.values()]
    size = abs(float(jax.jit(ways["jvp"])(leaves))) + float(jax.jit(half)(leaves))
    assert all(_U / 4 < spread / size < 1e4 * _U for spread in spreads)
    assert max(spreads) < 10 * min(spreads)


def _spread_of(f, leaves):
    return np.sqrt(np.square(_moves(f, leaves, draws=20)).mean())


def test_the_narrowest_type_is_found_inside_calls():
    inner = jax.checkpoint(jax.jit(lambda x: x.astype(jnp.float32) * 2))
    called = jax.make_jaxpr(lambda x: inner(x).astype(x.dtype) + 1)(np.ones(2)).jaxpr
    assert narrowest(called) == jnp.float32
    assert narrowest(jax.make_jaxpr(lambda x: x + 1)(np.ones(2)).jaxpr) == jnp.float64


def test_products_are_summed_over_the_batches():
    """sin(v) + sin(2 v), which moves by as much as the two."""
    product, v = Partial(lambda v, x: jnp.sin(v * x)), jnp.asarray([0.3, 1.7])
    batches = (jnp.ones(2),), (jnp.asarray([2.0, 2.0]),)
    found = list(products_and_changes(product, np.random.default_rng(0), [v] * 24, batches))
    np.testing.assert_allclose(found[0][0], np.sin(v) + np.sin(2 * v), rtol=1e-15)
    spread = np.sqrt(np.mean([np.square(change) for _, change in found], axis=0))
    assert (spread > _U).all()
    assert (spread < 20 * _U).all()


def test_every_vector_has_roundings_of_its_own():
    rng = np.random.default_rng(0)
    found = products_and_changes(Partial(jnp.sin), rng, [jnp.ones(3)] * 24)
    assert len({change.tobytes() for _, change in found}) > 1


def test_what_is_evaluated_again_is_not_traced_again():
    traced = []

    def product(v):
        traced.append(v)
        return 3.0 * v

    product, rng = Partial(product), np.random.default_rng(0)
    for _ in range(3):
        list(products_and_changes(product, rng, [jnp.ones(2)] * 2))
    assert len(traced) == 1  # for all vectors at once


@pytest.mark.parametrize(("work", "evaluations"), [(2e6, 1), (1e8, 2)])
def test_vectors_share_an_evaluation_that_writes_little(work, evaluations, monkeypatch):
    calls = []
    monkeypatch.setattr(
        monte_carlo, "_with_change", lambda *args: calls.append(args) or args[2:3] * 2
    )
    rng = np.random.default_rng(0)
    found = list(products_and_changes(Partial(jnp.sin), rng, [jnp.ones(2)] * 2, work=work))
    assert (len(calls), len(found)) == (evaluations, 2)


def test_loops_of_no_steps_are_entered():
    """JAX refuses them where it goes step by step."""
    none = lambda x: jax.lax.scan(lambda c, w: (c * w, c), x, jnp.ones((0, 2)))[0] * 3.0  # noqa: E731
    assert (np.abs(_moves(none, jnp.ones(2))) > 0).any()


def test_arrays_on_an_accelerator_move_there_as_far(monkeypatch):
    """Simulated: what is no array of NumPy counts as one on a device."""
    matrix = jnp.asarray(_RNG.standard_normal((4, 3)))
    product = Partial(lambda w, v: jnp.tanh(v @ w).sum() + jnp.maximum(v, 1e-310) * 1e-10, matrix)
    vectors = [np.asarray([0.3, -0.7, 1.9, 1e-309])] * 16

    def found():
        pairs = products_and_changes(product, np.random.default_rng(0), vectors)
        images, changes = zip(*pairs, strict=True)
        return images[0], np.sqrt(np.square(changes).sum() / 16)

    image, spread = found()
    for module in (host, numpy_operations):
        monkeypatch.setattr(module, "on_cpu", lambda a: isinstance(a, np.ndarray | np.generic))
    other_image, other_spread = found()
    np.testing.assert_allclose(other_image, image, rtol=0, atol=1e-13 * np.abs(image).max())
    assert spread / 2 < other_spread < 2 * spread


@pytest.mark.parametrize("largest", ["max", "min"])
def test_the_largest_of_a_segment_is_one_of_its_numbers(largest: str) -> None:
    """Its derivative asks which number is equal to it, and so it may not be moved."""
    rng = np.random.default_rng(0)
    segments, x, w = np.array([0, 1, 0, 1, 2]), rng.standard_normal((6, 3)), np.ones((3, 5))
    reduce = {"max": jax.ops.segment_max, "min": jax.ops.segment_min}[largest]

    def apply(p, x):
        return jax.vmap(lambda row: reduce(row, segments, 3))(jnp.tanh(x @ p * (1 + x[:, :1])))

    params = w + 0.1 * rng.standard_normal(w.shape)
    op = gnjax.gauss_newton((apply, params), x)
    jacobian = np.asarray(jax.jacrev(lambda p: apply(p, x))(params)).reshape(18, -1)
    exact = np.linalg.eigvalsh(jacobian.T @ jacobian / 6)[::-1]
    found = gnjax.eigenvalues(op)
    assert (np.abs(found.values - exact) <= found.errors + 1e-14).all()
    assert (found.errors < 1e-11).all()
