"""Loops of many nearly equal steps, whose roundings have one direction and do not average out."""

from contextlib import nullcontext
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.rounding.monte_carlo import perturbed
from gnjax.networks.rounding.random_signs import Loops, RandomSigns
from tests.precision import single_precision

_U = 2.0**-53


def _lost(f, *args):
    """T u, as Monte Carlo arithmetic counts the steps T of f's loops."""
    closed, loops = jax.make_jaxpr(f)(*args), Loops()
    perturbed(RandomSigns(0, loops), closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return loops.lost


def _added(x, steps):
    return jax.lax.scan(lambda h, _: (h + x, None), jnp.zeros_like(x), None, length=steps)[0]


def _nested(x):
    return jax.lax.scan(lambda h, _: (h + _added(x, 20), None), x, None, length=3)[0]


def _in_float32(x):
    return _added(x.astype(jnp.float32), 40).astype(x.dtype)


def _by_a_bound(x):
    steps = (x[0] > 0).astype(int) + 39
    return jax.lax.fori_loop(0, steps, lambda _, h: h + x, jnp.zeros_like(x))


LOOPS = {
    "few steps": (lambda x: _added(x, 12), 0.0),
    "many steps": (lambda x: _added(x, 50), 50 * _U),
    "one after the other": (lambda x: _added(_added(x, 40), 50), 50 * _U),
    "one inside the other": (_nested, 60 * _U),
    "in float32": (_in_float32, 40 * 2.0**-24),
    "of a bound that is traced": (_by_a_bound, 40 * _U),
    "a map": (lambda x: jax.lax.map(jnp.sin, jnp.tile(x, 30)), 0.0),  # carries nothing
    "a map of loops": (lambda x: jax.lax.map(lambda y: _added(y, 40), x), 40 * _U),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_steps_of_loops_are_counted(name):
    f, expected = LOOPS[name]
    assert _lost(f, jnp.asarray([0.3, 0.7])) == expected


def _euler(steps, dt):
    """Steps of Euler's method in a constant field: h = T dt b x, with the derivative T dt x."""

    def model(p, x):
        return jax.lax.fori_loop(0, steps, lambda _, h: h + dt * p * x, jnp.zeros_like(x))

    return model


@pytest.mark.parametrize(("dtype", "steps"), [(np.float64, 2_000), (np.float32, 3_000)])
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_the_error_covers_a_sum_of_equal_terms_in_a_loop(dtype, steps):
    dt, x = dtype(0.0437), np.asarray([[0.7]], dtype)
    exact = (steps * Fraction(float(dt)) * Fraction(float(x[0, 0]))) ** 2
    with single_precision() if dtype == np.float32 else nullcontext():
        op = gnjax.gauss_newton((_euler(steps, dt), dtype(0.7)), x)
        found, error = gnjax.eigenvalues(op), op.error(float(exact)).value
    assert abs(Fraction(float(found.values[0])) - exact) <= Fraction(float(found.errors[0]))
    u = float(np.finfo(dtype).eps) / 2
    assert steps * u * float(exact) <= error <= 3 * steps * u * float(exact)


def test_an_error_is_unknown_where_a_loop_may_have_lost_everything():
    """In bfloat16 a sum of equal numbers stays at 256 of them, however many are added."""

    def model(w, x):
        return _added((x @ w).astype(jnp.bfloat16), 300).astype(x.dtype) / 300

    op = gnjax.gauss_newton((model, np.ones((2, 2))), np.array([[0.7, 0.3]]))
    assert op.error(1.0).kind == "unknown"
    assert "loops of many steps" in op.error(1.0).reason
