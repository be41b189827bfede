"""What one run found, as Markdown and as one HTML page that needs nothing else.

Its parts are those of the findings (:mod:`reproduction.findings`), of one profile; the page is the
Markdown, rendered, with every picture and its points inside.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

from figures.__main__ import POINTS
from reproduction import appendices, figure_findings, findings, questioned, records, texts
from reproduction.markdown import escaped
from reproduction.readings import title
from reproduction.records import Section
from reproduction.sides import Side
from sweeps.claims import FAILS, HOLDS, PARTLY, UNDECIDED

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNDECIDED: "undecided"}

REHEARSAL = (
    "This is a rehearsal at toy sizes, and judges nothing: it shows that every experiment, picture"
    " and check runs. Its verdicts say nothing about the papers; those of the laptop's profile"
    " (make reproduce) and of the paper's do."
)


def markdown(
    sections: Sequence[Section], profile: str, name: str, summary: str, pictures: Path, where: Path
) -> str:
    """The report as Markdown.

    Args:
      sections: what is known of each figure.
      profile: that of the run. That of toy sizes is a rehearsal, and the first lines say so.
      name: the title of the report.
      summary: its first paragraph.
      pictures: the folder that has the figures' pictures, with their captions.
      where: the folder of the report.
    """
    sides = [side(sections, profile, pictures)]
    parts = [
        f"# {escaped(name)}",
        *([f"> **{escaped(REHEARSAL)}**"] if profile == "smoke" else ()),
        escaped(summary),
        f"[Every printed sentence in one table]({questioned.NAME}), to sort, filter and ask what"
        " another limit would give.",
        "## What matters",
        *_lower(_matters(sides)),
    ]
    for section in sections:
        parts.append(f"## {title(section.figure)}")
        if section.problem:  # what an earlier run has drawn is not shown
            parts.append(f"**Not drawn:** {escaped(section.problem)}")
        else:
            parts += _lower(figure_findings.pictures(section.figure, sides, where))
        parts += _lower(figure_findings.verdicts(section.figure, sides))
        parts.append(escaped(provenance_line(section)))
    parts += ["## Corrections", *_lower(appendices.corrections())]
    return "\n\n".join(filter(None, parts)) + "\n"


def side(sections: Sequence[Section], profile: str, pictures: Path) -> Side:
    """What was found in a run, as one side."""
    claims = [claim for section in sections for claim, _ in section.verdicts]
    return Side(profile, records.of_sections(sections), claims, pictures)


def _matters(sides: Sequence[Side]) -> Iterator[str]:
    """What is printed with its verdicts, what is beyond the papers, and how to read both."""
    if sides[0].judged():
        yield from findings.printed(sides, _anchor)
    yield from findings.beyond(sides[0].claims, _anchor)
    yield from findings.legend(sides)


def _anchor(figure: str) -> str:
    return f"#{_slug(title(figure))}"


def _slug(heading: str) -> str:
    """The name of a heading in links, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _lower(parts: Iterable[str]) -> Iterator[str]:
    """The parts with their headings a level lower."""
    return (f"#{part}" if part.startswith("#") else part for part in parts)


def provenance_line(section: Section) -> str:
    """Data, precision, time, device and versions in one line; empty for a schematic."""
    known = section.provenance
    if not known:
        return ""
    versions = ", ".join(f"{name} {number}" for name, number in known["versions"].items())
    facts = (
        "; ".join(known["data"]),
        known["precision"],
        f"{known['seconds']:.0f} s of computing",
        known["device"],
        versions,
        ", ".join(_commit(git) for git in known["git"] if git),
        " to ".join(dict.fromkeys(known["dates"])),
    )
    return ". ".join(fact for fact in facts if fact) + "."


def _commit(git: Mapping[str, Any]) -> str:
    return f"commit {git['commit'][:10]}" + ("" if git["clean"] else " with changes")


def page(text: str, where: Path) -> str:
    """A report in Markdown as one HTML page with its pictures inside.

    Each heading of the second level begins a section, which has its name.
    """
    renders = MarkdownIt("commonmark", {"html": False}).enable("table")
    renders.add_render_rule("image", lambda _, tokens, index, *rest: _picture(tokens[index], where))
    renders.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    renders.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = renders.parse(text)
    for token in tokens:
        _coloured(token)
    starts = [i for i, t in enumerate(tokens) if (t.type, t.tag) == ("heading_open", "h2")]
    head, *sections = (
        (tokens[start:end], renders.renderer.render(tokens[start:end], renders.options, {}))
        for start, end in pairwise([0, *starts, len(tokens)])
    )
    names = [_plain(part[1]) for part, _ in sections]
    return Template(texts.report()).substitute(
        title=escape(_plain(tokens[1])),
        head=head[1],
        contents="\n".join(f'<a href="#{_slug(name)}">{escape(name)}</a>' for name in names),
        sections="\n".join(
            f'<section id="{_slug(name)}">\n{shown}</section>'
            for name, (_, shown) in zip(names, sections, strict=True)
        ),
    )


def _plain(token: Token) -> str:
    """The text of a heading without marks."""
    return "".join(child.content for child in token.children or ())


def _coloured(token: Token) -> None:
    """Give each verdict its class."""
    for opening, word in pairwise(token.children or ()):
        if opening.type == "strong_open" and word.content in _CLASSES:
            opening.attrSet("class", _CLASSES[word.content])


def _picture(token: Token, where: Path) -> str:
    """A picture that can be enlarged, below its points, which tell what they show."""
    path = where / unquote(str(token.attrs["src"]))
    content = path.read_bytes()
    inches = int.from_bytes(content[16:20], "big") / _DPI  # the width that a PNG begins with
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    points = path.with_suffix(POINTS)
    return (
        f'<button type="button" class="enlarge"><span class="plot"'
        f' style="width:{_REM * inches:.1f}rem"><img alt="{escape(token.content)}" src="{source}">'
        f"{points.read_text(encoding='utf-8') if points.is_file() else ''}</span></button>"
    )
