"""The report in a browser: no error, sentences are chosen, points tell, pictures enlarge."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import pandas as pd
import pytest

from figures.__main__ import POINTS
from figures.shared import points, style
from figures.shared.series import over_seeds
from reproduction import questioned, records, report
from reproduction.published import GALLERY
from reproduction.records import Section
from reproduction.sides import of_records
from sweeps.claims import Claim, Sentence, Verdict

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

TRIES = """
const found = {};
const form = document.querySelector("form.filter");
const seen = (asked) => [...document.querySelectorAll(asked)].filter((one) => one.offsetParent);
const choices = (list) => [...list.options].map((option) => option.text);
found.choices = [choices(form.elements.verdict), choices(form.elements.figure)];
found.chosen = [["", ""], ["What holds", ""], ["", "#figure-3"], ["What holds", "#figure-3"]].map(
  ([verdict, figure]) => {
    form.elements.verdict.value = verdict;
    form.elements.figure.value = figure;
    form.dispatchEvent(new Event("input"));
    const rows = seen("#what-matters tbody tr").filter((row) => row.cells[0].querySelector("a"));
    return [rows.map((row) => row.cells[1].textContent.split('"')[1]),
      seen("#what-matters h3").length, form.querySelector("output").textContent];
  });
const told = () => {
  const circle = [...document.querySelectorAll(".points circle")].at(-1);
  circle.scrollIntoView({ block: "center" });
  const { x, y, width, height } = circle.getBoundingClientRect();
  const there = document.elementFromPoint(x + width / 2, y + height / 2);
  there.dispatchEvent(new PointerEvent("pointerover", { bubbles: true, clientX: x, clientY: y }));
  return document.querySelector(".tip:not([hidden])")?.textContent;
};
found.told = told();
document.querySelector(".enlarge").click();
found.enlarged = [document.querySelectorAll("dialog[open] img").length, told()];
document.querySelector("dialog").click();
document.querySelector("h1").dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
const left = document.querySelectorAll("dialog[open], .tip:not([hidden])");
found.left = left.length;
document.title = JSON.stringify(found);
"""


@pytest.fixture
def text(tmp_path):
    """A report on two figures, of which one has a picture of two starts."""
    figure = style.new_figure(3.0, 2.0)
    axes = figure.subplots()
    table = pd.DataFrame({"x": [1, 1, 2, 2], "y": [1.0, 4.0, 2.0, 8.0]})
    style.band(axes, over_seeds(table, "x", "y"), style.looks(1)[0], "$m = 3$")
    axes.set_xlabel("depth $L$")
    style.save(figure, tmp_path / "fig02.png")
    (tmp_path / f"fig02{POINTS}").write_text(points.overlay(figure))
    (tmp_path / "fig02.txt").write_text("Figure 2.")
    grows = Claim("2a", "grows", Sentence("A", "Figure 2", "it grows"), lambda table: None)
    falls = replace(grows, figure="3", source=Sentence("A", "Figure 3", "it falls"))
    sections = [
        Section("fig02", None, "", [(grows, Verdict("holds", 1.0, "1", seeds=2))], {}),
        Section("fig03", None, "", [(falls, Verdict("fails", 1.0, "1", seeds=2))], {}, "no table"),
    ]
    return report.markdown(sections, "smoke", "title", "summary", tmp_path, tmp_path)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_sentences_are_chosen_points_tell_and_pictures_enlarge(text, tmp_path):
    path = tmp_path / "report.html"
    tried = f"<script>{TRIES}</script></body>"
    path.write_text(report.page(text, tmp_path).replace("</body>", tried))
    command = (BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=60
    )
    assert "CONSOLE" not in done.stderr
    found = json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout, re.S)[1]))
    verdicts, figures = found["choices"]
    assert verdicts == ["all", "What fails, or holds in part, and where it holds", "What holds"]
    assert figures == ["all", "Figure 2", "Figure 3"]
    headings = 4  # of fails, undecided, holds, and how to read them
    assert found["chosen"] == [
        [["it falls", "it grows"], headings, "2 sentences"],
        [["it grows"], headings - 1, "1 sentence"],
        [["it falls"], headings - 1, "1 sentence"],
        [[], headings - 2, "0 sentences"],
    ]
    told = "m = 3, depth L = 2: 4; the starts: 2, 8"
    assert found["told"] == told
    assert found["enlarged"] == [1, told]
    assert found["left"] == 0


QUESTIONS = """
const found = {};
const words = () => [...document.querySelectorAll("#sentences > tbody > tr:not(.readings)")].map(
  (row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent));
