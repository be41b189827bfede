"""Measured bounds on the rounding of Jacobians, against derivatives in long double by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from gnjax.networks import jacobians
from gnjax.networks.arguments.samples import take
from gnjax.networks.construct import network
from gnjax.networks.model import functional
from gnjax.networks.network import backward_products, forward_products
from gnjax.networks.rounding import (
    SAFETY,
    draws,
    errors,
    jacobian_error,
    monte_carlo,
    product_error,
)
from gnjax.operators.of_networks import hessian
from tests.networks import CASES

_EXTENDED = np.finfo(np.longdouble).eps < np.finfo(float).eps / 100
needs_long_double = pytest.mark.skipif(not _EXTENDED, reason="long double is a double here")
_EPSILON = 1e-5


def _tanh(p, x):
    return jnp.tanh(x @ p[0]) @ p[1]


def _normed(p, x):
    z = x @ p[0] + 1e4
    centred = z - z.mean(axis=1, keepdims=True)
    variance = jnp.square(z).mean(axis=1, keepdims=True) - jnp.square(z.mean(axis=1, keepdims=True))
    return (centred * jax.lax.rsqrt(variance + _EPSILON)) @ p[1]


def _mixed(dtype, p, x):
    """A softmax over hidden units in another precision."""
    return jax.nn.softmax((x @ p[0]).astype(dtype), axis=-1).astype(x.dtype) @ p[1]


def _rows(hidden, slopes, p, x):
    """J for F = h(x V) W: by V, x_a (dh_c / dz_b) W_c, and by W, h_c; in long double."""
    outer = np.einsum("na,ncb,ck->nkab", x, slopes, p[1]).reshape(len(x), p[1].shape[1], -1)
    inner = np.einsum("nc,jk->njck", hidden, np.eye(p[1].shape[1])).reshape(*outer.shape[:2], -1)
    return np.concatenate([outer, inner], axis=2)


def _exact(name, p, x):
    """The Jacobian (n, k, p) of the network in exact arithmetic, and its outputs."""
    p, x = [np.asarray(a, np.longdouble) for a in p], np.asarray(x, np.longdouble)
    z = x @ p[0]
    unit = np.eye(z.shape[1], dtype=np.longdouble)
    if name.startswith("tanh"):
        hidden, slopes = np.tanh(z), unit / np.cosh(z)[:, :, None] ** 2
    elif name == "normed":
        z = z + 10**4
        centred = z - z.mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt(np.square(centred).mean(axis=1) + np.longdouble(_EPSILON))
        hidden = centred * scale[:, None]
        kept = unit - 1 / np.longdouble(len(unit))
        outer = hidden[:, :, None] * hidden[:, None, :] / len(unit)
        slopes = scale[:, None, None] * (kept - outer)
    else:
        hidden = np.exp(z - z.max(axis=1, keepdims=True))
        hidden /= hidden.sum(axis=1, keepdims=True)
        slopes = hidden[:, :, None] * (unit - hidden[:, None, :])
    return _rows(hidden, slopes, p, x), hidden @ p[1]


NETWORKS = {
    "tanh": (_tanh, 1.0),
    "tanh saturated": (_tanh, 9.0),  # 1 - tanh^2 near 1e-15
    "normed": (_normed, 1.0),
    "softmax float32": (partial(_mixed, jnp.float32), 1.0),
    "softmax bfloat16": (partial(_mixed, jnp.bfloat16), 0.3),
}


def _case(name, seed, outer=1.0, k=2):
    rng = np.random.default_rng(seed)
    apply, inner = NETWORKS[name]
    p = [inner * rng.standard_normal((3, 5)), outer * rng.standard_normal((5, k))]
    return (apply, jax.device_put(p)), p, rng.standard_normal((4, 3))


def _true_errors(net, exact):
    """||J - exact||_F for J by rows, by forward and by backward products."""
    p, rows = net.parameters, len(exact)
    formed = jacobians.jacobian(net)
    forward = forward_products(net, jax.device_put(np.eye(p, dtype=net.dtype)))
    backward = backward_products(net, jax.device_put(np.eye(rows, dtype=net.dtype))).T
    found = (np.asarray(j, np.longdouble) - exact for j in (formed, forward, backward))
    return [float(np.sqrt(np.square(gap).sum())) for gap in found]


@pytest.mark.slow
@needs_long_double
@pytest.mark.parametrize("outer", [1.0, 1e8])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_bound_is_above_the_true_error(name, outer):
    """Also where both modes share the error; and it is below 300 of them in the middle."""
    ratios = []
    for seed in range(8):
        model, p, x = _case(name, seed, outer)
        net = network(model, x)
        exact = _exact(name, p, x)[0].reshape(-1, net.parameters)
        bound = jacobian_error(net, seed=seed)
        assert bound.kind == "measured"
        ratios.append(bound.value / max(_true_errors(net, exact)))
    assert min(ratios) > 1
    assert np.median(ratios) < 300


def _cholesky(p):
    """R (k, k - 1) with R R^T = diag(p) - p p^T by elimination, in long double.

    The first class with half the probability of the likeliest is swapped with the last.
    """
    k = len(p)
    order = np.arange(k)
    last = int(np.argmax(p >= p.max() / 2))
    order[[last, -1]] = order[[-1, last]]
    rest = (np.diag(p) - np.outer(p, p))[np.ix_(order, order)]
    columns = []
    for j in range(k - 1):
        columns.append(rest[:, j] / np.sqrt(rest[j, j]))
        rest = rest - np.outer(columns[-1], columns[-1])
        columns[-1][:j] = 0
    return np.stack(columns, axis=1)[order]


@needs_long_double
@pytest.mark.parametrize("outer", [1.0, 20.0])
def test_the_error_of_the_loss_factor_is_seen(outer):
    """R, the Cholesky factor of outputs that carry the rounding of a bfloat16 softmax.

    A network whose roundings happen to cancel has a true error far below what others have.
    """
    ratios = []
    for seed in range(5):
        model, p, x = _case("softmax bfloat16", seed, outer, k=3)
        net = network(model, x, loss="cross_entropy")
        rows, f = _exact("softmax", p, x)
        weights = np.exp(f - f.max(axis=1, keepdims=True))
        r = np.stack([_cholesky(p) for p in weights / weights.sum(axis=1, keepdims=True)])
        exact = np.einsum("nji,njp->nip", r, rows).reshape(-1, net.parameters)
        true = max(_true_errors(net, exact))
        ratios.append(jacobian_error(net, seed=seed).value / true)
    assert min(ratios) > 1
    assert np.median(ratios) < 100


@pytest.mark.parametrize("name", CASES)
def test_bounds_of_every_kind_of_network_are_near_rounding(name):
    """Between a fraction of one rounding of J and a few hundred."""
    net = network(*CASES[name]())
    size = np.linalg.norm(jacobians.jacobian(net))
    assert 1e-16 * size < jacobian_error(net).value < 2e-13 * size


def test_batches_add_up_to_the_whole():
    model, x = CASES["mlp relu"]()
    whole = jacobian_error(network(model, x)).value
    parts = jacobian_error(network(model, x, batch_size=2)).value
    assert whole / 2 < parts < whole * 2


def test_a_rule_that_is_less_exact_than_its_function_is_caught():
    """A derivative in float32: the bound covers what that loses against the exact one."""

    @jax.custom_jvp
    def sine(z):
        return jnp.sin(z)

    @sine.defjvp
    def _(primals, tangents):
        slope = jnp.cos(primals[0].astype(jnp.float32)).astype(primals[0].dtype)
        return jnp.sin(primals[0]), slope * tangents[0]

    p = {"w": jnp.asarray(np.random.default_rng(0).standard_normal((3, 2)))}
    x = np.random.default_rng(1).standard_normal((4, 3))
    nets = [network((lambda p, x, f=f: f(x @ p["w"]), p), x) for f in (sine, jnp.sin)]
    low, exact = (jacobians.jacobian(net) for net in nets)
    assert 1e-9 < np.linalg.norm(low - exact) < jacobian_error(nets[0]).value < 1e-5


def test_what_is_not_finite_is_unknown():
    """A square root of 1 - 1: perturbed, it is of a negative number for one of the signs."""
    model = (lambda p, x: jnp.sqrt(3 * x * p - 0.9999999999999999), np.full((1, 1), 1 / 3))
    bound = jacobian_error(network(model, np.ones((1, 1))))
    assert bound.kind == "unknown"
    assert bound.value == np.inf


def test_underflow_is_never_an_error_of_zero():
    p = [np.full((1, 1), 1e-200), np.full((1, 1), 1e-200)]
    net = network((lambda p, x: x @ p[0] @ p[1] * 1e-150, p), np.ones((1, 1)))
    assert jacobian_error(net).value >= SAFETY * np.finfo(float).tiny


def test_draws_are_many_where_there_is_one_direction():
    """P(larger of two means of 16 products of squared Gaussians < 1 / SAFETY^2) < 1e-6."""
    rng = np.random.default_rng(0)
    count = draws(1e3, 1)
    x, y = rng.standard_normal((2, 10**6 // 4, count))
    low = (np.square(x * y).mean(axis=1) < SAFETY**-2).mean()
    assert low**2 < 1e-6
    assert draws(1e9, 10**4) == 3


def _quadratic(matrix, v):
    return matrix @ v


def test_product_error_of_a_hessian_is_above_its_true_error():
    """sum cosh(W v)-like losses have H = W^T diag(cosh) W, here in long double."""
    rng = np.random.default_rng(3)
    w, at = rng.standard_normal((6, 4)), rng.standard_normal(4)
    gradient = jax.grad(lambda t: jnp.cosh(w @ t).sum())
    product = lambda v: jax.jvp(gradient, (at,), (v,))[1]  # noqa: E731
    bound = product_error(product, 4, jnp.dtype(float))
    long = w.astype(np.longdouble)
    exact = long.T @ (np.cosh(long @ at)[:, None] * long)
    compiled = jax.jit(product)
    computed = np.stack([np.asarray(compiled(e)) for e in np.eye(4)])
    error = float(np.sqrt(np.square(computed - exact).sum()))
    assert (
        error < bound.value < 300 * max(error, 1e-16 * float(np.linalg.norm(exact.astype(float))))
    )


def test_product_error_sees_asymmetry_and_low_precision():
    matrix = np.random.default_rng(0).standard_normal((5, 5))
    matrix = jax.device_put(matrix + matrix.T)
    plain = product_error(jax.tree_util.Partial(_quadratic, matrix), 5, jnp.dtype(float)).value
    assert plain < 1e-13
    skewed = matrix.at[0, 1].add(1e-6)
    wrong = product_error(jax.tree_util.Partial(_quadratic, skewed), 5, jnp.dtype(float)).value
    assert 1e-6 < wrong < 2e-5
    single = lambda v: (matrix.astype(jnp.float32) @ v.astype(jnp.float32)).astype(v.dtype)  # noqa: E731
    low = product_error(single, 5, jnp.dtype(float)).value
    exact = np.linalg.norm(np.asarray(matrix, np.float32) - np.asarray(matrix))
    assert exact < low < 1e-4


def test_product_error_of_a_scaled_product():
    """S A S with S of 1 and 1e6: the bound for A alone would be a million times too small."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((6, 6))
    matrix = jax.device_put(matrix + matrix.T)
    s = jnp.asarray([1.0, 1e6, 1.0, 1e6, 1.0, 1.0])
    product = jax.tree_util.Partial(_quadratic, matrix)
    outside = product_error(product, 6, s.dtype, scaling=lambda v: s * v).value
    inside = product_error(lambda v: s * (matrix @ (s * v)), 6, s.dtype).value
    assert inside / 4 < outside < 4 * inside


