"""One page with every figure, its caption, its claims and how its numbers came about."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any
from urllib.parse import quote

from reproduction.corrections import CORRECTIONS, Correction
from reproduction.elements import Html, element, joined, picture
from reproduction.findings import Section
from reproduction.markdown import escaped
from sweeps.claims import FAILS, HOLDS, STATUSES, UNDECIDED, Claim, Verdict

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}

_HEAD = element("tr", *(element("th", n) for n in ("panel", "claim", "verdict", "number")))

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
    return _PAGE.substitute(
        title=joined([title]),
        summary=joined([summary]),
        contents=joined((element("a", s.title, href=f"#{s.anchor}") for s in sections), "\n"),
        matters=_matters(sections),
        sections=joined(map(_section, sections), "\n"),
    )


def _matters(sections: Sequence[Section]) -> Html:
    """The summary before the figures: what holds, what fails and why, and what was corrected."""
    judged = [pair for section in sections for pair in section.verdicts]
    failures = [pair for pair in judged if pair[1].status == FAILS]
    held = [claim for claim, found in judged if found.status == HOLDS]
    parts = [
        element("h2", "What matters"),
        element("p", _tally(judged)),
        element("h3", "What fails, and why"),
        _table(failures) if failures else element("p", "No claim fails at these sizes."),
        _details("What holds", [f"{claim.figure}: {claim.statement}" for claim in held]),
        _details("What was corrected in the papers' text", list(map(_correction, CORRECTIONS))),
    ]
    return element("section", joined(parts, "\n"), id="matters")


def _details(summary: str, items: Sequence[str]) -> Html:
    """A list that is shown when its summary is clicked."""
    listed = joined((element("li", item) for item in items), "\n")
    return element(
        "details", element("summary", f"{summary} ({len(items)})"), element("ul", listed)
    )


def _correction(correction: Correction) -> Html:
    text = f"Paper {correction.paper}, {correction.where}: {correction.corrected} "
    return joined([text, element("span", f"(printed: {correction.printed})", class_="soft")])


def _tally(judged: Sequence[tuple[Claim, Verdict]]) -> str:
    """How many claims of each source have each verdict."""
    kinds = dict.fromkeys(claim.source.kind for claim, _ in judged)
    lines = []
    for kind in kinds:
        found = [verdict.status for claim, verdict in judged if claim.source.kind == kind]
        listed = ", ".join(f"{found.count(s)} {s}" for s in STATUSES if s in found)
        lines.append(f"{kind}: {listed}")
    return "; ".join(lines) + "."


def markdown(sections: Sequence[Section], title: str, summary: str) -> str:
    """The report as Markdown, with links to the pictures."""
    parts = [f"# {escaped(title)}", escaped(summary)]
    for section in sections:
        parts.append(f"## {escaped(section.title)}")
        parts.append(_markdown_figure(section))
        parts += [_markdown_claim(claim, found) for claim, found in section.verdicts]
        parts.append(escaped(provenance_line(section)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_claim(claim: Claim, found: Verdict) -> str:
    told = f"{claim.statement} ({claim.source}): {found.status}. {found.text}{_why(claim, found)}"
    return f"- **{escaped(claim.figure)}** {escaped(told)}"


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


def _section(section: Section) -> Html:
    parts = [
        element("h2", section.title),
        _figure(section),
        _table(section.verdicts) if section.verdicts else "",
        element("p", provenance_line(section), class_="soft"),
    ]
    return element("section", joined(parts, "\n"), id=section.anchor)


def _figure(section: Section) -> Html:
    if section.picture is None:
        return element("p", section.problem, class_="problem")
    content = section.picture.read_bytes()
    inches = int.from_bytes(content[16:20], "big") / _DPI  # the width that a PNG begins with
    shown = picture(
        alt=section.title,
        style=f"width:{_REM * inches:.1f}rem",
        src=f"data:image/png;base64,{base64.b64encode(content).decode()}",
    )
    return element("figure", shown, element("figcaption", section.caption))


def _table(verdicts: Sequence[tuple[Claim, Verdict]]) -> Html:
    rows = joined((_claim(claim, found) for claim, found in verdicts), "\n")
    return element("div", element("table", _HEAD, "\n", rows), class_="scroll")


def _claim(claim: Claim, found: Verdict) -> Html:
    source = element("span", f"({claim.source})", class_="soft")
    why = _why(claim, found).strip()
    return element(
        "tr",
        element("td", claim.figure),
        element("td", claim.statement, " ", source),
        element("td", found.status, class_=_CLASSES.get(found.status, "")),
        element("td", found.text, element("p", why) if why else ""),
    )


def _why(claim: Claim, found: Verdict) -> str:
    """The mechanism of a failure, as a sentence after its number."""
    return f" Why: {claim.mechanism}" if found.status == FAILS and claim.mechanism else ""


def _markdown_figure(section: Section) -> str:
    if section.picture is None:
        return f"**Not drawn:** {escaped(section.problem)}"
    link = f"![{escaped(section.title)}]({quote(section.picture.as_posix())})"
    return f"{link}\n\n{escaped(section.caption)}"
