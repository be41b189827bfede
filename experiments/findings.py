"""What was found, figure by figure: verdicts with their numbers, as text and as records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.claims import FAILS, HOLDS, NOT_TESTABLE, Claim, Verdict
from experiments.corrections import CORRECTIONS


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
        """fig2 or b1."""
        return re.sub(r"0*(\d+)", r"\1", self.figure)

    @property
    def title(self) -> str:
        number = self.anchor.lstrip("figb")
        return f"Figure {number}" if self.figure.startswith("fig") else f"Figure B{number}"


def figure_of(claim: Claim) -> str:
    """The module that draws what a claim is about: "2b" is of fig02, "B1c" of b1."""
    found = re.match(r"(B|b)?(\d+)", claim.figure)
    if found is None:
        msg = f"claim {claim.statement!r} is about figure {claim.figure!r}; name one as 2b or B1"
        raise ValueError(msg)
    return f"b{found[2]}" if found[1] else f"fig{int(found[2]):02d}"


def name(claim: Claim) -> str:
    return f"{claim.figure}: {claim.statement}"


def statuses(sections: Sequence[Section]) -> dict[str, str]:
    """Every claim and its status."""
    return {name(claim): found.status for section in sections for claim, found in section.verdicts}


def changed(sections: Sequence[Section], expected: Mapping[str, str]) -> list[str]:
    """The claims whose status is not the recorded one, each with both."""
    return [
        f"{claim}: {status}, recorded as {expected.get(claim, 'nothing')}"
        for claim, status in statuses(sections).items()
        if expected.get(claim) != status
    ]


def read_expected(path: Path, profile: str) -> dict[str, str]:
    """The statuses that were recorded for a profile; nothing where nothing was."""
    if not path.is_file():
        return {}
    recorded = json.loads(path.read_text(encoding="utf-8")).get(profile, {})
    return {claim: entry["status"] for claim, entry in recorded.items()}


def expected_text(path: Path, profile: str, sections: Sequence[Section]) -> str:
    """The records with the claims about these figures brought up to date."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    about = {section.figure for section in sections}
    kept = {
        claim: entry
        for claim, entry in known.get(profile, {}).items()
        if entry["figure"] not in about
    }
    known[profile] = kept | {
        name(claim): {"figure": section.figure, "status": found.status, "number": found.text}
        for section in sections
        for claim, found in section.verdicts
    }
    return json.dumps(known, indent=2, sort_keys=True) + "\n"


def markdown(sections: Sequence[Section], profile: str) -> str:
    """FINDINGS.md: what fails with the regime in which it holds, what holds, what is corrected."""
    found = [pair for section in sections for pair in section.verdicts]
    count = {s: sum(v.status == s for _, v in found) for s in (HOLDS, FAILS, NOT_TESTABLE)}
    parts = [
        "# Findings",
        f"Written by `python -m experiments.reproduce --profile={profile} --publish` from the"
        f" tables of the {profile} profile. Of {len(found)} claims {count[HOLDS]} hold,"
        f" {count[FAILS]} fail at these settings and {count[NOT_TESTABLE]} cannot be tested at"
        " these sizes. Every verdict is the number beside it.",
        "## What fails at these settings, and where it holds",
        _table([pair for pair in found if pair[1].status == FAILS]),
        "## What cannot be tested at these sizes",
        _table([pair for pair in found if pair[1].status == NOT_TESTABLE]),
        "## What holds",
        _table([pair for pair in found if pair[1].status == HOLDS]),
        "## What the papers' text says that does not hold as printed",
        "| paper | where | as printed | corrected | shown by |\n|---|---|---|---|---|\n"
        + "\n".join(_row(c.paper, c.where, c.printed, c.corrected, c.test) for c in CORRECTIONS),
        "## The data behind the verdicts",
        "\n".join(_source(section) for section in sections if section.provenance),
    ]
    return "\n\n".join(parts) + "\n"


def _table(found: Sequence[tuple[Claim, Verdict]]) -> str:
    if not found:
        return "None."
    rows = [_row(claim.figure, claim.statement, verdict.text) for claim, verdict in found]
    return "| figure | claim | number |\n|---|---|---|\n" + "\n".join(rows)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _source(section: Section) -> str:
    data = "; ".join(section.provenance.get("data", ()))
    return f"- {section.title}: {data}"
