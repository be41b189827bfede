"""``python -m experiments.NAME --config=configs/NAME.py:PROFILE``: run, collect, check."""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ml_collections import FrozenConfigDict
from rich.table import Table
from rich.text import Text

import gnjax
from gnjax.cli.compilation import keep_compiled
from gnjax.cli.terminal import Terminal, exit_status
from gnjax.data import DataUnavailableError
from sweeps import collect, progress
from sweeps import config as configs
from sweeps import table as tables
from sweeps.cell import Cell
from sweeps.claims import FAILS, HOLDS, PARTLY, UNDECIDED, Claim, Sentence, Verdict, judge
from sweeps.experiment import Experiment
from sweeps.launchers import launch, launching
from sweeps.launchers.work import Failure, Launcher, LauncherError, here
from sweeps.sentences import judged
from sweeps.storage import archive as archives
from sweeps.storage import store as stores
from sweeps.storage.environment import environment
from sweeps.storage.files import StoreError, replacing, write_atomically
from sweeps.storage.store import Finished, Store, open_store

MISTAKES = (
    configs.ConfigError,
    StoreError,
    LauncherError,
    DataUnavailableError,
    tables.TableError,
)
COLORS = {HOLDS: "green", PARTLY: "magenta", FAILS: "red", UNDECIDED: "cyan"}
STOPPED = "\nstopped; finished cells are kept, the same command goes on"
_OPTIONS = ("--config", "--help", *launching.OPTIONS)


@dataclass(frozen=True)
class Job:
    """A config to run, the folder for its table, and who computes its cells."""

    experiment: Experiment
    config: FrozenConfigDict
    profile: str
    results: Path
    folder: Path
    shard: tuple[int, int] = (1, 1)
    launcher: Launcher = here
    dry_run: bool = False
    published: bool = False  # take cells from the archive
    archive: bool = False  # put cells into the archive
    compute: bool = True
    plot: bool = False  # draw the table
    cells: Path = archives.FOLDER  # where archives are


@dataclass(frozen=True)
class Done:
    """The result of a job; ``collected`` says whether its table was written."""

    failures: Sequence[Failure]
    collected: bool
    seconds: float = 0.0  # spent on the cells of the table, whenever that was


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> int:
    """Run an experiment; return 0 if every cell finished, 1 if one failed, 2 for a user's mistake.

    After Ctrl-C and without a reader it ends as :func:`gnjax.cli.terminal.exit_status` says.
    """
    return exit_status(lambda: _main(experiment, arguments), STOPPED)


def _main(experiment: Experiment, arguments: Sequence[str] | None) -> int:
    console = Terminal()
    try:
        if arguments is None:
            keep_compiled_programs()
        job = _job(experiment, sys.argv[1:] if arguments is None else arguments)
        done = run(job, console)
        if done.collected:
            _draw(console, job)
            _report(console, job, done.seconds)
        return 1 if done.failures else 0
    except MISTAKES as error:
        print(f"{experiment.name}: {error}", file=sys.stderr)
        return 2


def keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache, for this process and its workers.

    See :mod:`gnjax.cli.compilation`.
    """
    try:
        keep_compiled()
    except ValueError as error:
        raise configs.ConfigError(str(error)) from error


def run(job: Job, console: Terminal) -> Done:
    """Compute what is left of a job, and collect its table once every cell was tried."""
    experiment = job.experiment
    store, chosen = plan(job)
    archive = archives.archive(experiment, job.cells)
    _announce(console, job, chosen, archive, store)
    if job.dry_run:
        return Done((), collected=False)
    if not job.compute:
        chosen = replace(chosen, left=())
    sources = _sources(job, chosen)
    with progress.watch(experiment, chosen, console) as watcher:
        if job.archive:
            watcher = _Archiving(archive, sources, watcher)
            watcher.add_all(chosen.stored)
        outcome = launch.run(experiment, chosen, store, watcher, job.launcher)
    _report_failures(console, job.folder, outcome.failures)
    if job.shard != (1, 1):
        outcome = _with_other_shards(job, store, outcome, console)
    seconds = sum(result.seconds for result in outcome.finished.values())
    left = [cell for cell in chosen.cells if cell not in outcome.finished]
    if left and outcome.finished and job.compute:
        after = progress.forecast(experiment, left, outcome.finished, store.environment.device)
        console.say(f"{len(left)} of {len(chosen.cells)} cells are left: {after}")
    if outcome.finished:
        measured = {cell: result.measurement for cell, result in outcome.finished.items()}
        collect.write_table(job.folder / "table.csv", experiment.rows(job.config, measured))
        path, finished = job.folder / "provenance.json", list(outcome.finished.values())
        collect.write_provenance(path, job.config, sources, finished, len(left))
    return Done(outcome.failures, bool(outcome.finished), seconds)


def plan(job: Job) -> tuple[Store, launch.Plan]:
    """The store, and which cells of this job are stored and which are left.

    Cells are kept by the precision of their numbers, so float64 is turned on before they are asked.
    """
    gnjax.enable_x64()
    experiment = job.experiment
    wanted = environment(experiment.measure, job.launcher.device())
    store = open_store(job.results / "cells" / experiment.name, wanted)
    return store, launch.plan(experiment, job.config, store, job.shard, _taken_from(job))


def _taken_from(job: Job) -> Store | None:
    """The archive whose cells the job takes, if it takes any."""
    return archives.archive(job.experiment, job.cells) if job.published else None


@dataclass(frozen=True)
class _Archiving:
    """A watcher that publishes each cell that ends, and then tells another watcher of it."""

    archive: Store
    sources: Sequence[str]
    watcher: launch.Watcher

    def add_all(self, stored: Mapping[Cell, Finished]) -> None:
        for cell, result in stored.items():
            archives.add(self.archive, cell, result, self.sources)

    def finished(self, cell: Cell, result: Finished) -> None:
        archives.add(self.archive, cell, result, self.sources)
        self.watcher.finished(cell, result)

    def failed(self, failure: Failure) -> None:
        self.watcher.failed(failure)


def _sources(job: Job, chosen: launch.Plan) -> Sequence[str]:
    """The sources of the data. Where all cells are published no data are needed, nor loaded."""
    if chosen.left or chosen.stored or not chosen.published:
        return job.experiment.sources(job.config)
    return archives.sources(chosen.published.values())


def _with_other_shards(
    job: Job, store: Store, outcome: launch.Outcome, console: Terminal
) -> launch.Outcome:
    """All cells if this shard was the last to end; none while other shards are at work."""
    whole = launch.plan(job.experiment, job.config, store, archive=_taken_from(job))
    stored, total = len(whole.cells) - len(whole.left), len(whole.cells)
    if not whole.left:
        return launch.Outcome(whole.finished, outcome.failures)
    console.say(
        f"shard {job.shard[0]}/{job.shard[1]} ended, {stored} of {total} cells are stored; the "
        "table is written by the shard that ends last, or by a run without --shard",
    )
    return launch.Outcome({}, outcome.failures)


def named(name: str) -> Experiment:
    """The experiment of the module ``experiments.name``."""
    experiment: Experiment = import_module(f"experiments.{name}").EXPERIMENT
    return experiment


def load(argument: str, overrides: Sequence[str] = ()) -> tuple[FrozenConfigDict, str]:
    """The frozen config that FILE:PROFILE and overrides stand for, and the profile."""
    edge, profile = configs.load(argument)
    return FrozenConfigDict(configs.override(edge, overrides)), profile


def _job(experiment: Experiment, arguments: Sequence[str]) -> Job:
    name = experiment.name
    options, overrides = _parsed(name, arguments)
    if options.plot and experiment.draw is None:
        msg = (
            "--plot draws what the experiment says, and this one says nothing: give its Experiment "
            "draw=curves(x, y), from figures.shared.own, or draw its figure by python -m figures"
        )
        raise configs.ConfigError(msg)
    config, profile = load(options.config, overrides)
    is_usual = Path(options.config.rpartition(":")[0]).stem == name and not overrides
    return Job(
        experiment,
        config,
        profile,
        options.results,
        options.results / name / _folder(profile, config, is_usual=is_usual),
        options.shard,
        launching.launcher(options),
        options.dry_run,
        options.published,
        options.archive,
        not options.no_compute,
        options.plot,
    )


def _parsed(name: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the overrides as ``field=value``."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", allow_abbrev=False)
    default = f"configs/{name}.py:laptop"
    parser.add_argument("--config", default=default, help="FILE:PROFILE (%(default)s)")
    launching.add_options(parser)
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


def _folder(profile: str, config: Any, *, is_usual: bool) -> str:
    """The name of the job's folder: the profile, and a hash of the config if it is another one.

    It is where fields were set, or where the file has not the name of the experiment.
    """
    if is_usual:
        return profile
    text = json.dumps(config.to_dict(), sort_keys=True)
    return f"{profile}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _announce(
    console: Terminal, job: Job, chosen: launch.Plan, archive: Store, store: Store
) -> None:
    """What is there and what is left, with the time that it takes if any finished cell tells."""
    experiment, total = job.experiment, len(chosen.cells)
    name = f"{job.experiment.name} {job.profile}"
    name += "" if job.shard == (1, 1) else f", shard {job.shard[0]}/{job.shard[1]}"
    text = f"{name}: {total} cells, {len(chosen.stored)} stored"
    text += f", {len(chosen.published)} published" if job.published else ""
    if chosen.left:
        known = {**archives.published(archive, experiment.cells(job.config)), **chosen.stored}
        text += f", {len(chosen.left)} to compute" if job.compute else f", {len(chosen.left)} left"
        if known:
            device = store.environment.device
            text += f": {progress.forecast(experiment, chosen.left, known, device)}"
    other = archives.refused(archive, chosen.left) if job.published else 0
    if other:
        text += f"; {other} published cells are damaged or of other code, and are not taken"
    if chosen.damaged:
        text += f"; {chosen.damaged} of them have damaged files, which are set aside"
    earlier = stores.of_earlier_form(store)
    if earlier:
        text += (
            f"; {earlier} cells in {store.folder} were kept or begun in an earlier form of this "
            "experiment, and are computed again where they are needed"
        )
    console.say(text)


def _report_failures(console: Terminal, folder: Path, failures: Sequence[Failure]) -> None:
    if not failures:
        return
    log = folder / "failures.log"
    text = [f"{failure.cell}\n{failure.traceback}" for failure in failures]
    write_atomically(log, "\n".join(text))
    console.say(f"{len(failures)} cells failed; tracebacks in {log}; the same command retries")


def verdicts(job: Job) -> list[tuple[Claim, Verdict]]:
    """The verdict on every claim, read from the table that was saved.

    A sweep of your own, about no paper, has a config without ``paper_ratios``.
    """
    return of_table(job.config, job.folder / "table.csv", job.experiment.claims)


def of_table(
    config: Any, path: Path, claims: Sequence[Claim], *, foreign: bool = False
) -> list[tuple[Claim, Verdict]]:
    """The verdicts on claims of an experiment, from its table (:func:`sweeps.table.read`)."""
    frame, ratios = tables.read(path, foreign=foreign), getattr(config, "paper_ratios", ())
    return [(claim, judge(claim, frame, ratios)) for claim in claims]


def colored(status: str, count: int | None = None) -> Text:
    """A status in its color, with a number before it if there is one."""
    text = status if count is None else f"{count} {status}"
    return Text(text, COLORS.get(status, "yellow"))


def _draw(console: Terminal, job: Job) -> None:
    """Write the picture of the table beside it, where that was asked for, and say where it is."""
    draw = job.experiment.draw
    if not job.plot or draw is None:
        return
    path = job.folder / "picture.png"
    figure = draw(tables.read(job.folder / "table.csv"))
    with replacing(path) as new:
        figure.savefig(new, dpi=200, format="png")
    console.say(str(path))


def _report(console: Terminal, job: Job, seconds: float) -> None:
    """The verdicts, and last the table's path, which is told whatever a claim of the user does."""
    try:
        console.print(_verdict_table(job))
    finally:
        console.say(f"{job.folder / 'table.csv'} ({progress.duration(seconds)})")


def _verdict_table(job: Job) -> Table:
    """Each printed sentence with its verdict, its readings below, then what no sentence says."""
    readings = verdicts(job)
    found = dict(readings)
    shown = Table("figure", "claim", "verdict", "number")
    for one in judged((claim, verdict.status) for claim, verdict in readings):
        words = Text(f'"{one.sentence.words}" ({one.sentence.paper}, {one.sentence.place})', "bold")
        shown.add_row(one.figures, words, colored(one.status), one.summary)
        for claim, _ in one.readings:
            shown.add_row("", *_told(claim, found[claim]))
        shown.add_section()
    for claim, verdict in readings:
        if not isinstance(claim.source, Sentence):
            shown.add_row(claim.figure, *_told(claim, verdict))
    return shown


def _told(claim: Claim, found: Verdict) -> tuple[str, Text, str]:
    return claim.statement, colored(found.status), found.text
