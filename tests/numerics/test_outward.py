"""Bounds that may not be too small, against many digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from gnjax import papers
from gnjax.numerics import outward
from gnjax.numerics.precision import x64
from gnjax.operators.facts import error_of, rank_of
from gnjax.papers.kronecker.operator import product_rounding
from tests.precision import single_precision

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")


def _norm(entries):
    return mpmath.sqrt(sum(mpmath.mpf(float(x)) ** 2 for x in np.ravel(entries)))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float32, scale) for scale in (-30, 0, 30)]
    + [(np.float64, scale) for scale in (-250, -100, 0, 100, 250)],
)
def test_frobenius_norms_are_upper_bounds(dtype, scale):
    """Squares of 1e-30 and of 1e30 are not float32 numbers, those of 1e250 not float64 ones."""
    rng = np.random.default_rng(0)
    for shape in 20 * [(1, 1), (1, 8), (8, 1), (5, 3), (7, 8)]:
        matrix = (rng.standard_normal(shape) * 10.0 ** (scale + rng.uniform(-3, 3, shape))).astype(
            dtype
        )
        bound = outward.frobenius_norm(jax.device_put(matrix))
        with mpmath.workdps(40):
            exact = _norm(matrix)
            assert exact <= bound <= exact * (1 + 2.0**-39 + 50 * np.finfo(dtype).eps)
    assert outward.frobenius_norm(jax.device_put(np.zeros((2, 2)))) == 0


def test_stored_bounds_are_not_below_the_bound():
    rng = np.random.default_rng(0)
    bounds = 10.0 ** rng.uniform(-50, 45, 500)
    stored = np.asarray(outward.stored_bound(list(bounds), jnp.dtype(jnp.float32)), np.float64)
    assert (stored >= bounds).all()
    assert float(outward.stored_bound(0.0, jnp.dtype(jnp.float32))) == 0


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.longdouble, np.int64, np.uint64])
def test_conversions_are_within_their_error(single, kind):
    rng = np.random.default_rng(1)
    for _ in range(50):
        given = (rng.standard_normal((3, 4)) * 10.0 ** rng.uniform(-5, 15, (3, 4))).astype(kind)
        if np.dtype(kind).kind == "u":
            given = rng.integers(0, 2**63, (3, 4), dtype=np.uint64)
        with single_precision() if single else x64():
            stored = jax.device_put(np.asarray(given, float))
            bound = outward.conversion_error(given, stored)
        with mpmath.workdps(60):
            pairs = zip(given.ravel(), np.asarray(stored).ravel(), strict=True)
            gaps = [_exact(a) - mpmath.mpf(float(b)) for a, b in pairs]
            exact = mpmath.sqrt(sum(gap**2 for gap in gaps))
            assert (
                exact <= bound <= exact * 10 + np.finfo(stored.dtype).eps * np.abs(given).max() * 4
            )
        if given.dtype == stored.dtype:
            assert bound == 0


def test_what_is_lost_below_the_smallest_number_is_counted_in_every_format():
    """1e-50 has no float32 beside zero, from whatever format it is converted."""
    for kind in (np.float64, np.longdouble):
        given = np.full((2, 2), 1e-50, kind)
        with single_precision():
            stored = jax.device_put(np.asarray(given, float))
            assert outward.conversion_error(given, stored) >= 2e-50


def _exact(number):
    if isinstance(number, np.integer):
        return mpmath.mpf(int(number))
    mantissa, exponent = np.frexp(number)
    high = float(mantissa)
    return mpmath.ldexp(mpmath.mpf(high) + mpmath.mpf(float(mantissa - high)), int(exponent))


def test_small_integers_are_stored_exactly_in_single_precision():
    with single_precision():
        stored = jax.device_put(np.asarray(np.arange(12).reshape(3, 4), np.float32))
        assert outward.conversion_error(np.arange(12.0).reshape(3, 4), stored) == 0
        assert outward.conversion_error(np.arange(12).reshape(3, 4), stored) == 0


@pytest.mark.parametrize("single", [False, True])
def test_a_sum_of_kroneckers_is_within_its_error(single):
    """Of the symmetric parts of what was given, in either precision."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        sides = []
        for size in (2, 3):
            factors = rng.standard_normal((2, size, size))
            grams = factors @ factors.transpose(0, 2, 1)
            grams[1] += 1e-9 * rng.standard_normal((size, size))  # not quite symmetric
            sides.append(list(grams))
        with single_precision() if single else x64():
            op = papers.sum_of_kroneckers(*sides)
            matrix, error = np.asarray(op.as_matrix(), np.longdouble), float(op.stored_error)
            images = np.asarray(op.mv(jax.device_put(np.eye(6))), np.longdouble)
        exact = np.zeros((6, 6), np.longdouble)
        for a, b in zip(*sides, strict=True):
            a, b = (np.longdouble(m + 0) for m in (a, b))
            exact += np.kron((a + a.T) / 2, (b + b.T) / 2)
        gap = np.linalg.norm((matrix - exact).astype(float), 2)
        scale = sum(np.linalg.norm(np.kron(a, b)) for a, b in zip(*sides, strict=True))
        assert gap <= error <= 8 * np.finfo(op.dtype).eps * scale
        stated = error_of(op, 0.0)
        assert stated.kind == "proved"
        assert stated.value == error
        moved = np.linalg.norm((images - exact).astype(float), axis=0).max()
        assert moved <= error + product_rounding(op)
        assert 0 < product_rounding(op) <= 8 * np.finfo(op.dtype).eps * scale
        assert rank_of(op).value == 6
