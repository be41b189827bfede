"""The tables that no run writes, each as a page: corrections, theory, settings and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reproduction.corrections import CORRECTIONS, KINDS
from reproduction.markdown import escaped, table
from reproduction.settings import SETTINGS
from reproduction.silent import WITHOUT_CLAIM
from reproduction.theory import THEORY

PAGES = {
    "corrections": "corrections to the papers' text",
    "theory": "every lemma, theorem and numbered equation with its code, its test and its status",
    "settings": "settings of each figure: printed, ours, and where the paper is silent",
    "without_claim": "sentences that make no claim which a figure could test",
}
"""What each page holds, by its name."""


def pages() -> dict[str, str]:
    """The text of each page, by its name."""
    tables = {
        "corrections": _corrections(),
        "theory": [
            _plain(
                ("paper", "what", "what it says", "status", "code", "test"),
                [(t.paper, t.what, t.says, t.status, t.code, t.test) for t in THEORY],
            )
        ],
        "settings": [
            _plain(
                ("figure", "setting", "printed", "ours", "why"),
                [(s.figure, s.setting, s.printed or "silent", s.ours, s.why) for s in SETTINGS],
            )
        ],
        "without_claim": [_plain(("paper", "where", "printed", "why"), WITHOUT_CLAIM)],
    }
    return {name: "\n\n".join([_head(name), *parts]) + "\n" for name, parts in tables.items()}


def _head(name: str) -> str:
    what = PAGES[name]
    return f"# {what[0].upper()}{what[1:]}\n\n[All findings](../FINDINGS.md)"


def _corrections() -> Iterator[str]:
    for kind, heading in KINDS.items():
        of_kind = [c for c in CORRECTIONS if c.kind == kind]
        rows = [(c.paper, c.where, c.printed, c.corrected, c.test) for c in of_kind]
        yield f"## {heading}"
        yield _plain(("paper", "where", "as printed", "corrected", "shown by"), rows)


def _plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts that are not Markdown yet."""
    return table(head, [[escaped(cell) for cell in row] for row in rows])
