"""A sweep at the shell: its texts stay as they are, and it ends quietly with the usual status."""

import io
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from figures.shared.own import curves
from gnjax.cli.terminal import Terminal
from sweeps import command_line, progress, table
from sweeps.claims import BEYOND, Claim
from sweeps.launchers import launch
from tests import toy
from tests.sweeps import program
from tests.sweeps.processes import GROUP, workers_of
from tests.sweeps.test_launchers import wait_until

SIGINT_IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _command(folder, profile="quick", *options):
    config = f"--config=tests/sweeps/program.py:{profile}"
    return [sys.executable, "-m", "tests.sweeps.program", config, f"--results={folder}", *options]


def _started(folder, *options):
    """The program in a group of its own, as a shell starts it."""
    return subprocess.Popen(
        _command(folder, *options),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _stored(folder):
    return list((folder / "cells" / "program").glob("*.json"))


def test_the_table_at_the_shell_shows_every_text_as_it_is(tmp_path, capsys, monkeypatch):
    """Class: a text that comes from elsewhere is shown as markup."""
    monkeypatch.setenv("COLUMNS", "300")
    assert command_line.main(program.EXPERIMENT, _command(tmp_path)[3:]) == 0
    shown = capsys.readouterr().out
    for text in ("1[a]", program.STATEMENT, program.NUMBER, program.WORDS):
        assert text in shown


def test_a_sentence_stands_with_its_verdict_above_its_readings(tmp_path, capsys, monkeypatch):
    """Class: a reading that fails is shown as if the printed sentence did."""
    monkeypatch.setenv("COLUMNS", "300")
    assert command_line.main(program.EXPERIMENT, _command(tmp_path)[3:]) == 0
    lines = capsys.readouterr().out.splitlines()
    said, *readings, other = (
        next(line for line in lines if text in line)
        for text in (program.WORDS, *program.READINGS, program.STATEMENT)
    )
    assert "holds" in said
    assert "1 of 2 readings hold, 1 fail" in said
    assert "fails" in readings[0]
    assert "holds" in readings[1]
    order = [lines.index(line) for line in (said, *readings, other)]
    assert order == sorted(order)


def test_the_path_of_the_table_is_told_whatever_a_claim_does(tmp_path, capsys):
    """Class: all cells are computed, and a mistake in a check hides where their table is."""

    def mistaken(frame):
        return frame["no such column"]

    claims = [Claim("1", "a check with a mistake", BEYOND, mistaken)]
    with pytest.raises(KeyError, match="no such column"):
        command_line.main(replace(program.EXPERIMENT, claims=claims), _command(tmp_path)[3:])
    (path,) = tmp_path.glob("program/*/table.csv")
    told = "".join(capsys.readouterr().out.split())
    assert "".join(str(path).split()) in told
    assert table.read(str(path)).equals(table.read(path))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_failure_is_told_as_it_is(tmp_path, terminal):
    """Class: a text that comes from elsewhere is shown as markup; here by the bar or the lines."""
    experiment = program.EXPERIMENT
    store = toy.store(tmp_path, experiment)
    chosen = launch.plan(experiment, toy.config(13), store)
    console = Terminal(force_terminal=terminal, width=200, record=True, file=io.StringIO())
    with progress.watch(experiment, chosen, console) as watcher:
        launch.run(experiment, chosen, store, watcher)
    assert "failed depth=13: ValueError: [red]failed[/red] [/or] :x:" in console.export_text()


@pytest.mark.skipif(SIGINT_IGNORED, reason="a shell that runs this has Ctrl-C ignored")
@pytest.mark.parametrize("moment", ["computing", pytest.param("starting", marks=pytest.mark.slow)])
def test_ctrl_c_with_two_jobs_is_one_line(tmp_path, moment):
    """Class: Ctrl-C reaches every process of a terminal, and only the first may say something.

    One process computes and the other waits for work, or both are being started. No cell is waited
    for, and the cell that was finished stays.
    """
    process = _started(tmp_path, "slow", "--jobs=2")
    if moment == "computing":
        locks = tmp_path / "cells" / "program"
        wait_until(lambda: _stored(tmp_path) and len(list(locks.glob("*.lock"))) == 2, "no cell")
    else:
        wait_until(lambda: workers_of(process.pid, GROUP), "no process was started")
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, command_line.STOPPED + "\n"), out
    assert time.monotonic() - began < 20  # a cell takes 60 seconds
    assert len(_stored(tmp_path)) == (moment == "computing")
    wait_until(lambda: not workers_of(process.pid, GROUP), "a process outlives the program")


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_a_sweep_of_two_jobs_quietly(tmp_path):
    """Class: a stream of the program cannot be written."""
    process = _started(tmp_path, "quick", "--jobs=2")
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert (err, process.returncode) == ("", 141)


@pytest.mark.parametrize(
    ("streams", "status", "message"),
    [
        (">/dev/full", 1, "the output cannot be written: No space left on device\n"),
        pytest.param("2>/dev/full", 0, "", marks=pytest.mark.slow),
        (">&- 2>&- <&-", 0, ""),
    ],
)
def test_a_sweep_whose_streams_are_full_or_closed_loses_nothing(tmp_path, streams, status, message):
    """Class: a stream of the program cannot be written.

    Where a stream is closed, the next file to be opened must not become that stream.
    """
    command = f"{shlex.join(_command(tmp_path))} {streams}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == (message, status)
    if status == 0:
        assert command_line.main(program.EXPERIMENT, [*_command(tmp_path)[3:], "--dry_run"]) == 0
        assert len(_stored(tmp_path)) == 3


def test_a_sweep_draws_its_table_where_that_is_asked_for(tmp_path, capsys):
    drawing = replace(program.EXPERIMENT, draw=curves("depth", "kappa"))
    given = _command(tmp_path)[3:]
    assert command_line.main(drawing, given) == 0
    (path,) = tmp_path.glob("program/quick*/table.csv")
    picture = path.with_name("picture.png")
    assert not picture.exists()
    assert command_line.main(drawing, [*given, "--plot"]) == 0
    assert "3 stored\n" in capsys.readouterr().out.rpartition("quick:")[2]  # nothing is computed
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_is_refused_in_a_sentence(tmp_path, capsys):
    given = [*_command(tmp_path)[3:], "--plot"]
    assert command_line.main(program.EXPERIMENT, given) == 2
    assert "draw=curves(x, y), from figures.shared.own" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # before anything ran
    wrong = replace(program.EXPERIMENT, draw=curves("deptth", "kappa"))
    assert command_line.main(wrong, given) == 2
    assert "the table has no column 'deptth'; it has" in capsys.readouterr().err
