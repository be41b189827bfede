"""Sweeps: nothing lost, nothing computed twice, damage found, failures contained."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from gnjax.cli.machine import git_state
from gnjax.cli.terminal import Terminal
from sweeps import collect, progress
from sweeps.cell import Cell
from sweeps.launchers import launch, work
from sweeps.launchers.work import Launcher
from sweeps.storage.files import StoreError, write_atomically
from sweeps.storage.store import Finished, load, save
from tests import toy


@pytest.fixture
def store(tmp_path):
    return toy.store(tmp_path / "cells")


def test_second_run_computes_nothing_and_gives_the_same_table(tmp_path):
    config = toy.config(cells=6)
    assert len(toy.run(tmp_path, config).left) == 6
    first = (tmp_path / "table.csv").read_bytes()
    again = toy.run(tmp_path, config)
    assert len(again.left) == 0
    assert (tmp_path / "table.csv").read_bytes() == first


def test_a_larger_config_computes_only_what_is_new(tmp_path):
    toy.run(tmp_path, toy.config(cells=3))
    assert toy.depths(toy.run(tmp_path, toy.config(cells=5)).left) == [4, 5]


@pytest.mark.parametrize("first", [(3,), (5, 2), (4, 1, 3)])
def test_the_rows_are_in_the_order_of_the_cells_whatever_was_computed_before(tmp_path, first):
    """Class: what a run writes depends on what earlier runs had finished."""
    config = toy.config(cells=6)
    toy.run(tmp_path / "at once", config)
    store = toy.store(tmp_path / "in parts" / "cells")
    for depth in first:
        work.attempt(toy.task(store), toy.cell(depth, 0.0))
    toy.run(tmp_path / "in parts", config, Launcher(_backwards, lambda: "cpu: cpu"))
    tables = [(tmp_path / run / "table.csv").read_bytes() for run in ("at once", "in parts")]
    assert tables[0] == tables[1]


def _backwards(task, cells):
    """A launcher whose cells end in another order than they began."""
    return ((cell, work.attempt(task, cell)) for cell in reversed(cells))


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff\xfe", None])
def test_a_damaged_file_is_found_set_aside_and_computed_again(tmp_path, damage):
    config = toy.config(cells=3)
    toy.run(tmp_path, config)
    table = (tmp_path / "table.csv").read_bytes()
    victim = sorted((tmp_path / "cells").glob("*.json"))[0]
    victim.write_bytes(victim.read_bytes()[:-20] if damage is None else damage)
    chosen = toy.run(tmp_path, config)
    assert (len(chosen.left), chosen.damaged) == (1, 1)
    assert len(list((tmp_path / "cells").glob("*.corrupt"))) == 1
    assert (tmp_path / "table.csv").read_bytes() == table


def test_one_changed_digit_is_damage(store):
    cell = toy.cell(1, 0.0)
    save(store, cell, toy.finished({"kappa": 1.25}))
    path = next(store.folder.glob("*.json"))
    path.write_text(path.read_text().replace("1.25", "1.35"))
    assert load(store, cell) is None


def test_a_cell_of_another_environment_is_not_found(store):
    cell = toy.cell(1, 0.0)
    save(store, cell, toy.finished({"kappa": 1.0}))
    assert load(store, cell) == toy.finished({"kappa": 1.0})
    assert load(store, toy.cell(2, 0.0)) is None
    known = store.environment
    others = [
        {"code": "0" * 64},
        {"device": "gpu: NVIDIA H200"},
        {"precision": "float32"},
        *({"versions": {**known.versions, name: "0.0.1"}} for name in known.versions),
    ]
    for other in others:
        changed = dataclasses.replace(known, **other)
        assert load(dataclasses.replace(store, environment=changed), cell) is None, other


def test_what_is_returned_is_what_will_be_read(store):
    """numpy numbers become floats at once, so that a resumed table has the same text."""
    import numpy as np

    cell = toy.cell(1, 0.0)
    measured = toy.finished({"kappa": np.float64(0.1), "terms": [np.float64(2)]})
    kept = save(store, cell, measured)
    assert kept == load(store, cell)
    assert type(kept.measurement["kappa"]) is float


def test_a_failed_cell_does_not_sink_the_sweep(store):
    config = toy.config(cells=15)
    chosen = launch.plan(toy.EXPERIMENT, config, store)
    outcome = launch.run(toy.EXPERIMENT, chosen, store, toy.Silent())
    assert len(outcome.finished) == 14
    assert toy.depths(failure.cell for failure in outcome.failures) == [13]
    assert "unlucky" in outcome.failures[0].summary
    assert "Traceback" in outcome.failures[0].traceback
    assert toy.depths(launch.plan(toy.EXPERIMENT, config, store).left) == [13]


def test_ctrl_c_ends_the_sweep_and_keeps_what_is_done(tmp_path):
    def measure(depth: int, seconds: float):
        if depth == 3:
            raise KeyboardInterrupt
        return toy.measure(depth, seconds)

    experiment = dataclasses.replace(toy.EXPERIMENT, measure=measure)
    store = toy.store(tmp_path, experiment)
    chosen = launch.plan(experiment, toy.config(cells=5), store)
    with pytest.raises(KeyboardInterrupt):
        launch.run(experiment, chosen, store, toy.Silent())
    assert len(launch.plan(experiment, toy.config(cells=5), store).stored) == 2


def test_the_time_left_follows_the_cost_of_the_cells_that_ended(store, monkeypatch):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    chosen = launch.plan(toy.EXPERIMENT, toy.config(cells=4), store)
    clock = progress.Clock(toy.EXPERIMENT, chosen)
    assert clock.left() == "time left unknown"
    now += 12.0
    clock.ended(toy.cell(3, 0.0), toy.finished({}))  # 3 of the 1 + 2 + 3 + 4 units of work
    assert clock.left() == "28 s left"
    clock.ended(toy.cell(4, 0.0), None)  # failed: nothing can be learned from its time
    assert clock.left() == "12 s left"


def test_cells_are_told_apart_by_every_field_in_which_they_differ():
    """Class: a swept field with a name that nobody foresaw, and five cells that look the same."""

    @dataclasses.dataclass(frozen=True)
    class Recipe:
        depth: int
        epochs: int

    def cell(depth, heat):
        return Cell((("recipe", Recipe(depth, 10)), ("temperature", heat)))

    cells = [cell(4, 0.1), cell(4, 0.9), cell(5, 0.9)]
    assert progress.Names(cells).of(cells[1]) == "depth=4 temperature=0.9"
    assert progress.Names(cells[:1]).of(cells[0]) == str(cells[0])


def test_unwritable_places_are_said_plainly(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="choose another"):
        toy.store(file / "cells")
    with pytest.raises(StoreError, match="choose another folder"):
        write_atomically(file / "table.csv", "x")


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    target = tmp_path / "table.csv"
    write_atomically(target, "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_table_reads_back_to_the_bit(tmp_path):
    from sweeps.table import read

    values = [0.1, 1e-300, 1 / 3, 2.5e17]
    collect.write_table(
        tmp_path / "t.csv", [{"depth": i, "kappa": v} for i, v in enumerate(values)]
    )
    columns = read(tmp_path / "t.csv")
    assert columns["kappa"].tolist() == values
    assert columns["depth"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_number_failures_and_time_left(store, terminal):
    console = Terminal(force_terminal=terminal, width=200, record=True, quiet=False)
    chosen = launch.plan(toy.EXPERIMENT, toy.config(cells=14), store)
    with progress.watch(toy.EXPERIMENT, chosen, console) as watcher:
        launch.run(toy.EXPERIMENT, chosen, store, watcher)
    text = console.export_text()
    assert re.search(r"depth=\d+: kappa [\d.]+", text)
    assert "14/14" in text
    assert "failed depth=13: RuntimeError: thirteen layers are unlucky" in text


def test_a_table_says_of_its_cells_what_they_say_of_themselves(tmp_path):
    """Nothing of the process that collects the table: its cells may come from others."""
    first = {
        "date": "2026-01-02", "device": "cpu: cpu", "git": {"commit": "a", "clean": True},
        "machine": "Linux x86_64", "precision": "float64", "python": "3.11.1",
        "versions": {"jax": "0.0.1"},
    }  # fmt: skip
    second = {**first, "date": "2026-01-01", "git": {"commit": "b", "clean": False}}
    second["cpu_seconds"] = 0.5  # on a machine that others used, too
    cells = [Finished({}, seconds, told) for seconds, told in ((1.5, first), (2.0, second))]
    collect.write_provenance(tmp_path / "p.json", toy.config(2), ["toys"], [*cells, cells[0]])
    assert json.loads((tmp_path / "p.json").read_text()) == {
        "config": {"cells": 2, "seconds": 0.0},
        "data": ["toys"],
        "seconds": 3.5,
        "cells": 3,
        "dates": ["2026-01-01", "2026-01-02"],
        "precision": "float64",
        "device": "cpu: cpu",
        "versions": {"jax": "0.0.1"},
        "machine": ["Linux x86_64"],
        "python": ["3.11.1"],
        "git": [{"commit": "a", "clean": True}, {"commit": "b", "clean": False}],
    }


def test_git_state_of_a_folder_without_git(tmp_path):
    assert git_state(tmp_path) == {}


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (61, "1 min 1 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert progress.duration(seconds) == text


def test_packages_keep_their_order():
    """The sweep machinery knows nothing of experiments."""
    source = "".join(p.read_text() for p in Path(launch.__file__).parent.glob("*.py"))
    assert "import experiments" not in source
    assert "from experiments" not in source
