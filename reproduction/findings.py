"""What was found, sentence by sentence: verdicts with their numbers, as text and as records.

``python -m reproduction.findings`` writes figures/FINDINGS.md again from the records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.corrections import CORRECTIONS, KINDS
from reproduction.markdown import escaped, table
from reproduction.readings import all_claims, name, order, title
from reproduction.settings import SETTINGS
from reproduction.silent import WITHOUT_CLAIM
from reproduction.theory import THEORY
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim, Sentence, Verdict
from sweeps.sentences import TALLIES
from sweeps.storage.files import write_atomically

EXPECTED = Path("figures/expected.json")
FINDINGS = Path("figures/FINDINGS.md")
PROFILES = ("laptop", "paper")  # smoke tests the code, not the papers
WORDS = {
    HOLDS: "hold",
    FAILS: "fail",
    UNDECIDED: "undecided",
    NOT_TESTABLE: "not testable here",
}
NOT_RUN = "not run"

Records = Mapping[str, Mapping[str, Mapping[str, str]]]
"""What figures/expected.json holds: profile, claim, then figure, status, number and so on."""


@dataclass(frozen=True)
class Section:
    """One figure: its picture and caption, the claims about it, and how its table came about."""

    figure: str  # fig02 or b1
    picture: Path | None
    caption: str
    verdicts: Sequence[tuple[Claim, Verdict]]
    provenance: Mapping[str, Any]
    problem: str = ""  # why there is no picture

    @property
    def anchor(self) -> str:
        """The name that links use: fig2 or b1."""
        return re.sub(r"0*(\d+)", r"\1", self.figure)

    @property
    def title(self) -> str:
        return title(self.figure)


def statuses(sections: Sequence[Section]) -> dict[str, str]:
    """The status of every claim, by the claim's name."""
    return {name(claim): found.status for section in sections for claim, found in section.verdicts}


def changed(sections: Sequence[Section], expected: Mapping[str, str]) -> list[str]:
    """The claims that are decided otherwise than recorded, each with both statuses.

    A claim that is undecided in one run and decided in the other contradicts nothing: other seeds
    and other rounding move an interval that ends near "no effect".
    """
    return [
        f"{claim}: {status}, recorded as {expected.get(claim, 'nothing')}"
        for claim, status in statuses(sections).items()
        if expected.get(claim) != status and UNDECIDED not in (status, expected.get(claim))
    ]


def read_expected(path: Path, profile: str) -> dict[str, str]:
    """The statuses that were recorded for a profile, by claim; empty if none were."""
    return {claim: entry["status"] for claim, entry in _read(path).get(profile, {}).items()}


