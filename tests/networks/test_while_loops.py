"""Models that hold a while loop whose length depends on data, against their dense Jacobians."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy import special

import gnjax
from gnjax.networks.equations.control_flow import step_counts
from gnjax.networks.null_space.modulo import Followed
from gnjax.networks.rounding.monte_carlo import perturbed
from gnjax.networks.rounding.random_signs import RandomSigns

_RNG = np.random.default_rng(0)
_PARAMS = {"w": 0.2 * _RNG.standard_normal((4, 4)), "o": _RNG.standard_normal((4, 2))}
_X = _RNG.standard_normal((5, 4))


def _fixed_point(w, x, act=jnp.tanh, tolerance=1e-10):
    start = jnp.zeros_like(x) - 1, jnp.zeros_like(x)
    return jax.lax.while_loop(
        lambda z: jnp.abs(z[1] - z[0]).max() > tolerance, lambda z: (z[1], act(z[1] @ w + x)), start
    )[1]


def _after(z, p, x):
    """One differentiable step after a loop that is none."""
    return jnp.tanh(jax.lax.stop_gradient(z).astype(x.dtype) @ p["w"] + x) @ p["o"]


def _together(p, x):
    return _after(_fixed_point(p["w"], x), p, x)


def _by_samples(p, x):
    return _after(jax.vmap(lambda row: _fixed_point(p["w"], row))(x), p, x)


def _rectified(p, x):
    return _after(jax.vmap(lambda row: _fixed_point(p["w"], row, jax.nn.relu))(x), p, x)


def _in_float32(p, x):
    w, x32 = p["w"].astype(jnp.float32), x.astype(jnp.float32)
    z = jax.vmap(lambda row: _fixed_point(w, row, tolerance=1e-4))(x32)
    return _after(z, p, x)


def _by_custom_root(p, x):
    def one(row):
        return jax.lax.custom_root(
            lambda z: jnp.tanh(z @ p["w"] + row) - z,
            jnp.zeros(4),
            lambda f, start: _fixed_point(p["w"], row),
            lambda g, y: jnp.linalg.solve(jax.jacobian(g)(y), y),
        )

    return jax.vmap(one)(x) @ p["o"]


def _traced_bound(p, x):
    steps = (x[:, 0] > 0).sum() * 0 + 5
    z = jax.lax.fori_loop(0, steps, lambda i, z: 0.5 * (z + (1 + x**2) / z), jnp.ones_like(x))
    return _after(z, p, x)


def _exponential_integral(p, x):
    return special.expi(jnp.exp(x @ p["w"])) @ p["o"]


MODELS = {
    "a fixed point": (_together, 1e-13),
    "a fixed point of each sample": (_by_samples, 1e-13),
    "a fixed point of ReLU": (_rectified, 1e-13),
    "a loop in float32": (_in_float32, 1e-5),  # the truth has the rounding of float32, too
    "custom_root": (_by_custom_root, 1e-12),
    "a traced bound": (_traced_bound, 1e-13),
    "expi": (_exponential_integral, 1e-12),
}


@pytest.mark.parametrize("name", MODELS)
def test_eigenvalues_and_kappa_are_those_of_the_dense_jacobian(name):
    model, rounding = MODELS[name]
    vector, unravel = ravel_pytree(_PARAMS)
    jacobian = np.asarray(jax.jacobian(lambda v: model(unravel(v), _X).ravel())(vector))
    truth = np.linalg.svd(jacobian, compute_uv=False) ** 2 / len(_X)
    op = gnjax.gauss_newton((model, _PARAMS), _X)
    found = gnjax.eigenvalues(op)
    assert found.errors.max() < rounding * 100 * truth[0]
    distances = np.abs(found.values[: len(truth)] - truth)
    assert (distances <= found.errors[: len(truth)] + rounding * truth[0]).all()
    kappa = gnjax.condition_number(op)
    assert kappa.rank == len(truth)
    (low, high), slack = kappa.interval, 1e4 * rounding
    assert low * (1 - slack) <= truth[0] / truth[-1] <= high * (1 + slack)


def _halved(x):
    """The first power of 2 below 1 that x / 2^k has, and k."""
    return jax.lax.while_loop(
        lambda state: state[0] >= 1, lambda state: (state[0] / 2, state[1] + 1), (x, 0)
    )


def test_every_lane_of_a_vmapped_loop_takes_its_own_steps():
    x = jnp.asarray([0.5, 3.0, 100.0])
    closed = jax.make_jaxpr(jax.vmap(_halved))(x)
    (loop,) = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "while"]
    np.testing.assert_array_equal(step_counts(loop, [x, jnp.zeros(3, int)]), [0, 2, 7])
    halved, steps = perturbed(RandomSigns(0), closed.jaxpr, closed.consts, [x])
    np.testing.assert_array_equal(steps, [0, 2, 7])
    np.testing.assert_allclose(halved, x / 2.0 ** np.array([0, 2, 7]), rtol=1e-14)
    assert float(halved[0]) == 0.5  # of no steps
    residues = Followed(lambda x: jax.vmap(_halved)(x)[0])(x)
    np.testing.assert_array_equal(residues, Followed(lambda y: y)(x / 2.0 ** np.array([0, 2, 7])))


def test_a_loop_that_stops_only_at_an_exact_fixed_point_ends():
    """Random signs move the square root that Newton's method ends at in every step."""

    def root(x):
        start = jnp.zeros_like(x), x
        newton = lambda z: (z[1], 0.5 * (z[1] + x / z[1]))  # noqa: E731
        return jax.lax.while_loop(lambda z: jnp.abs(z[1] - z[0]) > 3e-16, newton, start)[1]

    closed = jax.make_jaxpr(jax.vmap(root))(jnp.asarray([2.0, 5.0]))
    (found,) = perturbed(RandomSigns(0), closed.jaxpr, closed.consts, [jnp.asarray([2.0, 5.0])])
    np.testing.assert_allclose(found, np.sqrt([2.0, 5.0]), rtol=1e-15)


