"""Everything from one command: run what is missing, draw, check, report.

python -m experiments.reproduce --profile=laptop --figures=2,3,b1
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from figures import catalogue
from gnjax.cli.terminal import Terminal, exit_status
from reproduction import beforehand, findings, published, questioned, readings, records, report
from reproduction import verdicts as published_verdicts
from reproduction.drawing import Drawing
from reproduction.records import Section
from sweeps import command_line as cli
from sweeps import progress
from sweeps import table as tables
from sweeps.claims import STATUSES, Claim, Sentence, Verdict
from sweeps.launchers import launching
from sweeps.launchers.work import Launcher
from sweeps.sentences import judged
from sweeps.storage import archive as archives
from sweeps.storage.files import replacing, write_atomically

PROFILES = ("smoke", "laptop", "paper")
FIGURES = findings.FOLDER
EXPECTED = records.EXPECTED
LEFT_OUT = {  # not computed unless their figures are named: these sizes take a GPU or many hours
    "paper": (
        "pruning_sweep",
        "pruning_arms",
        "dead_channels",
        "feed_forward_pruning",
        "transformer_depth",
        "block_heterogeneity",
        "optimizer_metrics",
        "class_blocks",
        "edge_of_stability",
        "adapter_sweep",
        "block_alignment",
    )
}

_SMOKE_SECONDS = 10.0  # of an experiment at toy sizes, of which no table is published

GROUPS = {"papers": catalogue.of_papers, "all": catalogue.names}


@dataclass
class Ran:
    """What became of an experiment: cells that failed, or why it did not run at all."""

    failures: int = 0
    problem: str = ""
    verdicts: list[tuple[Claim, Verdict]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    table: beforehand.Files | None = None  # a published one that was taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if everything ran and was drawn and, with --strict, if no verdict has changed.

    After Ctrl-C and without a reader it ends as :func:`gnjax.cli.terminal.exit_status` says.
    """
    return exit_status(lambda: _main(arguments), cli.STOPPED)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parsed(arguments)
    console = Terminal()
    began = time.perf_counter()
    try:
        if arguments is None:
            cli.keep_compiled_programs()
        with Drawing(options.run, options.results) as drawing:
            ran = _run_all(options, console, drawing)
            if options.dry_run:
                return 1 if any(found.problem for found in ran.values()) else 0
            sections = list(_sections(options, ran, drawing))
        _write(options, sections, time.perf_counter() - began)
        if options.publish:
            _publish(options, sections)
    except cli.MISTAKES as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return 2
    changed = _changed(options, sections)
    _summarise(options, console, sections, changed, time.perf_counter() - began)
    failed = any(found.failures or found.problem for found in ran.values())
    return 1 if failed or (options.strict and changed) else 0


def _run_all(options: argparse.Namespace, console: Terminal, drawing: Drawing) -> dict[str, Ran]:
    """Every experiment that a chosen figure needs, in the order of the figures."""
    needed: dict[str, list[str]] = {}
    for figure in options.figures:
        module = catalogue.load(figure)
        if isinstance(module, catalogue.TableFigure):
            needed.setdefault(module.EXPERIMENT, []).append(figure)
    launcher = launching.launcher(options)
    expected = _forecast(needed, options, launcher)
    if str(expected):
        console.say(f"to compute: {expected}")
    elif options.profile == "smoke" and expected.unknown:
        seconds = _SMOKE_SECONDS * len(expected.unknown)
        console.say(f"toy sizes take about {progress.duration(seconds)}, most of it compilation")
    ran: dict[str, Ran] = {}
    for index, (name, figures) in enumerate(needed.items(), start=1):
        heading = (f"{index}/{len(needed)} {name}", expected.done(ran))
        console.rule(", ".join(filter(None, heading)), align="left")
        ran[name] = _run(name, figures, options, launcher, console)
        if ran[name].problem:
            console.say(ran[name].problem)
        elif not options.dry_run:
            for figure in figures:
                drawing.begin(figure, ran[name].table)
    return ran


def _forecast(
    needed: Mapping[str, Sequence[str]], options: argparse.Namespace, launcher: Launcher
) -> beforehand.Forecast:
    """The time that all of it takes, before the first of it begins."""
    jobs = []
    for name, figures in needed.items():
        with suppress(*cli.MISTAKES):  # which are told where the experiment would run
            job = _job(name, figures, options, launcher)
            if _table(job, options) is None:
                jobs.append(job)
    return beforehand.forecast(jobs, _gallery(options))


def _job(
    name: str, figures: Sequence[str], options: argparse.Namespace, launcher: Launcher
) -> cli.Job:
    """The whole experiment, or if cells are left to compute, what these figures need of it."""
    compute = not options.no_compute and name not in options.only_published
    whole, part = (
        cli.Job(
            cli.named(name),
            cli.load(f"configs/{name}.py:{options.profile}", [*fields, *options.overrides])[0],
            options.run,
            options.results,
            options.results / name / options.run,
            options.shard,
            launcher,
            options.dry_run,
            options.published,
            options.archive,
            compute=compute,
        )
        for fields in ([], catalogue.enough(figures))
    )
    return part if cli.plan(whole)[1].left else whole


