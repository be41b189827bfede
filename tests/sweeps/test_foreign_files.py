"""No file is taken for another: copies, exchanged files and flipped bits give no false number."""

import dataclasses
import itertools
import random
import shutil

import jax.numpy as jnp
import pytest

from sweeps.launchers import work
from sweeps.storage import store as stores
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.checkpoint import load as load_checkpoint
from sweeps.storage.checkpoint import save as save_checkpoint
from sweeps.storage.store import Environment, checkpoint_path, is_damaged, load, open_store, save
from tests import toy

FLIPS = 1000
CELLS = tuple(toy.cell(depth, 0.0) for depth in range(1, 6))
ENVIRONMENT = Environment("code", {"jax": "0"}, "cpu: cpu", "float64")
OTHERS = (
    dataclasses.replace(ENVIRONMENT, precision="float32"),
    dataclasses.replace(ENVIRONMENT, code="other code"),
    dataclasses.replace(ENVIRONMENT, device="gpu: H200"),
)


def _file(store, cell):
    return store.folder / f"{stores.key(store, cell)}.json"


@pytest.fixture
def store(tmp_path):
    """A store in which every cell is finished."""
    made = open_store(tmp_path / "cells", ENVIRONMENT)
    for cell in CELLS:
        save(made, cell, toy.finished(toy.EXPERIMENT.measure_cell(cell)))
    return made


def _lost_or_right(store):
    """How many cells have no number; every number that is there is that of its own cell."""
    found = {cell: load(store, cell) for cell in CELLS}
    for cell, finished in found.items():
        assert finished is None or finished.measurement == toy.EXPERIMENT.measure_cell(cell), cell
        assert is_damaged(store, cell) == (finished is None)
    return sum(finished is None for finished in found.values())


def test_a_cell_file_under_the_key_of_another_cell_does_not_answer_for_it(store):
    """Class: a file that is whole, but is not the file of the cell that was asked for."""
    for source, target in itertools.permutations(CELLS, 2):
        whole = _file(store, target).read_bytes()
        shutil.copy(_file(store, source), _file(store, target))
        assert _lost_or_right(store) == 1
        assert load(store, target) is None
        _file(store, target).write_bytes(whole)
    assert _lost_or_right(store) == 0


@pytest.mark.parametrize("other", OTHERS)
def test_a_cell_file_of_another_environment_does_not_answer_for_this_one(store, other):
    elsewhere = dataclasses.replace(store, environment=other)
    shutil.copy(_file(store, CELLS[0]), _file(elsewhere, CELLS[0]))
    assert load(elsewhere, CELLS[0]) is None


def test_a_foreign_file_is_set_aside_and_its_cell_is_computed_once_more(tmp_path):
    store = toy.store(tmp_path)
    task = toy.task(store)
    for cell in CELLS[:2]:
        work.attempt(task, cell)
    foreign = _file(store, CELLS[1]).read_bytes()
    _file(store, CELLS[0]).write_bytes(foreign)
    assert work.attempt(task, CELLS[0]).measurement == toy.EXPERIMENT.measure_cell(CELLS[0])
    assert _file(store, CELLS[0]).with_suffix(".corrupt").read_bytes() == foreign
    assert load(store, CELLS[1]).measurement == toy.EXPERIMENT.measure_cell(CELLS[1])


def test_exchanged_files_answer_for_neither_cell(store):
    first, second = (_file(store, cell) for cell in CELLS[:2])
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    assert _lost_or_right(store) == 2


def test_the_checkpoint_of_another_cell_is_not_continued(store):
    """Class: a file that is whole, but is not the file of the cell that was asked for."""
    state = [jnp.zeros(3)]
    mine, other = (Checkpoint(checkpoint_path(store, cell)) for cell in CELLS[:2])
    save_checkpoint(other, state, [{"loss": 2.0}])
    shutil.copy(other.path, mine.path)
    assert load_checkpoint(mine, state) is None
    assert mine.path.with_suffix(".corrupt").exists()
    assert load_checkpoint(other, state)[1] == [{"loss": 2.0}]


def test_a_checkpoint_is_no_cell_file(store):
    save_checkpoint(Checkpoint(checkpoint_path(store, CELLS[0])), [jnp.zeros(3)], [{"loss": 2.0}])
    shutil.copy(checkpoint_path(store, CELLS[0]), _file(store, CELLS[0]))
    assert load(store, CELLS[0]) is None
    assert is_damaged(store, CELLS[0])


def test_no_flipped_bit_gives_a_number(store):
    """Each trial flips one to three bits of a file, and its cell has no number then."""
    chance = random.Random(0)
    for _ in range(FLIPS):
        path = _file(store, chance.choice(CELLS))
        whole = path.read_bytes()
        changed = bytearray(whole)
        for place in chance.sample(range(len(whole)), chance.randint(1, 3)):
            changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        assert _lost_or_right(store) == 1
        path.write_bytes(whole)
    assert _lost_or_right(store) == 0
