"""The class: an operator around another one that forgets a fact, or passes it on unscaled.

Every field of :class:`gnjax.operators.Facts` is compared here with that of the operator inside, or
it stands in ``STAYS`` with the reason.
"""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.numerics.certificate import MEASURED, Error
from gnjax.numerics.rank_bound import RankBound
from gnjax.operators import facts
from gnjax.operators.factorisation import Factorisation
from gnjax.operators.scaled import Scaled

ENTRIES = np.array([4.0, 1.0, 0.25, 0.0])
RANGE = ENTRIES[:3]
EVIDENCE = Error(0.0, MEASURED, reason="a trial")
STAYS = {
    "methods": "they compute from the operator that states them, in its own units",
    "in_float32": "numbers of this scale may have no room in float32",
    "in_float64": "no product of a scaled operator is made in another precision",
}
DEVICES = ("first", "second")
NETWORK = SimpleNamespace()


class Stating:
    """diag(entries), which states every fact there is; also A = B + 0 I."""

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = np.asarray(entries)
        self.shape, self.dtype = (len(entries),) * 2, jnp.dtype(float)

    def mv(self, v):
        return (self.entries * v.T).T

    def as_matrix(self):
        return jnp.diag(self.entries)

    def facts(self):
        root, least = np.diag(np.sqrt(self.entries)), self.entries.min()
        return gnjax.operators.Facts(
            error=lambda norm: Error(1e-10 * norm),
            rank=lambda: RankBound(int(np.count_nonzero(self.entries)), EVIDENCE),
            assumed=True,
            symmetric=EVIDENCE,
            positive=EVIDENCE,
            factor=lambda: Factorisation(root.shape, lambda: root, lambda: Error(1e-12)),
            twin=lambda: Stating(self.entries[self.entries != 0]),
            unshifted=(Stating(self.entries - least), float(least)),
            scaled=lambda factor: Stating(factor * self.entries),
            on_range=lambda: Stating(self.entries[self.entries != 0]),
            methods=(SimpleNamespace(name="own"),),
            eigenvalues=lambda: (self.entries, Error(1e-11)),
            trace=lambda: (float(self.entries.sum()), Error(1e-11)),
            forms_cheaply=True,
            formed_by_products=False,
            forming_work=lambda: 17.0,
            magnitude=lambda: int(np.frexp(np.abs(self.entries).max())[1]),
            uneven=lambda: True,
            times_power_of_two=lambda exponent: Stating(np.ldexp(self.entries, exponent)),
            product=lambda: lambda v: (self.entries * np.asarray(v).T).T,
            in_float32=lambda: None,
            in_float64=lambda: None,
            devices=lambda: DEVICES,
            network=NETWORK,
        )


@pytest.fixture(params=[-40, 0, 40, 600, -600])
def exponent(request):
    return request.param


@pytest.fixture
def pair(exponent):
    """2^e A as a wrapped operator, and 1 as large as its entries should be."""
    return Scaled(Stating(ENTRIES), exponent), float(np.ldexp(1.0, exponent))


def matrix(op):
    return np.diagonal(np.asarray(op.as_matrix()))


def _assert_operator(op, entries, unit):
    np.testing.assert_allclose(matrix(op) / unit, entries, rtol=1e-14, atol=1e-14)


def _same(fact):
    """The same value, or a function that returns the same one."""

    def check(op, unit):
        outside, inside = (getattr(each.facts(), fact) for each in (op, Stating(ENTRIES)))
        assert inside not in (None, False) or fact == "formed_by_products"
        assert (outside() == inside()) if callable(inside) else (outside == inside)

    return check


def _error(op, unit):
    stated = facts.error_of(op, 4.0 * unit)
    assert stated.value / unit >= 4e-10
    assert stated.value / unit <= 1e-9


def _factor(op, unit):
    known = op.facts().factor()
    np.testing.assert_allclose((known.form() / unit**0.5) ** 2, np.diag(ENTRIES), atol=1e-14)
    assert known.error().value / unit**0.5 >= 1e-12


def _unshifted(op, unit):
    base, shift = Scaled(Stating(ENTRIES + 1.0), op.exponent).facts().unshifted
    assert shift / unit == 1.0
    _assert_operator(base, ENTRIES, unit)


def _eigenvalues(op, unit):
    values, error = op.facts().eigenvalues()
    np.testing.assert_array_equal(values / unit, ENTRIES)
    assert error.value / unit >= 1e-11


def _trace(op, unit):
    value, error = op.facts().trace()
    assert value / unit == ENTRIES.sum()
    assert 1e-11 <= error.value / unit <= 1.1e-11


def _product(op, unit):
    np.testing.assert_allclose(np.asarray(op.facts().product()(np.ones(4))) / unit, ENTRIES)


def _magnitude(op, unit):
    np.testing.assert_equal(np.ldexp(1.0, op.facts().magnitude()) / unit, 8.0)


PASSED_ON = {
    **{
        fact: _same(fact)
        for fact in (
            "rank", "assumed", "symmetric", "positive", "forms_cheaply", "formed_by_products",
            "forming_work", "uneven", "devices", "network",
        )
    },
    "error": _error,
    "factor": _factor,
    "unshifted": _unshifted,
    "twin": lambda op, unit: _assert_operator(op.facts().twin(), RANGE, unit),
    "scaled": lambda op, unit: _assert_operator(op.facts().scaled(3.0), 3 * ENTRIES, unit),
    "on_range": lambda op, unit: _assert_operator(op.facts().on_range(), RANGE, unit),
    "eigenvalues": _eigenvalues,
    "trace": _trace,
    "magnitude": _magnitude,
    "times_power_of_two": lambda op, unit: _assert_operator(
        op.facts().times_power_of_two(-20), np.ldexp(ENTRIES, -20), unit
    ),
    "product": _product,
}  # fmt: skip


def test_every_fact_is_checked_here() -> None:
    """And the operator inside states every one, so that what is forgotten shows."""
    names = {field.name for field in fields(gnjax.operators.Facts)}
    assert names == {*PASSED_ON, *STAYS}
    stated, unstated = Stating(ENTRIES).facts(), gnjax.operators.Facts()
    assert all(getattr(stated, name) != getattr(unstated, name) for name in names)


@pytest.mark.parametrize("fact", PASSED_ON)
def test_a_fact_of_the_operator_inside_is_passed_on(fact, pair) -> None:
    PASSED_ON[fact](*pair)


def test_facts_that_stay_are_not_there() -> None:
    stated = Scaled(Stating(ENTRIES), 40).facts()
    assert not any(getattr(stated, name) for name in STAYS)


class Bare:
    shape, dtype = (2, 2), jnp.dtype(float)

    def mv(self, v):
        return v

    def as_matrix(self):
        return jnp.eye(2)


def test_what_is_not_stated_inside_is_not_stated_outside() -> None:
    op = Scaled(Bare(), 40)
    assert facts.forming_work(op) == 0
    assert facts.on_range(op) is facts.twin_of(op) is op
    assert facts.scaled(op, 2.0) is None
    assert op.facts().eigenvalues is op.facts().trace is None
    np.testing.assert_allclose(gnjax.trace(op).value, 2.0**41)


def test_facts_as_attributes_are_refused_and_not_forgotten() -> None:
    """They were stated so before there was a record; answers without them are uncertified."""

    class Before(Bare):
        symmetric, error = True, 0.0

    for op in (Before(), gnjax.dense(np.eye(2)) + Before()):
        with pytest.raises(ValueError, match=r"Before has the attribute error.*\.Facts\("):
            gnjax.condition_number(op)
