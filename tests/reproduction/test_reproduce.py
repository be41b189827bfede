"""One command: what is missing is run, everything is drawn, and the report says what was found."""

import html
import io
import json
import re
from argparse import Namespace
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jax
import pytest

from figures import catalogue
from gnjax.cli.terminal import Terminal
from reproduction import findings, readings, records, report, reproduce, sides, texts
from reproduction.drawing import Drawing
from reproduction.markdown import escaped
from reproduction.records import Section
from sweeps import command_line as cli
from sweeps.claims import (
    BEYOND,
    SOME,
    Claim,
    Sentence,
    Verdict,
    implied,
    not_testable,
    verdict,
)
from sweeps.launchers.work import here
from sweeps.storage import archive
from sweeps.storage.files import StoreError
from sweeps.table import TableError
from tests.reproduction.threads import draw_in_a_thread

HELD = Claim("2b", "grows", BEYOND, lambda table: verdict(True, 1.5, "exponent 1.50"))
SAID = Sentence("A", "Figure 2", "b < c", rule=SOME)
FAILED = Claim(
    "2a",
    "a < b & c",
    SAID,
    lambda table: verdict(False, 2.0, "at most 2 | L=3"),
    mechanism="b is 3",
)
UNTESTED = Claim("B1c", "increases", implied("Eq 14"), lambda table: not_testable("one point"))
PROVENANCE = {
    "data": ["digits, whitened"], "precision": "float64", "seconds": 12.0, "device": "cpu: cpu",
    "versions": {"gnjax": "0.1.0"}, "git": [{"commit": "0123456789abcdef", "clean": False}],
    "dates": ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"],
}  # fmt: skip


@pytest.fixture
def sections(tmp_path):
    picture = tmp_path / "fig02.png"
    picture.write_bytes(b"not really a picture")
    picture.with_suffix(".txt").write_text("kappa & depth")
    pairs = [(claim, claim.check({})) for claim in (HELD, FAILED)]
    return [
        Section("fig02", picture, "kappa & depth", pairs, PROVENANCE),
        Section("b1", None, "", [(UNTESTED, UNTESTED.check({}))], {}, "no <table>"),
    ]


@pytest.fixture
def told(tmp_path):
    """The report on sections as Markdown."""

    def told(sections, profile="laptop"):
        return report.markdown(sections, profile, "title", "summary", tmp_path, tmp_path)

    return told


@pytest.fixture
def shown(told, tmp_path):
    """The report on sections as a page."""
    return lambda *args: report.page(told(*args), tmp_path)


