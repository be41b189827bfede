"""The tables that no run writes, each as a page: corrections, theory, settings and others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from reproduction import texts
from reproduction.markdown import escaped, table

PAGES = {
    "corrections": "corrections to the papers' text",
    "theory": "every lemma, theorem and numbered equation with its code, its test and its status",
    "settings": "settings of each figure: printed, in the published code, and ours",
    "limits": "what words without a number, such as tight, are taken to mean",
    "rank_rules": "rules for the numerical rank: definition, where it is used, what it gives",
    "without_claim": "sentences that make no claim which a figure could test",
}
"""What each page holds, by its name."""


def pages() -> dict[str, str]:
    """The text of each page, by its name."""
    tables = {
        "corrections": corrections(),
        "theory": [
            _plain(
                ("paper", "what", "what it says", "status", "code", "test"),
                [dataclasses.astuple(row) for row in texts.theory()],
            ),
            *proofs(),
        ],
        "settings": [
            _plain(
                ("figure", *SETTING),
                [(row.figure, *setting(row)) for row in texts.settings()],
            )
        ],
        "limits": [
            _plain(
                ("figure", "words", "hold where"),
                [(row.figure, row.words, row.told()) for row in texts.limits()],
            )
        ],
        "rank_rules": [
            _plain(
                ("rule", "definition", "in the published code", "ours", "what it gives"),
                [dataclasses.astuple(row) for row in texts.rank_rules()],
            )
        ],
        "without_claim": [
            _plain(
                ("paper", "where", "printed", "why"),
                [(row.paper, row.where, row.printed, row.why) for row in texts.without_claim()],
            )
        ],
    }
    return {name: "\n\n".join([_head(name), *parts]) + "\n" for name, parts in tables.items()}


SETTING = ("setting", "printed", "in the published code", "ours", "why")
"""The heads of a table of settings, without the figures."""


def setting(row: texts.Setting) -> tuple[str, ...]:
    """The cells below these heads; paper B has no published code."""
    code = row.code or ("no code" if row.figure.startswith("b") else "says nothing")
    return row.setting, row.printed or "says nothing", code, row.ours, row.why


def _head(name: str) -> str:
    what = PAGES[name]
    return f"# {what[0].upper()}{what[1:]}\n\n[All findings](../FINDINGS.md)"


def proofs() -> Iterator[str]:
    """Our own statements, each with its proof and the test that measures it."""
    yield "## Of our own, with proofs"
    for row in texts.proofs():
        yield f"### {escaped(row.title)}"
        yield escaped(row.statement)
        yield f"Proof. {escaped(row.proof)}"
        yield f"Measured by {escaped(row.test)}"


def corrections() -> Iterator[str]:
    """The corrections to the papers' text, a table for each kind."""
    for kind, heading in texts.KINDS.items():
        of_kind = [c for c in texts.corrections() if c.kind == kind]
        rows = [(c.paper, c.where, c.printed, c.corrected, c.test) for c in of_kind]
        yield f"## {heading}"
        yield _plain(("paper", "where", "as printed", "corrected", "shown by"), rows)


def _plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts that are not Markdown yet."""
    return table(head, [[escaped(cell) for cell in row] for row in rows])
