"""The tables of speed and of advice in the documentation, made from the committed measurements.

    python -m benchmarks.tables [--check]

Seconds and ratios are medians with quartiles. What was measured before quartiles were kept says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.record import FOLDER

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGE, ADVICE = _REFERENCE / "speed.md", _REFERENCE / "advice.md"
BEGIN, END = "<!-- benchmarks.tables begins -->", "<!-- benchmarks.tables ends -->"
TITLES = {
    "real_networks": "networks as people train them, in seconds of the processor",
    "linear_kappa": "kappa of a linear network to 1e-3, on the same operator",
    "network_spectra": "any network, n=1000, k=10",
    "laplace": "what a Laplace approximation needs, in seconds of the processor",
    "gpt_eigenvalues": "a language model",
    "resnet_kappa": "a convolutional network at the papers' size",
    "devices": "rows on an accelerator",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where they differ")
    check = parser.parse_args().check
    differ = False
    for page, made in ((PAGE, tables()), (ADVICE, advice())):
        text = page.read_text(encoding="utf-8")
        wanted = between_marks(text, made)
        differ = differ or wanted != text
        if not check:
            page.write_text(wanted, encoding="utf-8")
    return int(check and differ)


def renewed(text: str, folder: Path = FOLDER) -> str:
    """The page ``text`` with its tables made anew from the measurements in a folder."""
    return between_marks(text, tables(folder))


def between_marks(text: str, made: str) -> str:
    """A page with what was made in place of what stands between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        msg = f"the page has no lines {BEGIN} and {END}, between which the tables go"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def tables(folder: Path = FOLDER) -> str:
    paths = {name: folder / f"{name}.json" for name in TITLES}
    known = [(name, path) for name, path in paths.items() if path.is_file()]
    return "\n".join(_table(name, json.loads(path.read_text("utf-8"))) for name, path in known)


def advice(folder: Path = FOLDER) -> str:
    """How many promises of each kind were kept, and each of them (:mod:`benchmarks.advice`)."""
    record = json.loads((folder / "advice.json").read_text("utf-8"))
    rows = record["rows"]
    lines = ["| advice | promised | happened |", "|---|---|---|"]
    for kind, promise in dict.fromkeys((row["kind"], row["promise"]) for row in rows):
        alike = [row for row in rows if (row["kind"], row["promise"]) == (kind, promise)]
        kept = sum(row["happened"] for row in alike)
        lines.append(f"| {kind} | {promise} | {kept} of {len(alike)} |")
    lines += [
        "",
        "| network | advice | promised | happened | what came of it |",
        "|---|---|---|---|---|",
    ]
    last = None
    for row in rows:
        network = "" if row["network"] == last else row["network"]
        last = row["network"]
        happened = "yes" if row["happened"] else "**no**"
        cells = network, row["advice"], row["promise"], happened, row["found"].replace("*", "\\*")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", _measured("advice", record), ""])


def _table(name: str, record: dict[str, Any]) -> str:
    lines = [
        f"| {TITLES[name]} | tool | seconds | times as long | |",
        "|---|---|---|---|---|",
    ]
    last = None
    for row in record["rows"]:
        case = "" if row["case"] == last else row["case"]
        last = row["case"]
        shown = (_shown(row.get(field)) for field in ("seconds", "ratio"))
        lines.append(f"| {case} | {row['tool']} | {' | '.join(shown)} | {_remarks(row)} |")
    return "\n".join([*lines, "", _measured(name, record), ""])


def _shown(found: dict[str, Any] | None) -> str:
    """A median with its quartiles as text, or those of the three that are known."""
    if found is None:
        return ""
    numbers = {part: _number(found[part]) for part in ("low", "high", "median") if part in found}
    if "median" not in numbers:
        return "{low} to {high}".format(**numbers)
    alone = "low" not in numbers or len(found["runs"]) == 1
    return numbers["median"] if alone else "{median} ({low}, {high})".format(**numbers)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _remarks(row: dict[str, Any]) -> str:
    memory = f"{row['gigabytes']:.2g} GB" if "gigabytes" in row else ""
    return ", ".join(part for part in (row.get("note", ""), memory) if part)


def _measured(name: str, record: dict[str, Any]) -> str:
    """A sentence that says when, on what machine and with which versions it was measured."""
    found = record["environment"]
    versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
    where = f"{found['cores']} cores ({found['cpu']})" if "cpu" in found else ""
    where = where or f"{found['cores']} cores"
    command = f"`python -m benchmarks.{name}`"
    if "stated" in found:
        return f"{command} on {where}, {versions}. {found['stated']}"
    changed = "" if found.get("clean") else ", with changes that were not committed"
    return f"{command} on {where}, {versions}, {found['date']} at {found['commit']}{changed}."


if __name__ == "__main__":
    sys.exit(main())