def test_product_error_of_batches():
    model, x = CASES["mlp relu"]()
    y = np.zeros((len(x), 3))
    op = gnjax.hessian(model, x, y)

    def product(v, x, target):
        gradient = jax.grad(lambda t: op.objective(x, target, list(t)))
        shapes = [leaf.shape for leaf in op.net.leaves]
        parts = jnp.split(v, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
        tangents = [p.reshape(s) for p, s in zip(parts, shapes, strict=True)]
        image = jax.jvp(gradient, (list(op.net.leaves),), (tangents,))[1]
        return jnp.concatenate([p.ravel() for p in image])

    pair = (op.net.x, op.net.target)
    batches = [take(pair, slice(i, i + 1)) for i in range(len(x))]
    size = op.shape[0]
    one = product_error(product, size, op.dtype, batches=[pair]).value
    many = product_error(product, size, op.dtype, batches=batches).value
    assert one / 3 < many < 3 * one
    assert functional(model)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator refuses by itself")
def test_an_error_whose_measurement_has_no_memory_is_unknown(monkeypatch):
    """A process that takes more than there is would be killed, and its answer with it."""
    matrix = jax.device_put(np.diag([3.0, 2.0, 1.0]))
    product = jax.tree_util.Partial(_quadratic, matrix)
    known = product_error(product, 3, jnp.dtype(float))
    monkeypatch.setattr(errors, "_LARGE", 0.0)
    monkeypatch.setattr(errors, "free_memory", lambda: (1e9, "free"))
    assert product_error(product, 3, jnp.dtype(float)) == known
    monkeypatch.setattr(errors, "free_memory", lambda: (100.0, "free"))
    refused = product_error(product, 3, jnp.dtype(float))
    assert refused.kind == "unknown"
    assert refused.value == np.inf
    assert "GB are left" in refused.reason


def _hessian():
    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.standard_normal(shape)) for shape in ((3, 4), (4, 2))]
    return gnjax.hessian((_tanh, p), rng.standard_normal((5, 3)), rng.standard_normal((5, 2)))


