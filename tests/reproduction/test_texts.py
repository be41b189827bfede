"""Texts of claims, captions and data are shown as they are: no page takes them for markup."""

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reproduction import findings, report
from reproduction.corrections import Correction
from reproduction.findings import Section
from reproduction.markdown import escaped, table
from sweeps.claims import Claim, Source, Verdict

MARKS = (
    "<b>",
    "</td>",
    "&amp;",
    "|",
    "*a*",
    "_a_",
    "[a](b)",
    "`a`",
    "$a$",
    "~~a~~",
    "\\",
    '"',
    "'",
)
TEXT = "1. " + " ".join(MARKS) + " kappa[relu] [nan, nan] ![a](b) <!-- http://a.b # -->"
SHOWS = MarkdownIt("js-default", {"html": True, "linkify": False})


class Page(HTMLParser):
    """The text of a page, and its elements with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.text, self.elements, self.attributes = "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append(tag)
        self.attributes += [value for name, value in attributes if name in ("id", "alt")]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.elements.append("comment")


def _sections(text, picture):
    """Two sections, one without a picture, with one text in every place that takes a text."""
    claim = Claim(text, text, Source(text, text), lambda table: None, mechanism=text)
    provenance = {
        "data": [text], "precision": text, "seconds": 1.0, "device": text,
        "versions": {text: text}, "git": [{"commit": "a" * 40, "clean": True}], "dates": [text],
    }  # fmt: skip
    judged = [(claim, Verdict(status, 1.0, text)) for status in ("holds", "fails")]
    return [
        Section(text, picture, text, judged, provenance),
        Section(text, None, "", judged, provenance, text),
    ]


@pytest.fixture
def corrected(monkeypatch):
    """One correction, all of whose fields are the given text."""
    names = [field.name for field in dataclasses.fields(Correction)]

    def correct(text):
        for module in (report, findings):
            monkeypatch.setattr(module, "CORRECTIONS", [Correction(**dict.fromkeys(names, text))])

    return correct


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a folder (1)" / "picture.png"
    path.parent.mkdir()
    path.write_bytes(bytes(24))
    return path


def test_the_page_takes_no_text_for_html(picture, corrected):
    """Class: a text is put into HTML as it is. Each stands in the page as often as a plain one."""
    pages = []
    for text in (TEXT, "plain"):
        corrected(text)
        pages.append(Page(report.page(_sections(text, picture), text, text)))
    marked, plain = pages
    assert marked.elements == plain.elements
    assert marked.text.count(TEXT) == plain.text.count("plain") > 30
    assert len(marked.attributes) == len(plain.attributes)


def test_the_report_as_text_takes_no_text_for_markdown(picture):
    """Class: a text is put into Markdown as it is."""
    pages = [
        Page(SHOWS.render(report.markdown(_sections(text, picture), text, text)))
        for text in (TEXT, "plain")
    ]
    marked, plain = pages
    assert marked.elements == plain.elements
    assert marked.text.count(TEXT) == plain.text.count("plain") > 20
    assert "img" in plain.elements


def test_the_findings_take_no_text_for_markdown(corrected):
    """Class: a text is put into Markdown as it is; a cell of a table ends at its own end."""
    pages = []
    for text in (TEXT, "plain"):
        corrected(text)
        entry = {name: text for name in ("source", "number", "mechanism", "data")}
        records = {"laptop": {f"2a: {text}": {"figure": "fig02", "status": "fails", **entry}}}
        pages.append(Page(SHOWS.render(findings.markdown(records))))
    marked, plain = pages
    assert marked.elements == plain.elements
    assert marked.text.count(TEXT) == plain.text.count("plain") > 10


_PIECES = st.sampled_from(
    [*MARKS, *"ab1 -+.)(:#>=\n&;~`", "1. ", "- ", "---", "<a href=x>", "](x)"]
)


@given(st.lists(_PIECES, min_size=1, max_size=8).map("".join))
def test_any_text_is_shown_as_it_is(text):
    paragraph = Page(SHOWS.render(escaped(text)))
    words = " ".join(text.split())
    assert paragraph.text.strip() == words
    assert paragraph.elements == (["p"] if words else [])
    cell = Page(SHOWS.render(table(("a", "b"), [(escaped(text), "end")])))
    assert cell.text.split() == ["a", "b", *words.split(), "end"]
    assert cell.elements == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]


def test_what_is_published_is_what_the_records_say():
    """FINDINGS.md is written from figures/expected.json alone."""
    records = json.loads(Path("figures/expected.json").read_text(encoding="utf-8"))
    assert Path("figures/FINDINGS.md").read_text(encoding="utf-8") == findings.markdown(records)
