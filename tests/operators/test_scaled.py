"""The class: an operator around another one that forgets a fact, or passes it on unscaled.

Every fact that the list of :mod:`gnjax.operators.facts` names is compared here with that of the
operator inside, or it stands in ``STAYS`` with the reason.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.numerics.certificate import MEASURED, Error
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


class Stating:
    """diag(entries), which states every fact of the protocol; also A = B + 0 I."""

    symmetric = positive = forms_cheaply = formed_by_products = assumed = uneven = True
    forming_work = 17.0
    devices = DEVICES

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = np.asarray(entries)
        self.shape, self.dtype = (len(entries),) * 2, jnp.dtype(float)
        self.rank_bound = int(np.count_nonzero(entries))
        self.magnitude = int(np.frexp(np.abs(entries).max())[1])

    def mv(self, v):
        return (self.entries * v.T).T

    def as_matrix(self):
        return jnp.diag(self.entries)

    def error(self, norm):
        return Error(1e-10 * norm)

    def factorisation(self):
        root = np.diag(np.sqrt(self.entries))
        return Factorisation(root.shape, lambda: root, lambda: Error(1e-12))

    @property
    def unshifted(self):
        return Stating(self.entries - self.entries.min()), float(self.entries.min())

    @property
    def twin(self):
        return Stating(self.entries[self.entries != 0])

    def scaled(self, factor):
        return Stating(factor * self.entries)

    def on_range(self):
        return self.twin

    def methods(self):
        return (SimpleNamespace(name="own"),)

    def eigenvalues_by_structure(self):
        return self.entries, Error(1e-11)

    def trace_by_structure(self):
        return float(self.entries.sum()), Error(1e-11)

    def times_power_of_two(self, exponent):
        return Stating(np.ldexp(self.entries, exponent))

    def prepared(self):
        return lambda v: (self.entries * np.asarray(v).T).T

    def in_float32(self):
        return None

    def in_float64(self):
        return None

    def evidence_for(self, fact):
        return EVIDENCE


def names() -> set[str]:
    """The facts of the list in the documentation of the protocol."""
    return set(re.findall(r"^- ``(\w+)", facts.__doc__ or "", re.MULTILINE))


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
    def check(op, unit):
        assert getattr(op, fact) == getattr(Stating(ENTRIES), fact)

    return check


def _error(op, unit):
    stated = facts.error_of(op, 4.0 * unit)
    assert stated.value / unit >= 4e-10
    assert stated.value / unit <= 1e-9


def _factorisation(op, unit):
    known = op.factorisation()
    np.testing.assert_allclose((known.form() / unit**0.5) ** 2, np.diag(ENTRIES), atol=1e-14)
    assert known.error().value / unit**0.5 >= 1e-12


def _unshifted(op, unit):
    shifted = Scaled(Stating(ENTRIES + 1.0), op.exponent)
    base, shift = shifted.unshifted
    assert shift / unit == 1.0
    _assert_operator(base, ENTRIES, unit)


def _scaled(op, unit):
    _assert_operator(op.scaled(3.0), 3 * ENTRIES, unit)


def _stated_values(op, unit):
    values, error = op.eigenvalues_by_structure()
    np.testing.assert_array_equal(values / unit, ENTRIES)
    assert error.value / unit >= 1e-11


def _stated_trace(op, unit):
    value, error = op.trace_by_structure()
    assert value / unit == ENTRIES.sum()
    assert 1e-11 <= error.value / unit <= 1.1e-11


def _prepared(op, unit):
    np.testing.assert_allclose(np.asarray(op.prepared()(np.ones(4))) / unit, ENTRIES)


def _evidence(op, unit):
    assert {op.evidence_for(name) for name in facts.STATED} == {EVIDENCE}


PASSED_ON = {
    **{
        fact: _same(fact)
        for fact in (
            "symmetric", "positive", "forms_cheaply", "formed_by_products", "assumed", "uneven",
            "forming_work", "rank_bound", "devices",
        )
    },
    "error": _error,
    "factorisation": _factorisation,
    "unshifted": _unshifted,
    "twin": lambda op, unit: _assert_operator(op.twin, RANGE, unit),
    "scaled": _scaled,
    "on_range": lambda op, unit: _assert_operator(op.on_range(), RANGE, unit),
    "eigenvalues_by_structure": _stated_values,
    "trace_by_structure": _stated_trace,
    "magnitude": lambda op, unit: np.testing.assert_equal(np.ldexp(1.0, op.magnitude) / unit, 8.0),
    "times_power_of_two": lambda op, unit: _assert_operator(
        op.times_power_of_two(-20), np.ldexp(ENTRIES, -20), unit
    ),
    "prepared": _prepared,
    "evidence_for": _evidence,
}  # fmt: skip


def test_every_fact_of_the_protocol_is_checked_here() -> None:
    assert names() == {*PASSED_ON, *STAYS}
    assert all(hasattr(Stating(ENTRIES), name) for name in names())


@pytest.mark.parametrize("fact", PASSED_ON)
def test_a_fact_of_the_operator_inside_is_passed_on(fact, pair) -> None:
    PASSED_ON[fact](*pair)


def test_facts_that_stay_are_not_there() -> None:
    assert not any(facts.methods_of(Scaled(Stating(ENTRIES), 40)))
    assert not any(hasattr(Scaled(Stating(ENTRIES), 40), name) for name in STAYS)


def test_what_is_not_stated_inside_is_not_stated_outside() -> None:
    class Bare:
        shape, dtype = (2, 2), jnp.dtype(float)

        def mv(self, v):
            return v

        def as_matrix(self):
            return jnp.eye(2)

    op = Scaled(Bare(), 40)
    assert facts.forming_work(op) == 0
    assert facts.on_range(op) is op
    assert facts.scaled(op, 2.0) is None
    assert facts.stated_eigenvalues(op) is None
    assert op.trace_by_structure is None
    np.testing.assert_allclose(gnjax.trace(op).value, 2.0**41)
