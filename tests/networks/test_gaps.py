"""Products that move step by step, against the same in one program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from gnjax.networks.construct import network
from gnjax.networks.network import backward, forward, pieces
from gnjax.networks.rounding.gaps import gap
from tests.networks import CASES

_RNG = np.random.default_rng(3)
_ALL_AT_ONCE, _STEP_BY_STEP = np.inf, 1.0


def _spread(product, work, *args, draws=24):
    """The root mean square of what the result moves, and the result itself."""
    found = [gap(product, np.uint32(seed), *args, work=work) for seed in range(draws)]
    moves = [float(jnp.linalg.norm(moved)) for _, moved in found]
    return np.sqrt(np.mean(np.square(moves))), np.asarray(found[0][0])


def _agree(product, *args):
    stepped, value = _spread(product, _STEP_BY_STEP, *args)
    compiled, expected = _spread(product, _ALL_AT_ONCE, *args)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12 * np.linalg.norm(expected))
    assert 0 < compiled / 1.5 < stepped < 1.5 * compiled


@pytest.mark.parametrize("name", ["attention", "linen, tied", "batch norm of the batch"])
@pytest.mark.parametrize("way", [forward, backward])
def test_products_of_networks_move_as_far_step_by_step(name, way):
    model, x = CASES[name]()
    net = network(model, x)
    inputs, target = next(iter(pieces(net, net.target)))
    shape = (net.parameters,) if way is forward else (net.samples, net.rows)
    _agree(Partial(way, net, inputs, target), jnp.asarray(_RNG.standard_normal(shape)))


def _loop(v):
    return jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, v))[1]


def _scan(v):
    return jax.lax.scan(lambda s, row: (jnp.cos(s + row), s * row), v, jnp.stack([v, 2 * v]))[0]


def _branch(v):
    return jax.lax.cond(v[0] > 0, jnp.sin, jnp.cos, v) / 3


def _calls(v):
    return jax.checkpoint(jax.jit(lambda v: jax.nn.softmax(jax.nn.relu(v) * 3)))(v)


def _in_float32(v):
    return jnp.exp(v.astype(jnp.float32)).astype(v.dtype)


@pytest.mark.parametrize("function", [_loop, _scan, _branch, _calls, _in_float32])
def test_loops_branches_and_calls_move_as_far_step_by_step(function):
    _agree(Partial(function), jnp.asarray([0.3, 1.7, -0.4]))


def test_what_is_evaluated_step_by_step_is_traced_once():
    traced = []

    def product(v):
        traced.append(v)
        return 3.0 * v

    product = Partial(product)
    for seed in range(3):
        gap(product, np.uint32(seed), jnp.ones(2), work=_STEP_BY_STEP)
    assert len(traced) == 1


def test_infinities_stay_where_they_are_step_by_step():
    masked = Partial(partial(jnp.where, jnp.asarray([True, False])), jnp.asarray([1.0, 2.0]))
    product = Partial(lambda v: jax.nn.softmax(masked(v) - 1.5))
    _, moved = gap(product, np.uint32(0), jnp.full(2, -jnp.inf), work=_STEP_BY_STEP)
    assert np.isfinite(np.asarray(moved)).all()
