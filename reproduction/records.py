"""Verdicts with their numbers as records: what figures/expected.json holds of every claim."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.readings import name, order, title
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, PARTLY, UNDECIDED, Claim, Verdict

EXPECTED = Path("figures/expected.json")
PROFILES = ("laptop", "paper")  # smoke tests the code, not the papers
WORDS = {
    HOLDS: "hold",
    PARTLY: "hold in part",
    FAILS: "fail",
    UNDECIDED: "undecided",
    NOT_TESTABLE: "not testable here",
}

_LINE = 140  # characters

LEGEND = (
    "Where a sentence leaves open what was measured, each way to understand it is a reading with a"
    ' verdict of its own. A reading "holds" or "fails" where a number decides it. It is'
    ' "undecided" where its interval of 95% over the seeds lies on both sides of the value that'
    ' decides, and "not testable" where a size or the data that decide are not the paper\'s. All'
    " readings of a sentence have to hold where its words are about each of them, and some where"
    " the text leaves open which one is meant. Numbers in brackets"
    " behind an effect are the interval of 95% over the seeds of this one effect, where a reading"
    ' "holds" because all of its effects do. Where a verdict rests on one effect that is picked'
    " among several, as where a sentence fails by one of them, or where it is undecided, the"
    " intervals are wider (Bonferroni's correction), so that all of them hold together with 95%."
    ' A sentence that says two things, of which one holds and the other fails, "holds in part". A'
    " reading that is not testable decides nothing: with it not all readings hold, nor do all fail."
    " What a sentence says of a figure that the paper has from one seed is decided by one, and the"
    " number says so; a sentence about networks in general needs several."
    " A reading is made as printed (what the text leaves open is filled from the code that the"
    " authors of paper A published), as computed (with a slip of that code), certified (the"
    " same data and steps with the slip mended, where that is what was pruned with other networks),"
    " or of other data or settings. A sentence has"
    " the verdict of its certified readings, or, in a figure without one, of those as printed."
)
"""How verdicts are to be read, for whoever sees them first."""

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

    @property
    def statuses(self) -> list[tuple[Claim, str]]:
        """Every claim about it with its status."""
        return [(claim, found.status) for claim, found in self.verdicts]


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
    return {claim: entry["status"] for claim, entry in read(path).get(profile, {}).items()}


def read(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    """The records of every profile; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def renewed(path: Path, profile: str, sections: Sequence[Section]) -> dict[str, Any]:
    """The records, by profile and claim, with those about these figures brought up to date.

    Figures are in the papers' order, and the claims about one in the order of its module.
    """
    known = read(path)
    about = {section.figure for section in sections}
    kept = {
        claim: entry
        for claim, entry in known.get(profile, {}).items()
        if entry["figure"] not in about
    }
    return known | {profile: dict(_sorted(kept | of_sections(sections)))}


def of_sections(sections: Sequence[Section]) -> dict[str, dict[str, str]]:
    """The records of what was found, by claim."""
    return {
        name(claim): _record(section, found)
        for section in sections
        for claim, found in section.verdicts
    }


def _record(section: Section, found: Verdict) -> dict[str, str]:
    return {
        "figure": section.figure,
        "status": found.status,
        "number": found.text,
        "data": "; ".join(section.provenance.get("data", ())),
        "images": found.data,
        "seeds": str(found.seeds),
        "short": _short(found),
        "value": _value(found),
        **_limit(found),
    }


def _limit(found: Verdict) -> dict[str, str]:
    """The one number that decides, and the limits up to which the verdict would be the same."""
    if not math.isfinite(found.limit):
        return {}
    return {
        "limit": f"{found.side} {found.limit:.6g}",
        "holds_to": f"{found.holds_to:.6g}",
        "fails_from": f"{found.fails_from:.6g}",
    }


def _short(found: Verdict) -> str:
    """The first clause; where a sentence holds in part, that of both halves."""
    told = found.short or found.text
    halves = told.split("; ") if found.status == PARTLY else [told]
    return "; ".join(_clause(half) for half in halves)


def _clause(text: str) -> str:
    """The first clause without lists in brackets, cut between two numbers where it is too long."""
    clause = re.sub(r" \([^()]* at [^()]*\)", "", text.partition("; ")[0])
    return clause if len(clause) <= _LINE else clause[:_LINE].rpartition(", ")[0] + " .."


def _value(found: Verdict) -> str:
    """The number that decides with its interval, as in "0.85 (0.8 to 0.9)"."""
    number = f"{found.number:.3g}"
    if found.seeds == 1:
        return f"{number} (one seed)"
    if math.isfinite(found.low) and math.isfinite(found.high):
        return f"{number} ({found.low:.3g} to {found.high:.3g})"
    return number


def counts(statuses: Sequence[str]) -> str:
    """How many have each verdict, as in "3: 2 hold, 1 fails"."""
    listed = ", ".join(f"{statuses.count(s)} {w}" for s, w in WORDS.items() if s in statuses)
    return f"{len(statuses)}: {listed}" if statuses else "none"


def _sorted(found: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Mapping[str, str]]]:
    return sorted(found.items(), key=lambda item: order(item[1]["figure"]))