def _moved(size):
    """A symmetric matrix of Frobenius norm 1e-3, as of one unit on the wrong side of a kink."""
    rng = np.random.default_rng(1)
    root = rng.standard_normal(size)
    return 1e-3 * np.outer(root, root) / np.dot(root, root)


def test_a_hessian_that_was_formed_by_another_program_has_its_distance_as_error(monkeypatch):
    op = _hessian()
    plain = gnjax.eigenvalues(op)
    formed = hessian.symmetric_columns
    monkeypatch.setattr(hessian, "symmetric_columns", lambda op: formed(op) + _moved(op.shape[0]))
    moved = gnjax.eigenvalues(_hessian())
    apart = np.abs(np.asarray(plain.values) - np.asarray(moved.values))
    assert apart.max() > 1e5 * max(plain.errors)
    assert (apart <= np.asarray(moved.errors)).all()
    assert "between programs" in str(moved.certificate)


@pytest.mark.parametrize("shape", [(), (2,), (5,)])
def test_products_of_a_hessian_by_another_program_have_their_distance_as_error(monkeypatch, shape):
    op = _hessian()
    monkeypatch.setattr(
        type(op), "_multiplied", property(lambda op: lambda v: op.mv(v) + _moved(len(v)) @ v)
    )
    plain = op.facts().error(1.0).value
    op.facts().product()(jnp.ones((op.shape[0], *shape)))
    assert plain < 1e-9
    assert 1e-3 <= op.facts().error(1.0).value <= 0.5


