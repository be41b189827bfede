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
from reproduction import report
from reproduction.records import Section
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
    assert verdicts == ["all", "What fails, and where it holds", "What holds"]
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
