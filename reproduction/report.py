"""One page with every figure, its caption, its claims and how its numbers came about."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from reproduction.corrections import CORRECTIONS
from reproduction.findings import Section
from sweeps.claims import FAILS, HOLDS, STATUSES, UNDECIDED, Claim, Verdict

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}

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
    """The summary before the figures: what holds, what fails and why, and what was corrected."""
    judged = [pair for section in sections for pair in section.verdicts]
    rows = "\n".join(_claim(claim, found) for claim, found in judged if found.status == FAILS)
    failures = (
        f'<div class="scroll"><table>{_HEAD}\n{rows}</table></div>'
        if rows
        else "<p>No claim fails at these sizes.</p>"
    )
    corrected = "\n".join(
        f"<li>Paper {c.paper}, {html.escape(c.where)}: {html.escape(c.corrected)}"
        f' <span class="soft">(printed: {html.escape(c.printed)})</span></li>'
        for c in CORRECTIONS
    )
    held = [claim for claim, found in judged if found.status == HOLDS]
    return (
        f'<section id="matters">\n<h2>What matters</h2>\n<p>{_tally(judged)}</p>\n'
        f"<h3>What fails, and why</h3>\n{failures}\n"
        f"<details><summary>What holds ({len(held)})</summary><ul>\n"
        + "\n".join(f"<li>{c.figure}: {html.escape(c.statement)}</li>" for c in held)
        + "</ul></details>\n<details><summary>What was corrected in the papers' text"
        f" ({len(CORRECTIONS)})</summary><ul>\n{corrected}</ul></details></section>"
    )


def _tally(judged: Sequence[tuple[Claim, Verdict]]) -> str:
    """How many claims of each source have each verdict."""
    kinds = dict.fromkeys(claim.source.kind for claim, _ in judged)
    lines = []
    for kind in kinds:
        found = [verdict.status for claim, verdict in judged if claim.source.kind == kind]
        listed = ", ".join(f"{found.count(s)} {s}" for s in STATUSES if s in found)
        lines.append(f"{kind}: {listed}")
    return html.escape("; ".join(lines)) + "."


def markdown(sections: Sequence[Section], title: str, summary: str) -> str:
    """The report as Markdown, with links to the pictures."""
    parts = [f"# {title}", summary]
    for section in sections:
        parts.append(f"## {section.title}")
        parts.append(_markdown_figure(section))
        parts += [
            f"- **{claim.figure}** {claim.statement} ({claim.source}): {found.status}. {found.text}"
            + _why(claim, found)
            for claim, found in section.verdicts
        ]
        parts.append(provenance_line(section))
    return "\n\n".join(part for part in parts if part) + "\n"


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
    if not section.verdicts:
        return ""
    rows = "\n".join(_claim(claim, found) for claim, found in section.verdicts)
    return f'<div class="scroll"><table>{_HEAD}\n{rows}</table></div>'


def _claim(claim: Claim, found: Verdict) -> str:
    return (
        f"<tr><td>{html.escape(claim.figure)}</td><td>{html.escape(claim.statement)}{_source(claim)}"
        f'</td><td class="{_CLASSES.get(found.status, "")}">{html.escape(found.status)}</td>'
        f"<td>{html.escape(found.text)}{_paragraph(_why(claim, found))}</td></tr>"
    )


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text.strip())}</p>" if text else ""


def _source(claim: Claim) -> str:
    return f' <span class="soft">({html.escape(str(claim.source))})</span>'


def _why(claim: Claim, found: Verdict) -> str:
    """The mechanism of a failure, as a sentence after its number."""
    return f" Why: {claim.mechanism}" if found.status == FAILS and claim.mechanism else ""


def _markdown_figure(section: Section) -> str:
    if section.picture is None:
        return f"**Not drawn:** {section.problem}"
    return f"![{section.title}]({section.picture.as_posix()})\n\n{section.caption}"
