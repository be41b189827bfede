"""The findings as files: one screen, a page for each figure, and the tables that no run writes.

``python -m reproduction.findings`` writes them again from the records, after a change of words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from figures import catalogue
from gnjax.cli.terminal import exit_status
from reproduction import appendices, figure_findings, texts
from reproduction.appendices import PAGES
from reproduction.markdown import escaped, table
from reproduction.readings import all_claims, figure_of
from reproduction.records import EXPECTED, LEGEND, PROFILES, Records, read
from reproduction.sides import Side, linked, verdict, words
from reproduction.summary import SUMMARY
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim, Sentence
from sweeps.sentences import TALLIES
from sweeps.storage.files import write_atomically

FOLDER = Path("figures")
SCREEN = "FINDINGS.md"


def written(records: Records, claims: Sequence[Claim], folder: Path = FOLDER) -> dict[str, str]:
    """The text of every file below ``folder``, by its path there.

    Args:
      records: the verdicts that were recorded, by profile and claim.
      claims: all claims, in the papers' order. A claim without a record was not run.
      folder: where the gallery is, whose pictures and tables the pages show.
    """
    sides = [Side(p, records[p], claims) for p in PROFILES if records.get(p)]
    pages = {SCREEN: screen(sides, claims)}
    for figure in catalogue.from_tables():
        pages[f"findings/{figure}.md"] = figure_findings.page(figure, sides, folder)
    pages |= {f"findings/{name}.md": text for name, text in appendices.pages().items()}
    pages["findings/summary.md"] = SUMMARY.substitute(tallies=_tallies(sides))
    return pages


def write(records: Records, claims: Sequence[Claim], folder: Path = FOLDER) -> None:
    for path, text in written(records, claims, folder).items():
        write_atomically(folder / path, text)


def screen(sides: Sequence[Side], claims: Sequence[Claim]) -> str:
    """FINDINGS.md: what was asked, what holds and what does not, what was not tested, what is ours.

    Everything else is on the pages to which it links.
    """
    open_ones = (UNDECIDED, NOT_TESTABLE)
    parts = [
        "# Findings",
        "Paper A is *Theoretical characterisation of the Gauss-Newton conditioning in Neural"
        " Networks*, paper B *How the Hessian-Spectrum of Linear Networks Depends on Data*. Every"
        " sentence that they print about a figure or a number has one verdict, made by code from"
        " the verdicts of its readings. The laptop's profile has data that ship and sizes with the"
        " paper's ratios, the paper's profile has the sizes of the papers.",
        LEGEND,
        _tallies(sides),
        "The four tallies count different things and are not added up: what each paper prints, what"
        " its equations imply of a figure's networks, and, beyond the papers, what other papers say"
        " and what is our own. " + _kinds(),
        "## What is printed and fails",
        _chosen(sides, lambda statuses: FAILS in statuses),
        "## What is printed and was not decided",
        _chosen(sides, lambda found: FAILS not in found and any(s in found for s in open_ones)),
        "## What is printed and holds",
        _holding(sides),
        "## What is beyond the papers",
        _beyond(sides, claims),
        "## Behind it",
        "\n".join(f"- {line}" for line in _behind()),
    ]
    return "\n\n".join(parts) + "\n"


def _kinds() -> str:
    rows = texts.corrections()
    wrong, condition, stronger, misprints = (
        sum(row.kind == kind for row in rows) for kind in texts.KINDS
    )
    return (
        f"Of the papers' mathematics {wrong} statements are wrong as printed, {condition} need a"
        f" condition that is not stated and {stronger} can be strengthened; {misprints} misprints"
        " stand apart ([corrections](findings/corrections.md),"
        " [every numbered statement](findings/theory.md))."
    )


def _tallies(sides: Sequence[Side]) -> str:
    return table(("profile", *TALLIES), [(side.profile, *side.tallies()) for side in sides])


def _chosen(sides: Sequence[Side], is_shown: Callable[[Sequence[str]], bool]) -> str:
    """A row for each sentence whose statuses in the profiles are asked for."""
    known = [side.judged() for side in sides]
    rows = []
    for sentence, figures in _figures(sides).items():
        statuses = [judged[sentence].status for judged in known if sentence in judged]
        if is_shown(statuses):
            links = ", ".join(linked(figure) for figure in figures)
            rows.append((links, words(sentence), *(verdict(j, sentence) for j in known)))
    heads = ("figure", "printed", *(side.profile for side in sides))
    return table(heads, rows) if rows else "Nothing."


def _holding(sides: Sequence[Side]) -> str:
    """The words of every sentence that holds wherever it was run, by the first of its figures."""
    known = [side.judged() for side in sides]
    quoted: dict[str, list[str]] = {}
    for sentence, figures in _figures(sides).items():
        statuses = {judged[sentence].status for judged in known if sentence in judged}
        if statuses == {HOLDS}:
            quoted.setdefault(figures[0], []).append(escaped(f'"{sentence.words}"'))
    count = sum(map(len, quoted.values()))
    lines = [f"- {linked(figure)}: {'; '.join(found)}" for figure, found in quoted.items()]
    if not lines:
        return "Nothing."
    return "\n".join([f"Wherever they were run, {count} sentences hold, by figure:", "", *lines])


def _figures(sides: Sequence[Side]) -> dict[Sentence, list[str]]:
    """Every sentence with the figures that its readings are about, in the papers' order."""
    claims = sides[0].claims if sides else []
    return {
        one.sentence: list(dict.fromkeys(figure_of(claim) for claim, _ in one.readings))
        for one in sentences.judged((claim, "") for claim in claims)
    }


def _beyond(sides: Sequence[Side], claims: Sequence[Claim]) -> str:
    """Where the claims are that no printed sentence makes."""
    ours = [
        figure
        for figure in dict.fromkeys(map(figure_of, claims))
        if not any(isinstance(c.source, Sentence) for c in claims if figure_of(c) == figure)
    ]
    text = (
        "Other papers' claims and our own, with sharper readings of what is printed, stand at the"
        " end of each figure's page. Figures of their own:"
    )
    return "\n".join([text, "", *(f"- {linked(figure)}: {_shown(figure)}" for figure in ours)])


def _shown(figure: str) -> str:
    """What a figure shows, from the first line of its module."""
    line = (catalogue.load(figure).__doc__ or "").partition("\n")[0]
    return escaped(line.partition(": ")[2].removesuffix("."))


def _behind() -> Iterator[str]:
    yield "[summary](findings/summary.md) in the form of the ML Reproducibility Challenge"
    yield from (f"[{what}](findings/{page}.md)" for page, what in PAGES.items())
    yield "a page for each figure: " + ", ".join(linked(f) for f in catalogue.from_tables())
    yield (
        "the data: each picture in [gallery](gallery) and in [gallery/paper](gallery/paper) that"
        " was published with its table has it beside it as CSV; `python -m reproduction.verdicts`"
        " computes the verdicts again from these tables"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all pages again; the status is that of :func:`gnjax.cli.terminal.exit_status`."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction.findings", description=(__doc__ or "").splitlines()[0]
    )
    parser.parse_args(arguments)
    write(read(EXPECTED), all_claims())
    return 0


if __name__ == "__main__":
    sys.exit(main())
