"""Shampoo's and SOAP's metrics against powers of matrices by scipy, and steps written out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg

import gnjax
from tests.references import gauss_newton

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((12, 6)), RNG.standard_normal((12, 3))
PARAMS = {
    "bias": jax.device_put(RNG.standard_normal(4)),
    "one": jax.device_put(RNG.standard_normal((2, 3, 4))),  # of three axes
    "two": jax.device_put(RNG.standard_normal((4, 3))),
}


def apply(params, x):
    one = jnp.tanh(x @ params["one"].reshape(6, 4) + params["bias"][None])
    return one @ params["two"]


def _loss(params, x, y):
    return jnp.square(apply(params, x[None])[0] - y).sum() / 2


OP = gnjax.gauss_newton((apply, PARAMS), X)
GRADIENTS = jax.jit(jax.vmap(jax.grad(_loss), (None, 0, 0)))(PARAMS, X, Y)  # of every sample


def _dense():
    return gauss_newton(apply, PARAMS, X)


def _by_hand(power=None):
    """L and R by loops, their powers by scipy, and P with the parameters in order."""
    blocks = []
    for name in ("bias", "one", "two"):
        ms = [np.asarray(g).reshape(-1, g.shape[-1]) for g in GRADIENTS[name]]
        if name == "bias":
            left = sum(m.T @ m for m in ms)
            blocks.append(scipy.linalg.fractional_matrix_power(left, power or 0.5))
            continue
        sides = [sum(m @ m.T for m in ms), sum(m.T @ m for m in ms)]
        blocks.append(
            np.kron(*[scipy.linalg.fractional_matrix_power(s, power or 0.25) for s in sides])
        )
    return scipy.linalg.block_diag(*blocks)


def _close(found, exact, tolerance=1e-10):
    assert np.shape(found) == exact.shape
    assert np.abs(np.asarray(found) - exact).max() < tolerance * np.abs(exact).max()


@pytest.mark.parametrize("power", [None, 0.5])
def test_powers_of_the_two_factors(power):
    exact = _by_hand(power) + 0.01 * np.eye(40)
    factors = gnjax.metrics.shampoo_factors(GRADIENTS)
    metric = gnjax.metrics.shampoo(OP, factors, damping=0.01, exponent=power)
    _close(metric.as_matrix(), exact)
    found = gnjax.eigenvalues(gnjax.preconditioned(OP, metric))
    wanted = scipy.linalg.eigvalsh(_dense(), exact)[::-1]
    off = np.abs(found.values - wanted)
    assert off.max() < 1e-10 * wanted[0]
    assert (off <= found.errors + 1e-13 * wanted[0]).all()
    assert found.errors.max() < 1e-8 * wanted[0]


def test_the_step_of_the_optimiser():
    """P^{-1} M is L^{-1/4} M R^{-1/4}, by the eigenvectors of L and R apart."""
    factors = gnjax.metrics.shampoo_factors(GRADIENTS)
    gradient = jax.tree.map(lambda g: g.mean(axis=0), GRADIENTS)
    step = OP.unravel(gnjax.metrics.shampoo(OP, factors).solve(OP.ravel(gradient)))
    for name in ("one", "two"):
        powers = []
        for factor in factors[name]:
            values, vectors = np.linalg.eigh(np.asarray(factor))
            powers.append(vectors @ np.diag(values**-0.25) @ vectors.T)
        m = np.asarray(gradient[name]).reshape(-1, gradient[name].shape[-1])
        _close(np.asarray(step[name]).reshape(m.shape), powers[0] @ m @ powers[1])


def test_muon_is_shampoo_of_its_momentum_alone():
    """With L = M M^T and R = M^T M of a regular M = U S V^T the step P^{-1} M is U V^T."""
    m = RNG.standard_normal((4, 4))
    model = lambda w, x: x @ w, np.ones((4, 4))
    op = gnjax.gauss_newton(model, RNG.standard_normal((5, 4)))
    metric = gnjax.metrics.shampoo(op, gnjax.metrics.shampoo_factors(m[None]))
    u, _, v = np.linalg.svd(m)
    _close(np.asarray(metric.solve(m.ravel())), (u @ v).ravel())


def test_the_power_of_an_eigenvalue_near_zero_is_that_of_its_rounding():
    """A fourth root of a zero that is known to 1e-16 is known to 1e-4; P has what was computed."""
    some = gnjax.metrics.shampoo_factors(jax.tree.map(lambda g: g[:2], GRADIENTS))
    metric = gnjax.metrics.shampoo(OP, some, damping=0.5)
    found = gnjax.eigenvalues(gnjax.preconditioned(OP, metric))
    exact = scipy.linalg.eigh(np.asarray(OP.as_matrix()), metric.as_matrix(), eigvals_only=True)
    assert np.abs(found.values - exact[::-1]).max() < 1e-12 * exact[-1]
    with pytest.raises(ValueError, match="pass damping"):
        gnjax.preconditioned(OP, gnjax.metrics.shampoo(OP, some))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "bool", "float32"])
def test_the_sums_of_narrow_gradients_are_wide(dtype):
    """300^2 is beyond float16, 100^2 beyond int8, and bfloat16 has 8 bits for a sum of 1000."""
    numbers = RNG.uniform(50, 120, (1000, 2, 3)) * (2.5 if "float" in dtype else 1)
    narrow = jnp.asarray(numbers, dtype)
    exact = np.asarray(narrow, np.float64)
    left, right = gnjax.metrics.shampoo_factors(narrow)
    assert left.dtype == "float64"
    for found, rule in ((left, "nab,ncb->ac"), (right, "nab,nac->bc")):
        np.testing.assert_allclose(found, np.einsum(rule, exact, exact), rtol=1e-13)


class SoapState(NamedTuple):
    count: Any
    exp_avg_sq: Any
    q: Any


def _soap(b2=0.9, eps=1e-6, steps=3):
    """SOAP without momentum, written out for every axis; the last step, and the state before it."""
    names, size = ("bias", "one", "two"), len(X)
    bases, moments, updates = {}, {}, {}
    for name in names:
        first = np.asarray(GRADIENTS[name][0])
        axes = range(first.ndim)
        rows = [np.moveaxis(first, axis, 0).reshape(first.shape[axis], -1) for axis in axes]
        identity = [name == "bias" or (name, axis) == ("one", 1) for axis in axes]
        bases[name] = tuple(
            None if is_one else np.linalg.eigh(m @ m.T)[1]
            for m, is_one in zip(rows, identity, strict=True)
        )
        moments[name] = np.zeros(first.shape)
        for step in range(1, steps + 1):
            g = np.asarray(GRADIENTS[name][step % size])
            turned = g
            for axis, q in enumerate(bases[name]):
                if q is not None:
                    turned = np.moveaxis(np.tensordot(q.T, turned, (1, axis)), 0, axis)
            moments[name] = b2 * moments[name] + (1 - b2) * turned**2
            scaled = turned * np.sqrt(1 - b2**step) / (np.sqrt(moments[name]) + eps)
            for axis, q in enumerate(bases[name]):
                if q is not None:
                    scaled = np.moveaxis(np.tensordot(q, scaled, (1, axis)), 0, axis)
            updates[name] = (g, scaled)
    return SoapState(np.int32(steps + 1), moments, bases), updates


def test_the_step_of_soap():
    state, updates = _soap()
    metric = gnjax.metrics.soap(OP, (state,), b2=0.9, eps=1e-6)
    gradient = OP.ravel({name: jax.device_put(pair[0]) for name, pair in updates.items()})
    step = OP.unravel(metric.solve(gradient))
    for name, (_, update) in updates.items():
        _close(step[name], update)
    exact = metric.as_matrix()
    found = gnjax.eigenvalues(gnjax.preconditioned(OP, metric))
    wanted = scipy.linalg.eigvalsh(_dense(), exact)[::-1]
    assert (np.abs(found.values - wanted) <= found.errors + 1e-12 * wanted[0]).all()


class _Held(NamedTuple):  # a name that no implementation uses
    count: Any
    exp_avg: Any
    exp_avg_sq: Any
    gg: Any
    Q: Any


def _along(matrix, array, axis):
    return jnp.moveaxis(jnp.tensordot(matrix, array, (1, axis)), 0, axis)


def _turned_by(bases, array, *, back=False):
    for axis, q in enumerate(bases):
        array = _along(q if back else q.T, array, axis)
    return array


def _soap_of_optax(rate=1e-2, b1=0.9, b2=0.95, eps=1e-3, every=2):
    """SOAP for optax: the first call makes the basis, which is made again in every second one."""

    def squares(g):
        rows = [jnp.moveaxis(g, i, 0).reshape(g.shape[i], -1) for i in range(g.ndim)]
        return tuple(m @ m.T for m in rows)

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        gg = jax.tree.map(lambda p: tuple(jnp.eye(m) for m in p.shape), params)
        return _Held(jnp.zeros((), int), zeros, zeros, gg, gg)

    def update(gradient, state, params=None):
        t = state.count
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.exp_avg, gradient)
        mean = jax.tree.map(lambda m: jnp.where(t > 0, m, 0.0), mean)
        turned = jax.tree.map(lambda g, q: _turned_by(q, g), gradient, state.Q)
        square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, state.exp_avg_sq, turned)
        square = jax.tree.map(lambda v: jnp.where(t > 0, v, 0.0), square)
        correction = jnp.where(t > 0, jnp.sqrt(1 - b2**t) / (1 - b1**t), 0.0)

        def step(m, v, q):
            scaled = _turned_by(q, m) / (jnp.sqrt(v) + eps)
            return -rate * correction * _turned_by(q, scaled, back=True)

        updates = jax.tree.map(step, mean, square, state.Q)
        gg = jax.tree.map(lambda g, held: tuple(
            b2 * a + (1 - b2) * b for a, b in zip(held, squares(g), strict=True)
        ), gradient, state.gg)  # fmt: skip
        bases = jax.tree.map(
            lambda a, q: jnp.where(t % every == 0, jnp.linalg.eigh(a)[1], q), gg, state.Q
        )
        return updates, _Held(t + 1, mean, square, gg, bases)

    return optax.GradientTransformation(init, update)


@pytest.mark.parametrize("steps", [2, 5])
def test_soap_is_asked_in_its_basis(steps):
    """P^{-1} is the dense derivative of the next update; its basis is not that of the entries."""
    optimizer = _soap_of_optax()
    state = optimizer.init(PARAMS)
    for step in range(steps):
        gradient = jax.tree.map(lambda g, step=step: g[step], GRADIENTS)
        _, state = optimizer.update(gradient, state)
    metric = gnjax.metrics.soap(OP, state, optimizer)

    def update(vector):
        return OP.ravel(optimizer.update(OP.unravel(vector), state)[0])

    response = -jax.jacfwd(update)(jnp.full(40, 1e-60))
    _close(jnp.linalg.inv(response), metric.as_matrix(), 1e-8)
    assert np.abs(response - np.diag(np.diag(response))).max() > 0.1 * np.abs(response).max()
    assert gnjax.trace(metric).certificate.kind == "measured"
    alone = gnjax.metrics.soap(OP, state)
    assert gnjax.trace(alone).certificate.kind == "unknown"
    assert "pass the optimiser beside its state" in str(gnjax.trace(alone).certificate)
    assert (
        gnjax.trace(gnjax.metrics.soap(OP, state, b2=0.95, eps=1e-3)).certificate.kind != "unknown"
    )
    with pytest.raises(ValueError, match="are for a state alone"):
        gnjax.metrics.soap(OP, state, optimizer, b2=0.9)
    limited = optax.chain(optimizer, optax.scale_by_trust_ratio())
    _, held = limited.update(gradient, (state, optax.ScaleByTrustRatioState()), PARAMS)
    with pytest.raises(ValueError, match="does not divide by positive numbers in the basis"):
        gnjax.metrics.soap(OP, held, limited)


def _turned(name, new_shape):
    """A state of SOAP whose moments of one parameter have another shape with the same size."""
    state, _ = _soap()
    moments = {**state.exp_avg_sq, name: state.exp_avg_sq[name].reshape(new_shape)}
    return state._replace(exp_avg_sq=moments)


def _masked():
    mask = jax.tree.map(lambda leaf: leaf > 0, PARAMS)
    return gnjax.gauss_newton((apply, PARAMS), X, mask=mask)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gnjax.metrics.shampoo(OP, {"one": 1}), "does not look like"),
        (
            lambda: gnjax.metrics.shampoo(OP, jax.tree.map(lambda p: (np.eye(2),), PARAMS)),
            "bias .4,. needs",
        ),
        (lambda: gnjax.metrics.shampoo_factors(np.full((1, 2, 2), 1j)), "got complex128"),
        (lambda: gnjax.metrics.shampoo(OP, PARAMS, exponent=2.0), "not in .0, 1."),
        (lambda: gnjax.metrics.soap(OP, (1, 2)), "a state of SOAP is needed"),
        (lambda: gnjax.metrics.soap(OP, SoapState(1, PARAMS, PARAMS)), "no step yet"),
        (lambda: gnjax.metrics.soap(OP, _turned("two", (3, 4))), "two .4, 3. needs second mom"),
        (lambda: gnjax.metrics.soap(OP, _turned("one", (6, 4))), "one .2, 3, 4. needs second mom"),
        (lambda: gnjax.preconditioned(OP, SoapState(3, PARAMS, PARAMS)), "gnjax.metrics.soap"),
        (
            lambda: gnjax.metrics.shampoo(_masked(), gnjax.metrics.shampoo_factors(GRADIENTS)),
            "has a mask",
        ),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
