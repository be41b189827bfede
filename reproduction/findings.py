"""What was found, figure by figure: verdicts with their numbers, as text and as records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.corrections import CORRECTIONS
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, Claim, Verdict


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
        return title(self.figure)


def title(figure: str) -> str:
    """fig02 as Figure 2, b1 as Figure B1."""
    return "Figure " + re.sub(r"^fig0*", "", figure).upper()


def order(figure: str) -> tuple[bool, str]:
    """Paper A's figures before paper B's, and both before those beyond the papers."""
    return not figure.startswith("fig"), figure


def figure_of(claim: Claim) -> str:
    """The module that draws what a claim is about: "2b" is of fig02, "B1c" of b1, "C1" of c1."""
    found = re.match(r"([BbCc])?(\d+)", claim.figure)
    if found is None:
        msg = f"claim {claim.statement!r} is about figure {claim.figure!r}; name one as 2b or B1"
        raise ValueError(msg)
    return f"{found[1].lower()}{found[2]}" if found[1] else f"fig{int(found[2]):02d}"


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
    return {claim: entry["status"] for claim, entry in _read(path).get(profile, {}).items()}


def _read(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def renewed(path: Path, profile: str, sections: Sequence[Section]) -> dict[str, Any]:
    """The records, by profile and claim, with those about these figures brought up to date."""
    known = _read(path)
    about = {section.figure for section in sections}
    kept = {
        claim: entry
        for claim, entry in known.get(profile, {}).items()
        if entry["figure"] not in about
    }
    known[profile] = kept | {
        name(claim): {
            "figure": section.figure,
            "status": found.status,
            "number": found.text,
            "data": "; ".join(section.provenance.get("data", ())),
        }
        for section in sections
        for claim, found in section.verdicts
    }
    return known


def markdown(recorded: Mapping[str, Mapping[str, str]], profile: str) -> str:
    """FINDINGS.md: what fails with the regime in which it holds, what holds, what is corrected."""
    by_status = {
        status: {claim: entry for claim, entry in recorded.items() if entry["status"] == status}
        for status in (FAILS, NOT_TESTABLE, HOLDS)
    }
    sources = {entry["figure"]: entry["data"] for entry in recorded.values()}
    parts = [
        "# Findings",
        f"Written by `python -m experiments.reproduce --profile={profile} --publish` from the"
        f" tables of the {profile} profile. Of {len(recorded)} claims {len(by_status[HOLDS])} hold,"
        f" {len(by_status[FAILS])} fail at these settings and {len(by_status[NOT_TESTABLE])} cannot"
        " be tested at these sizes. Every verdict is the number beside it.",
        "## What fails at these settings, and where it holds",
        _table(by_status[FAILS]),
        "## What cannot be tested at these sizes",
        _table(by_status[NOT_TESTABLE]),
        "## What holds",
        _table(by_status[HOLDS]),
        "## What the papers' text says that does not hold as printed",
        "| paper | where | as printed | corrected | shown by |\n|---|---|---|---|---|\n"
        + "\n".join(_row(c.paper, c.where, c.printed, c.corrected, c.test) for c in CORRECTIONS),
        "## The data behind the verdicts",
        "\n".join(f"- {title(figure)}: {sources[figure]}" for figure in sorted(sources, key=order)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(found: Mapping[str, Mapping[str, str]]) -> str:
    if not found:
        return "None."
    by_figure = sorted(found.items(), key=lambda item: order(item[1]["figure"]))
    rows = [_row(*claim.split(": ", 1), entry["number"]) for claim, entry in by_figure]
    return "| figure | claim | number |\n|---|---|---|\n" + "\n".join(rows)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