def _table(job: cli.Job, options: argparse.Namespace) -> beforehand.Files | None:
    """A published table to take in place of computing; none where a new one is to be published."""
    if not options.published or options.publish or options.overrides:
        return None
    return beforehand.published_table(job, _gallery(options))


def _run(
    name: str,
    figures: Sequence[str],
    options: argparse.Namespace,
    launcher: Launcher,
    console: Terminal,
) -> Ran:
    """One experiment; a mistake in it is told and does not stop the others."""
    try:
        job = _job(name, figures, options, launcher)
        taken = _table(job, options)
        if taken is not None:
            console.say(beforehand.told(job, taken))
            return Ran() if options.dry_run else _taken(taken, figures, options.profile)
        done = cli.run(job, console)
        if not done.collected:
            problem = "" if options.dry_run else f"{name} has no table yet"
            return Ran(len(done.failures), problem)
        provenance = tables.read_provenance(job.folder / "provenance.json")
        return Ran(len(done.failures), "", cli.verdicts(job), provenance)
    except cli.MISTAKES as error:
        return Ran(problem=f"{name}: {error}")


def _taken(files: beforehand.Files, figures: Sequence[str], profile: str) -> Ran:
    """The verdicts from a published table."""
    modules = catalogue.from_tables()
    found = [
        pair
        for figure in figures
        for pair in published_verdicts.of_table(figure, modules[figure], profile, files[0])
    ]
    return Ran(0, "", found, tables.read_provenance(files[1]), files)


def _sections(
    options: argparse.Namespace, ran: dict[str, Ran], drawing: Drawing
) -> Iterator[Section]:
    """Bring together what is known of every chosen figure, with its picture."""
    for name in options.figures:
        module = catalogue.load(name)
        found = ran[module.EXPERIMENT] if isinstance(module, catalogue.TableFigure) else Ran(0, "")
        verdicts = [pair for pair in found.verdicts if readings.figure_of(pair[0]) == name]
        if found.problem:
            yield Section(name, None, "", verdicts, found.provenance, found.problem)
            continue
        try:
            paths = drawing.paths(name)
        except tables.TableError as error:
            yield Section(name, None, "", verdicts, found.provenance, str(error))
            continue
        caption = paths[-1].read_text(encoding="utf-8").strip()
        yield Section(name, paths[0], caption, verdicts, found.provenance)


def _write(options: argparse.Namespace, sections: Sequence[Section], seconds: float) -> None:
    """Write the report as text and as a page."""
    title = f"gnjax: the {options.run} profile"
    figures = "1 figure" if len(sections) == 1 else f"{len(sections)} figures"
    summary = (
        f"{figures}. This run took {progress.duration(seconds)}; finished cells were not computed"
        " again."
    )
    folder, pictures = options.results / options.run, options.results / "figures" / options.run
    text = report.markdown(sections, options.profile, title, summary, pictures, folder)
    write_atomically(folder / "report.md", text)
    write_atomically(folder / "report.html", report.page(text, folder))
    sides = [report.side(sections, options.profile, pictures)]
    write_atomically(folder / questioned.NAME, questioned.page(sides, folder))


def _publish(options: argparse.Namespace, sections: Sequence[Section]) -> None:
    """Copy pictures and tables to the gallery, and write the findings and the expected verdicts.

    Those of another profile than the laptop's go to a folder inside the gallery. A figure with a
    problem keeps what is published of it.
    """
    folder = _gallery(options)
    sections = [section for section in sections if not section.problem]
    drawn = _experiments(section.figure for section in sections if section.picture is not None)
    tables_of = {name: options.results / name / options.run / "table.csv" for name in drawn}
    texts_of = {
        name: published.to_publish(rows, name, folder) for name, rows in tables_of.items()
    }  # of all, before anything is written
    for section in sections:
        if section.picture is not None:
            kept = folder / section.picture.name
            with replacing(kept) as partial:
                partial.write_bytes(section.picture.read_bytes())
            write_atomically(kept.with_suffix(".txt"), section.caption + "\n")
    for name, text in texts_of.items():
        published.publish(text, tables_of[name], name, folder)
    known = records.renewed(EXPECTED, options.profile, sections)
    write_atomically(EXPECTED, json.dumps(known, indent=2) + "\n")
    findings.write(known, readings.all_claims(), FIGURES)


def _gallery(options: argparse.Namespace) -> Path:
    return published.gallery(options.profile, FIGURES / "gallery")


def _experiments(figures: Iterable[str]) -> list[str]:
    """The experiments from whose tables these figures are drawn, each once."""
    modules = catalogue.from_tables()
    return list(dict.fromkeys(modules[name].EXPERIMENT for name in figures if name in modules))