found.all = words();
const choose = (name, value) => {
  form.elements[name].value = value;
  form.dispatchEvent(new Event("input"));
};
choose("status", "fails");
found.failing = words();
choose("status", "");
choose("text", "rises");
found.searched = words();
document.querySelectorAll("#sentences > thead button")[0].click();
choose("text", "");
document.querySelectorAll("#sentences > thead button")[2].click();
found.sorted = words().map((row) => row[2]);
document.querySelectorAll("#sentences > thead button")[2].click();
found.turned = words().map((row) => row[2]);
const row = [...document.querySelectorAll("#sentences > tbody > tr")].find((one) =>
  one.textContent.includes("it rises"));
row.querySelector("button").click();
const slider = row.nextSibling.querySelector("input[type=range]");
found.moved = [0, 1000].map((place) => {
  slider.value = place;
  slider.dispatchEvent(new Event("input"));
  return [row.cells[2].textContent, row.nextSibling.querySelector(".status").textContent];
});
row.nextSibling.querySelector(".whatif button").click();
found.back = row.cells[2].textContent;
document.title = JSON.stringify(found);
"""


def asked(page, script, tmp_path):
    """What a script finds on a page in Chromium, which it leaves as JSON in the title."""
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    command = (BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=60
    )
    assert "CONSOLE" not in done.stderr
    return json.loads(unescape(re.search(r"<title>(.*?)</title>", done.stdout, re.S)[1]))


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_sentences_are_sorted_filtered_and_asked_what_another_limit_gives(tmp_path):
    """A ratio of 3 (2, 4) against 1 holds; above 2 it is open, and beyond 4 it fails."""
    rises = Claim("2a", "larger", Sentence("A", "Figure 2", "it rises"), lambda table: None)
    falls = replace(rises, figure="3", source=Sentence("A", "Figure 3", "it falls"))
    held = Verdict("holds", 3.0, "ratio 3", 2.0, 4.0, seeds=3, limit=1.0, side="above",
                   holds_to=2.0, fails_from=4.0)  # fmt: skip
    failed = Verdict("fails", 3.0, "several", seeds=3)
    sections = [
        Section("fig02", None, "", [(rises, held)], {}),
        Section("fig03", None, "", [(falls, failed)], {}),
    ]
    sides = of_records({"laptop": records.of_sections(sections)}, (rises, falls))
    found = asked(questioned.page(sides, tmp_path), QUESTIONS, tmp_path)
    assert [row[2] for row in found["all"]] == ["holds", "fails"]
    assert [row[0] for row in found["failing"]] == ["3"]
    assert [row[0] for row in found["searched"]] == ["2a"]
    assert (found["sorted"], found["turned"]) == (["fails", "holds"], ["holds", "fails"])
    assert found["moved"] == [["holds", "holds"], ["fails", "fails"]]
    assert found["back"] == "holds"


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_the_published_page_judges_each_sentence_as_the_records_do(tmp_path):
    """The rule is written twice, in Python and in the page: on all published readings they agree,
    and so does what the limit says, at the limit itself."""
    page = (GALLERY.parent / "findings" / questioned.NAME).read_text(encoding="utf-8")
    script = """
    document.title = JSON.stringify(rows.map((row) => [row.status,
      ofReadings(row.rule, row.readings.filter((r) => r.decides).map((r) => r.status)),
      row.readings.filter((r) => r.limit && r.status !== "not testable").map((r) => [r.status,
        r.column, atLimit(r, parseFloat(r.limit.split(" ")[1]))])]));
    """
    found = asked(page, script, tmp_path)
    assert len(found) > 100
    for status, again, readings in found:
        assert status == again or not readings
        for own, _, at_limit in readings:
            assert own in (at_limit, "holds in part", "undecided")