def test_the_same_products_by_another_program_add_no_error():
    op = _hessian()
    before = op.facts().error(1.0)
    op.as_matrix()
    op.facts().product()(jnp.ones(op.shape[0]))
    assert op.facts().error(1.0) == before


_SIDES = {"parameters": gnjax.gauss_newton, "outputs": gnjax.ntk}


def _gram(side):
    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.standard_normal(shape)) for shape in ((3, 4), (4, 2))]
    return _SIDES[side]((_tanh, p), rng.standard_normal((5, 3)))


@pytest.mark.parametrize("shape", [(), (2,), (5,)])
@pytest.mark.parametrize("side", _SIDES)
def test_products_with_j_by_another_program_have_their_distance_as_error(monkeypatch, side, shape):
    """As where XLA puts one number on both sides of a kink: rounding alone does not show it."""
    op, through = _gram(side), type(_gram(side)).through
    assert op.side == side
    monkeypatch.setattr(
        type(op), "through", lambda self, maps, v: through(self, maps, v) + _moved(len(v)) @ v
    )
    plain = op.facts().error(1.0)
    op.facts().product()(jnp.ones((op.shape[0], *shape)))
    apart = op.facts().error(1.0)
    assert plain.value < 1e-9
    assert 1e-3 <= apart.value <= 0.5
    assert "not what differentiation says" in apart.reason


@pytest.mark.parametrize("side", _SIDES)
def test_few_eigenvalues_by_another_program_hold_those_of_the_matrix(monkeypatch, side):
    whole = np.linalg.eigvalsh(np.asarray(_gram(side).as_matrix()))
    op, through = _gram(side), type(_gram(side)).through
    monkeypatch.setattr(
        type(op), "through", lambda self, maps, v: through(self, maps, v) + _moved(len(v)) @ v
    )
    top = gnjax.eigenvalues(op, k=1, limits=gnjax.Limits(whole_rows=1))
    assert abs(top.values[0] - whole[-1]) <= top.errors[0]


@pytest.mark.parametrize("side", _SIDES)
def test_products_with_j_by_the_same_program_add_no_error(side):
    op = _gram(side)
    before = op.facts().error(1.0)
    op.facts().product()(jnp.ones(op.shape[0]))
    op.facts().product()(jnp.ones((op.shape[0], 3)))
    assert op.facts().error(1.0) == before


@pytest.mark.parametrize(
    ("precision", "device", "bits"),
    [(None, "gpu", 11), ("high", "gpu", 11), ("highest", "gpu", None), ("high", "tpu", 16)],
)
def test_factors_of_products_are_rounded_as_the_device_rounds_them(
    monkeypatch, precision, device, bits
):
    """JAX documents that HIGH is TF32 on a GPU and three products of bfloat16 on a TPU."""
    x = jnp.ones((3, 3), jnp.float32)
    jaxpr = jax.make_jaxpr(lambda a, b: jax.lax.dot(a, b, precision=precision))(x, x)
    (eqn,) = jaxpr.eqns
    monkeypatch.setattr(jax, "default_backend", lambda: device)
    assert monte_carlo._multiplier_roundoff(eqn) == (0.0 if bits is None else 2.0**-bits)


def test_a_network_with_random_keys_among_its_numbers_is_measured():
    """Dropout in evaluation mode keeps the keys of its random stream."""

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layer, self.dropout = nnx.Linear(3, 2, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.dropout(jnp.tanh(self.layer(x)))

    net = Net(nnx.Rngs(params=jax.random.key(0), dropout=jax.random.key(1)))
    net.eval()
    x = np.random.default_rng(0).standard_normal((5, 3))
    assert gnjax.condition_number(gnjax.ntk(net, x)).resolved
