"""How the benchmark and a rival exchange data: a case in an .npz file, an answer in another.

A rival is a module with a function for every task it can do; ``answer`` runs it as

    python -m benchmarks.rivals.NAME case.npz out.json [--threads=2] [--repeats=3] [--in-turn]

and leaves the seconds and versions in out.json and the numbers computed in out.npz.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

EIGENVALUES = 10  # the largest, of a Hessian
TURN = "next run"  # a rival prints this before each run, and waits for a line
TOLERANCE = 1e-6  # of the largest eigenvalue: a residual |H v - lambda v| to stop at
_STEPS = range(20, 501, 10)

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One problem, as arrays. A flat vector of parameters has the weights sorted by their names.

    Dense weights are (outputs, inputs), convolutions (outputs, inputs, height, width), images
    (n, height, width, channels).
    """

    task: str  # "ntk", "ggn" or "hessian"
    weights: Arrays
    x: np.ndarray  # (n, ...)
    y: np.ndarray  # (n,) labels
    statistics: Arrays = field(default_factory=dict)  # of BatchNorm, frozen
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))  # (p, b) to multiply by

    def save(self, path: Path) -> None:
        groups = {"weights": self.weights, "statistics": self.statistics}
        arrays = {f"{group}/{key}": a for group, held in groups.items() for key, a in held.items()}
        arrays |= {"task": np.array(self.task), "x": self.x, "y": self.y, "vectors": self.vectors}
        _write(path, arrays)

    @classmethod
    def load(cls, path: Path) -> Case:
        groups: dict[str, Arrays] = {"weights": {}, "statistics": {}}
        with np.load(path) as stored:
            for name in stored.files:
                group, _, key = name.partition("/")
                if key:
                    groups[group][key] = stored[name]
            x, y, vectors = (stored[name] for name in ("x", "y", "vectors"))
            return cls(str(stored["task"]), groups["weights"], x, y, groups["statistics"], vectors)


@dataclass(frozen=True)
class Answer:
    """What a tool computed, and how long each of its runs took after one to warm up."""

    seconds: Sequence[float]
    arrays: Arrays
    products: int | None = None  # with the matrix, in one run
    note: str = ""  # a setting that was chosen in the rival's favour


Measure = Callable[[Case, "Options"], Answer]


@dataclass(frozen=True)
class Options:
    threads: int
    repeats: int
    in_turn: bool  # with gnjax, which runs while a rival waits

    def timed(self, call: Callable[[], Any]) -> tuple[list[float], Any]:
        """Seconds of every run after one to warm up, and the last result."""
        return timed(call, self.repeats, _await_turn if self.in_turn else None)


def answer(distribution: str, tasks: dict[str, Measure], companions: Sequence[str] = ()) -> None:
    """Do the task of the case named on the command line, and write the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--in-turn", action="store_true", help="wait for a line before each run")
    arguments = parser.parse_args()
    limit_cores(arguments.threads)
    case = Case.load(arguments.case)
    found = tasks[case.task](case, Options(arguments.threads, arguments.repeats, arguments.in_turn))
    _write(arguments.out.with_suffix(".npz"), found.arrays)
    report = {
        "seconds": median(found.seconds),
        "runs": list(found.seconds),
        "products": found.products,
        "note": found.note,
        "peak_gb": peak_bytes() / 1e9,
        "versions": {name: version(name) for name in (distribution, *companions)},
    }
    arguments.out.write_text(json.dumps(report, indent=1))


def peak_bytes() -> int:
    """The peak memory of this process, without that of its parent, which getrusage includes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def _write(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def limit_cores(threads: int) -> None:
    """Keep this process and those it starts on ``threads`` cores; XLA counts the cores it may use.

    Call it before a backend starts. It does nothing where the system has no such limit.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def timed(
    call: Callable[[], Any], repeats: int, before: Callable[[], None] | None = None
) -> tuple[list[float], Any]:
    """Seconds of every run after one to warm up, and the last result."""
    call()
    seconds = []
    for _ in range(repeats):
        if before is not None:
            before()
        elapsed, result = once(call)
        seconds.append(elapsed)
    return seconds, result


def _await_turn() -> None:
    print(TURN, flush=True)
    sys.stdin.readline()


def once(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one run, and its result."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def fewest_steps(residual: Callable[[int], float]) -> int:
    """The fewest Lanczos steps, in tens, that reach the tolerance (given relative residuals).

    For tools that take a number of steps and no tolerance; the search is not timed.
    """
    for steps in _STEPS:
        if residual(steps) <= TOLERANCE:
            return steps
    msg = f"{_STEPS[-1]} Lanczos steps leave a relative residual above {TOLERANCE}"
    raise RuntimeError(msg)
