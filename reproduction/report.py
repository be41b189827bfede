"""One page with every figure, its caption, its claims and how its numbers came about."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any
from urllib.parse import quote

from reproduction import texts
from reproduction.elements import Html, element, joined, picture
from reproduction.markdown import escaped
from reproduction.records import LEGEND, Section, counts
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim, Sentence, Verdict
from sweeps.sentences import TALLIES

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}


def _head(*names: str) -> Html:
    return element("tr", *(element("th", name) for name in names))


_SENTENCES = _head("figure", "sentence", "verdict", "readings")
_HEAD = _head("panel", "claim", "verdict", "number")

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
    """The summary before the figures: what is printed, what is beyond the papers, corrections."""
    verdicts = dict(pair for section in sections for pair in section.verdicts)
    statuses = [(claim, found.status) for claim, found in verdicts.items()]
    judged = sentences.judged(statuses)
    parts = [
        element("h2", "What matters"),
        element("p", LEGEND, class_="soft"),
        _tallies(statuses),
        *(_printed(judged, verdicts) if judged else ()),
        *_beyond(sections),
        _details(
            "What was corrected in the papers' text", list(map(_correction, texts.corrections()))
        ),
    ]
    return element("section", joined(parts, "\n"), id="matters")


def _printed(
    judged: Sequence[sentences.Judged], verdicts: Mapping[Claim, Verdict]
) -> Iterator[Html]:
    """The printed sentences: those that fail, with why, then the undecided, then all that hold."""
    failures = [
        _claim(claim, verdicts[claim])
        for one in judged
        for claim, status in one.deciding
        if one.status == status == FAILS
    ]
    yield element("h3", "What is printed and fails, and why")
    none = element("p", "No printed sentence fails at these sizes.")
    yield _table(_HEAD, failures) if failures else none
    for heading, wanted in (
        ("What is printed and could not be decided here", (UNDECIDED, NOT_TESTABLE)),
        ("What is printed and holds", (HOLDS,)),
    ):
        chosen = [_sentence(one) for one in judged if one.status in wanted]
        if chosen:
            yield element("h3", heading)
            yield _table(_SENTENCES, chosen)


def _beyond(sections: Sequence[Section]) -> Iterator[Html]:
    """Where the claims are that neither paper prints or implies."""
    ours = [
        section
        for section in sections
        if {sentences.tally_of(claim.source) for claim, _ in section.verdicts} == {TALLIES[3]}
    ]
    if ours:
        yield element("h3", "What is beyond the papers")
        links = [element("a", s.title, href=f"#{s.anchor}") for s in ours]
        text = "What else is claimed stands with each figure. Figures of their own: "
        yield element("p", text, joined(links, ", "))


def _tallies(statuses: Sequence[tuple[Claim, str]]) -> Html:
    """The four tallies as a list; they count different things."""
    found = sentences.tallies(statuses)
    items = (element("li", f"{name}: {counts(some)}") for name, some in found.items() if some)
    return element("ul", joined(items, "\n"))


def _sentence(one: sentences.Judged) -> Html:
    """One row: the words and their place, the verdict, and what its readings do."""
    place = element("span", f"({one.sentence.paper}, {one.sentence.place})", class_="soft")
    return element(
        "tr",
        element("td", one.figures),
        element("td", element("q", one.sentence.words), " ", place),
        element("td", one.status, class_=_CLASSES.get(one.status, "")),
        element("td", one.summary),
    )


def _details(summary: str, items: Sequence[str]) -> Html:
    """A list that is shown when its summary is clicked."""
    listed = joined((element("li", item) for item in items), "\n")
    return element(
        "details", element("summary", f"{summary} ({len(items)})"), element("ul", listed)
    )


def _correction(correction: texts.Correction) -> Html:
    where = f"{texts.KINDS[correction.kind]}. Paper {correction.paper}, {correction.where}"
    printed = element("span", f"(printed: {correction.printed})", class_="soft")
    return joined([f"{where}: {correction.corrected} ", printed])


def markdown(sections: Sequence[Section], title: str, summary: str) -> str:
    """The report as Markdown, with links to the pictures."""
    readings = [pair for section in sections for pair in section.statuses]
    said = "\n".join(map(_said, sentences.judged(readings)))
    counted = sentences.tallies(readings)
    tallies = "\n".join(f"- {name}: {counts(some)}" for name, some in counted.items() if some)
    parts = [f"# {escaped(title)}", escaped(summary), tallies]
    parts += ["## Every printed sentence", said] if said else []
    for section in sections:
        parts.append(f"## {escaped(section.title)}")
        parts.append(_markdown_figure(section))
        parts.append("\n".join(_lines(section.verdicts)))
        parts.append(escaped(provenance_line(section)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _lines(readings: Sequence[tuple[Claim, Verdict]]) -> Iterator[str]:
    """A line for each sentence with its readings below, then the claims that are about none."""
    verdicts = dict(readings)
    for one in sentences.judged((claim, found.status) for claim, found in readings):
        yield _said(one)
        for claim, _ in one.readings:
            yield f"  {_line(claim, verdicts[claim], f' ({claim.read_as})')}"
    for claim, found in readings:
        if not isinstance(claim.source, Sentence):
            yield _line(claim, found, f" ({claim.source})")


def _said(one: sentences.Judged) -> str:
    """A sentence with its verdict in one line."""
    summary = f" ({one.summary})" if one.summary else ""
    return f"- **{one.status}** {escaped(f'{one.sentence}{summary}')}"


def _line(claim: Claim, found: Verdict, source: str = "") -> str:
    told = f"{claim.statement}{source}: {found.status}. {found.text}{_why(claim, found)}"
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
        _claims(section.verdicts) if section.verdicts else "",
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


def _claims(readings: Sequence[tuple[Claim, Verdict]]) -> Html:
    """The sentences about a figure, each with its readings below, and what no sentence says."""
    verdicts = dict(readings)
    rows = []
    for one in sentences.judged((claim, found.status) for claim, found in readings):
        rows += [_sentence(one), *(_claim(claim, verdicts[claim]) for claim, _ in one.readings)]
    rows += [_claim(c, found) for c, found in readings if not isinstance(c.source, Sentence)]
    return _table(_HEAD, rows)


def _table(head: Html, rows: Sequence[Html]) -> Html:
    return element("div", element("table", head, "\n", joined(rows, "\n")), class_="scroll")


def _claim(claim: Claim, found: Verdict) -> Html:
    why = _why(claim, found).strip()
    return element(
        "tr",
        element("td", claim.figure),
        element("td", claim.statement, *_source(claim)),
        element("td", found.status, class_=_CLASSES.get(found.status, "")),
        element("td", found.text, element("p", why) if why else ""),
    )


def _source(claim: Claim) -> Iterator[str]:
    """Where a claim comes from; a reading stands below its sentence, and says how it is read."""
    told = claim.read_as if isinstance(claim.source, Sentence) else claim.source
    yield " "
    yield element("span", f"({told})", class_="soft")


def _why(claim: Claim, found: Verdict) -> str:
    """The mechanism of a failure, as a sentence after its number."""
    return f" Why: {claim.mechanism}" if found.status == FAILS and claim.mechanism else ""


def _markdown_figure(section: Section) -> str:
    if section.picture is None:
        return f"**Not drawn:** {escaped(section.problem)}"
    link = f"![{escaped(section.title)}]({quote(section.picture.as_posix())})"
    return f"{link}\n\n{escaped(section.caption)}"
