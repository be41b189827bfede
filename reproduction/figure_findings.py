"""The page of one figure: pictures, sentences with their readings, what else is claimed, data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from reproduction import standing, texts
from reproduction.appendices import SETTING, setting
from reproduction.markdown import escaped, table
from reproduction.published import gallery, table_of
from reproduction.readings import figure_of, title
from reproduction.sides import Side, linked, verdict, words
from reproduction.standing import Standing
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, PARTLY, UNDECIDED, Claim, Sentence
from sweeps.sentences import TALLIES


def page(figure: str, sides: Sequence[Side], where: Path) -> str:
    """What the papers print of a figure and what became of it, as Markdown.

    Args:
      figure: the module of the figure, as in "fig02".
      sides: the records of each profile.
      where: the folder of the page.
    """
    parts = [
        f"# {title(figure)}",
        "[All findings](../FINDINGS.md), and how verdicts are to be read. What words without a"
        " number are taken to mean: [limits](limits.md)",
        *below_title(figure, sides, where),
    ]
    return "\n\n".join(parts) + "\n"


def below_title(figure: str, sides: Sequence[Side], where: Path) -> Iterator[str]:
    """What stands below the title."""
    yield from pictures(figure, sides, where)
    yield from verdicts(figure, sides)
    yield from _beside(figure)
    yield from _settings(figure)
    yield from _data(figure, sides, where)


def verdicts(figure: str, sides: Sequence[Side]) -> Iterator[str]:
    """The sentences about the figure with their verdicts, and what else is claimed."""
    known = sides[0].claims if sides else []
    claims = [c for c in known if figure_of(c) == figure]
    yield from _sentences(figure, claims, sides)
    yield from _without_claim(figure)
    yield from _others(claims, sides)
    if not claims and (judged := _judged_at(figure, known)):
        yield f"What is printed of it is judged at Figure {linked(judged, '{}.md'.format)}."


def _judged_at(figure: str, claims: Sequence[Claim]) -> str:
    """The figure at which claims about several panels stand, this one among them; "" if none."""
    number = title(figure).removeprefix("Figure ")
    return next((figure_of(c) for c in claims if number in c.figure.split(", ")), "")


def pictures(figure: str, sides: Sequence[Side], where: Path) -> Iterator[str]:
    """The picture of each profile with its caption, that of the paper's sizes first."""
    for side in reversed(sides):
        picture = side.pictures / f"{figure}.png"
        caption = picture.with_suffix(".txt")
        if picture.is_file() and caption.is_file():
            yield f"## At the {side.profile} profile"
            yield f"![{title(figure)}]({link(picture, where)})"
            yield escaped(caption.read_text(encoding="utf-8"))
            yield from _is_right(figure, side)


def _is_right(figure: str, side: Side) -> Iterator[str]:
    """Whether what the paper prints of the picture holds in it, as a caption's last sentence."""
    told = [
        f'"{one.sentence.words}" {SAID[one.status]}'
        for one in side.judged().values()
        if any(figure_of(claim) == figure for claim, _ in one.deciding)
    ]
    if told:
        yield f"Is the paper right? {escaped('; '.join(told))}."


SAID = {
    HOLDS: "holds",
    PARTLY: "holds in part",
    FAILS: "fails",
    UNDECIDED: "is undecided",
    NOT_TESTABLE: "is not testable here",
}
"""A verdict in a sentence."""


def link(path: Path, where: Path) -> str:
    """Where a file is, seen from a folder, as a link has it."""
    return quote(Path(os.path.relpath(path, where)).as_posix())


