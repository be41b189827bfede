"""Operations that NumPy computes, against the same by XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.tree_util import Partial

from gnjax.networks.construct import network
from gnjax.networks.jaxprs import bind, evaluate
from gnjax.networks.network import forward, sample_batches
from gnjax.networks.rounding.monte_carlo import products_and_changes
from gnjax.networks.rounding.numpy_operations import (
    ENTRYWISE,
    ON_ARRAYS,
    REDUCTIONS,
    result_by_numpy,
)
from tests.networks import CASES

_ENTRYWISE = {
    "abs": jnp.abs,
    "add": jnp.add,
    "ceil": jnp.ceil,
    "copy": jnp.copy,
    "cos": jnp.cos,
    "div": lax.div,
    "eq": jnp.equal,
    "erf": jax.scipy.special.erf,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "integer_pow": lambda a: a**3 + a**-2,
    "is_finite": jnp.isfinite,
    "le": jnp.less_equal,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "logistic": jax.nn.sigmoid,
    "lt": jnp.less,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mul": jnp.multiply,
    "ne": jnp.not_equal,
    "neg": jnp.negative,
    "rsqrt": lax.rsqrt,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "square": jnp.square,
    "sub": jnp.subtract,
    "tanh": jnp.tanh,
    "select_n": lambda a, b: jnp.where(a > 0, b, 1.0),
    "and": lambda a, b: (a > 0) & (b < 1),
    "or": lambda a, b: (a > 0) | (b < 1),
    "not": lambda a: ~(a > 0),
}
_RNG = np.random.default_rng(0)
_VALUES = np.array([0.0, -0.0, 1.0, -1.0, 0.3, -2.7, 40.0, -800.0, 1e-30, np.inf, -np.inf, np.nan])
_OF_TWO = {
    *("add", "and", "div", "eq", "ge", "gt", "le", "lt"),
    *("max", "min", "mul", "ne", "or", "select_n", "sub"),
}
_ARRAY = np.random.default_rng(0).standard_normal((3, 4, 2))
_OTHER = np.random.default_rng(1).standard_normal((2, 4, 5))
_ON_ARRAYS = {
    "add_any": jax.grad(lambda a: (jnp.sin(a) * a).sum()),
    "argmax": lambda a: jnp.argmax(a, axis=1),
    "broadcast_in_dim": lambda a: jnp.broadcast_to(a[:, None, :, :1], (3, 5, 4, 7)),
    "concatenate": lambda a: jnp.concatenate([a, 2 * a], axis=1),
    "conv_general_dilated": lambda a: lax.conv(a, a[:, :, :1], (2,), "SAME"),
    "convert_element_type": lambda a: (a.astype(jnp.float32), (a > 0).astype(int)),
    "cumsum": lambda a: (jnp.cumsum(a, axis=1), lax.cumsum(a, 2, reverse=True)),
    "dot_general": lambda a: (
        lax.dot_general(a, jnp.asarray(_OTHER), (((1,), (1,)), ((2,), (0,)))),
        lax.dot_general(a, jnp.asarray(_OTHER), (((2, 1), (0, 1)), ((), ()))),
        lax.dot_general(a, a, (((0,), (0,)), ((1, 2), (1, 2)))),
    ),
    "gather": lambda a: (
        a[jnp.asarray([[1, 0], [2, 2]])],  # rows of a table
        a[:, jnp.asarray([3, 1])],
        a[jnp.asarray([0, 2]), jnp.asarray([1, 1])],
        a.at[jnp.asarray([0, 5, -1])].get(mode="clip"),
        a.at[jnp.asarray([0, 5, 1])].get(mode="fill"),  # NaN for the row that there is not
        lax.dynamic_index_in_dim(a, 1, 1),
        jnp.take(a, jnp.asarray([[1], [0]]), axis=2),
        lax.gather(
            a,
            jnp.asarray([[0, 1], [1, 2]]),
            lax.GatherDimensionNumbers((0, 2), (1,), (0, 1)),
            (2, 1, 2),
        ),
    ),
    "iota": lambda a: lax.broadcasted_iota(float, (3, 4), 1) + a[..., 0],
    "pad": lambda a: (
        lax.pad(a, 7.0, ((1, 2, 0), (0, 0, 3), (2, 0, 1))),
        lax.pad(a, 7.0, ((-1, 2, 0), (0, -1, 0), (0, 0, 0))),
        lax.pad(a[:0], 7.0, ((1, 1, 2), (0, 0, 0), (0, 0, 0))),
    ),
    "reduce_and": lambda a: (a > -1).all(axis=(0, 2)),
    "reduce_max": lambda a: a.max(axis=(0, 2)),
    "reduce_min": lambda a: a.min(axis=1),
    "reduce_or": lambda a: (a > 1).any(axis=(0, 2)),
    "reduce_sum": lambda a: (a.sum(axis=(0, 2)), a[:0].sum()),
    "reshape": lambda a: a.reshape(4, 6),
    "rev": lambda a: lax.rev(a, (0, 2)),
    "scatter-add": lambda a: (
        a.at[jnp.asarray([1, 0, 1])].add(a),  # twice to one row
        a.at[:, jnp.asarray([3, 1])].add(1.5),
        a.at[jnp.asarray([0, 7])].add(2.0, mode="drop"),
        jax.grad(lambda a: (jnp.sin(a)[jnp.asarray([[1, 0], [2, 2]])] ** 2).sum())(a),
    ),
    "slice": lambda a: (lax.slice(a, (1, 0, 0), (3, 4, 1), (1, 3, 1)), a[1:, :, :1]),
    "split": lambda a: tuple(lax.split(a, (1, 2, 1), axis=1)),
    "squeeze": lambda a: jnp.squeeze(a[:1, :, :1], (0, 2)),
    "transpose": lambda a: jnp.transpose(a, (2, 0, 1)),
}


def _both_ways(function, *args):
    """The results by XLA and by NumPy, and the operations that there are."""
    closed = jax.make_jaxpr(function)(*args)
    done = []

    def recorded(eqn, operands):
        result = result_by_numpy(eqn, operands)
        done.append(eqn.primitive.name if _all_numpy(result) else None)
        return result

    leaves = jax.tree.leaves(args)
    by_xla = jax.jit(lambda leaves: evaluate(closed.jaxpr, closed.consts, leaves, bind))
    return by_xla(leaves), evaluate(closed.jaxpr, closed.consts, leaves, recorded), done


def _all_numpy(results):
    return all(isinstance(one, np.ndarray) for one in jax.tree.leaves(results))


def _same(function, *args, units):
    expected, found, done = _both_ways(function, *args)
    for one, other in zip(expected, found, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        eps = float(np.finfo(one.dtype).eps) if one.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(other, one, rtol=units * eps, atol=units * eps * 1e-30)
    return done


def test_every_operation_is_tested():
    assert {*_ENTRYWISE, *_ON_ARRAYS, "scatter_add"} == {*ENTRYWISE, *REDUCTIONS, *ON_ARRAYS}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", _ENTRYWISE)
def test_entries_are_those_of_xla(name, dtype):
    function = _ENTRYWISE[name]
    operands = [_VALUES.astype(dtype), _VALUES[::-1].astype(dtype) + dtype(0.125)]
    if name in ("cos", "sin"):
        operands[0] = np.clip(operands[0], -1e3, 1e3)
    assert name in _same(function, *operands[: 2 if name in _OF_TWO else 1], units=8)


@pytest.mark.parametrize("name", _ON_ARRAYS)
def test_arrays_are_those_of_xla(name):
    assert name in _same(_ON_ARRAYS[name], jax.device_put(_ARRAY), units=30)


@given(st.data())
def test_products_over_any_axes_are_those_of_xla(data):
    """Each letter is an axis; what both have is summed or goes along."""
    letters = st.permutations("abcdef")
    left = "".join(data.draw(letters)[: data.draw(st.integers(1, 4))])
    right = "".join(data.draw(letters)[: data.draw(st.integers(1, 4))])
    kept = "".join(c for c in sorted({*left, *right}) if data.draw(st.booleans()))
    sizes = dict(zip("abcdef", (1, 2, 3, 4, 2, 3), strict=True))
    rng = np.random.default_rng(0)
    a, b = (jax.device_put(rng.standard_normal([sizes[c] for c in word])) for word in (left, right))
    _same(lambda a, b: jnp.einsum(f"{left},{right}->{kept}", a, b), a, b, units=1000)


@given(st.data())
def test_convolutions_are_those_of_xla(data):
    """Of one or two axes, with any strides, padding (negative too), dilations, groups and order."""
    draw, axes = data.draw, data.draw(st.integers(1, 2))
    few, many = st.integers(1, 2), st.integers(2, 6)
    groups, batches = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    inputs, outputs, n = draw(few), groups * batches * draw(few), batches * draw(few)
    lhs = (n, groups * inputs, *(draw(many) for _ in range(axes)))
    rhs = (outputs, inputs, *(draw(st.integers(1, 3)) for _ in range(axes)))
    orders = [draw(st.permutations(range(axes + 2))) for _ in range(3)]
    rng = np.random.default_rng(0)
    a, b = (
        jax.device_put(rng.standard_normal(shape).transpose(order))
        for shape, order in zip((lhs, rhs), orders, strict=False)
    )
    specs = [tuple(np.argsort(order).tolist()) for order in orders]
    options = {
        "window_strides": [draw(few) for _ in range(axes)],
        "padding": [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(axes)],
        "lhs_dilation": [draw(few) for _ in range(axes)],
        "rhs_dilation": [draw(few) for _ in range(axes)],
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
        "feature_group_count": groups,
        "batch_group_count": batches,
    }
    expected, actual, done = _both_ways(
        lambda a, b: lax.conv_general_dilated(a, b, **options), a, b
    )
    assert done == ["conv_general_dilated"]
    assert actual[0].shape == expected[0].shape
    np.testing.assert_allclose(actual[0], expected[0], rtol=0, atol=1e-13)  # at most 18 terms


@pytest.mark.parametrize(
    "function",
    [
        lambda a: jnp.sin(a.astype(jnp.bfloat16)),
        lambda a: jnp.asarray([2, 3]) // 2 + a[:1].astype(int).sum(),
        lambda a: a[:0].sum(axis=1).max(initial=-1.0),
        lambda a: jnp.asarray([[2, 3]]) @ jnp.asarray([[4], [5]]) + a[0, 0].astype(int),
        lambda a: jnp.sort(a),
        lambda a: jnp.take_along_axis(a, jnp.asarray([[1], [0], [1], [0]]), axis=1),
    ],
)
def test_what_numpy_does_otherwise_goes_to_xla(function):
    assert None in _same(function, jax.device_put(_ARRAY[0]), units=4)


@pytest.mark.parametrize("name", ["attention", "linen, tied"])
def test_the_rounding_of_a_small_network_is_measured_without_a_program_of_it(name, caplog):
    """What NumPy has not, such as a gather, is compiled as a single operation."""
    model, x = CASES[name]()
    net = network(model, x)
    vectors, batches = [_RNG.standard_normal(net.parameters)], list(sample_batches(net, net.target))
    with jax.log_compiles(), caplog.at_level("DEBUG", logger="jax"):
        found = list(products_and_changes(Partial(_forward, net), _RNG, vectors, batches))
    assert np.isfinite(found[0][1]).all()
    compiled = [r.getMessage() for r in caplog.records if "XLA compilation of" in r.getMessage()]
    assert not [message for message in compiled if "_forward" in message or "_of_each" in message]
    assert len(compiled) <= 6, compiled


def _forward(net, v, x, target):
    return forward(net, x, target, v)
