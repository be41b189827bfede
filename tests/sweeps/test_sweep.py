"""Sweeps: nothing lost, nothing computed twice, damage found, failures contained."""

import dataclasses
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from sweeps import collect, launch, progress
from sweeps.store import Finished, StoreError, load, open_store, save, write_atomically
from tests import toy


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "cells", toy.EXPERIMENT.code, "float64")


def test_second_run_computes_nothing_and_gives_the_same_table(tmp_path):
    config = toy.Config(cells=6)
    assert len(toy.run(tmp_path, config).left) == 6
    first = (tmp_path / "table.csv").read_bytes()
    again = toy.run(tmp_path, config)
    assert len(again.left) == 0
    assert (tmp_path / "table.csv").read_bytes() == first


def test_a_larger_config_computes_only_what_is_new(tmp_path):
    toy.run(tmp_path, toy.Config(cells=3))
    assert [cell.depth for cell in toy.run(tmp_path, toy.Config(cells=5)).left] == [4, 5]


@pytest.mark.slow
def test_kill_at_random_moments_then_resume(tmp_path):
    """kill -9 during a sweep, again and again: the table is that of an uninterrupted run."""
    cells, pause = 30, 0.1
    whole = tmp_path / "whole"
    toy.run(whole, toy.Config(cells=12))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.toy", str(folder), str(pause), "12"]
    chance, kills = random.Random(0), 0
    for _ in range(cells):
        process = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 30
        before = len(list((folder / "cells").glob("*.json")))
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((folder / "cells").glob("*.json"))) > before:
                time.sleep(chance.uniform(0, pause))
                process.kill()
                kills += 1
                break
            time.sleep(0.002)
        process.wait()
        if (folder / "table.csv").exists():
            break
    assert kills >= 3
    assert (folder / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()
    assert not list((folder / "cells").glob("*.partial"))


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff\xfe", None])
def test_a_damaged_file_is_found_set_aside_and_computed_again(tmp_path, damage):
    config = toy.Config(cells=3)
    toy.run(tmp_path, config)
    table = (tmp_path / "table.csv").read_bytes()
    victim = sorted((tmp_path / "cells").glob("*.json"))[0]
    victim.write_bytes(victim.read_bytes()[:-20] if damage is None else damage)
    chosen = toy.run(tmp_path, config)
    assert (len(chosen.left), chosen.corrupt) == (1, 1)
    assert (tmp_path / "table.csv").read_bytes() == table


def test_one_changed_digit_is_damage(store):
    cell = toy.Cell(1, 0.0)
    save(store, cell, Finished({"kappa": 1.25}, 0.5), 1.0)
    path = next(store.folder.glob("*.json"))
    path.write_text(path.read_text().replace("1.25", "1.35"))
    assert load(store, cell) is None


def test_key_depends_on_cell_code_and_precision(store, tmp_path):
    cell = toy.Cell(1, 0.0)
    save(store, cell, Finished({"kappa": 1.0}, 0.5), 1.0)
    assert load(store, cell) == Finished({"kappa": 1.0}, 0.5)
    assert load(store, toy.Cell(2, 0.0)) is None
    assert load(dataclasses.replace(store, precision="float32"), cell) is None
    other = tmp_path / "other.py"
    other.write_text("changed = True\n")
    assert load(open_store(store.folder, (other,), "float64"), cell) is None


def test_what_is_returned_is_what_will_be_read(store):
    """numpy numbers become floats at once, so that a resumed table has the same text."""
    import numpy as np

    cell = toy.Cell(1, 0.0)
    measured = Finished({"kappa": np.float64(0.1), "terms": [np.float64(2)]}, 0.5)
    kept = save(store, cell, measured, 1.0)
    assert kept == load(store, cell)
    assert type(kept.measurement["kappa"]) is float


def test_a_failed_cell_does_not_sink_the_sweep(store):
    config = toy.Config(cells=15)
    chosen = launch.plan(toy.EXPERIMENT, config, store)
    outcome = launch.run(toy.EXPERIMENT, chosen, store, toy.Silent())
    assert len(outcome.finished) == 14
    assert [failure.cell.depth for failure in outcome.failures] == [13]
    assert "unlucky" in outcome.failures[0].summary
    assert "Traceback" in outcome.failures[0].traceback
    assert [cell.depth for cell in launch.plan(toy.EXPERIMENT, config, store).left] == [13]


def test_ctrl_c_ends_the_sweep_and_keeps_what_is_done(store):
    def measure(cell):
        if cell.depth == 3:
            raise KeyboardInterrupt
        return toy.measure(cell)

    experiment = dataclasses.replace(toy.EXPERIMENT, measure=measure)
    chosen = launch.plan(experiment, toy.Config(cells=5), store)
    with pytest.raises(KeyboardInterrupt):
        launch.run(experiment, chosen, store, toy.Silent())
    assert len(launch.plan(experiment, toy.Config(cells=5), store).stored) == 2


def test_time_left_follows_the_cost(store):
    def foretold(config, pace=None):
        return launch.plan(toy.EXPERIMENT, config, store, pace=pace).seconds

    assert foretold(toy.Config(cells=4)) is None
    assert foretold(toy.Config(cells=4), pace=3.0) == pytest.approx(30.0)
    for depth, seconds in ((1, 2.0), (3, 6.0)):
        save(store, toy.Cell(depth, 0.0), Finished({}, seconds), toy.cost(toy.Cell(depth, 0.0)))
    assert foretold(toy.Config(cells=4), pace=3.0) == pytest.approx(2.0 * (2 + 4))
    other = toy.Config(cells=4, seconds=0.5)  # none of whose cells is stored
    assert foretold(other, pace=3.0) == pytest.approx(2.0 * (1 + 2 + 3 + 4))
    changed = open_store(store.folder, (), "float64")
    assert launch.plan(toy.EXPERIMENT, toy.Config(2), changed).seconds == pytest.approx(6.0)
    save(store, toy.Cell(2, 0.0), Finished({}, 4.0), 2.0)
    assert foretold(toy.Config(cells=3)) == 0.0


def test_damaged_cells_foretell_nothing(store):
    (store.folder / "half.json").write_bytes(b"\xff\x00 no cell")
    assert launch.plan(toy.EXPERIMENT, toy.Config(2), store).seconds is None


def test_cells_are_told_apart_by_fields_within_fields():
    @dataclasses.dataclass(frozen=True)
    class Nested:
        cell: toy.Cell
        share: float
        epochs: int

    assert progress.describe(Nested(toy.Cell(4, 0.5), 0.9, 10)) == "depth=4 share=0.9"


def test_unwritable_places_are_said_plainly(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StoreError, match="choose another"):
        open_store(file / "cells", (), "float64")
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
    collect.write_table(tmp_path / "t.csv", [toy.Row(i, v) for i, v in enumerate(values)])
    columns = read(tmp_path / "t.csv")
    assert columns["kappa"].tolist() == values
    assert columns["depth"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_says_number_failures_and_time_left(store, terminal):
    console = Console(force_terminal=terminal, width=200, record=True, quiet=False)
    chosen = launch.plan(toy.EXPERIMENT, toy.Config(cells=14), store)
    with progress.watch(toy.EXPERIMENT, chosen, console) as watcher:
        launch.run(toy.EXPERIMENT, chosen, store, watcher)
    text = console.export_text()
    assert "kappa 28.000" in text
    assert "14/14" in text
    assert "failed depth=13: RuntimeError: thirteen layers are unlucky" in text


def test_git_state_of_a_folder_without_git(tmp_path):
    assert collect.git_state(tmp_path) == {}


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
