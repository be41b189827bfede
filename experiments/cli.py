"""``python -m experiments.NAME --config=configs/NAME.py:PROFILE``: run, collect, check."""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments import config as configs
from experiments import table as tables
from experiments.claims import FAILS, HOLDS, Claim
from gnjax import precision
from gnjax.data import DataUnavailableError
from gnjax.sweep import collect, launch, progress
from gnjax.sweep.grid import Experiment
from gnjax.sweep.store import StoreError, open_store, write_atomically

_OPTIONS = ("--config", "--results", "--dry_run", "--help")
_COLORS = {HOLDS: "green", FAILS: "red"}


@dataclass(frozen=True)
class Program:
    """An experiment with what its command line needs."""

    experiment: Experiment
    config: type[Any]
    claims: Sequence[Claim]
    sources: Callable[[Any], Sequence[str]]


def main(program: Program, arguments: Sequence[str] | None = None) -> int:
    """0 when every cell finished, 1 when one failed, 2 for a mistake of the user's."""
    console = Console()
    try:
        return _run(program, sys.argv[1:] if arguments is None else arguments, console)
    except (configs.ConfigError, StoreError, DataUnavailableError, tables.TableError) as error:
        print(f"{program.experiment.name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; finished cells are kept, the same command goes on", file=sys.stderr)
        return 130


def _run(program: Program, arguments: Sequence[str], console: Console) -> int:
    experiment = program.experiment
    options, overrides = _parsed(experiment.name, arguments)
    edge, profile = configs.load(options.config)
    config = configs.freeze(program.config, configs.override(edge, overrides))
    precision.enable_x64()
    store = open_store(options.results / "cells" / experiment.name, experiment.code, "float64")
    sources = program.sources(config)
    chosen = launch.plan(experiment, config, store)
    _announce(console, experiment.name, profile, chosen)
    if options.dry_run:
        return 0
    folder = options.results / experiment.name / _folder(profile, config, overrides)
    began = time.perf_counter()
    with progress.watch(experiment, chosen, console) as watcher:
        outcome = launch.run(experiment, chosen, store, watcher)
    _report_failures(console, folder, outcome.failures)
    if not outcome.finished:
        return 1
    _collect(program, config, outcome, folder, sources)
    _report(console, program.claims, folder, time.perf_counter() - began)
    return 1 if outcome.failures else 0


def _parsed(name: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the overrides as ``field=value``."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", allow_abbrev=False)
    default = f"configs/{name}.py:laptop"
    parser.add_argument("--config", default=default, help="FILE:PROFILE (%(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="(%(default)s)")
    parser.add_argument("--dry_run", action="store_true", help="say what would be done")
    parser.epilog = "--config.FIELD=VALUE sets a field of the config."
    options, rest = parser.parse_known_args(arguments)
    overrides = [text.removeprefix("--config.") for text in rest if text.startswith("--config.")]
    for text in rest:
        if not text.startswith("--config."):
            near = difflib.get_close_matches(text.split("=")[0], _OPTIONS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; options are {', '.join(_OPTIONS)}"
            msg = f"there is no option {text}{hint}"
            raise configs.ConfigError(msg)
    return options, overrides


def _folder(profile: str, config: Any, overrides: Sequence[str]) -> str:
    """The profile, with a hash of the config where overrides made it another one."""
    if not overrides:
        return profile
    text = json.dumps(asdict(config), sort_keys=True)
    return f"{profile}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _announce(console: Console, name: str, profile: str, chosen: launch.Plan) -> None:
    total = len(chosen.stored) + len(chosen.left)
    estimate = (
        "time unknown until a cell is measured"
        if chosen.seconds is None
        else f"about {progress.duration(chosen.seconds)}"
    )
    text = f"{name} {profile}: {total} cells, {len(chosen.stored)} stored"
    text += f", {len(chosen.left)} to compute ({estimate})" if chosen.left else ""
    if chosen.corrupt:
        text += f"; {chosen.corrupt} damaged files were set aside and are computed again"
    _say(console, text)


def _report_failures(console: Console, folder: Path, failures: Sequence[launch.Failure]) -> None:
    if not failures:
        return
    log = folder / "failures.log"
    text = [f"{failure.cell}\n{failure.traceback}" for failure in failures]
    write_atomically(log, "\n".join(text))
    _say(console, f"{len(failures)} cells failed; tracebacks in {log}; the same command retries")


def _collect(
    program: Program,
    config: Any,
    outcome: launch.Outcome,
    folder: Path,
    sources: Sequence[str],
) -> None:
    measured = {cell: result.measurement for cell, result in outcome.finished.items()}
    rows = program.experiment.rows(config, measured)
    collect.write_table(folder / "table.csv", rows)
    seconds = sum(result.seconds for result in outcome.finished.values())
    collect.write_provenance(folder / "provenance.json", config, sources, "float64", seconds)


def _report(console: Console, claims: Sequence[Claim], folder: Path, seconds: float) -> None:
    """The verdict on every claim, read from the table that was saved."""
    saved = tables.read(folder / "table.csv")
    shown = Table("figure", "claim", "verdict", "number")
    for claim in claims:
        found = claim.check(saved)
        color = _COLORS.get(found.status, "yellow")
        shown.add_row(claim.figure, claim.statement, f"[{color}]{found.status}[/]", found.text)
    console.print(shown)
    _say(console, f"{folder / 'table.csv'} ({progress.duration(seconds)})")


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
