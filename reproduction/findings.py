"""The findings as files: one screen, a page for each figure, and the tables that no run writes.

``python -m reproduction.findings`` writes them again from the records, after a change of words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from figures import catalogue
from gnjax.cli.terminal import exit_status
from reproduction import appendices, authors, figure_findings, limits, questioned, standing, texts
from reproduction.appendices import PAGES
from reproduction.markdown import escaped, table
from reproduction.published import GALLERY
from reproduction.readings import all_claims, figure_of
from reproduction.records import EXPECTED, LEGEND, Records, read
from reproduction.sides import FROM_SCREEN, Links, Side, linked, of_records, words
from reproduction.standing import Standing
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, PARTLY, UNDECIDED, Claim, Sentence
from sweeps.sentences import TALLIES
from sweeps.storage.files import write_atomically

FOLDER = Path("figures")
SCREEN = "FINDINGS.md"
BEGIN, END = "<!-- ten answers -->", "<!-- end of the ten answers -->"


def written(records: Records, claims: Sequence[Claim], folder: Path = FOLDER) -> dict[str, str]:
    """The text of every file below ``folder``, by its path there.

    Args:
      records: the verdicts that were recorded, by profile and claim.
      claims: all claims, in the papers' order. A claim without a record was not run.
      folder: where the gallery is, whose pictures and tables the pages show.
    """
    sides = of_records(records, claims, folder / GALLERY.name)
    pages = {SCREEN: screen(sides, claims)}
    for figure in catalogue.from_tables():
        pages[f"findings/{figure}.md"] = figure_findings.page(figure, sides, folder / "findings")
    pages |= {f"findings/{name}.md": text for name, text in appendices.pages().items()}
    pages["findings/authors.md"] = authors.page(folder)
    pages[f"findings/{questioned.NAME}"] = questioned.page(sides, folder / "findings")
    pages["findings/limits.md"] += "\n".join(limits.deciding(sides)) + "\n"
    summary = Template(texts.summary())
    pages["findings/summary.md"] = summary.substitute(
        tallies=_tallies(sides), answers=_answers(sides, "{}.md".format, numbers=True)
    )
    return pages


def write(records: Records, claims: Sequence[Claim], folder: Path = FOLDER) -> None:
    """Write every page, and the ten answers into the README beside the folder, if there is one."""
    for path, text in written(records, claims, folder).items():
        write_atomically(folder / path, text)
    readme = folder.parent / "README.md"
    if readme.is_file():
        text = readme.read_text(encoding="utf-8")
        answers = answered(records, claims, f"{folder.name}/findings/{{}}.md".format)
        write_atomically(readme, with_answers(text, answers))


def answered(records: Records, claims: Sequence[Claim], links: Links) -> str:
    """The ten answers in a line each, as README has them."""
    return _answers(of_records(records, claims), links, numbers=False)


def _answers(sides: Sequence[Side], links: Links, *, numbers: bool) -> str:
    """A numbered list."""
    lines = standing.answers(sides, links, numbers=numbers)
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))


def with_answers(readme: str, answers: str) -> str:
    """The README with these answers between its two marks."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        msg = f"README.md needs the marks {BEGIN} and {END} once, where the ten answers stand"
        raise ValueError(msg)
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{answers}\n{END}{rest.split(END)[1]}"


def screen(sides: Sequence[Side], claims: Sequence[Claim]) -> str:
    """FINDINGS.md: ten answers with their conditions, numbers behind a click, every sentence."""
    parts = [
        "# Findings",
        "Paper A is *Theoretical characterisation of the Gauss-Newton conditioning in Neural"
        " Networks*, paper B *How the Hessian-Spectrum of Linear Networks Depends on Data*. Kappa"
        " is the condition number of the Gauss-Newton matrix.",
        "## Ten answers",
        _answers(sides, FROM_SCREEN, numbers=False),
        f"Every printed sentence with its verdict is in the tables below, and in [one table]"
        f"(findings/{questioned.NAME}) to sort, filter and ask what another limit would give.",
        "<details>\n<summary>The numbers behind the ten answers</summary>",
        "Numbers in brackets are intervals of 95% over the seeds; of which effects, is said at the"
        " end. CIFAR-10 (part) is 8,068 of its images. As computed is a figure made by the code"
        " that the authors of paper A published, its slips included; certified is the same with the"
        " slip mended and every kappa an interval.",
        NOTATION,
        _answers(sides, FROM_SCREEN, numbers=True),
        "</details>",
        *standing.explained(sides),
        *printed(sides),
        "## Errors in the papers",
        _errors(),
        *beyond(claims),
        *legend(sides),
        "The laptop's profile has data that ship and sizes with the paper's ratios, the paper's"
        " profile the sizes of the papers, whose verdict counts wherever a sentence can be tested"
        " there. The four tallies count different things and are not added up.",
        "\n".join(f"- {line}" for line in _behind()),
    ]
    return "\n\n".join(parts) + "\n"


NOTATION = (
    "Notation: n samples, d inputs, k outputs, m hidden units in each layer, L weight matrices;"
    " Sigma is the covariance of the inputs X and kappa(Sigma) its condition number; beta is the"
    " strength of skip connections (0 for none); alpha is the slope of Leaky ReLU where its input"
    " is negative (0 is ReLU, 1 a linear network), and Lambda holds the derivative of the"
    " activation at every unit."
)
"""The symbols of the ten answers."""

