"""The store: no result lost, none renamed for an error that passes, none computed twice."""

import dataclasses
import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from figures.shared import style
from sweeps import collect
from sweeps.launchers import launch, work
from sweeps.storage import store as stores
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.checkpoint import load as load_checkpoint
from sweeps.storage.checkpoint import save as save_checkpoint
from sweeps.storage.environment import differences, environment, provenance
from sweeps.storage.files import StoreError
from sweeps.storage.store import Claim, Finished, claim, is_damaged, load, open_store, save
from tests import toy

CELL = toy.cell(2, 0.0)
TASK_OF = toy.task(None)
PROVEN = Finished(
    {},
    1.0,
    dict.fromkeys(("date", "precision", "device", "versions", "machine", "python", "git"), ""),
)


@pytest.fixture
def store(tmp_path):
    return toy.store(tmp_path / "cells")


def _file(store, suffix=".json"):
    return store.folder / f"{stores.key(store, CELL)}{suffix}"


def _contents(store):
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.ESTALE])
@pytest.mark.parametrize("use", ["load", "is_damaged", "plan", "claim", "attempt"])
def test_an_error_of_reading_changes_no_file(store, monkeypatch, number, use):
    task = dataclasses.replace(TASK_OF, store=store)
    uses = {
        "load": lambda: load(store, CELL),
        "is_damaged": lambda: is_damaged(store, CELL),
        "plan": lambda: launch.plan(toy.EXPERIMENT, toy.config(3), store),
        "claim": lambda: claim(store, CELL).__enter__(),
        "attempt": lambda: work.attempt(task, CELL),
    }
    work.attempt(task, CELL)
    before = _contents(store)

    def fail(path):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(StoreError, match=r"cannot read .*; it is kept"):
            uses[use]()
    assert _contents(store) == before
    assert load(store, CELL).measurement == toy.EXPERIMENT.measure_cell(CELL)


def test_an_error_of_reading_keeps_a_checkpoint(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "cell.checkpoint")
    save_checkpoint(checkpoint, [], [{"epoch": 1}])

    def fail(path):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(StoreError, match="Input/output error"):
            load_checkpoint(checkpoint, [])
    assert load_checkpoint(checkpoint, []) == ([], [{"epoch": 1}])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_error_of_writing_keeps_what_was_there(store, monkeypatch, call):
    save(store, CELL, toy.finished({"kappa": 1.0}))
    before = _contents(store)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StoreError, match="No space left"):
            save(store, CELL, toy.finished({"kappa": 2.0}))
    assert _contents(store) == before


@pytest.mark.parametrize("hours", [-2, 2])
def test_the_half_written_file_of_a_living_process_stays_whatever_the_clocks_say(store, hours):
    """Class: a time of another machine is compared with this machine's clock."""
    there = time.time() + 3600 * hours
    partials = [_file(store, f".{kind}.0123.partial") for kind in ("json", "checkpoint")]
    for partial in partials:
        partial.write_text("half")
        os.utime(partial, (there, there))
    with claim(store, CELL):
        open_store(store.folder, store.environment)
        assert all(partial.exists() for partial in partials)
    open_store(store.folder, store.environment)  # the process has gone
    assert not any(partial.exists() for partial in partials)


