"""Results of floating point operations that are exact, which no rounding can move.

A floating number is an integer times a power of two, its unit: 12 is 3 times 4, and has the unit 4.
The exact result of a sum, a product or a quotient fits into a format with d binary digits, and is
not rounded, where it is less than 2^d times a power of two that divides it. So a count of ones, a
position times 4, or a sum of integers below 2^d is exact, whatever the order of its terms.

A network that takes such a number for an index, a length or a comparison would be another one if
the number moved: 3 would become 2.999.., and the index 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import on_cpu

_DIGITS = 53  # binary digits of a float64
_OF_ZERO = 4096  # the exponent of the unit of zero, of which every power of two is a divisor
_LAST_BITS = {8: 0xFFFF, 4: 0xF}  # by bytes of a format, those that are looked at first
_FEW = 64  # entries of a long sum that are looked at first
_MOST = 2**20  # entries of an array on an accelerator that are fetched


def exact_entries(eqn: Any, operands: Sequence[Any], result: Any) -> Any:
    """A mask of entries of ``result`` that are exact for these ``operands``; None if none is known.

    ``result`` is that of an equation that works entry by entry. A zero counts as inexact: nothing
    that is relative moves it.
    """
    rule = _ENTRYWISE.get(eqn.primitive.name)
    if rule is None or not _is_real(result) or not all(map(_is_real, operands)):
        return None
    array = np.asarray(result)
    places = _places_of_few_digits(array)
    if not places.size:
        return None
    some = [np.broadcast_to(np.asarray(o), array.shape).reshape(-1)[places] for o in operands]
    mask = np.zeros(array.size, bool)
    with np.errstate(all="ignore"):  # what is not finite is no exact number
        mask[places] = rule(eqn.params, array.reshape(-1)[places], *some)
    return mask.reshape(array.shape)


def is_exact_sum(factors: Sequence[Sequence[Any]], terms: int, dtype: Any) -> bool:
    """Whether sums of so many ``terms`` are exact in a format, in whatever order they are added.

    Each term is a product of one entry of each factor, and a factor is one array or several. With
    the units u and the largest entries m of the factors all terms, and all sums of them, are
    multiples of the product of the u, and exact if ``terms`` times the product of the m is less
    than 2^d times that.
    """
    if not all(_has_few_digits(array) for factor in factors for array in factor):
        return False
    unit, largest = 0, float(max(terms, 1))
    for factor in factors:
        flat = np.concatenate([np.asarray(array).reshape(-1) for array in factor])
        numbers = flat[flat != 0].astype(np.float64)
        if not np.isfinite(numbers).all():
            return False
        if numbers.size:
            unit += int(_unit(numbers).min())
            largest *= float(abs(numbers).max())
    return bool(_fits(largest, unit, dtype))


def _is_real(value: Any) -> bool:
    """Whether a value is an array of real numbers that is, or soon can be, in host memory."""
    dtype = value.dtype
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        return False
    return on_cpu(value) or value.size <= _MOST


def _has_few_digits(value: Any) -> bool:
    """Whether a value is an array of real numbers, with few digits in some places."""
    if not _is_real(value):
        return False
    flat = np.asarray(value).reshape(-1)
    some = flat[:: max(flat.size // _FEW, 1)]
    return _places_of_few_digits(some).size == np.count_nonzero(some)


def _places_of_few_digits(array: np.ndarray) -> np.ndarray:
    """The places of entries, not zero, whose last binary digits are zero; it takes little time.

    In float64 they have at most 37 digits of 53, in float32 20 of 24. Of narrower formats all
    entries count.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    size = flat.dtype.itemsize
    if flat.dtype.kind != "f" or size not in _LAST_BITS:
        return np.flatnonzero(flat)
    last_quarters = flat.view(f"u{size // 4}")[::4]
    few = np.flatnonzero(last_quarters & _LAST_BITS[size] == 0)
    return few[flat[few] != 0]


def _unit(numbers: np.ndarray) -> np.ndarray:
    """The exponent of the largest power of two that divides each number, a float64."""
    fractions, exponents = np.frexp(numbers)
    integers = np.ldexp(fractions, _DIGITS).astype(np.int64)
    lowest_bits = (integers & -integers).astype(np.float64)
    return np.where(numbers == 0, _OF_ZERO, exponents - _DIGITS - 1 + np.frexp(lowest_bits)[1])


def _fits(number: Any, unit: Any, dtype: Any) -> Any:
    """Whether a multiple of 2^unit, as this number is, is below 2^d times that, and so exact."""
    return np.abs(number) < np.ldexp(1.0, np.minimum(unit + jnp.finfo(dtype).nmant + 1, 1023))


_Numbers = np.ndarray
_Rule = Callable[..., Any]
"""(the parameters of an equation, results in their format, operands) to whether they are exact."""


def _sum(params: Any, results: _Numbers, a: _Numbers, b: _Numbers) -> Any:
    """Whether a + b or a - b is exact."""
    return _fits(results, np.minimum(_unit(a), _unit(b)), results.dtype)


def _product(params: Any, results: _Numbers, a: _Numbers, b: _Numbers) -> Any:
    """Whether a b is exact."""
    return _fits(results, _unit(a) + _unit(b), results.dtype)


def _power(params: Any, results: _Numbers, a: _Numbers) -> Any:
    """Whether a^y is exact, for an integer y; a square has no such parameter."""
    y = params.get("y", 2)
    return _fits(results, y * _unit(a), results.dtype) & (y > 0)


def _quotient(params: Any, results: _Numbers, a: _Numbers, b: _Numbers) -> Any:
    """Whether q = a / b is exact: then q b is, too, and is a."""
    q = results.astype(np.float64)
    return _fits(a, _unit(q) + _unit(b), results.dtype) & (q * b.astype(np.float64) == a)


def _root(params: Any, results: _Numbers, a: _Numbers) -> Any:
    """Whether the root of a is exact."""
    q = results.astype(np.float64)
    return _fits(a, 2 * _unit(q), results.dtype) & (q * q == a)


def _conversion(params: Any, results: _Numbers, a: _Numbers) -> Any:
    """Whether a number is the same in its new format: it is, if it comes back from there."""
    return results.astype(a.dtype) == a


_ENTRYWISE: dict[str, _Rule] = {
    "add": _sum,
    "add_any": _sum,
    "convert_element_type": _conversion,
    "div": _quotient,
    "integer_pow": _power,
    "mul": _product,
    "reduce_precision": _conversion,
    "sqrt": _root,
    "square": _power,
    "sub": _sum,
}
