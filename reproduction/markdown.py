"""Plain text as Markdown that shows it, and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import digits

_MARK = re.compile(r"[\\`*_\[\]<>|~#$]|&(?=#?\w+;)|^[-+.)](?=[-\s]|$)")


def escaped(text: str) -> str:
    """The text in one line, in which nothing is a mark: no emphasis, link, tag, formula or list."""
    line = " ".join(text.split())
    rest = line.lstrip(digits)  # "1." begins a list, as "-" does
    return line[: len(line) - len(rest)] + _MARK.sub(r"\\\g<0>", rest)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown themselves."""
    lines = [_row(head), "|" + "---|" * len(head), *map(_row, rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
