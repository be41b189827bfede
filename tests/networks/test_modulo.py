"""Equations modulo a prime: against exact integers, and against the ranks of small matrices.

Class of faults: a rule for an equation is wrong, so that a rank is too small; a number that was
rounded to zero counts as zero; what is not algebra is taken for it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnjax.networks.null_space.modulo import Followed, NotFollowedError, Number, number
from gnjax.numerics import modular
from gnjax.numerics.modular import PRIME

_W = np.random.default_rng(0).integers(-5, 6, (4, 3)).astype(float)
_K = np.random.default_rng(1).integers(-5, 6, (2, 2, 1, 3)).astype(float)


def _convolved(x: jax.Array, **options: Any) -> jax.Array:
    image = x.reshape(1, 4, 4, 1)
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        image, jnp.asarray(_K, x.dtype), (1, 1), "SAME", dimension_numbers=numbers, **options
    )


def _scanned(x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda h, row: (h * row + 1, h - row), x[0], x, reverse=True)[1]


FUNCTIONS = {
    "sums and products": lambda x: (x * x - 3 * x + x.T) @ x - x.sum(0)[None] * x[:, :1],
    "powers": lambda x: x**3 + jnp.square(x),
    "matrices": lambda x: jnp.einsum("ij,jk,ik->ki", x, jnp.asarray(_W, x.dtype), x[:, :3]),
    "convolution": _convolved,
    "dilated convolution": lambda x: _convolved(x, rhs_dilation=(2, 1)),
    "gather": lambda x: x[jnp.array([2, 0, 0, 3])] + x[:, jnp.array([1, 1, 0, 2])],
    "scatter": lambda x: jnp.asarray(x).at[jnp.array([0, 2, 2])].add(x[:3]).at[1].set(7.0),
    "pieces": lambda x: jnp.concatenate([x[1:3, ::2], x[::-1][:2, 2:]]).reshape(-1),
    "padding": lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=4.0)[:, 1:],
    "cropping": lambda x: jax.lax.pad(x, jnp.zeros((), x.dtype), ((-1, 0, 1), (0, -2, 0))),
    "cumulated": lambda x: jnp.cumsum(x, axis=0) - jnp.cumsum(x, axis=1)[:, ::-1],
    "pooled": lambda x: jax.lax.reduce_window(
        x, np.zeros((), x.dtype), jax.lax.add, (2, 2), (1, 1), "VALID"
    ),
    "dynamic": lambda x: jax.lax.dynamic_update_slice(
        x, jax.lax.dynamic_slice(x, (x[0, 0].astype(int) % 2, 1), (2, 2)), (1, 0)
    ),
    "choices": lambda x: jnp.where(x > 1, x, -2 * x) + jnp.maximum(x, x.T) + jnp.clip(x, -2, 3),
    "signs": lambda x: jnp.abs(x) * jnp.sign(x) + x.max(1)[None] - x.min() + jnp.floor(x),
    "scan": _scanned,
    "while": lambda x: jax.lax.while_loop(lambda h: h.sum() < 1e4, lambda h: h * h + 1, x),
    "branches": lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x + 1, lambda x: 2 * x, x),
    "checkpoint": jax.checkpoint(lambda x: x * x + 1),
    "relu": lambda x: jax.nn.relu(x) + jax.nn.leaky_relu(x, 2.0),
    "jit": jax.jit(lambda x: x.T @ x),
    "at zero": lambda x: x + jnp.tanh(0 * x) + 4 * jax.nn.sigmoid(0 * x) + jnp.exp(x - x),
    "stopped": lambda x: x * jax.lax.stop_gradient(x),
    "numbers of its own": lambda x: x * jnp.arange(4, dtype=x.dtype)[None] + jnp.eye(4),
    "gather with bounds": lambda x: x.at[jnp.array([3, 1])].get(mode="fill", fill_value=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_equations_of_integers_have_the_residues_of_their_results(name: str, dtype: Any) -> None:
    """The results are exact in both formats: integers, and halves from derivatives at ties."""
    x = np.random.default_rng(3).integers(-6, 7, (4, 4)).astype(dtype)
    function = FUNCTIONS[name]

    def pulled(x: jax.Array) -> jax.Array:
        value, pullback = jax.vjp(function, x)
        return pullback(jnp.ones_like(value))[0]

    with jax.enable_x64(dtype == np.float64):
        checked = [function] if name == "while" else [function, pulled]
        for each in checked:
            exact = np.asarray(each(jnp.asarray(x)), np.float64)
            assert not (8 * exact % 1).any()
            assert np.abs(8 * exact).max() < 2.0**24 or dtype == np.float64
            np.testing.assert_array_equal(Followed(each)(x), modular.residues(exact))


@pytest.mark.parametrize("step", [jnp.sign, jnp.floor, jnp.ceil, jnp.round])
def test_a_step_that_rounding_decides_is_not_followed(step: Any) -> None:
    """3 fl(1/3) is 1 after rounding and below 1 exactly: rounding decides on which side it lies."""
    shift = {jnp.sign: -1.0, jnp.round: 0.5}.get(step, 0.0)
    x = np.full((2,), 1 / 3)
    with pytest.raises(NotFollowedError):
        Followed(lambda x: step(3 * x + shift))(x)
    assert (Followed(lambda x: step(3 * x + shift))(x + 0.1) == (step(shift + 1.2) % PRIME)).all()


def test_unknowns_keep_the_identities_that_hold_for_any_function() -> None:
    """x - mean(x) ignores a shift; the softmax adds up to one; 1 - tanh^2 is never zero."""
    x = np.random.default_rng(0).standard_normal((3, 5))
    assert not Followed(lambda x: (x + 3.0) - (x + 3.0).mean() - (x - x.mean()))(x).any()
    assert (Followed(lambda x: jax.nn.softmax(x, axis=1).sum(1))(x) == 1).all()
    assert Followed(lambda x: 1 - jnp.tanh(1e6 * x) ** 2)(x).all()
    assert Followed(lambda x: jnp.exp(-1e6 * x * x))(x).all()
    assert Followed(lambda x: (1 + 1e-30 * x) - 1)(x).all()
    assert Followed(lambda x: 1e-300 * x * 1e-300)(x).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.nn.relu(1e-300 * x * 1e-300),
        lambda x: jnp.abs(1e-300 * x * 1e-300),
        lambda x: jnp.where(1 + 1e-30 * x > 1, x, 0),
        lambda x: x.astype(jnp.float32).astype(float) ** 2,
        lambda x: jnp.fft.fft(x).real,
        lambda x: jnp.sort(x),
        lambda x: jax.lax.sort_key_val(x, jnp.arange(12).reshape(3, 4))[0],
        lambda x: jax.lax.top_k(x, 2)[0],
        lambda x: jax.lax.linalg.lu(x)[0],
        lambda x: jnp.linalg.svd(x, compute_uv=False),
        lambda x: jnp.cumprod(x, axis=1),
        lambda x: x.at[jnp.array([3, 1])].get(mode="fill", fill_value=0.5),
        lambda x: x.at[jnp.array([3, 1])].get(mode="fill", fill_value=2.0),
    ],
)
def test_what_is_no_algebra_is_not_followed(function: Any) -> None:
    with pytest.raises(NotFollowedError):
        Followed(function)(np.random.default_rng(0).standard_normal((3, 4)))


def test_what_depends_on_vectors_has_no_floating_values() -> None:
    """A comparison of what has residues alone is refused."""
    vector = Number(modular.drawn(0, 3))
    with pytest.raises(NotFollowedError):
        Followed(lambda u: jnp.where(u > 0, u, 0.0))(vector)
    assert (Followed(lambda u: 2.0 * u)(vector) == 2 * vector.known % PRIME).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8))
def test_residues_are_those_of_the_exact_fractions(numbers: list[float]) -> None:
    fractions = [Fraction(each) for each in numbers]
    expected = [f.numerator * pow(f.denominator, -1, PRIME) % PRIME for f in fractions]
    np.testing.assert_array_equal(number(np.array(numbers)).known, expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 40), st.integers(0, 10**6))
def test_ranks_are_those_of_products_of_factors(m: int, n: int, rank: int, seed: int) -> None:
    """A product of random factors has the rank of its narrowest; zeros in front change nothing."""
    product = modular.product(modular.drawn(seed, m, rank), modular.drawn(seed + 1, rank, n))
    assert modular.rank(product) == min(m, n, rank)
    padded = np.pad(product, ((1, 2), (3, 0)))
    assert modular.rank(padded) == min(m, n, rank)


def test_ranks_of_many_matrices_are_those_of_each() -> None:
    """Blocks of 1, 3 and 70 rows on the diagonal, each of the ranks 0 .. 2 or all."""
    for size, blocks in ((1, 5), (3, 4), (70, 1)):
        matrices = np.zeros((6, size * blocks, size * blocks), np.int64)
        for i in range(6):
            for b in range(blocks):
                factor = modular.drawn(10 * i + b, size, (i + b) % 3 if i else size)
                part = slice(b * size, (b + 1) * size)
                matrices[i, part, part] = modular.product(factor, factor.T)
        expected = [modular.rank(matrix) for matrix in matrices]
        assert modular.ranks(matrices).tolist() == expected
        assert expected[0] == size * blocks


def test_products_and_inverses_are_those_of_whole_numbers() -> None:
    a, b = modular.drawn(0, 5, 7), modular.drawn(1, 7, 4)
    expected = [
        [sum(int(u) * int(v) for u, v in zip(row, column, strict=True)) % PRIME for column in b.T]
        for row in a
    ]
    np.testing.assert_array_equal(modular.product(a, b), expected)
    assert (modular.inverses(a) * a % PRIME == 1).all()
    order = {pow(2, (PRIME - 1) // d, PRIME) for d in (1, 2)}
    assert order == {1, PRIME - 1}  # 2 has the order q - 1, as (q - 1) / 2 is a prime
