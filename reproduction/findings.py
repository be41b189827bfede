"""What was found, figure by figure: verdicts with their numbers, as text and as records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from reproduction.corrections import CORRECTIONS
from reproduction.markdown import escaped, table
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim, Verdict

PROFILES = ("laptop", "paper")  # smoke tests the code, not the papers
WORDS = {
    HOLDS: "hold",
    FAILS: "fail",
    UNDECIDED: "are undecided",
    NOT_TESTABLE: "are not testable at these sizes",
}

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


def title(figure: str) -> str:
    """The title of a figure: Figure 2 for fig02, Figure B1 for b1."""
    return "Figure " + re.sub(r"^fig0*", "", figure).upper()


def order(figure: str) -> tuple[bool, str]:
    """Paper A's figures before paper B's, and both before those beyond the papers."""
    return not figure.startswith("fig"), figure


def figure_of(claim: Claim) -> str:
    """The module that draws what a claim is about: "2b" is of fig02, "B1c" of b1, "T1" of t1."""
    found = re.match(r"([BbCcTt])?(\d+)", claim.figure)
    if found is None:
        msg = f"claim {claim.statement!r} is about figure {claim.figure!r}; name one as 2b or B1"
        raise ValueError(msg)
    return f"{found[1].lower()}{found[2]}" if found[1] else f"fig{int(found[2]):02d}"


def name(claim: Claim) -> str:
    return f"{claim.figure}: {claim.statement}"


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
        name(claim): _record(section, claim, found)
        for section in sections
        for claim, found in section.verdicts
    }
    return known | {profile: dict(_sorted(kept | new))}


def _record(section: Section, claim: Claim, found: Verdict) -> dict[str, str]:
    return {
        "figure": section.figure,
        "source": str(claim.source),
        "status": found.status,
        "number": found.text,
        "mechanism": claim.mechanism if found.status == FAILS else "",
        "data": "; ".join(section.provenance.get("data", ())),
    }


def markdown(records: Records) -> str:
    """FINDINGS.md: what fails and why, then every claim with its verdict in each profile."""
    profiles = [profile for profile in PROFILES if records.get(profile)]
    claims = {claim: entry for p in profiles for claim, entry in records[p].items()}
    parts = [
        "# Findings",
        "Written by `python -m experiments.reproduce --publish` from the tables of these profiles:",
        "\n".join(f"- {profile}: {counts(records[profile])}" for profile in profiles),
        "A claim *holds* or *fails* where a number decides it; it is *undecided* where the interval"
        " of 95% over the seeds contains no effect, and *not testable* where a size that decides is"
        " not the paper's. Effects are ratios of geometric means or slopes of logarithms, with"
        " their intervals in brackets.",
        "## What fails, and why",
        _failures(records, profiles),
        "## Every claim",
        table(("figure", "claim", "source", *profiles), _claims(claims, records, profiles)),
        "## What the papers' text says that does not hold as printed",
        table(
            ("paper", "where", "as printed", "corrected", "shown by"),
            [tuple(map(escaped, astuple(correction))) for correction in CORRECTIONS],
        ),
        "## The data behind the verdicts",
        *(_data(profile, records[profile]) for profile in profiles),
    ]
    return "\n\n".join(parts) + "\n"


def counts(recorded: Mapping[str, Mapping[str, str]]) -> str:
    """How many claims have each verdict, as in "of 3 claims 2 hold"."""
    found = [entry["status"] for entry in recorded.values()]
    listed = ", ".join(f"{found.count(s)} {word}" for s, word in WORDS.items())
    return f"of {len(found)} claims {listed}"


def _failures(records: Records, profiles: Sequence[str]) -> str:
    """One row for each claim and profile in which it fails, in the papers' order."""
    rows = [
        (*_named(claim), profile, escaped(entry["number"]), escaped(entry.get("mechanism", "")))
        for profile in profiles
        for claim, entry in _sorted(records[profile])
        if entry["status"] == FAILS
    ]
    return table(("figure", "claim", "profile", "number", "why"), rows) if rows else "Nothing."


def _claims(
    claims: Mapping[str, Mapping[str, str]], records: Records, profiles: Sequence[str]
) -> list[tuple[str, ...]]:
    return [
        (
            *_named(claim),
            escaped(entry.get("source", "")),
            *(_cell(records[p], claim) for p in profiles),
        )
        for claim, entry in _sorted(claims)
    ]


def _named(claim: str) -> tuple[str, str]:
    """The figure and the statement of a claim that is recorded by its name."""
    figure, _, statement = claim.partition(": ")
    return escaped(figure), escaped(statement)


def _cell(recorded: Mapping[str, Mapping[str, str]], claim: str) -> str:
    entry = recorded.get(claim)
    return f"**{entry['status']}**. {escaped(entry['number'])}" if entry else "not run"


def _data(profile: str, recorded: Mapping[str, Mapping[str, str]]) -> str:
    sources = {entry["figure"]: entry["data"] for entry in recorded.values()}
    lines = [
        f"- {title(figure)}: {escaped(sources[figure])}" for figure in sorted(sources, key=order)
    ]
    return f"In the {profile} profile:\n\n" + "\n".join(lines)


def _sorted(found: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Mapping[str, str]]]:
    return sorted(found.items(), key=lambda item: order(item[1]["figure"]))
