"""Records that take the fields they share with another one from it."""

from dataclasses import dataclass

import pytest

from sweeps.grid import copy_fields


@dataclass(frozen=True)
class _Config:
    width: int
    seeds: int
    rate: float


@dataclass(frozen=True)
class _Cell:
    width: int
    seed: int
    rate: float = 0.5
    steps: int = 7


def test_shared_fields_are_copied_and_given_ones_win():
    cell = copy_fields(_Cell, _Config(3, 2, 0.1), seed=1)
    assert cell == _Cell(width=3, seed=1, rate=0.1, steps=7)
    assert copy_fields(_Cell, _Config(3, 2, 0.1), seed=1, rate=0.2).rate == 0.2


def test_a_field_that_nobody_gives_is_missing():
    with pytest.raises(TypeError, match="seed"):
        copy_fields(_Cell, _Config(3, 2, 0.1))
