"""Products that move step by step, against the same in one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from gnjax.networks.construct import network
from gnjax.networks.network import backward, forward, sample_batches
from gnjax.networks.rounding import gaps as gaps_module
from gnjax.networks.rounding.gaps import gaps
from tests.networks import CASES

_RNG = np.random.default_rng(3)
_ALL_AT_ONCE, _STEP_BY_STEP = np.inf, 1.0


def _found(product, work, v, batches, draws=24):
    rng = np.random.default_rng(0)
    return list(gaps(product, rng, [v] * draws, batches, work=work))


def _agree(product, v, *batches, rounding=1e-12):
    """Equal results, which move as far in the root of the mean square."""
    batches, spread, values = batches or ((),), {}, {}
    for work in (_STEP_BY_STEP, _ALL_AT_ONCE):
        found = _found(product, work, v, batches)
        spread[work] = np.sqrt(np.mean([np.linalg.norm(moved) ** 2 for _, moved in found]))
        values[work] = found[0][0]
    size = np.linalg.norm(values[_ALL_AT_ONCE])
    np.testing.assert_allclose(*values.values(), rtol=0, atol=rounding * size)
    assert 0 < spread[_ALL_AT_ONCE] / 1.5 < spread[_STEP_BY_STEP] < 1.5 * spread[_ALL_AT_ONCE]


@pytest.mark.parametrize("name", ["attention", "linen, tied", "batch norm of the batch"])
@pytest.mark.parametrize("way", [forward, backward])
def test_products_of_networks_move_as_far_step_by_step(name, way):
    model, x = CASES[name]()
    net = network(model, x)
    shape = (net.parameters,) if way is forward else (net.samples, net.rows)
    product = Partial(lambda net, v, x, target: way(net, x, target, v), net)
    _agree(product, jax.device_put(_RNG.standard_normal(shape)), *sample_batches(net, net.target))


def test_products_are_summed_over_the_batches():
    product = Partial(lambda v, x: jnp.sin(v * x))
    _agree(product, jnp.asarray([0.3, 1.7]), (jnp.ones(2),), (jnp.asarray([2.0, 3.0]),))


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


def test_layers_in_float32_move_as_far_step_by_step():
    _agree(Partial(_in_float32), jnp.asarray([0.3, 1.7, -0.4]), rounding=1e-6)


@pytest.mark.parametrize("function", [_loop, _scan, _branch, _calls])
def test_loops_branches_and_calls_move_as_far_step_by_step(function):
    _agree(Partial(function), jnp.asarray([0.3, 1.7, -0.4]))


def test_every_vector_has_roundings_of_its_own():
    moves = [moved for _, moved in _found(Partial(jnp.sin), _STEP_BY_STEP, jnp.ones(3), ((),))]
    assert len({moved.tobytes() for moved in moves}) > 1


def test_what_is_evaluated_again_is_not_traced_again():
    traced = []

    def product(v):
        traced.append(v)
        return 3.0 * v

    product = Partial(product)
    for _ in range(3):
        _found(product, _STEP_BY_STEP, jnp.ones(2), ((),))
    assert len(traced) == 1  # for all vectors at once


def test_infinities_stay_where_they_are_step_by_step():
    product = Partial(lambda v: jax.nn.softmax(jnp.where(v > 0, v - 1.5, -jnp.inf)))
    for _, moved in _found(product, _STEP_BY_STEP, jnp.asarray([1.0, -1.0, 2.0]), ((),)):
        assert np.isfinite(moved).all()


@pytest.mark.parametrize(("work", "evaluations"), [(2e6, 1), (1e8, 2)])
def test_vectors_share_an_evaluation_that_writes_little(work, evaluations, monkeypatch):
    calls = []
    monkeypatch.setattr(gaps_module, "_STEPWISE", np.inf)
    monkeypatch.setattr(gaps_module, "_steps", lambda *args: calls.append(args) or (args[2],) * 2)
    found = _found(Partial(lambda v: 2 * v), work, jnp.ones(2), ((),), draws=2)
    assert (len(calls), len(found)) == (evaluations, 2)


@pytest.mark.parametrize(("equations", "steps"), [(3, False), (300, True)])
def test_what_takes_long_to_compile_goes_step_by_step(equations, steps, monkeypatch):
    calls, step_by_step = [], gaps_module._stepwise
    monkeypatch.setattr(
        gaps_module, "_stepwise", lambda *args: calls.append(args) or step_by_step(*args)
    )

    def product(v):
        for _ in range(equations):
            v = jnp.sin(v)
        return v

    found = _found(Partial(product), 2e7, jnp.ones(2), ((),), draws=2)
    assert (bool(calls), len(found)) == (steps, 2)


def test_products_whose_arrays_are_large_stay_in_one_program(monkeypatch):
    monkeypatch.setattr(gaps_module, "_stepwise", None)
    assert len(_found(Partial(jnp.sin), _ALL_AT_ONCE, jnp.ones(2), ((),))) == 24
