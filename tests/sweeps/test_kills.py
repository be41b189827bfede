"""Two runs of one experiment on one folder, killed with SIGKILL at ten random moments."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

KILLS, SEEDS = 10, 60  # kills, and the seeds of each of the three counts of samples
LONGEST = 0.15  # seconds from a cell that was stored to a kill: as long as a few cells take


def _begun(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "experiments.sample_sweep", f"--results={folder}"]
    command += ["--config=configs/sample_sweep.py:smoke", f"--config.seeds={SEEDS}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _ended(run: subprocess.Popen[bytes]) -> None:
    _, said = run.communicate()
    assert run.returncode == 0, said.decode()


def _table(folder: Path) -> bytes:
    (path,) = folder.glob("sample_sweep/*/table.csv")
    return path.read_bytes()


def _stored(folder: Path) -> int:
    return len(list((folder / "cells" / "sample_sweep").glob("*.json")))


def _wait(folder: Path, cells: int, chance: random.Random) -> int:
    """Until another cell is stored, and a random while; returns how many cells are left then."""
    before = _stored(folder)
    while _stored(folder) == before < cells:
        time.sleep(0.005)
    time.sleep(chance.uniform(0, LONGEST))
    return cells - _stored(folder)


@pytest.mark.slow
def test_two_runs_that_are_killed_ten_times_leave_the_table_of_an_undisturbed_one(tmp_path):
    """Class: a cell that is lost, or that two runs write at once."""
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    _ended(_begun(whole))
    cells = _stored(whole)
    assert cells == 3 * SEEDS
    chance, left = random.Random(0), []
    running = [_begun(shared), _begun(shared)]
    for _ in range(KILLS):  # of a run that computes, or of one that begins
        left.append(_wait(shared, cells, chance))
        index = chance.randrange(2)
        running[index].kill()
        running[index].communicate()
        running[index] = _begun(shared)
    for run in running:
        _ended(run)
    sys.stdout.write(f"cells left at each kill: {left}\n")
    assert left[-1] > 0
    assert _table(shared) == _table(whole)
    assert _stored(shared) == cells
    computed = {path: path.read_bytes() for path in shared.rglob("*.json")}
    _ended(_begun(shared))
    assert {path: path.read_bytes() for path in shared.rglob("*.json")} == computed
