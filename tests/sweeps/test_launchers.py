"""Several processes at one sweep: nothing lost, nothing computed twice, the same table."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps.cell import Cell, all_but_seed
from sweeps.launchers import launch, pool
from sweeps.launchers.pool import in_processes
from sweeps.launchers.work import attempt
from sweeps.storage.files import StoreError
from sweeps.storage.store import Finished, claim, save
from tests import toy
from tests.sweeps.processes import PARENT, workers_of

CELLS = 12


@pytest.fixture
def whole(tmp_path):
    """The table of an uninterrupted run."""
    toy.run(tmp_path / "whole", toy.config(CELLS))
    return (tmp_path / "whole" / "table.csv").read_bytes()


def sweep(folder, pause, *options):
    """A sweep in a process of its own."""
    command = [sys.executable, "-m", "tests.toy", str(folder), str(pause), str(CELLS), *options]
    return subprocess.Popen(command, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def computed(folder):
    """How often each cell was computed, by its depth."""
    lines = (Path(folder) / "cells" / "computed.log").read_text().split()
    return {depth: lines.count(depth) for depth in lines}


def test_processes_give_the_table_of_one(tmp_path, whole):
    toy.run(tmp_path / "many", toy.config(CELLS), in_processes(2))
    assert (tmp_path / "many" / "table.csv").read_bytes() == whole


def test_a_failure_in_a_process_is_that_cells_alone(tmp_path):
    store = toy.store(tmp_path)
    chosen = launch.plan(toy.EXPERIMENT, toy.config(14), store)
    outcome = launch.run(toy.EXPERIMENT, chosen, store, toy.Silent(), in_processes(2))
    assert len(outcome.finished) == 13
    assert toy.depths(failure.cell for failure in outcome.failures) == [13]
    assert "thirteen layers are unlucky" in outcome.failures[0].summary


@pytest.mark.slow
def test_a_process_that_dies_fails_its_cell_and_no_other(tmp_path):
    """A cell that kills its process each time is found out alone; the others finish."""
    store = toy.store(tmp_path)
    experiment = dataclasses.replace(toy.EXPERIMENT, measure=toy.die_at_five)
    chosen = launch.plan(experiment, toy.config(7), store)
    outcome = launch.run(experiment, chosen, store, toy.Silent(), in_processes(2))
    assert toy.depths(outcome.finished) == [1, 2, 3, 4, 6, 7]
    (failure,) = outcome.failures
    assert failure.cell.keywords["depth"] == 5
    assert "died twice" in failure.summary


def test_processes_work_in_double_precision_on_their_share_of_the_cores(tmp_path):
    store = toy.store(tmp_path)
    task = toy.task(store, toy.surroundings)
    launcher = in_processes(1)
    assert launcher.device() == store.environment.device
    ((_, ended),) = launcher.compute(task, [toy.cell(1, 0.0)])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert ended.measurement["rows"] == [{"dtype": "float64", "threads": str(cores)}]


def test_processes_serve_one_sweep_after_the_other(tmp_path):
    store = toy.store(tmp_path)
    task, launcher = toy.task(store, toy.whose), in_processes(1)
    found = [next(iter(launcher.compute(task, [toy.cell(depth, 0.0)])))[1] for depth in (1, 2)]
    first, second = (ended.measurement["rows"][0]["process"] for ended in found)
    assert first == second != os.getpid()


def test_a_process_begins_with_another_shape_than_those_that_others_compile():
    """Seeds of what is compiled elsewhere wait, unless nothing else is left."""
    cells = [("wide", 0), ("wide", 1), ("deep", 0), ("deep", 1)]
    task = toy.task(None, toy.surroundings, shape=lambda cell: cell[0])
    assert pool._next(task, cells, set(), []) == ("wide", 0)
    assert pool._next(task, cells[1:], set(), [("wide", 0)]) == ("deep", 0)
    assert pool._next(task, cells[1:], {"wide"}, [("wide", 0)]) == ("wide", 1)
    assert pool._next(task, cells[1:2], set(), [("wide", 0)]) == ("wide", 1)


def test_cells_are_of_one_shape_where_they_differ_in_their_seed():
    first, same, deeper = (
        Cell((("depth", depth), ("seed", seed))) for depth, seed in ((2, 0), (2, 1), (3, 0))
    )
    assert all_but_seed(first) == all_but_seed(same) != all_but_seed(deeper)


def test_shards_cover_every_cell_once(tmp_path):
    store = toy.store(tmp_path)
    config = toy.config(11)
    shares = [launch.plan(toy.EXPERIMENT, config, store, (i, 4)).left for i in range(1, 5)]
    assert toy.depths(cell for share in shares for cell in share) == list(range(1, 12))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_claimed_cell_is_left_to_its_owner(tmp_path):
    store = toy.store(tmp_path)
    task, cell = toy.task(store), toy.cell(1, 0.0)
    with claim(store, cell) as first:
        assert first.mine
        assert attempt(task, cell) is None
    assert isinstance(attempt(task, cell), Finished)
    with claim(store, cell) as again:
        assert not again.mine
        assert again.finished.measurement == toy.EXPERIMENT.measure_cell(cell)


def test_what_another_process_finished_is_not_computed_again(tmp_path):
    store = toy.store(tmp_path)
    cell = toy.cell(13, 0.0)  # which cannot be computed
    save(store, cell, toy.finished({"kappa": 1.0}))
    assert attempt(toy.task(store), cell) == toy.finished({"kappa": 1.0})


@pytest.mark.slow
def test_two_sweeps_on_one_store_share_the_work(tmp_path, whole):
    both = [sweep(tmp_path / "shared", 0.2) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert (tmp_path / "shared" / "table.csv").read_bytes() == whole
    assert computed(tmp_path / "shared") == {str(depth): 1 for depth in range(1, CELLS + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "parent"])
def test_kill_9_of_a_worker_or_of_the_parent(tmp_path, whole, victim):
    folder = tmp_path / "killed"
    process = sweep(folder, 0.3, "2")
    wait_for_cells(folder, 3)
    workers = workers_of(process.pid, PARENT)
    assert len(workers) == 2
    os.kill(workers[0] if victim == "worker" else process.pid, signal.SIGKILL)
    process.wait(60)
    wait_until(lambda: not any(map(_alive, workers)), "workers outlive their parent")
    if victim == "parent":
        assert not (folder / "table.csv").exists()
        assert sweep(folder, 0.3, "2").wait(60) == 0
    assert (folder / "table.csv").read_bytes() == whole
    counts = computed(folder)
    assert len(counts) == CELLS
    assert sum(counts.values()) <= CELLS + 2  # only what was in flight was computed again


@pytest.mark.slow
def test_kills_flips_and_swaps_change_no_number_of_the_table(tmp_path):
    """GNJAX_ORDEAL_ROUNDS sets the number of rounds; ``tests.sweeps.ordeal`` says what one is."""
    rounds = os.environ.get("GNJAX_ORDEAL_ROUNDS", "3")
    command = [sys.executable, "-m", "tests.sweeps.ordeal", str(tmp_path), rounds, "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_disk_that_fills_up_loses_nothing(tmp_path, whole):
    """On a file system of a few pages: a plain error, and with more room the sweep goes on."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system needs a privilege that this machine does not give")
    try:
        with pytest.raises(StoreError, match="free space or choose another folder"):
            toy.run(small, toy.config(CELLS))
        kept = len(list((small / "cells").glob("*.json")))
        assert 0 < kept < CELLS
        assert not list(small.rglob("*.partial"))
        subprocess.run(["mount", "-o", "remount,size=1m", str(small)], check=True)
        assert len(toy.run(small, toy.config(CELLS)).left) == CELLS - kept
        assert (small / "table.csv").read_bytes() == whole
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_read_only_folder_is_said_plainly(tmp_path):
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("root writes everywhere, and nothing can be mounted here")
    else:
        tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match=r"cannot write results to .* choose another"):
            toy.store(tmp_path / "cells")
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(tmp_path)], check=True)


def wait_for_cells(folder, count):
    def enough():
        return len(list((folder / "cells").glob("*.json"))) >= count

    wait_until(enough, f"{count} cells were not finished in time")


def wait_until(condition, complaint, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)


def _alive(pid):
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
