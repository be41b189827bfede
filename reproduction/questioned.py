"""Every printed sentence in one table that can be sorted, filtered and asked "what if".

The page is HTML that needs nothing else and opens without a network. Each row is a sentence in one
profile; below it stand its readings, each with the number that decides, its limit and its margin.
Where one number decides, the limit can be moved, and the verdicts follow.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from reproduction import texts
from reproduction.figure_findings import link
from reproduction.published import table_of
from reproduction.readings import figure_of, name
from reproduction.sides import Side, plain
from sweeps.claims import ALL, AS_COMPUTED, AS_PRINTED, CERTIFIED, Claim
from sweeps.sentences import Judged

NAME = "sentences.html"
_FAR = 1e300  # for infinity, which JSON has not
COLUMNS = (AS_PRINTED, AS_COMPUTED, CERTIFIED)


def page(sides: Sequence[Side], where: Path | None) -> str:
    """The page, whose links to tables start at the folder ``where``; None for no links."""
    rows = [_row(one, side, where) for side in reversed(sides) for one in side.judged().values()]
    data = json.dumps(rows, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    return Template(texts.questioned()).substitute(
        rows=data, count=str(len(rows)), profiles=escape(", ".join(side.profile for side in sides))
    )


def _row(one: Judged, side: Side, where: Path | None) -> dict[str, Any]:
    """A sentence in one profile, with its readings."""
    deciding = {name(claim) for claim, _ in one.deciding}
    readings = [_reading(claim, side, name(claim) in deciding) for claim, _ in one.readings]
    figures = dict.fromkeys(figure_of(claim) for claim, _ in one.readings)
    told = next((r for r in readings if r["decides"] and r["status"] == one.status), None)
    told = told or next((r for r in readings if r["decides"]), readings[0])
    return {
        "figure": one.figures,
        "paper": one.sentence.paper,
        "place": one.sentence.place,
        "words": one.sentence.words,
        "profile": side.profile,
        "rule": "all" if one.sentence.rule == ALL else "some",
        "status": one.status,
        "columns": [one.columns.get(column, "") for column in COLUMNS],
        **{key: told[key] for key in ("number", "limit", "margin", "seeds", "data")},
        "tables": _tables(list(figures), side, where) if where else [],
        "readings": readings,
    }


def _tables(figures: Sequence[str], side: Side, where: Path) -> list[list[str]]:
    """The name of each table behind the figures, and a link to it."""
    paths = dict.fromkeys(table_of(figure, side.pictures) for figure in figures)
    return [[path.name, link(path, where)] for path in paths if path.is_file()]


def _reading(claim: Claim, side: Side, decides: bool) -> dict[str, Any]:
    entry = side.recorded[name(claim)]
    found: dict[str, Any] = {
        "figure": claim.figure,
        "statement": claim.statement,
        "read": claim.said_as,
        "column": claim.read_as,
        "decides": decides,
        "status": entry["status"],
        "number": plain(entry["short"]),
        "value": entry["value"],
        "limit": entry.get("limit", ""),
        "margin": margin(entry),
        "seeds": int(entry.get("seeds", 0)),
        "data": plain(entry.get("images", "")),
    }
    ends = {end: float(entry.get(end, "nan")) for end in ("holds_to", "fails_from")}
    if not any(map(math.isnan, ends.values())):
        found |= {end: min(max(value, -_FAR), _FAR) for end, value in ends.items()}
    return found


def margin(entry: dict[str, str] | Any) -> str:
    """How far the number is from its limit, on the side that the claim puts it.

    A positive limit is a ratio's, and the margin a factor above 1 where the number is on the
    claimed side; of a slope, whose limit is 0, it is the difference.
    """
    if not entry.get("limit"):
        return ""
    side, limit_told = entry["limit"].split()
    found = re.match(r"[-+.\deinfa]+", entry["value"])
    limit, number = float(limit_told), float(found[0]) if found else float("nan")
    if limit > 0 and number > 0:
        factor = number / limit if side == "above" else limit / number
        return f"x {factor:.3g}"
    difference = number - limit if side == "above" else limit - number
    return f"{difference:+.3g}" if difference == difference else ""