NO_SENTENCE = "No printed sentence."  # other claims may fail, be open or hold: they stand elsewhere


def printed(sides: Sequence[Side], links: Links = FROM_SCREEN) -> Iterator[str]:
    """The printed sentences in three tables: those that fail, are open, and hold."""
    known = standing.standings(sides)
    for heading, rows in (
        ("What fails, or holds in part, and where it holds", _failing),
        ("What could not be decided", _undecided),
        ("What holds", _holding),
    ):
        yield f"## {heading}"
        yield rows(known, links)


def legend(sides: Sequence[Side]) -> Iterator[str]:
    """How verdicts are to be read, and how many there are of each."""
    yield "## How verdicts are to be read"
    yield LEGEND
    yield _tallies(sides)


def _failing(known: Mapping[Sentence, Standing], links: Links) -> str:
    """Each printed sentence that fails in whole or in part, its number, why, and the reading under
    which it holds."""
    rows = []
    for one in standing.chosen(known, FAILS, PARTLY):
        why = dict.fromkeys(claim.mechanism for claim in one.telling if claim.mechanism)
        told = f"{one.effect()} ({one.grounds()})" + (f". Why: {next(iter(why))}" if why else "")
        under = [one.one.difference, *one.under(), one.elsewhere()]
        held = "; ".join(filter(None, under)) or "under no reading here"
        rows.append((one.linked(links), words(one.sentence), escaped(told), escaped(held)))
    return table(("figure", "printed", "found", "holds"), rows) if rows else NO_SENTENCE


def _undecided(known: Mapping[Sentence, Standing], links: Links) -> str:
    rows = [
        (
            one.linked(links),
            words(one.sentence),
            escaped("; ".join(one.reasons()) or "no reading has the paper's data and settings"),
            escaped("; ".join(one.takes()) or "such a reading"),
        )
        for one in standing.chosen(known, UNDECIDED, NOT_TESTABLE)
    ]
    heads = ("figure", "printed", "why", "what it would take")
    return table(heads, rows) if rows else NO_SENTENCE


def _holding(known: Mapping[Sentence, Standing], links: Links) -> str:
    rows = [
        (
            one.linked(links),
            words(one.sentence) + (f"; {escaped(other)}" if (other := one.elsewhere()) else ""),
            escaped("; ".join([one.effect(), *(f"fails: {other}" for other in one.against())])),
            escaped(one.grounds()),
        )
        for one in standing.chosen(known, HOLDS)
    ]
    return table(("figure", "printed", "effect", "data, seeds"), rows) if rows else NO_SENTENCE


def _errors() -> str:
    """The substantive errors; what else is corrected stands on its page."""
    rows = [row for row in texts.corrections() if row.kind == texts.WRONG]
    cells = [tuple(map(escaped, (r.paper, r.where, r.printed, r.corrected))) for r in rows]
    conditions, stronger, misprints, contradictions = (
        [row for row in texts.corrections() if row.kind == kind] for kind in list(texts.KINDS)[1:]
    )
    places = "; ".join(f"{row.paper}, {row.where}" for row in conditions)
    return (
        table(("paper", "where", "printed", "instead"), cells)
        + f"\n\nA condition that is not stated is needed at {escaped(places)}."
        f" {len(stronger)} statements can be strengthened, {len(misprints)} misprints change"
        f" nothing, and {len(contradictions)} places contradict others"
        " ([corrections](findings/corrections.md),"
        " [every numbered statement](findings/theory.md))."
    )


def _tallies(sides: Sequence[Side]) -> str:
    return table(("profile", *TALLIES), [(side.profile, *side.tallies()) for side in sides])


def beyond(claims: Sequence[Claim], links: Links = FROM_SCREEN) -> Iterator[str]:
    """Where the claims are that no printed sentence makes, if a figure has no others."""
    ours = [
        figure
        for figure in dict.fromkeys(map(figure_of, claims))
        if not any(isinstance(c.source, Sentence) for c in claims if figure_of(c) == figure)
    ]
    text = (
        "Other papers' claims and our own, with sharper readings of what is printed, stand at the"
        " end of each figure's page. Figures of their own:"
    )
    if ours:
        yield "## Beyond the papers"
        shown = (f"- {linked(figure, links)}: {_shown(figure)}" for figure in ours)
        yield "\n".join([text, "", *shown])


def _shown(figure: str) -> str:
    """What a figure shows, from the first line of its module."""
    line = (catalogue.load(figure).__doc__ or "").partition("\n")[0]
    return escaped(line.partition(": ")[2].removesuffix("."))


def _behind() -> Iterator[str]:
    yield "[summary](findings/summary.md) in the form of the ML Reproducibility Challenge"
    yield from (f"[{what}](findings/{page}.md)" for page, what in PAGES.items())
    yield (
        f"[every printed sentence in one table](findings/{questioned.NAME}) to sort, filter and ask"
        " what another limit would give (open it in a browser)"
    )
    yield "[the authors' numbers beside ours](findings/authors.md)"
    yield "a page for each figure: " + ", ".join(linked(f) for f in catalogue.from_tables())
    yield (
        "the data: the table of each experiment is published as CSV beside the pictures that are"
        " drawn from it, in [gallery](gallery) and in [gallery/paper](gallery/paper);"
        " `python -m reproduction.verdicts` computes the verdicts again from these tables"
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