def test_a_process_is_not_disturbed_while_it_writes(store, monkeypatch):
    """Every moment at which a file is half written belongs to the claim of its cell."""
    replace, seen = os.replace, []

    def look(partial, path):
        open_store(store.folder, store.environment)
        seen.append(Path(partial).suffix)
        replace(partial, path)

    monkeypatch.setattr(os, "replace", look)
    ended = work.attempt(dataclasses.replace(TASK_OF, store=store), CELL)
    assert (ended.measurement, seen) == (toy.EXPERIMENT.measure_cell(CELL), [".partial"])


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_the_umask_decides_who_may_read_what_is_written(tmp_path, umask):
    """Class: files that are written beside their place and then moved keep a temporary's mode."""
    before = os.umask(umask)
    try:
        toy.run(tmp_path, toy.config(2))
        collect.write_provenance(tmp_path / "p.json", toy.config(2), [], [PROVEN])
        save_checkpoint(Checkpoint(tmp_path / "cells" / "a.checkpoint"), [], [])
        style.save(Figure(), tmp_path / "figure.png")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {
        ".csv", ".json", ".lock", ".checkpoint", ".png"
    }  # fmt: skip
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {oct(0o666 & ~umask)}


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_where_nothing_can_be_locked_nothing_is_computed(store, monkeypatch, number):
    def fail(handle, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(StoreError, match=os.strerror(number)):
        work.attempt(dataclasses.replace(TASK_OF, store=store), CELL)
    assert load(store, CELL) is None


def test_only_the_owner_of_a_claim_sets_a_damaged_file_aside(store):
    """Another process may replace the damaged file by a good one, while this one looks at it."""
    save(store, CELL, toy.finished({"kappa": 1.0}))
    _file(store).write_bytes(_file(store).read_bytes()[:-30])
    assert is_damaged(store, CELL)
    assert load(store, CELL) is None
    assert _file(store).exists()
    with claim(store, CELL) as mine:
        assert mine == Claim(mine=True)
        assert not _file(store).exists()
        assert _file(store, ".corrupt").exists()


def test_a_lock_is_the_same_file_for_good(store):
    """A lock that is removed and made anew is two files, and two processes can have one each."""
    numbers = []
    for _ in range(3):
        with claim(store, CELL) as first, claim(store, CELL) as second:
            assert (first.mine, second.mine) == (True, False)
        numbers.append(_file(store, ".lock").stat().st_ino)
    assert len(set(numbers)) == 1


def test_a_process_that_is_not_as_the_store_says_computes_nothing(store):
    known = store.environment
    for change, words in (
        ({"device": "gpu: NVIDIA H200"}, "device cpu: cpu, not gpu: NVIDIA H200"),
        ({"precision": "float32"}, "precision float64, not float32"),
        ({"versions": {**known.versions, "scipy": "1.0"}}, ", not 1.0"),
        (
            {"versions": {**known.versions, "optax": "9"}},
            f"optax {known.versions.get('optax')}, not 9",
        ),
        ({"code": "0" * 64}, "other code"),
    ):
        wanted = dataclasses.replace(store, environment=dataclasses.replace(known, **change))
        ended = work.attempt(dataclasses.replace(TASK_OF, store=wanted), CELL)
        assert isinstance(ended, work.Failure)
        assert words in ended.summary
        assert load(wanted, CELL) is None
    assert differences(known, known) == ""


def test_the_environment_names_what_numbers_depend_on():
    found = environment(toy.measure)
    assert {"jax", "jaxlib", "numpy", "scipy", "flax"} <= found.versions.keys()
    assert (found.device, found.precision) == ("cpu: cpu", "float64")
    assert environment(toy.measure, "gpu: H200").device == "gpu: H200"
    with pytest.raises(ValueError, match="not defined in a file"):
        environment(eval("lambda cell: {}"))


def test_provenance_is_that_of_the_computation_and_not_of_a_later_run(store, monkeypatch):
    task = dataclasses.replace(TASK_OF, store=store)
    monkeypatch.setattr(work, "provenance", lambda found: provenance(found) | {"date": "first"})
    work.attempt(task, CELL)
    monkeypatch.setattr(work, "provenance", lambda found: provenance(found) | {"date": "later"})
    kept = work.attempt(task, CELL).provenance
    assert kept["date"] == "first"
    assert kept.keys() == {
        "cpu_seconds", "date", "device", "git", "machine", "precision", "python", "versions"
    }  # fmt: skip
    assert store.environment.versions.items() <= kept["versions"].items()


@pytest.mark.parametrize("rounds", ["6", pytest.param("60", marks=pytest.mark.slow)])
def test_processes_killed_at_random_compute_no_cell_twice_and_lose_none(tmp_path, rounds):
    """Kills, cut files, flipped bits and exchanged files, as ``tests.sweeps.race`` says.

    GNJAX_RACE_SEED sets where the random numbers begin.
    """
    seed = os.environ.get("GNJAX_RACE_SEED", "0")
    command = [sys.executable, "-m", "tests.sweeps.race", str(tmp_path), rounds, seed]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{rounds} rounds" in done.stdout