def _sentences(figure: str, claims: Sequence[Claim], sides: Sequence[Side]) -> Iterator[str]:
    """Every sentence about the figure, and below it its readings there."""
    about = {claim.source for claim in claims}
    known = [side.judged() for side in sides]
    standings = standing.standings(sides)
    rows: list[tuple[str, ...]] = []
    for one in sentences.judged((claim, "") for claim in (sides[0].claims if sides else [])):
        if one.sentence not in about:
            continue
        count = len(one.deciding)
        rule = f" ({one.sentence.rule} of {count})" if count > 1 else ""
        of_sides = (
            verdict(judged, one.sentence) + escaped(_taken(standings.get(one.sentence), side))
            for side, judged in zip(sides, known, strict=True)
        )
        said = (f"**{escaped(one.figures)}**", f"**{words(one.sentence)}**{rule}")
        rows.append((*said, "", *of_sides))
        for claim, _ in one.readings:
            if figure_of(claim) == figure:
                panel, statement, *cells = _row(claim, sides)
                rows.append((panel, statement, claim.said_as, *cells))
        others = dict.fromkeys(figure_of(claim) for claim, _ in one.readings)
        if elsewhere := ", ".join(
            linked(name, "{}.md".format) for name in others if name != figure
        ):
            rows.append(
                ("", f"its readings in other figures: {elsewhere}", *[""] * (1 + len(sides)))
            )
    if rows:
        yield "## What the paper prints"
        heads = ("panel", "printed sentence, and its readings", "read")
        yield table((*heads, *(side.profile for side in sides)), rows)


def _taken(known: Standing | None, side: Side) -> str:
    """What it would take to decide a sentence that is open, at the profile that counts, or ""."""
    if known is None or side is not known.side or known.status in (HOLDS, PARTLY, FAILS):
        return ""
    return f". It would take {'; '.join(known.takes())}"


def _without_claim(figure: str) -> Iterator[str]:
    """What else is printed of the figure, of which no table can decide."""
    rows = [row for row in texts.without_claim() if figure in row.figure.split()]
    if rows:
        yield "## Printed of it without a claim"
        yield table(
            ("where", "printed", "why"),
            [tuple(map(escaped, (f"{r.paper}, {r.where}", r.printed, r.why))) for r in rows],
        )


def _others(claims: Sequence[Claim], sides: Sequence[Side]) -> Iterator[str]:
    """What is implied by an equation, and what is beyond the papers."""
    for tally, heading in (
        (TALLIES[2], "## What printed equations imply"),
        (TALLIES[3], "## Beyond the papers"),
    ):
        rows = [
            _row(claim, sides, escaped(f" ({claim.source})"))
            for claim in claims
            if not isinstance(claim.source, Sentence) and sentences.tally_of(claim.source) == tally
        ]
        if rows:
            yield heading
            yield table(("panel", "claim", *(side.profile for side in sides)), rows)


def _row(claim: Claim, sides: Sequence[Side], source: str = "") -> tuple[str, ...]:
    said = escaped(claim.statement) + (f" {source}" if source else "")
    return (escaped(claim.figure), said, *(side.cell(claim) for side in sides))


def _beside(figure: str) -> Iterator[str]:
    """The picture in the authors' notebook, which is not shown, and what differs in ours."""
    for row in texts.pictures():
        if figure in row.figure.split():
            yield "## Beside the picture in the authors' notebook"
            yield escaped(f"{row.theirs} ({row.notebook})")
            yield escaped(row.differs)
            yield "Number by number: [the authors' numbers beside ours](authors.md)."


def _settings(figure: str) -> Iterator[str]:
    rows = [
        tuple(map(escaped, setting(row)))
        for row in texts.settings()
        if figure in row.figure.split()
    ]
    if rows:
        yield "## Settings"
        yield table(SETTING, rows)


def _data(figure: str, sides: Sequence[Side], where: Path) -> list[str]:
    """The data, and where the numbers behind the picture are."""
    of = _judged_at(figure, sides[0].claims) if sides else ""
    told = ((side.profile, side.data(figure) or side.data(of)) for side in sides)
    lines = [f"- {profile}: {escaped(data)}" for profile, data in told if data]
    parts = ["\n".join(lines)] if lines else []
    for side in sides:
        rows = table_of(figure, side.pictures)
        if rows.is_file():
            path = table_of(figure, gallery(side.profile)).as_posix()
            parts.append(
                f"The numbers of the {side.profile} profile are in"
                f" [{rows.name}]({link(rows, where)}); `python -m figures {figure} --from={path}`"
                " draws them again."
            )
    return ["## Data", *parts] if parts else []
