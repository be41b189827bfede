"""Operators far from norm 1, as the same operator times a power of two.

An operator may state ``magnitude`` and ``times_power_of_two`` for this. One that states neither is
multiplied with one random vector, and its products and factors are multiplied by the power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.host import on_device, on_host
from gnjax.numerics.outward import raised, underflow
from gnjax.numerics.rounding import gamma
from gnjax.numerics.scale import error_in_units, raised_power, reach, values_in_units
from gnjax.operators.factorisation import Factorisation, gram_error
from gnjax.operators.facts import (
    Facts,
    Product,
    error_of,
    factorisation_of,
    facts_of,
    is_uneven,
    magnitude_of,
    unshifted_of,
)
from gnjax.operators.prepare import devices_of, prepared_product
from gnjax.operators.protocol import Around, Operator

_Made = TypeVar("_Made")


def at_unit_scale(op: Operator) -> tuple[Operator, int]:
    """(A', e) with A = 2^e A', where A' has a norm near 1 if that of A is far from it.

    Elsewhere, and for a zero matrix, A' is the operator itself and e = 0.
    """
    size, is_known = magnitude_of(op)
    if size is None:
        return (op if is_known else Scaled(op, 0)), 0
    if abs(size) <= reach(op.dtype) and not is_uneven(op):
        return op, 0
    even = size + size % 2  # so that a factor is multiplied by a power of two as well
    return times_power_of_two(op, -even), even


def at_stated_scale(op: Operator) -> tuple[Operator, int]:
    """:func:`at_unit_scale` without a product: only where the operator states its magnitude."""
    return (op, 0) if facts_of(op).magnitude is None else at_unit_scale(op)


def times_power_of_two(op: Operator, exponent: int) -> Operator:
    """2^exponent A for an even exponent: by the numbers that A is stored in, or by its products."""
    multiply = facts_of(op).times_power_of_two
    return Scaled(op, exponent) if multiply is None else multiply(exponent)


@dataclass(frozen=True, repr=False)
class Scaled(Around):
    """2^exponent A for an even exponent and an operator A = ``op``.

    A is multiplied with 2^k v, where half of the exponent is in k. Underflow inside of A is part of
    the stated error.
    """

    op: Any
    exponent: int

    def facts(self) -> Facts:
        """Those of A in the new units, but for ``methods``, which compute from A itself.

        No product is made in another precision, where numbers of this scale may have no room.
        """
        stated, (base, shift) = facts_of(self.op), unshifted_of(self.op)
        in_units = Scaled(base, self.exponent), float(np.ldexp(shift, self.exponent))
        return replace(
            stated,
            error=self.error,
            factor=self.factorisation,
            twin=_then(stated.twin, self._like),
            unshifted=in_units if shift else None,
            scaled=_then(stated.scaled, self._like),
            on_range=_then(stated.on_range, self._like),
            methods=(),
            eigenvalues=_then(stated.eigenvalues, self._eigenvalues),
            trace=_then(stated.trace, self._trace),
            magnitude=self._magnitude,
            times_power_of_two=lambda exponent: Scaled(self.op, self.exponent + exponent),
            product=self._product,
            in_float32=None,
            in_float64=None,
            devices=lambda: devices_of(self.op),
        )

    def _like(self, op: Operator) -> Operator:
        return self if op is self.op else Scaled(op, self.exponent)

    def _magnitude(self) -> int | None:
        exponent, _ = magnitude_of(self.op)
        return None if exponent is None else exponent + self.exponent

    def _eigenvalues(self, stated: tuple[np.ndarray, Error]) -> tuple[np.ndarray, Error]:
        values, error = stated
        error_here = error_in_units(error, self.exponent) + self._underflow()
        return np.ldexp(values, self.exponent), error_here

    def _trace(self, stated: tuple[float, Error]) -> tuple[float, Error]:
        value, error = stated
        scaled_value, bound = values_in_units(np.asarray(value), error.value, self.exponent)
        return float(scaled_value), error.to(float(bound))

    def _product(self) -> Product:
        multiply = prepared_product(self.op)
        return lambda v: self._after(multiply(self._before(v)))

    def mv(self, v: jax.Array) -> jax.Array:
        return jnp.asarray(self._after(self.op.mv(self._before(v))))

    def as_matrix(self) -> jax.Array:
        """From a factor where one is known, as its product may underflow where it does not."""
        factorisation = self.factorisation()
        if factorisation is None:
            return on_device(np.ldexp(np.asarray(self.op.as_matrix()), self.exponent))
        factor = factorisation.form()
        return on_device(factor @ factor.T, self.dtype)

    def factorisation(self) -> Factorisation | None:
        """2^{e/2} J for A = J J^T, where A states it."""
        factorisation, half = factorisation_of(self.op), self.exponent // 2
        if factorisation is None:
            return None
        lost_size = underflow(1, math.prod(factorisation.shape), self.dtype)
        lost = Error(lost_size, MEASURED, reason="underflow of the factor")

        def error() -> Error:
            return error_in_units(factorisation.error() + lost, half)

        def blocks() -> Iterator[np.ndarray]:
            return (np.ldexp(on_host(part), half) for part in factorisation.parts())

        return Factorisation(
            factorisation.shape,
            lambda: np.ldexp(factorisation.form(), half),
            error,
            blocks,
            factorisation.by_rows,
        )

    def error(self, norm: float) -> Error:
        """The error that A states, and what underflows inside of its products."""
        total, factorisation = self._underflow(), self.factorisation()
        if factorisation is not None:
            share = gamma(factorisation.shape[1] + 2, self.dtype) * min(factorisation.shape)
            total += gram_error(norm, factorisation.error())
            total += Error(raised(share * abs(float(norm))), reason="rounding of J J^T")
        with np.errstate(over="ignore", under="ignore"):
            norm_of_a = float(np.ldexp(abs(float(norm)), -self.exponent))
        if factorisation is None or np.finfo(float).tiny < norm_of_a < math.inf:
            total += error_in_units(error_of(self.op, norm_of_a), self.exponent)
        return total

    @property
    def _half(self) -> int:
        """k, as far as the range of the dtype allows."""
        most = int(jnp.finfo(self.dtype).maxexp) // 2
        return max(-most, min(most, self.exponent // 2))

    def _before(self, v: Any) -> Any:
        return v * 2.0**self._half if self._half else v

    def _after(self, image: Any) -> Any:
        exponent_left = self.exponent - self._half
        return np.ldexp(np.asarray(image), exponent_left) if exponent_left else image

    def _underflow(self) -> Error:
        """What a product may lose: the smallest normal number in each sum and product inside A."""
        rows = self.shape[0]
        lost_inside = underflow(rows, rows, self.dtype)
        lost = raised_power(lost_inside, self.exponent - self._half)
        return Error(lost, MEASURED, reason="underflow inside of the products")


def _then(
    make: Callable[..., _Made] | None, change: Callable[[_Made], _Made]
) -> Callable[..., _Made] | None:
    """``change`` after ``make``; None where nothing is made."""
    return None if make is None else lambda *arguments: change(make(*arguments))
