"""How calls are timed, here and in processes of their own; it needs NumPy alone.

    python -m benchmarks.harness MODULE:FUNCTION FOLDER [THREADS]

runs a function with the keywords in FOLDER/given.npz and leaves the dictionary that it returns, and
the peak of its memory, in FOLDER/found.npz. :func:`apart` starts such processes: for rivals, which
have an environment each, and for whatever is measured with its peak of memory.
"""

from __future__ import annotations

import importlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

EIGENVALUES = 10  # the largest, of a Hessian
TOLERANCE = 1e-6  # of the largest eigenvalue: a residual |H v - lambda v| to stop at
RESIDUAL = 1e-10  # of a solution, relative to the right side
_TURN = "next run"  # a process prints this before each run, and waits for a line
_STEPS = range(20, 501, 10)

Arrays = dict[str, np.ndarray]
Timed = tuple[list[float], Any]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """One problem, as arrays. A flat vector of parameters has the weights sorted by their names.

    Dense weights are (outputs, inputs), convolutions (outputs, inputs, height, width), images
    (n, height, width, channels).
    """

    weights: Arrays
    x: np.ndarray  # (n, ...)
    y: np.ndarray  # (n,) labels
    statistics: Arrays = field(default_factory=dict)  # of BatchNorm, frozen
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (p, b) to multiply by


class NoAnswerError(Exception):
    """A process gave no answer; the text says why."""


def once(call: Callable[[], Any], clock: Clock = time.perf_counter) -> tuple[float, Any]:
    """Seconds of one run, and its result."""
    began = clock()
    result = call()
    return clock() - began, result


def timed(
    call: Callable[[], Any],
    repeats: int,
    before: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
) -> Timed:
    """Seconds of every run after one to warm up, and the last result."""
    result = call()
    seconds = []
    for _ in range(repeats):
        if before is not None:
            before()
        elapsed, result = once(call, clock)
        seconds.append(elapsed)
    return seconds, result


def in_turn(call: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> Timed:
    """:func:`timed` in a process apart: before each run, ``ours`` runs in the process beside it."""

    def wait() -> None:
        print(_TURN, flush=True)
        sys.stdin.readline()

    return timed(call, repeats, wait, clock)


def fewest_steps(residual: Callable[[int], float]) -> int:
    """The fewest Lanczos steps, in tens, that reach the tolerance (given relative residuals).

    For tools that take a number of steps and no tolerance; the search is not timed.
    """
    for steps in _STEPS:
        if residual(steps) <= TOLERANCE:
            return steps
    msg = f"{_STEPS[-1]} Lanczos steps leave a relative residual above {TOLERANCE}"
    raise RuntimeError(msg)


def signed(distribution: str) -> str:
    """A tool's name and version, as its distribution has them."""
    return f"{distribution} {version(distribution)}"


def peak_bytes() -> int:
    """The peak memory of this process, without that of its parent, which getrusage includes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def limit_cores(threads: int) -> None:
    """Keep this process and those it starts on ``threads`` cores; XLA counts the cores it may use.

    Call it before a backend starts. It does nothing where the system has no such limit.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def apart(
    function: str,
    given: Mapping[str, Any],
    python: Path | str = sys.executable,
    threads: int | None = None,
    patience: float = threading.TIMEOUT_MAX,
    ours: Callable[[], Any] = lambda: None,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """The dictionary that a function (``module:name``) returns in a process of its own.

    Also ``gigabytes``, the peak of its memory, and ``ours``: the seconds of the call here, which
    runs before each run that waits for its turn. It raises :class:`NoAnswerError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        store(Path(folder, "given.npz"), given)
        command = [str(python), "-m", "benchmarks.harness", function, folder]
        command += [] if threads is None else [str(threads)]
        seconds = _followed(command, threads, patience, ours, clock)
        return {**load(Path(folder, "found.npz")), "ours": seconds}


def _followed(
    command: list[str],
    threads: int | None,
    patience: float,
    ours: Callable[[], Any],
    clock: Clock,
) -> list[float]:
    """The seconds of ``ours``, which runs whenever the command waits for its turn."""
    names = () if threads is None else ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    seconds: list[float] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            env={**os.environ, **dict.fromkeys(names, str(threads))},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(patience, process.kill)
        timer.daemon = True  # who stops the benchmark does not wait for it
        timer.start()
        for line in process.stdout:
            if line.strip() == _TURN:
                seconds.append(once(ours, clock)[0])
                with suppress(BrokenPipeError):  # it was stopped meanwhile
                    print(file=process.stdin, flush=True)
        code, in_time = process.wait(), timer.is_alive()
        timer.cancel()
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if code:
        raise NoAnswerError(_why(code, said) if in_time else f"no answer in {patience:.0f} s")
    return seconds


def _why(code: int, said: list[str]) -> str:
    """The last line that a failed process printed, or how it ended if it printed nothing."""
    if said:
        return said[-1].removeprefix("benchmarks.harness.NoAnswerError: ")
    if code < 0:
        return f"killed by signal {-code}; 9 often means that memory ran out"
    return f"ended with the status {code} and printed nothing"


def store(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a dictionary of arrays, numbers, texts and such dictionaries, as an .npz file."""
    np.savez(path, **dict(_flat(tree)))


def load(path: Path) -> dict[str, Any]:
    """What :func:`store` wrote."""
    tree: dict[str, Any] = {}
    with np.load(path) as stored:
        for name in stored.files:
            *groups, last = name.split("//")
            inner = tree
            for group in groups:
                inner = inner.setdefault(group, {})
            inner[last] = stored[name] if stored[name].ndim else stored[name].item()
    return tree


def _flat(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}//{inner}", held) for inner, held in _flat(value))
        else:
            yield name, np.asarray(value)


def main(function: str, folder: str, threads: str | None = None) -> None:
    if threads is not None:
        limit_cores(int(threads))
    given = load(Path(folder, "given.npz"))
    if "case" in given:
        given["case"] = Case(**given["case"])
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(**given)
    store(Path(folder, "found.npz"), {**found, "gigabytes": peak_bytes() / 1e9})


if __name__ == "__main__":
    main(*sys.argv[1:])
