"""One page with every figure, its caption, its claims and how its numbers came about."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

from reproduction.corrections import CORRECTIONS, KINDS
from reproduction.findings import Section, counts
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, UNDECIDED, Claim, Sentence, Verdict

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}

_SENTENCES = "<tr><th>figure</th><th>sentence</th><th>verdict</th><th>readings</th></tr>"
_HEAD = "<tr><th>panel</th><th>claim</th><th>verdict</th><th>number</th></tr>"

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5b6168; --paper: #fbfbfa;
  --line: #dcdedb; --card: #ffffff; --holds: #1a6b3c; --fails: #a3341f; --open: #6a4ea3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --soft: #a0a6ad; --paper: #15171a;
  --line: #33373c; --card: #1d2024; --holds: #6fcf97; --fails: #ff9b85; --open: #b9a3f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 0 0 .8rem; }
p { margin: .5rem 0; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
nav { display: flex; flex-wrap: wrap; gap: .35rem; margin: 1.2rem 0 2rem; }
nav a { border: 1px solid var(--line); border-radius: .4rem; padding: .15rem .55rem;
  color: inherit; text-decoration: none; font-size: .9rem; background: var(--card); }
nav a:hover, nav a:focus { border-color: currentColor; }
section { border-top: 1px solid var(--line); padding: 1.6rem 0; }
figure { margin: 0 0 1rem; } figcaption { margin-top: .6rem; }
img { display: block; max-width: 100%; height: auto; margin: auto; background: #fff;
  border-radius: .3rem; padding: .4rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--line); } th { font-weight: 600; color: var(--soft); }
td:nth-child(1) { white-space: nowrap; } td:nth-child(3) { white-space: nowrap; font-weight: 600; }
.holds { color: var(--holds); } .undecided { color: var(--open); }
.fails, .problem { color: var(--fails); }
</style>
</head>
<body>
<header><h1>$title</h1><p class="soft">$summary</p></header>
<nav aria-label="Figures">$contents</nav>
<main>
$matters
$sections
</main>
</body>
</html>
""")


def page(sections: Sequence[Section], title: str, summary: str) -> str:
    """The report as one self-contained HTML page."""
    links = (f'<a href="#{s.anchor}">{html.escape(s.title)}</a>' for s in sections)
    return _PAGE.substitute(
        title=html.escape(title),
        summary=html.escape(summary),
        contents="\n".join(links),
        matters=_matters(sections),
        sections="\n".join(map(_section, sections)),
    )


def _matters(sections: Sequence[Section]) -> str:
    """The summary before the figures: every printed sentence, what fails and why, corrections."""
    verdicts = dict(pair for section in sections for pair in section.verdicts)
    statuses = [(claim, found.status) for claim, found in verdicts.items()]
    judged = sentences.judged(statuses)
    rows = "\n".join(map(_sentence, judged))
    corrected = "\n".join(
        f"<li>{KINDS[c.kind]}. Paper {c.paper}, {html.escape(c.where)}: {html.escape(c.corrected)}"
        f' <span class="soft">(printed: {html.escape(c.printed)})</span></li>'
        for c in CORRECTIONS
    )
    return (
        f'<section id="matters">\n<h2>What matters</h2>\n{_tallies(statuses)}\n'
        "<h3>Every printed sentence</h3>\n"
        f'<div class="scroll"><table>{_SENTENCES}\n{rows}</table></div>\n'
        f"<h3>What fails of what is printed, and why</h3>\n{_failures(judged, verdicts)}\n"
        "<details><summary>What was corrected in the papers' text"
        f" ({len(CORRECTIONS)})</summary><ul>\n{corrected}</ul></details></section>"
    )


def _failures(judged: Sequence[sentences.Judged], verdicts: Mapping[Claim, Verdict]) -> str:
    """The readings that fail of the sentences that fail, with their numbers."""
    rows = "\n".join(
        _claim(claim, verdicts[claim])
        for one in judged
        for claim, status in one.readings
        if one.status == status == FAILS
    )
    if not rows:
        return "<p>No printed sentence fails at these sizes.</p>"
    return f'<div class="scroll"><table>{_HEAD}\n{rows}</table></div>'


def _tallies(statuses: Sequence[tuple[Claim, str]]) -> str:
    """The four tallies as a list; they count different things."""
    lines = [
        f"<li>{html.escape(name)}: {html.escape(counts(found))}</li>"
        for name, found in sentences.tallies(statuses).items()
        if found
    ]
    return "<ul>\n" + "\n".join(lines) + "</ul>"