def test_a_loop_that_random_signs_keep_from_ending_has_an_unknown_error():
    """exp(x) + 3 reaches 4 for x = 0 alone, and with a moved result it goes on for ever."""

    def apply(p, x):
        start = jax.lax.stop_gradient(jnp.exp(p[0] * x[:, 0] * 0.0))[:, None]
        counted = jax.vmap(
            lambda z: jax.lax.while_loop(
                lambda z: (z != 4.0).all(), lambda z: jnp.where(z < 9.0, z + 1.0, z), z
            )
        )(start)
        return x @ p[:, None] * counted

    op = gnjax.gauss_newton((apply, np.ones(3)), np.random.default_rng(0).standard_normal((4, 3)))
    assert np.isinf(gnjax.eigenvalues(op).errors).all()


def _checkpointed(p, x, steps=5):
    """A loop of Equinox with checkpoints, as diffrax takes by default: its reverse rule loops."""

    def one(row):
        def body(state):
            return state[0] + 1, state[1] + 0.2 * jnp.tanh(p["w"] @ state[1])

        start, kind = (jnp.zeros((), int), row), "checkpointed"
        return eqx.internal.while_loop(lambda s: s[0] < steps, body, start, max_steps=9, kind=kind)

    return jax.vmap(one)(x)[1] @ p["o"]


@pytest.mark.slow
def test_loops_with_checkpoints_are_answered():
    """J v is by the equations of the loop, J^T u by its rule, and H v is forward over reverse."""

    def unrolled(p, x):
        for _ in range(5):
            x = x + 0.2 * jnp.tanh(x @ p["w"].T)
        return x @ p["o"]

    vector, unravel = ravel_pytree(_PARAMS)
    y = _RNG.standard_normal((5, 2))
    mean_loss = lambda v: jnp.square(unrolled(unravel(v), _X) - y).sum() / 10  # noqa: E731
    jacobian = np.asarray(jax.jacobian(lambda v: unrolled(unravel(v), _X).ravel())(vector))
    model = _checkpointed, _PARAMS
    scalar = lambda p: jnp.square(_checkpointed(p, _X) - y).sum() / 10  # noqa: E731
    pairs = [
        (gnjax.ntk(model, _X), jacobian @ jacobian.T),
        (gnjax.hessian(model, _X, y), jax.hessian(mean_loss)(vector)),
        (gnjax.hessian_of(scalar, _PARAMS), jax.hessian(mean_loss)(vector)),
    ]
    for op, matrix in pairs:
        found, truth = gnjax.eigenvalues(op), np.linalg.eigvalsh(matrix)[::-1]
        assert (np.abs(found.values - truth) <= found.errors + 1e-14 * truth[0]).all()
        assert found.errors.max() < 1e-11 * truth[0]
        v = _RNG.standard_normal((len(matrix), 2))
        np.testing.assert_allclose(gnjax.linearised(op).mv(v), matrix @ v, atol=1e-12 * truth[0])


def test_a_rule_that_is_no_derivative_is_not_left_out():
    """Beside a loop whose rule cannot be transposed a straight-through estimator is refused."""

    @jax.custom_vjp
    def rounded(z):
        return jnp.round(z)

    rounded.defvjp(lambda z: (jnp.round(z), None), lambda _, g: (g,))
    model = lambda p, x: _checkpointed(p, x) + rounded(x @ p["w"])[:, :2]  # noqa: E731
    with pytest.raises(ValueError, match="a rule that is not its derivative"):
        gnjax.ntk((model, _PARAMS), _X)