def _changed(options: argparse.Namespace, sections: Sequence[Section]) -> list[str]:
    """The claims whose verdict has changed; none where none is recorded for the profile."""
    expected = records.read_expected(EXPECTED, options.profile)
    return records.changed(sections, expected) if expected else []


def _summarise(
    options: argparse.Namespace,
    console: Terminal,
    sections: Sequence[Section],
    changed: Sequence[str],
    seconds: float,
) -> None:
    names = ("figure", "printed", "other claims", "computing")
    shown = Table(*names, Column("picture", overflow="fold"))
    for section in sections:
        spent = section.provenance.get("seconds")
        shown.add_row(
            section.anchor,
            *_verdicts(section),
            "" if spent is None else progress.duration(spent),
            section.problem or str(section.picture),
        )
    console.print(shown)
    for line in changed:
        console.say(f"changed: {line}")
    page = options.results / options.run / "report.html"
    console.say(f"{page} ({progress.duration(seconds)})")


def _verdicts(section: Section) -> tuple[Text, Text]:
    """How many printed sentences and how many other claims have each verdict."""
    printed = [one.status for one in judged(section.statuses)]
    others = [s for claim, s in section.statuses if not isinstance(claim.source, Sentence)]
    return _counted(printed), _counted(others)


def _counted(statuses: Sequence[str]) -> Text:
    """How often each status comes, as in: 3 holds, 1 fails."""
    counts = [cli.colored(s, statuses.count(s)) for s in STATUSES if s in statuses]
    return Text(", ").join(counts)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproduce", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--profile", choices=PROFILES, default="laptop", help="(%(default)s)")
    parser.add_argument(
        "--figures",
        type=_figures,
        default="papers",
        metavar="papers|all|2,3,b1",
        help="those of the papers, 1 to 23 and b1 to b4, without this; all: what is beyond the "
        "papers, too. In the paper's profile both leave out pruning and transformers, which take a "
        "GPU or many hours; with --published they have what is published of them",
    )
    parser.add_argument(
        "--strict", action="store_true", help=f"fail where a verdict is not that of {EXPECTED}"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also write gallery, findings and expected verdicts; figures that are drawn from the"
        " same tables are drawn and judged, too",
    )
    parser.add_argument(
        "--first_seed",
        type=int,
        default=0,
        help="where the seeds begin, for a second run on other draws (%(default)s)",
    )
    launching.add_options(parser)
    parser.epilog = (
        "With --published, figures of which no cell is published are drawn and judged from their"
        " published tables where cells are left to compute."
    )
    options = parser.parse_args(arguments)
    options.overrides = [f"first_seed={options.first_seed}"] if options.first_seed else []
    options.run = (
        f"{options.profile}-from-{options.first_seed}" if options.overrides else options.profile
    )
    if isinstance(options.figures, str):
        options.only_published = _with_published_cells(options)
        options.figures = _all_figures(options, GROUPS[options.figures]())
    else:
        options.only_published = ()
    if options.publish:  # a table is published once, with the pictures of all who are drawn from it
        named = _experiments(options.figures)
        options.figures = [
            figure
            for figure in catalogue.names()
            if figure in options.figures or set(_experiments([figure])) & set(named)
        ]
    if options.publish and options.overrides:
        parser.error("--publish records the verdicts of the first seeds, without --first_seed")
    return options


def _with_published_cells(options: argparse.Namespace) -> tuple[str, ...]:
    """The experiments that a profile leaves out and of which cells are published."""
    names = LEFT_OUT.get(options.profile, ()) if options.published else ()
    return tuple(name for name in names if _is_published(name, options))


def _is_published(name: str, options: argparse.Namespace) -> bool:
    """Whether a cell of the experiment is published."""
    config, _ = cli.load(f"configs/{name}.py:{options.profile}", options.overrides)
    experiment = cli.named(name)
    return bool(archives.published(archives.archive(experiment), experiment.cells(config)))


def _all_figures(options: argparse.Namespace, group: Sequence[str]) -> list[str]:
    """The figures of a group but those whose experiment a profile leaves out."""
    left_out = set(LEFT_OUT.get(options.profile, ())) - set(options.only_published)
    experiment = {name: getattr(catalogue.load(name), "EXPERIMENT", "") for name in group}
    return [name for name, its in experiment.items() if its not in left_out]


def _figures(text: str) -> list[str] | str:
    """The names of the modules of figures that are given as in 2,3,b1; or that of a group."""
    known = catalogue.names()
    if text in GROUPS:
        return text
    chosen = []
    for part in text.split(","):
        number = part.strip().lower().removeprefix("fig")
        name = f"fig{int(number):02d}" if number.isdecimal() else number
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            msg = f"no figure {part!r}; did you mean {near}? There are {', '.join(known)}"
            raise argparse.ArgumentTypeError(msg)
        chosen.append(name)
    return sorted(set(chosen), key=known.index)


if __name__ == "__main__":
    sys.exit(main())
