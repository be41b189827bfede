"""Results that are exact are not moved: beside fractions, and in networks that count with floats.

Class of faults: a float that is an exact integer becomes an index, a length or a decision, and
perturbed rounding moves 3.0 to 2.999.., which is another network: nothing can be told from zero.
Or a result that is rounded counts as exact, and an error is too small.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.rounding.exact import exact_entries, is_exact_sum
from tests.references import jacobian

RNG = np.random.default_rng(0)
FORMATS = (jnp.float64, jnp.float32, jnp.bfloat16)


def _numbers(rng: np.random.Generator, dtype: Any, count: int) -> np.ndarray:
    """Integers, halves, powers of two, short and long numbers of either sign, in a format."""
    kinds = (
        rng.integers(-20, 20, count),
        rng.integers(-40, 40, count) / 4,
        2.0 ** rng.integers(-30, 30, count),
        rng.integers(1, 2**20, count) * 1.0,
        rng.standard_normal(count),
        rng.standard_normal(count).astype(np.float32),
    )
    return np.choose(rng.integers(0, len(kinds), count), kinds).astype(dtype)


def _fraction(x: Any) -> Fraction:
    return Fraction(float(x))


BINARY = {
    jax.lax.add: lambda a, b: a + b,
    jax.lax.sub: lambda a, b: a - b,
    jax.lax.mul: lambda a, b: a * b,
    jax.lax.div: lambda a, b: a / b if b else None,
}
UNARY = {
    jax.lax.square: lambda a, q: a * a == q,
    jax.lax.sqrt: lambda a, q: q * q == a,
    (lambda a: jax.lax.integer_pow(a, 3)): lambda a, q: a**3 == q,
    (lambda a: jax.lax.integer_pow(a, -1)): lambda a, q: a * q == 1,
    (lambda a: a.astype(jnp.float16)): lambda a, q: a == q,
    (lambda a: jax.lax.reduce_precision(a, 8, 5)): lambda a, q: a == q,
}


def _found(function: Any, *operands: np.ndarray) -> tuple[np.ndarray, Any]:
    """The results of one equation, and which of them are known to be exact."""
    (eqn,) = jax.make_jaxpr(function)(*operands).eqns
    result = np.asarray(function(*map(jnp.asarray, operands)))
    return result, exact_entries(eqn, operands, result)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("place", range(len(BINARY)))
def test_what_counts_as_exact_is_the_exact_fraction(place: int, dtype: Any) -> None:
    function, exact = list(BINARY.items())[place]
    a, b = (_numbers(np.random.default_rng([place, side]), dtype, 2000) for side in range(2))
    result, mask = _found(function, a, b)
    short = 0
    for x, y, z, seen in zip(a, b, result, mask, strict=True):
        true = exact(_fraction(x), _fraction(y))
        equal = np.isfinite(z) and true is not None and true == _fraction(z)
        assert equal or not seen
        small = equal and 0 < abs(z) < 30 and float(z) * 4 == round(float(z) * 4)
        assert seen or not small  # all short ones are known
        short += small
    assert short > 50


@pytest.mark.parametrize("dtype", FORMATS[:2])
@pytest.mark.parametrize("place", range(len(UNARY)))
def test_functions_of_one_number(place: int, dtype: Any) -> None:
    function, exact = list(UNARY.items())[place]
    a = abs(_numbers(np.random.default_rng(place), dtype, 1000))
    a = a[a > 0]
    result, mask = _found(function, a)
    wrong = [
        (x, z)
        for x, z, seen in zip(a, result, mask if mask is not None else a < 0, strict=True)
        if seen and not (np.isfinite(z) and exact(_fraction(x), _fraction(z)))
    ]
    assert wrong == []
    if place != 3:  # of a negative power none is known
        assert mask.sum() > 50


def test_integers_of_a_wide_type_are_exact_where_they_come_back() -> None:
    integers = np.array([1, 2**24, 2**24 + 1, 2**31 - 1, 3 * 2**26])
    _, mask = _found(lambda i: i.astype(jnp.float32), integers)
    np.testing.assert_array_equal(mask, [True, True, False, False, True])


@pytest.mark.parametrize("dtype", FORMATS)
def test_sums_are_exact_up_to_the_digits_of_their_format(dtype: Any) -> None:
    digits = jnp.finfo(dtype).nmant + 1
    ones, quarters = np.ones(7, dtype), np.full(7, 0.25, dtype)
    assert is_exact_sum([[ones]], 2**digits - 1, dtype)
    assert not is_exact_sum([[ones]], 2**digits, dtype)
    assert is_exact_sum([[ones], [quarters]], 2**digits - 1, dtype)
    assert is_exact_sum([[np.zeros(7, dtype)]], 9, dtype)
    assert not is_exact_sum([[ones, quarters]], 2 ** (digits - 1), dtype)  # 1/4 + 2^(digits - 1)
    assert not is_exact_sum([[RNG.standard_normal(7).astype(dtype)]], 2**4, dtype)
    assert not is_exact_sum([[np.array([1.0, np.inf], dtype)]], 2, dtype)


N, LENGTH, WIDTH = 6, 5, 3


def _array(*shape: int, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def _last_token() -> tuple[Any, Any, np.ndarray]:
    """The last token before the padding, its place counted in floats."""
    lengths = np.arange(N)[:, None] % LENGTH + 1
    mask = np.arange(LENGTH)[None] < lengths
    x = np.concatenate([_array(N, LENGTH, WIDTH), mask[..., None]], axis=-1)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x[..., :WIDTH] @ p["in"])
        last = x[..., WIDTH].sum(axis=1).astype(int) - 1
        return hidden[jnp.arange(len(x)), last] @ p["out"]

    return apply, {"in": _array(WIDTH, 4), "out": _array(4, 2)}, x


def _table() -> tuple[Any, Any, np.ndarray]:
    """A row of a table for a feature on a grid, cut to an integer."""
    x = np.concatenate([np.arange(N)[:, None] % 4 / 4, _array(N, 2)], axis=1)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(p["table"][(x[:, 0] * 4).astype(int)] + x[:, 1:] @ p["in"]) @ p["out"]

    return apply, {"table": _array(4, 5), "in": _array(2, 5), "out": _array(5, 1)}, x


def _rounded() -> tuple[Any, Any, np.ndarray]:
    """A feature on a grid, rounded to a coarser grid: half of the numbers are ties."""
    x = np.concatenate([np.arange(N)[:, None] / 4, _array(N, 2)], axis=1)

    def apply(p: Any, x: jax.Array) -> jax.Array:
        coarse = jnp.round(x[:, :1] * 2) / 2
        return jnp.tanh(jnp.concatenate([coarse, x[:, 1:]], axis=1) @ p["in"]) @ p["out"]

    return apply, {"in": _array(3, 5), "out": _array(5, 1)}, x


def _experts() -> tuple[Any, Any, np.ndarray]:
    """A mixture of experts of two places each, taken by a sum of floats along the tokens."""

    def of_one(p: Any, tokens: jax.Array) -> jax.Array:
        chances = jax.nn.softmax(tokens @ p["router"])
        chosen = jax.nn.one_hot(jnp.argmax(chances, axis=-1), 3, dtype=tokens.dtype)
        places = jnp.cumsum(chosen, axis=0) * chosen
        kept = (places <= 2.0) * chosen
        at = jax.nn.one_hot((places.sum(axis=-1) - 1).astype(int), 2, dtype=tokens.dtype)
        sent = kept[..., None] * at[:, None, :]
        worked = jnp.tanh(jnp.einsum("tec,td,edk->eck", sent, tokens, p["experts"]))
        weight = (chances * chosen).sum(axis=-1)
        return jnp.einsum("tec,eck,t->k", sent, worked, weight)

    return (
        lambda p, x: jax.vmap(of_one, (None, 0))(p, x),
        {"router": _array(WIDTH, 3), "experts": _array(3, WIDTH, 2)},
        np.asarray(_array(N, LENGTH, WIDTH)),
    )


@pytest.mark.parametrize("case", [_last_token, _table, _rounded, _experts])
def test_networks_that_count_in_floats_are_resolved(case: Any) -> None:
    """kappa by singular values of JAX's own Jacobian, at the rank that the answer states."""
    apply, params, x = case()
    found = gnjax.condition_number(gnjax.ntk((apply, params), x))
    values = np.linalg.svd(jacobian(apply, params, x), compute_uv=False) ** 2
    assert found.resolved
    assert found.interval[1] - found.interval[0] < 1e-6 * found.value
    np.testing.assert_allclose(found.value, values[0] / values[found.rank - 1], rtol=1e-9)
