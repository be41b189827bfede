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
from sweeps.claims import (
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    STATUSES,
    UNDECIDED,
    Claim,
    Sentence,
    Verdict,
)
from sweeps.sentences import TALLIES

_DPI, _REM = 300, 9.0  # of the pictures, and how large an inch of them is shown
_CLASSES = {HOLDS: "holds", FAILS: "fails", UNDECIDED: "undecided"}


REHEARSAL = (
    "This is a rehearsal at toy sizes, and judges nothing: it shows that every experiment, picture"
    " and check runs. Its verdicts say nothing about the papers; those of the laptop's profile"
    " (make reproduce) and of the paper's do."
)


def _head(*names: str) -> Html:
    return element("tr", *(element("th", name) for name in names))


_SENTENCES = _head("figure", "sentence", "verdict", "readings")
_HEAD = _head("panel", "claim", "verdict", "number")


def page(sections: Sequence[Section], title: str, summary: str, *, rehearsal: bool = False) -> str:
    """The report as one self-contained HTML page.

    A ``rehearsal`` is a run at toy sizes, and its first lines say that it judges nothing.
    """
    notice = element("p", element("strong", REHEARSAL), class_="rehearsal") if rehearsal else ""
    return Template(texts.report()).substitute(
        title=joined([title]),
        notice=notice,
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
        *(_printed(judged, verdicts, sections) if judged else ()),
        *_beyond(sections),
        _details(
            "What was corrected in the papers' text", list(map(_correction, texts.corrections()))
        ),
    ]
    return element("section", joined(parts, "\n"), id="matters")


def _printed(
    judged: Sequence[sentences.Judged],
    verdicts: Mapping[Claim, Verdict],
    sections: Sequence[Section],
) -> Iterator[Html]:
    """The printed sentences: those that fail, with why, then the undecided, then all that hold.

    Each row names its verdict and its figures, by which a reader can choose.
    """
    places = {claim: s.anchor for s in sections for claim, _ in s.verdicts}
    marks = {}
    for one in judged:
        named = dict.fromkeys(places[claim] for claim, _ in one.readings)
        marks[one] = {"data_verdict": one.status, "data_figures": " ".join(named)}
    yield _filter([one.status for one in judged], sections)
    failures = [
        _claim(claim, verdicts[claim], **marks[one])
        for one in judged
        for claim, status in one.deciding
        if one.status == status == FAILS
    ]
    yield element("h3", "What is printed and fails, and why")
    none = element("p", "No printed sentence fails at these sizes.")
    yield _table(_HEAD, failures, "sentences") if failures else none
    for heading, wanted in (
        ("What is printed and could not be decided here", (UNDECIDED, NOT_TESTABLE)),
        ("What is printed and holds", (HOLDS,)),
    ):
        chosen = [_sentence(one, **marks[one]) for one in judged if one.status in wanted]
        if chosen:
            yield element("h3", heading)
            yield _table(_SENTENCES, chosen, "sentences")


def _filter(statuses: Sequence[str], sections: Sequence[Section]) -> Html:
    """Two lists to choose from, a verdict and a figure; shown where scripts run."""
    verdicts = [(status, status) for status in STATUSES if status in statuses]
    figures = [(s.title, s.anchor) for s in sections if any(map(_is_printed, s.verdicts))]
    lists = (
        element("label", f"{name} ", element("select", *map(_option, options), name=name.lower()))
        for name, options in (
            ("Verdict", [("all", ""), *verdicts]),
            ("Figure", [("all", ""), *figures]),
        )
    )
    return element("form", *lists, element("output"), class_="filter", hidden="")


def _option(pair: tuple[str, str]) -> Html:
    return element("option", pair[0], value=pair[1])


def _is_printed(reading: tuple[Claim, Verdict]) -> bool:
    return isinstance(reading[0].source, Sentence)


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


def _sentence(one: sentences.Judged, **marks: str) -> Html:
    """One row: the words and their place, the verdict, and what its readings do."""
    place = element("span", f"({one.sentence.paper}, {one.sentence.place})", class_="soft")
    return element(
        "tr",
        element("td", one.figures),
        element("td", element("q", one.sentence.words), " ", place),
        element("td", one.status, class_=_CLASSES.get(one.status, "")),
        element("td", one.summary),
        **marks,
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


def markdown(
    sections: Sequence[Section], title: str, summary: str, *, rehearsal: bool = False
) -> str:
    """The report as Markdown, with links to the pictures; see :func:`page` for a ``rehearsal``."""
    readings = [pair for section in sections for pair in section.statuses]
    said = "\n".join(map(_said, sentences.judged(readings)))
    counted = sentences.tallies(readings)
    tallies = "\n".join(f"- {name}: {counts(some)}" for name, some in counted.items() if some)
    notice = f"**{escaped(REHEARSAL)}**" if rehearsal else ""
    parts = [f"# {escaped(title)}", notice, escaped(summary), tallies]
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
    enlarge = element("button", shown, type="button", class_="enlarge")
    return element("figure", enlarge, element("figcaption", section.caption))


def _claims(readings: Sequence[tuple[Claim, Verdict]]) -> Html:
    """The sentences about a figure, each with its readings below, and what no sentence says."""
    verdicts = dict(readings)
    rows = []
    for one in sentences.judged((claim, found.status) for claim, found in readings):
        rows += [_sentence(one), *(_claim(claim, verdicts[claim]) for claim, _ in one.readings)]
    rows += [_claim(c, found) for c, found in readings if not isinstance(c.source, Sentence)]
    return _table(_HEAD, rows)


def _table(head: Html, rows: Sequence[Html], kind: str = "") -> Html:
    table = element("table", head, "\n", joined(rows, "\n"))
    return element("div", table, class_=f"scroll {kind}".strip())


def _claim(claim: Claim, found: Verdict, **marks: str) -> Html:
    why = _why(claim, found).strip()
    return element(
        "tr",
        element("td", claim.figure),
        element("td", claim.statement, *_source(claim)),
        element("td", found.status, class_=_CLASSES.get(found.status, "")),
        element("td", found.text, element("p", why) if why else ""),
        **marks,
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