class Page(HTMLParser):
    """The ids, links, pictures and text of a page; complains of unclosed elements."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.pictures, self.open, self.text = [], [], [], [], ""
        self.classes = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag == "section":
            self.ids.append(known["id"])
        if tag == "a":
            self.links.append(known["href"])
        if tag == "img":
            self.pictures.append(known["src"])
        self.classes += known.get("class", "").split()
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_needs_nothing_else(sections, shown):
    page = Page(shown(sections))
    assert page.ids == ["what-matters", "figure-2", "figure-b1", "corrections"]
    # and the table of sentences, which is written beside it
    assert {*(f"#{name}" for name in page.ids), "sentences.html"} == set(page.links)
    assert all(source.startswith("data:image/png;base64,") for source in page.pictures)
    for part in ("a < b & c", "exponent 1.50", "(implied: Eq 14)", "no <table>", "float64"):
        assert part in page.text
    assert page.text.index("Why: b is 3") < page.text.index("kappa & depth")  # what matters first
    assert page.text.index("What fails") < page.text.index("b is 3")
    assert "fails" in page.classes
    assert "commit 0123456789 with changes" in page.text
    assert "2026-01-01T00:00:00+00:00 to 2026-01-02T00:00:00+00:00" in page.text


def test_the_page_is_the_text(sections, told, shown):
    """Class: two renderers, of which one leaves something out."""
    words = re.compile(r"[\w.]{3,}")
    said = re.sub(r"!\[.*\]\(.*\)|\]\([^)]*\)", "", told(sections).replace("\\", ""))
    page = shown(sections)
    body = re.sub(r"<[^>]*>", "", page.partition("<header>")[2].partition("<output class")[0])
    found = set(words.findall(html.unescape(body)))
    assert set(words.findall(said)) <= found
    assert len(found) > 100


def test_the_report_has_the_tables_of_the_findings(sections, told):
    """Class: a verdict that is told otherwise in two places."""
    known = records.renewed(Path("nowhere.json"), "laptop", sections)
    pages = findings.written(known, [claim for s in sections for claim, _ in s.verdicts])
    text = told(sections)
    for name in ("fig02", "b1"):
        rows = [r for r in pages[f"findings/{name}.md"].splitlines() if "**" in r and "|" in r]
        assert rows
        assert set(rows) <= set(text.splitlines())
    screen = pages["FINDINGS.md"].replace("(findings/fig02.md)", "(#figure-2)")
    assert "| [2](#figure-2) |" in text
    assert {r for r in text.splitlines() if r.startswith("| [2]")} <= set(screen.splitlines())


def test_what_the_script_asks_for_is_on_the_page(sections, shown):
    text = shown(sections)
    page = Page(text)
    script = text.partition("<script>")[2]
    for asked in re.findall(r"elements\.(\w+)", script):
        assert f'name="{asked}"' in text
    asked = {name for name in re.findall(r"\(\"(?:form)?\.([\w-]+)", script)}
    assert asked == {"scroll", "plot", "tip", "points", "enlarge", "filter"}
    assert asked - {"points"} <= set(page.classes)
    assert page.classes.count("enlarge") == len(page.pictures) == 1


def test_a_rehearsal_says_on_its_first_lines_that_it_judges_nothing(sections, told, shown):
    for made in (told, shown):
        text = made(sections, "smoke")
        text = Page(text).text if made is shown else text
        assert text.index("judges nothing") < text.index("summary")
        assert "judges nothing" not in made(sections)


def test_the_links_of_the_text_lead_to_its_pictures_and_figures(sections, told, tmp_path):
    """Class: a path that is right where the command ran, and not where the report stands."""
    folder = tmp_path / "laptop"
    text = report.markdown(sections, "laptop", "title", "summary", tmp_path, folder)
    (picture,) = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert (folder / picture).resolve() == tmp_path / "fig02.png"
    assert set(re.findall(r"\]\(#(.*?)\)", text)) == {"figure-2", "figure-b1"}
    assert {"## Figure 2", "## Figure B1"} <= set(text.splitlines())


def test_a_figure_that_is_not_drawn_has_no_picture_of_an_earlier_run(sections, told):
    assert "fig02.png" in told(sections)
    text = told([replace(sections[0], picture=None, problem="no table")])
    assert "**Not drawn:** no table" in text
    assert "fig02.png" not in text
    assert "exponent 1.50" in text


def test_a_report_without_a_printed_sentence_has_no_heading_for_them(sections, told):
    """Class: a heading, or a verdict on all of something, over nothing."""
    beyond = replace(sections[0], verdicts=[(HELD, HELD.check({}))])
    text = told([beyond])
    assert "exponent 1.50" in text
    assert "the paper prints" not in text
    assert "What holds" not in text


@pytest.mark.parametrize(("count", "text"), [(1, "1 figure. "), (2, "2 figures. ")])
def test_a_report_counts_its_figures_in_words_that_agree(sections, tmp_path, count, text):
    options = Namespace(run="run", profile="smoke", results=tmp_path)
    pictures = tmp_path / "figures" / "run"
    pictures.mkdir(parents=True)
    picture = sections[0].picture.rename(pictures / "fig02.png")
    drawn = [replace(sections[0], picture=picture), sections[1]]
    reproduce._write(options, drawn[:count], 1.0)
    assert text in (tmp_path / "run" / "report.md").read_text()


CLAIMS = (HELD, FAILED, replace(FAILED, statement="b < c, too"), UNTESTED)
OPEN = replace(UNTESTED, source=Sentence("B", "Section 4", "it increases"))


def test_a_record_has_one_clause_of_a_long_text():
    """Class: a first screen with a number for every depth."""
    told = {
        "0.8 (0.7, 0.9) over that at 0 (0.8 at L=2, 0.9 at L=3); else": "0.8 (0.7, 0.9) over",
        "kappa " + ", ".join(f"{i}.25 at m={i}" for i in range(40)): "kappa 0.25 at m=0, 1.25 at",
    }
    for text, start in told.items():
        section = Section("fig02", None, "", [(HELD, Verdict("holds", 1.0, text))], {})
        known = records.renewed(Path("nowhere.json"), "laptop", [section])
        (entry,) = known["laptop"].values()
        assert entry["short"].startswith(start)
        assert len(entry["short"]) < 150
        assert "else" not in entry["short"]


def test_a_record_of_what_holds_in_part_has_both_halves():
    """Class: the half that holds stands alone among what fails."""
    both = "holds: sooner, 0.4 (0.4 at L=2); fails: less, " + "4.25, " * 40
    found = Verdict("holds in part", 1.0, "told", short=both)
    section = Section("fig02", None, "", [(HELD, found)], {})
    (entry,) = records.renewed(Path("nowhere.json"), "laptop", [section])["laptop"].values()
    assert entry["short"].startswith("holds: sooner, 0.4; fails: less, 4.25")
    assert len(entry["short"]) < 200


def test_the_first_screen_says_what_fails_and_what_was_not_decided(sections):
    """Class: a reader has to look for the answer among everything else."""
    known = records.renewed(Path("nowhere.json"), "laptop", sections)
    text = findings.written(known, (*CLAIMS, OPEN))["FINDINGS.md"]
    parts = (
        "## Ten answers\n\n1. ",
        "## What fails, or holds in part, and where it holds",
        '| [2](findings/fig02.md) | "b \\< c" (A, Figure 2) | at most 2 \\| L=3'
        " (the laptop's sizes). Why: b is 3 | under no reading here |",
        "## What could not be decided",
        f'| [B1](findings/b1.md) | "it increases" (B, Section 4) | {OPEN.statement}: one point |',
        f"## What holds\n\n{findings.NO_SENTENCE}",
        "## Errors in the papers",
        "## How verdicts are to be read",
        records.LEGEND,
        "| laptop | 1: 1 fail | 1: 1 not testable here | 1: 1 not testable here | 1: 1 hold |",
    )
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    assert "exponent 1.50" not in text
    held = replace(HELD, source=Sentence("A", "Figure 2", "grows | so"))
    entry = {"status": "holds", "number": "", "data": "", "figure": "fig02", "short": "e is 2"}
    entry |= {"images": "mnist, whitened", "seeds": "3", "value": "2"}
    text = findings.written({"laptop": {readings.name(held): entry}}, (held,))["FINDINGS.md"]
    row = '"grows \\| so" (A, Figure 2) | e is 2 | MNIST, whitened; 3 seeds; the laptop\'s sizes |'
    assert f"| [2](findings/fig02.md) | {row}" in text


def test_an_open_sentence_says_on_its_page_what_it_would_take():
    """Class: a verdict of several readings that leaves open why it is none."""
    said = Sentence("A", "Section 7", "networks are slow")
    slow = Claim("2a", "slow at m=1", said, lambda table: not_testable("one point"))
    other = replace(slow, figure="3", statement="slow at m=2")
    entry = {"data": "", "images": "", "short": "", "value": "1 (0, 2)", "seeds": "3"}
    entries = {
        readings.name(slow): entry | {"status": "undecided", "number": "1", "figure": "fig02"},
        readings.name(other): entry
        | {"status": "not testable", "number": "the table has no row", "figure": "fig03"},
    }
    pages = findings.written({"laptop": entries}, (slow, other))
    told = "It would take more seeds than 3 (Figure 2a); a run of these networks (Figure 3)"
    assert told in pages["findings/fig02.md"]
    assert told in pages["findings/fig03.md"]
    assert told.removeprefix("It would take ") in pages["FINDINGS.md"]


def test_the_page_of_a_figure_has_its_sentences_first_and_their_readings_below(sections):
    known = records.renewed(Path("nowhere.json"), "laptop", sections)
    pages = findings.written(known, CLAIMS)
    text = pages["findings/fig02.md"]
    parts = (
        '| **2a** | **"b \\< c" (A, Figure 2)** (some of 2) |  | **fails** |',
        "| 2a | a \\< b & c | as printed | **fails**. at most 2 \\| L=3 Why: b is 3 |",
        "| 2a | b \\< c, too | as printed | not run |",
        "| 2b | grows (beyond the papers) | **holds**. exponent 1.50 |",
        "- laptop: digits, whitened",
    )
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    untested = "| B1c | increases (implied: Eq 14) | **not testable**. one point |"
    assert untested in pages["findings/b1.md"]
    printed = pages["findings/corrections.md"]
    assert all(escaped(correction.corrected) in printed for correction in texts.corrections())


def test_a_record_of_a_claim_that_is_no_more_is_not_shown(sections):
    """Else a verdict on other words would stand beside the sentence."""
    known = records.renewed(Path("nowhere.json"), "laptop", sections)
    pages = findings.written(known, [FAILED])
    assert not any("exponent 1.50" in text for text in pages.values())
    assert "| laptop | 1: 1 fail | none | none | none |" in pages["FINDINGS.md"]


def test_a_changed_verdict_is_noticed(sections, tmp_path):
    path = tmp_path / "expected.json"
    path.write_text(json.dumps(records.renewed(path, "laptop", sections)))
    recorded = records.read_expected(path, "laptop")
    assert records.changed(sections, recorded) == []
    assert records.read_expected(path, "paper") == {}
    altered = {**recorded, "2b: grows": "fails"}
    assert records.changed(sections, altered) == ["2b: grows: holds, recorded as fails"]
    both = records.renewed(path, "paper", sections[:1])
    assert {profile: len(claims) for profile, claims in both.items()} == {"laptop": 3, "paper": 2}


def test_figures_that_are_published_alone_stay_in_their_place(sections, tmp_path):
    path, shown = tmp_path / "expected.json", list(sections)
    path.write_text(json.dumps(records.renewed(path, "laptop", shown)))
    before = path.read_text()
    for section in shown:
        again = records.renewed(path, "laptop", [section])
        assert json.dumps(again) == before
        assert findings.written(again, CLAIMS) == findings.written(json.loads(before), CLAIMS)


@pytest.mark.parametrize(
    ("figure", "module"),
    [("2a", "fig02"), ("11", "fig11"), ("B1c", "b1"), ("b4", "b4"), ("C1", "c1"), ("T2", "t2")],
)
def test_claims_find_their_figure(figure, module):
    assert readings.figure_of(Claim(figure, "", BEYOND, HELD.check)) == module


def test_every_claim_is_about_a_figure_of_its_experiment():
    modules = catalogue.from_tables()
    for experiment in {module.EXPERIMENT for module in modules.values()}:
        program = cli.named(experiment)
        for claim in program.claims:
            owner = modules[readings.figure_of(claim)].EXPERIMENT
            assert owner == experiment, claim.statement


def test_no_statement_names_data_that_its_table_may_not_have():
    """Class: "MNIST: kappa .." or "kappa .. on MNIST" of a table of Fashion-MNIST."""
    data = "|".join(map(re.escape, sides.DATA.values()))
    for claim in readings.all_claims():
        assert not re.search(rf"(^|\bon )({data})", claim.statement), claim.statement


def test_a_figure_is_told_by_its_sentences_and_not_by_their_readings(sections, capsys):
    """Class: one sentence is counted as often as it has readings."""
    claim, found = sections[0].verdicts[1]
    again = (replace(claim, statement="b < c, too"), found)
    told = replace(sections[0], verdicts=[*sections[0].verdicts, again])
    options = reproduce._parsed(["--profile=laptop", "--figures=2"])
    reproduce._summarise(options, Terminal(width=200), [told], [], 1.0)
    row = next(line for line in capsys.readouterr().out.splitlines() if "fig2" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:3] == ["fig2", "1 fails", "1 holds"]


@pytest.mark.slow
def test_figures_are_run_drawn_and_reported_once(tmp_path, capsys, monkeypatch):
    picture = tmp_path / "figures/smoke/fig12.png"
    monkeypatch.setenv("COLUMNS", "200")
    command = ["--profile=smoke", "--figures=12,4", f"--results={tmp_path}"]
    assert reproduce.main(command) == 0
    page = Page((tmp_path / "smoke" / "report.html").read_text())
    assert page.ids == ["what-matters", "figure-4", "figure-12", "corrections"]
    assert "This is a rehearsal" in page.text
    assert len(page.pictures) == 2
    told = capsys.readouterr().out
    assert told.startswith("toy sizes take about 10 s")  # before it begins
    assert "report.html" in told
    drawn = picture.stat().st_mtime_ns
    assert reproduce.main(command) == 0
    assert picture.stat().st_mtime_ns == drawn
    told = capsys.readouterr().out
    assert "to compute" not in told
    assert "toy sizes" not in told


def test_an_experiment_that_cannot_run_is_told_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    def refuse(job, console):
        raise StoreError("nowhere to write")

    monkeypatch.setattr(cli, "run", refuse)
    command = ["--profile=smoke", "--figures=4,12", f"--results={tmp_path}"]
    assert reproduce.main(command) == 1
    page = Page((tmp_path / "smoke" / "report.html").read_text())
    assert page.ids == ["what-matters", "figure-4", "figure-12", "corrections"]
    assert "layer_sweep: nowhere to write" in page.text
    assert "nowhere to write" in capsys.readouterr().out


def test_a_figure_is_drawn_although_the_process_that_draws_was_killed(tmp_path):
    with Drawing("smoke", tmp_path) as drawing:
        drawing.begin("fig04")
        (process,) = drawing._executor._processes.values()
        process.kill()
        assert all(path.is_file() for path in drawing.paths("fig04"))
        drawing.begin("fig04")
        assert all(path.is_file() for path in drawing.paths("fig04"))


def test_strict_fails_on_a_changed_verdict(tmp_path, monkeypatch, capsys):
    draw_in_a_thread(monkeypatch)
    path = tmp_path / "expected.json"
    path.write_text(json.dumps({"smoke": {"12: something else": {"status": "holds"}}}))
    monkeypatch.setattr(reproduce, "EXPECTED", path)
    command = ["--profile=smoke", "--figures=12", f"--results={tmp_path}"]
    assert reproduce.main(command) == 0
    assert "recorded as nothing" in capsys.readouterr().out
    assert reproduce.main([*command, "--strict"]) == 1


def test_undecided_contradicts_nothing(sections):
    recorded = records.statuses(sections)
    assert records.changed(sections, {**recorded, "2b: grows": "undecided"}) == []
    assert records.changed(sections, {**recorded, "2b: grows": "not testable"}) != []


def test_a_second_run_has_other_seeds_and_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    draw_in_a_thread(monkeypatch)
    command = ["--profile=smoke", "--figures=12", f"--results={tmp_path}"]
    assert reproduce.main([*command, "--first_seed=7"]) == 0
    assert (tmp_path / "smoke-from-7" / "report.html").is_file()
    table = (tmp_path / "layer_sweep" / "smoke-from-7" / "table.csv").read_text()
    assert len(table.splitlines()) > 5
    with pytest.raises(SystemExit):
        reproduce.main([*command, "--first_seed=7", "--publish"])
    assert "without --first_seed" in capsys.readouterr().err


def test_the_papers_figures_are_made_without_a_word_and_what_is_beyond_them_with_all():
    of_papers = reproduce._parsed([]).figures
    assert of_papers == [f"fig{i:02d}" for i in range(1, 24)] + ["b1", "b2", "b3", "b4"]
    assert reproduce._parsed(["--figures=all"]).figures == catalogue.names()


def test_what_takes_a_gpu_runs_at_the_papers_sizes_only_where_it_is_named():
    every = reproduce._parsed(["--profile=laptop", "--figures=all"]).figures
    of_papers = reproduce._parsed(["--profile=paper", "--figures=all"]).figures
    heavy = {"fig01", "fig17", "t1", "t6"}
    assert heavy <= set(every)
    assert not heavy & set(of_papers)
    assert {"fig02", "fig09", "b4", "c1"} <= set(of_papers)
    assert reproduce._parsed(["--profile=paper", "--figures=t4"]).figures == ["t4"]


def test_of_what_takes_a_gpu_the_published_cells_are_shown(tmp_path, monkeypatch):
    """They alone: nothing of an experiment that takes many hours is computed unless it is named."""
    opened = archive.archive
    monkeypatch.setattr(archive, "archive", lambda experiment, *_: opened(experiment, tmp_path))
    monkeypatch.setitem(reproduce.LEFT_OUT, "smoke", ("layer_sweep", "depth_sweep"))
    assert not {"fig11", "fig02"} & set(reproduce._parsed(["--profile=smoke"]).figures)
    options = reproduce._parsed(["--profile=smoke", "--figures=11", f"--results={tmp_path}"])
    job = replace(reproduce._job("layer_sweep", ["fig11"], options, here), archive=True)
    first = list(job.experiment.settings(job.config))[:1]
    some = replace(job.experiment, settings=lambda _: first)
    cli.run(replace(job, experiment=some), Terminal(file=io.StringIO()))
    options = reproduce._parsed(["--profile=smoke", "--published", f"--results={tmp_path / 'new'}"])
    assert options.only_published == ("layer_sweep",)
    assert {"fig11", "fig12"} <= set(options.figures)
    assert "fig02" not in options.figures
    assert not reproduce._job("layer_sweep", ["fig11"], options, here).compute
    assert reproduce._job("cnn_sweep", ["fig08"], options, here).compute
    named = reproduce._parsed(["--profile=smoke", "--published", "--figures=11"])
    assert reproduce._job("layer_sweep", ["fig11"], named, here).compute


def test_a_figure_of_a_part_of_a_table_computes_that_part_unless_all_of_it_is_there(
    tmp_path, monkeypatch
):
    options = reproduce._parsed(["--profile=smoke", f"--results={tmp_path}"])
    alone = reproduce._job("pruning_sweep", ["fig16"], options, here)
    both = reproduce._job("pruning_sweep", ["fig16", "c2"], options, here)
    assert alone.config.networks == "vgg5"
    part, whole = (set(job.experiment.cells(job.config)) for job in (alone, both))
    assert part < whole
    monkeypatch.setattr(cli, "plan", lambda job: (None, Namespace(left=())))
    there = reproduce._job("pruning_sweep", ["fig16"], options, here)
    assert there.config == both.config


def test_a_new_process_asks_for_cells_in_float64(tmp_path):
    options = reproduce._parsed(["--profile=smoke", f"--results={tmp_path}"])
    job = reproduce._job("layer_sweep", ["fig11"], options, here)
    jax.config.update("jax_enable_x64", False)
    store, _ = cli.plan(job)
    assert store.environment.precision == "float64"


def test_a_figure_without_a_cell_is_told_beside_the_others():
    """Class: a part of a sweep that is not there yet ends the report of all that is."""

    class Drawings:
        def paths(self, name):
            raise TableError("no VGG5 is in the table")

    options = reproduce._parsed(["--profile=smoke", "--figures=16"])
    ran = {"pruning_sweep": reproduce.Ran(0, "", [], PROVENANCE)}
    (section,) = reproduce._sections(options, ran, Drawings())
    assert (section.picture, section.problem) == (None, "no VGG5 is in the table")


def test_an_unknown_figure_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main(["--figures=2,99"])
    assert stopped.value.code == 2
    assert "no figure '99'; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--shard=5/4"], ["--shard=0/2"], ["--jobs=0"], ["--jobs=x"]])
def test_impossible_options_are_refused(options, capsys):
    with pytest.raises(SystemExit) as stopped:
        reproduce.main(options)
    assert stopped.value.code == 2
    assert "error: argument" in capsys.readouterr().err