def _read(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def renewed(path: Path, profile: str, sections: Sequence[Section]) -> dict[str, Any]:
    """The records, by profile and claim, with those about these figures brought up to date.

    Figures are in the papers' order, and the claims about one in the order of its module.
    """
    known = _read(path)
    about = {section.figure for section in sections}
    kept = {
        claim: entry
        for claim, entry in known.get(profile, {}).items()
        if entry["figure"] not in about
    }
    new = {
        name(claim): _record(section, found)
        for section in sections
        for claim, found in section.verdicts
    }
    return known | {profile: dict(_sorted(kept | new))}


def _record(section: Section, found: Verdict) -> dict[str, str]:
    return {
        "figure": section.figure,
        "status": found.status,
        "number": found.text,
        "data": "; ".join(section.provenance.get("data", ())),
    }


def markdown(records: Records, claims: Sequence[Claim]) -> str:
    """FINDINGS.md: what was asked and what holds, sentence by sentence, then all that is behind it.

    Args:
      records: the verdicts that were recorded, by profile and claim.
      claims: all claims, in the papers' order. A claim without a record was not run.
    """
    profiles = [profile for profile in PROFILES if records.get(profile)]
    sides = [_Side(profile, records[profile], claims) for profile in profiles]
    parts = [
        "# Findings",
        "Written by `python -m experiments.reproduce --publish`. A printed sentence has one"
        " verdict, made of those of its readings: *all* of them have to hold where its words are"
        " about each, *some* where the text leaves open which one is meant. The four tallies count"
        " different things and are not added up.",
        table(("profile", *TALLIES), [(side.profile, *side.tallies()) for side in sides]),
        "A sentence or a claim *holds* or *fails* where a number decides it; it is *undecided*"
        " where the interval of 95% over the seeds contains no effect, and *not testable* where a"
        " size or the data that decide are not the paper's. Effects are ratios of geometric means"
        " or slopes of logarithms, with their intervals in brackets.",
        "## Printed sentences that fail, and why",
        _failures(sides),
        "## Every printed sentence, with its readings",
        table(("figure", "printed sentence, and its readings", *profiles), _sentences(sides)),
        "## What printed equations imply",
        table(("figure", "claim", "source", *profiles), _plain(claims, sides, TALLIES[2])),
        "## Beyond the papers",
        table(("figure", "claim", "source", *profiles), _plain(claims, sides, TALLIES[3])),
        *_appendices(),
        "## The data behind the verdicts",
        *(_data(profile, records[profile]) for profile in profiles),
    ]
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Side:
    """The records of one profile beside all claims."""

    profile: str
    recorded: Mapping[str, Mapping[str, str]]
    claims: Sequence[Claim]

    def readings(self) -> list[tuple[Claim, str]]:
        """Every claim that was run, with its status."""
        return [(c, self.recorded[name(c)]["status"]) for c in self.claims if self.ran(c)]

    def ran(self, claim: Claim) -> bool:
        return name(claim) in self.recorded

    def tallies(self) -> Iterator[str]:
        for found in sentences.tallies(self.readings()).values():
            yield counts(found)

    def judged(self) -> dict[Sentence, sentences.Judged]:
        return {one.sentence: one for one in sentences.judged(self.readings())}

    def cell(self, claim: Claim) -> str:
        """The verdict of a claim with its number, and why it fails where it fails, as Markdown."""
        if not self.ran(claim):
            return NOT_RUN
        entry = self.recorded[name(claim)]
        why = claim.mechanism if entry["status"] == FAILS else ""
        told = entry["number"] + (f" Why: {why}" if why else "")
        return f"**{entry['status']}**. {escaped(told)}"


def counts(statuses: Sequence[str]) -> str:
    """How many have each verdict, as in "3: 2 hold, 1 fails"."""
    listed = ", ".join(f"{statuses.count(s)} {w}" for s, w in WORDS.items() if s in statuses)
    return f"{len(statuses)}: {listed}" if statuses else "none"


def _failures(sides: Sequence[_Side]) -> str:
    """One row for each profile and sentence that fails, with the readings that do."""
    rows = [
        (side.profile, _where(sentence), _words(sentence), "<br>".join(_failing(side, one)))
        for side in sides
        for sentence, one in side.judged().items()
        if one.status == FAILS
    ]
    return table(("profile", "where", "printed", "number"), rows) if rows else "Nothing."


def _failing(side: _Side, one: sentences.Judged) -> Iterator[str]:
    """The readings of a sentence that fail."""
    for claim, status in one.readings:
        if status == FAILS:
            yield f"{escaped(claim.statement)}: {side.cell(claim)}"


def _where(sentence: Sentence) -> str:
    return escaped(f"{sentence.paper}, {sentence.place}")


def _words(sentence: Sentence) -> str:
    return escaped(f'"{sentence.words}"')


def _sentences(sides: Sequence[_Side]) -> list[tuple[str, ...]]:
    """A row for each sentence and, below it, one for each of its readings."""
    known = [side.judged() for side in sides]
    claims = sides[0].claims if sides else []
    rows: list[tuple[str, ...]] = []
    for one in sentences.judged((claim, "") for claim in claims):
        sentence = one.sentence
        said = f"**{_where(sentence)}: {_words(sentence)}**"
        rule = f" ({sentence.rule} of {len(one.readings)})" if len(one.readings) > 1 else ""
        verdicts = (_verdict(judged, sentence) for judged in known)
        rows.append((f"**{escaped(one.figures)}**", said + rule, *verdicts))
        rows += [
            (*_named(claim), *(side.cell(claim) for side in sides)) for claim, _ in one.readings
        ]
    return rows


def _named(claim: Claim) -> tuple[str, str]:
    return escaped(claim.figure), escaped(claim.statement)


def _verdict(judged: Mapping[Sentence, sentences.Judged], sentence: Sentence) -> str:
    if sentence not in judged:
        return NOT_RUN
    found = judged[sentence]
    return f"**{found.status}**" + (f" ({found.summary})" if found.summary else "")


def _plain(claims: Sequence[Claim], sides: Sequence[_Side], tally: str) -> list[tuple[str, ...]]:
    """The rows of the claims that are about no sentence."""
    return [
        (*_named(claim), escaped(str(claim.source)), *(side.cell(claim) for side in sides))
        for claim in claims
        if sentences.tally_of(claim.source) == tally and not isinstance(claim.source, Sentence)
    ]


def _appendices() -> Iterator[str]:
    """What does not depend on a run: words without a claim, corrections, theory and settings."""
    yield "## Sentences without a claim"
    yield _plain_table(("paper", "where", "printed", "why"), WITHOUT_CLAIM)
    yield "## Corrections to the papers' text"
    for kind, heading in KINDS.items():
        of_kind = [c for c in CORRECTIONS if c.kind == kind]
        rows = [(c.paper, c.where, c.printed, c.corrected, c.test) for c in of_kind]
        yield f"### {heading}"
        yield _plain_table(("paper", "where", "as printed", "corrected", "shown by"), rows)
    yield "## Every lemma and numbered equation"
    yield _plain_table(
        ("paper", "what", "what it says", "status", "code", "test"),
        [(t.paper, t.what, t.says, t.status, t.code, t.test) for t in THEORY],
    )
    yield "## Settings: printed, ours, and where the paper is silent"
    yield _plain_table(
        ("figure", "setting", "printed", "ours", "why"),
        [(s.figure, s.setting, s.printed or "silent", s.ours, s.why) for s in SETTINGS],
    )


def _plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts that are not Markdown yet."""
    return table(head, [[escaped(cell) for cell in row] for row in rows])


def _data(profile: str, recorded: Mapping[str, Mapping[str, str]]) -> str:
    sources = {entry["figure"]: entry["data"] for entry in recorded.values()}
    lines = [
        f"- {title(figure)}: {escaped(sources[figure])}" for figure in sorted(sources, key=order)
    ]
    return f"In the {profile} profile:\n\n" + "\n".join(lines)


def _sorted(found: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Mapping[str, str]]]:
    return sorted(found.items(), key=lambda item: order(item[1]["figure"]))


def write_again() -> None:
    """Write FINDINGS.md from the records, after a change of words, without any computation."""
    records = json.loads(EXPECTED.read_text(encoding="utf-8"))
    write_atomically(FINDINGS, markdown(records, all_claims()))


if __name__ == "__main__":
    write_again()
