"""The number that decides each reading, its limit and its margin, from what judged it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reproduction.markdown import escaped, table
from reproduction.questioned import margin
from reproduction.readings import figure_of, name
from reproduction.sides import Side, linked, plain
from sweeps.claims import Claim, Sentence


def deciding(sides: Sequence[Side]) -> Iterator[str]:
    """A table of every reading of a printed sentence that one number decides."""
    claims = sides[0].claims if sides else ()
    rows = [_row(claim, sides) for claim in claims if isinstance(claim.source, Sentence)]
    shown = [row for row in rows if row]
    if shown:
        yield "\n## The limit of each reading\n"
        yield (
            "As the code that judges has it, at the profile that counts: the number, the limit that"
            " the reading puts it above or below, and the margin, which is the factor by which the"
            " number is on the claimed side, or the difference where the limit is 0. Readings that"
            " several numbers decide are told in words above and on the page of their figure.\n"
        )
        yield table(("figure", "printed", "reading", "verdict", "number", "limit", "margin"), shown)


def _row(claim: Claim, sides: Sequence[Side]) -> tuple[str, ...]:
    """The reading at the largest sizes at which one number decides it; empty if there are none."""
    assert isinstance(claim.source, Sentence)
    for side in reversed(sides):
        entry = side.recorded.get(name(claim), {})
        if entry.get("limit"):
            told = (entry["status"], plain(entry["value"]), entry["limit"], margin(entry))
            words = (f'"{claim.source.words}"', claim.statement)
            return (linked(figure_of(claim), "{}.md".format), *map(escaped, (*words, *told)))
    return ()
