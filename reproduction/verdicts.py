"""All verdicts again from the published tables, without computing a cell.

python -m reproduction.verdicts
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from figures import catalogue
from gnjax.cli.terminal import exit_status
from reproduction import findings, records
from reproduction.published import GALLERY, gallery, table_of
from reproduction.readings import all_claims, figure_of
from reproduction.records import Section
from sweeps import command_line as cli
from sweeps import sentences, table
from sweeps.claims import Claim, Verdict
from sweeps.storage.files import write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every sentence with its verdict, and that of each column of its readings.

    The status is 1 if a decided verdict is not the recorded one, or a table cannot be judged. Of
    the figures of such tables nothing is recorded, so that their former records stay.

    After Ctrl-C and without a reader it ends as :func:`gnjax.cli.terminal.exit_status` says.
    """
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = _parsed(arguments)
    profiles = [options.profile] if options.profile else list(records.PROFILES)
    return max(_of_profile(profile, options) for profile in profiles)


def _of_profile(profile: str, options: argparse.Namespace) -> int:
    folder = gallery(profile, options.gallery)
    print(f"{profile}: the tables in {folder}")
    found = list(judged(profile, folder))
    sections = [section for section in found if not section.problem]
    for problem in dict.fromkeys(section.problem for section in found if section.problem):
        print(f"verdicts: {problem}", file=sys.stderr)
    readings = [pair for section in sections for pair in section.statuses]
    for one in sentences.judged(readings):
        summary = f" ({one.summary})" if one.summary else ""
        print(f"{one.figures}: {one.status}: {one.sentence}{summary}")
    for name, statuses in sentences.tallies(readings).items():
        print(f"{name}: {records.counts(statuses)}")
    absent = sorted(set(catalogue.from_tables()) - {section.figure for section in found})
    if absent:
        print(f"no table in {folder} of {', '.join(absent)}")
    changed = records.changed(sections, records.read_expected(options.expected, profile))
    for line in changed:
        print(f"changed: {line}")
    if options.record:
        _record(profile, options, sections)
    failed = len(sections) < len(found)
    return int(failed or (bool(changed) and not options.record))


def _record(profile: str, options: argparse.Namespace, sections: Sequence[Section]) -> None:
    """Write the verdicts to the records, and the findings again beside the gallery."""
    known = records.renewed(options.expected, profile, sections)
    write_atomically(options.expected, json.dumps(known, indent=2) + "\n")
    findings.write(known, all_claims(), options.gallery.parent)


def judged(profile: str, folder: Path) -> Iterator[Section]:
    """Every figure whose table is in the folder, with the verdicts of its claims.

    A table that cannot be judged is a problem of its figure alone, in a sentence.
    """
    for figure, module in catalogue.from_tables().items():
        path = table_of(figure, folder)
        if path.is_file():
            try:
                provenance = table.read_provenance(table.provenance_beside(path))
                found = of_table(figure, module, profile, path)
            except cli.MISTAKES as error:
                yield Section(figure, None, "", [], {}, str(error))
            else:
                yield Section(figure, None, "", found, provenance)


def of_table(
    figure: str, module: catalogue.TableFigure, profile: str, path: Path
) -> list[tuple[Claim, Verdict]]:
    """The verdicts of a figure's claims, from its published table."""
    experiment = cli.named(module.EXPERIMENT)
    config, _ = cli.load(f"configs/{module.EXPERIMENT}.py:{profile}")
    claims = [claim for claim in experiment.claims if figure_of(claim) == figure]
    try:
        return cli.of_table(config, path, claims, foreign=True)
    except KeyError as error:
        msg = f"{path} has no column {error}; another version wrote it, publish it again"
        raise table.TableError(msg) from error


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.verdicts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--profile",
        choices=("smoke", *records.PROFILES),
        help="without it the laptop's and the paper's",
    )
    parser.add_argument(
        "--gallery", type=Path, default=GALLERY, help="where published tables are (%(default)s)"
    )
    parser.add_argument(
        "--expected", type=Path, default=records.EXPECTED, help="the records (%(default)s)"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="also write these verdicts to the records and to the findings, after a change of what"
        " the sentences are read as",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
