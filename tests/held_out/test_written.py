"""A few models of the campaign as people write them, always the same; `make explore` has more."""

from __future__ import annotations

import pytest

from tests.held_out import written
from tests.held_out.verdicts import broken

SEED = 3


_SLOW = ("scan", "transformer", "narrow", "towers")


@pytest.mark.parametrize(
    "name", ["grid", *(pytest.param(n, marks=pytest.mark.slow) for n in _SLOW)]
)
def test_models_as_people_write_them_are_answered(name: str) -> None:
    rows = written.written(SEED, 1, names=(name,))
    assert sum(row.inside is True for row in rows) > len(rows) / 2
    assert broken(rows) == []
