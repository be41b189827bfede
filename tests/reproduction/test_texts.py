"""Texts of claims, captions and data are shown as they are: no page takes them for markup."""

import dataclasses
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reproduction import findings, readings, report, texts
from reproduction.markdown import escaped, table
from reproduction.records import Section
from sweeps.claims import BEYOND, Claim, Sentence, Source, Verdict

MARKS = (
    "<b>",
    "</td>",
    "&amp;b",  # "; " ends a clause
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


def _claims(text):
    """A reading of a sentence, and a claim that is about none, with one text in every place."""
    sources = (Sentence("A", text, text), Source(text, text))
    return [Claim("2b", text, source, lambda table: None, mechanism=text) for source in sources]


def _sections(text):
    """Two sections, one without a picture, with one text in every place that takes a text."""
    claims = _claims(text)
    provenance = {
        "data": [text], "precision": text, "seconds": 1.0, "device": text,
        "versions": {text: text}, "git": [{"commit": "a" * 40, "clean": True}], "dates": [text],
    }  # fmt: skip
    statuses = ("fails", "holds")
    judged = [(c, Verdict(s, 1.0, text)) for c, s in zip(claims, statuses, strict=True)]
    return [
        Section("fig02", None, "", judged, provenance),
        Section("b1", None, "", [], provenance, text),
    ]


@pytest.fixture
def corrected(monkeypatch):
    """One row with the given text in all of its places in every table that no run writes."""

    def filled(row, text, **others):
        names = [field.name for field in dataclasses.fields(row)]
        return [row(**dict.fromkeys(names, text) | others)]

    def correct(text):
        for name, row, others in (
            ("corrections", texts.Correction, {"kind": texts.WRONG}),
            ("without_claim", texts.WithoutClaim, {}),
            ("theory", texts.Statement, {}),
            ("settings", texts.Setting, {"figure": "fig02"}),
            ("pictures", texts.Picture, {"figure": "fig02"}),
            (
                "answers",
                texts.Answer,
                {"figures": ("fig02",), "sentences": (text,), "readings": ()},
            ),
            (
                "explained",
                texts.Explained,
                {"found": (text,), "readings": (), "picture": "plain.png"},
            ),
        ):
            rows = filled(row, text, **others)
            monkeypatch.setattr(texts, name, lambda rows=rows: rows)

    return correct


def test_the_report_takes_no_text_for_markup(tmp_path, corrected):
    """Class: a text is put into Markdown or HTML as it is."""
    where = tmp_path / "a folder (1)"
    where.mkdir()
    pages = []
    for shown in (TEXT, "plain"):
        corrected(shown)
        (where / "fig02.png").write_bytes(bytes(24))
        (where / "fig02.txt").write_text(shown)
        told = report.markdown(_sections(shown), "laptop", shown, shown, where, tmp_path)
        pages.append((Page(SHOWS.render(told)), Page(report.page(told, tmp_path))))
    for marked, plain in zip(*pages, strict=True):
        assert marked.elements == plain.elements
        assert marked.text.count(TEXT) == plain.text.count("plain") > 20
        assert "img" in plain.elements


def test_the_findings_take_no_text_for_markdown(corrected):
    """Class: a text is put into Markdown as it is; a cell of a table ends at its own end."""
    found = []
    for text in (TEXT, "plain"):
        corrected(text)
        claims = _claims(text)
        claims.append(Claim("2c", text, BEYOND, claims[0].check))
        entry = {"figure": "fig02", "status": "fails", "number": text, "data": text}
        entry |= {"short": text, "images": text, "seeds": "3", "value": text}
        known = {"laptop": {readings.name(claim): entry for claim in claims}}
        written = findings.written(known, claims).items()
        pages = {path: told for path, told in written if path.endswith(".md")}
        found.append({path: Page(SHOWS.render(text)) for path, text in pages.items()})
    for (path, marked), plain in zip(found[0].items(), found[1].values(), strict=True):
        assert marked.elements == plain.elements, path
        assert marked.text.count(TEXT) == plain.text.count("plain"), path
    assert found[1]["findings/fig02.md"].text.count("plain") > 10
    assert found[1]["FINDINGS.md"].text.count("plain") > 10


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