def _sentence(one: sentences.Judged) -> str:
    """One row: the words and their place, the verdict, and what its readings do."""
    figures = ", ".join(dict.fromkeys(claim.figure for claim, _ in one.readings))
    place = f"{one.sentence.paper}, {one.sentence.place}"
    return (
        f"<tr><td>{html.escape(figures)}</td><td><q>{html.escape(one.sentence.words)}</q>"
        f' <span class="soft">({html.escape(place)})</span></td>'
        f'<td class="{_CLASSES.get(one.status, "")}">{html.escape(one.status)}</td>'
        f"<td>{html.escape(one.summary)}</td></tr>"
    )


def markdown(sections: Sequence[Section], title: str, summary: str) -> str:
    """The report as Markdown, with links to the pictures."""
    readings = [(c, found.status) for section in sections for c, found in section.verdicts]
    said = "\n".join(_said(one) for one in sentences.judged(readings))
    parts = [f"# {title}", summary, "## Every printed sentence", said]
    for section in sections:
        parts.append(f"## {section.title}")
        parts.append(_markdown_figure(section))
        parts.append("\n".join(_lines(section.verdicts)))
        parts.append(provenance_line(section))
    return "\n\n".join(part for part in parts if part) + "\n"


def _lines(readings: Sequence[tuple[Claim, Verdict]]) -> Iterator[str]:
    """A line for each sentence with its readings below, then the claims that are about none."""
    verdicts = dict(readings)
    for one in sentences.judged((claim, found.status) for claim, found in readings):
        yield _said(one)
        yield from (f"  {_line(claim, verdicts[claim])}" for claim, _ in one.readings)
    for claim, found in readings:
        if not isinstance(claim.source, Sentence):
            yield _line(claim, found, f" ({claim.source})")


def _said(one: sentences.Judged) -> str:
    """A sentence with its verdict in one line."""
    summary = f" ({one.summary})" if one.summary else ""
    return f"- **{one.status}** {one.sentence}{summary}"


def _line(claim: Claim, found: Verdict, source: str = "") -> str:
    said = f"- **{claim.figure}** {claim.statement}{source}: {found.status}. {found.text}"
    return said + _why(claim, found)


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


def _section(section: Section) -> str:
    return (
        f'<section id="{section.anchor}">\n<h2>{html.escape(section.title)}</h2>\n'
        f"{_figure(section)}\n{_claims(section)}\n"
        f'<p class="soft">{html.escape(provenance_line(section))}</p>\n</section>'
    )


def _figure(section: Section) -> str:
    if section.picture is None:
        return f'<p class="problem">{html.escape(section.problem)}</p>'
    picture = section.picture.read_bytes()
    inches = int.from_bytes(picture[16:20], "big") / _DPI  # the width that a PNG begins with
    data = base64.b64encode(picture).decode()
    return (
        f'<figure><img alt="{html.escape(section.title)}" style="width:{_REM * inches:.1f}rem"'
        f' src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(section.caption)}</figcaption></figure>"
    )


def _claims(section: Section) -> str:
    """The sentences about a figure, each with its readings below, and what no sentence says."""
    if not section.verdicts:
        return ""
    verdicts = dict(section.verdicts)
    rows = []
    for one in sentences.judged((claim, found.status) for claim, found in section.verdicts):
        rows += [_sentence(one), *(_claim(claim, verdicts[claim]) for claim, _ in one.readings)]
    rows += [_claim(c, v) for c, v in section.verdicts if not isinstance(c.source, Sentence)]
    return f'<div class="scroll"><table>{_HEAD}\n{"".join(rows)}</table></div>'


def _claim(claim: Claim, found: Verdict) -> str:
    return (
        f"<tr><td>{html.escape(claim.figure)}</td><td>{html.escape(claim.statement)}{_source(claim)}"
        f'</td><td class="{_CLASSES.get(found.status, "")}">{html.escape(found.status)}</td>'
        f"<td>{html.escape(found.text)}{_paragraph(_why(claim, found))}</td></tr>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text.strip())}</p>" if text else ""


def _source(claim: Claim) -> str:
    """Where a claim comes from; a reading stands below its sentence, which says it."""
    if isinstance(claim.source, Sentence):
        return ""
    return f' <span class="soft">({html.escape(str(claim.source))})</span>'


def _why(claim: Claim, found: Verdict) -> str:
    """The mechanism of a failure, as a sentence after its number."""
    return f" Why: {claim.mechanism}" if found.status == FAILS and claim.mechanism else ""


def _markdown_figure(section: Section) -> str:
    if section.picture is None:
        return f"**Not drawn:** {section.problem}"
    return f"![{section.title}]({section.picture.as_posix()})\n\n{section.caption}"
