"""The tables that no run writes cannot rot: what they name exists, and nothing is left out."""

import re
from pathlib import Path

import numpy as np
import pytest

import gnjax
from experiments.claims import pruning_sweep, training_path
from experiments.claims.pruning_arms import of_few_images
from figures import catalogue
from reproduction import (
    appendices,
    authors,
    figure_findings,
    findings,
    readings,
    records,
    standing,
    texts,
)
from reproduction.markdown import escaped
from reproduction.published import GALLERY
from reproduction.sides import Side, of_records
from sweeps import command_line, table
from sweeps.claims import (
    ALL,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    SOME,
    UNDECIDED,
    Claim,
    Sentence,
)

NUMBERED = {
    "A": {("Lemma", n) for n in range(1, 8)} | {("Eq", n) for n in range(1, 29)},
    "B": {("Eq", n) for n in range(1, 17)},
}


def _exists(test):
    path, _, name = test.partition("::")
    return f"def {name}(" in Path(path).read_text()


def test_every_lemma_and_numbered_equation_of_both_papers_has_one_row():
    for paper, numbers in NUMBERED.items():
        rows = [row for row in texts.theory() if row.paper == paper]
        named = [number for row in rows for number in texts.numbers_in(row.what)]
        assert len(named) == len(set(named))
        assert set(named) == numbers


@pytest.mark.parametrize("row", texts.theory(), ids=lambda row: f"{row.paper} {row.what}")
def test_its_code_and_its_test_exist(row):
    assert row.status in texts.STATUSES
    found = gnjax
    for part in row.code.split("."):
        found = getattr(found, part)
    assert found is not None
    assert _exists(row.test), row.test


@pytest.mark.parametrize("row", texts.corrections(), ids=lambda row: f"{row.paper} {row.where}")
def test_every_correction_is_of_one_group_and_names_a_test_that_exists(row):
    assert row.kind in texts.KINDS
    if row.kind == "contradiction":  # two places of the text show it
        assert not row.test
        assert "," in row.where
    else:
        assert _exists(row.test), row.test


@pytest.mark.parametrize("row", texts.proofs(), ids=lambda row: row.title)
def test_what_is_proved_is_measured_by_a_test_that_exists(row):
    assert _exists(row.test), row.test


def test_theory_and_corrections_say_the_same_of_every_numbered_statement():
    """Class: a statement that one page corrects and that holds on the other (Lemma 4, Eq 12)."""
    standing = {(row.paper, n): row.status for row in texts.theory() for n in _numbers(row.what)}
    corrected = {}
    for row in texts.corrections():
        for number in _numbers(row.about):
            corrected.setdefault((row.paper, number), []).append(row.kind)
    for number, status in standing.items():
        kinds = {kind for kind in corrected.get(number, ()) if kind in texts.STATUSES}
        assert kinds == ({status} & {texts.WRONG, texts.CONDITION}), number
    assert set(corrected) <= set(standing)


def _numbers(what):
    return list(texts.numbers_in(what))


def test_every_numbered_statement_that_a_correction_is_printed_at_is_one_that_it_is_about():
    """A misprint decides no status; what else is printed at an equation is about it."""
    for row in texts.corrections():
        printed_at = row.where if row.where.startswith(("Eq", "Lemma")) else ""
        if row.kind in (texts.WRONG, texts.CONDITION) and printed_at:
            assert set(_numbers(printed_at)) <= set(_numbers(row.about))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[row]]\npaper = "A"\nwhere = "x"\nprinted = "y"', "row 1 of .* has no why"),
        ('[[row]]\npaper = "A"\nwhere = "x"\nprinted = "y"\nwhy = 3', "why = 3, no text"),
        (
            '[[row]]\npaper = "A"\nwhere = "x"\nprinted = "y"\nwhy = "z"\nmore = ""',
            "more, which no row has",
        ),
        ("paper = ", "is no TOML"),
        ("", r"has nothing; give each row as a table \[\[row\]\]"),
    ],
)
def test_a_text_file_that_is_none_is_refused_in_a_sentence(tmp_path, text, words):
    path = tmp_path / "without_claim.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        texts.read(path, texts.WithoutClaim)


def test_lines_of_a_text_are_joined(tmp_path):
    path = tmp_path / "rows.toml"
    path.write_text('[[row]]\npaper = "A"\nwhere = """\none\ntwo\n"""\nprinted = ""\nwhy = ""\n')
    (row,) = texts.read(path, texts.WithoutClaim)
    assert row.where == "one two"


def test_every_picture_that_the_authors_notebooks_hold_stands_on_the_page_of_its_figure():
    named = {figure for row in texts.pictures() for figure in row.figure.split()}
    assert named == {f"fig{number:02}" for number in (1, 6, 8, 10, 13, 14, 15, 17, 23)}
    for figure in named:
        page = (findings.FOLDER / "findings" / f"{figure}.md").read_text()
        assert "## Beside the picture in the authors' notebook" in page
        assert "](authors.md)" in page


def test_every_figure_that_is_drawn_from_a_table_has_settings():
    of_papers = {name for name in catalogue.from_tables() if name.startswith(("fig", "b"))}
    named = {figure for row in texts.settings() for figure in row.figure.split()}
    assert named == of_papers
    assert all(row.ours and row.why for row in texts.settings())
    of_one_paper = [{name[0] == "b" for name in row.figure.split()} for row in texts.settings()]
    assert all(len(papers) == 1 for papers in of_one_paper)
    assert not any(row.code for row in texts.settings() if row.figure.startswith("b"))


def test_settings_of_pruned_networks_have_what_decides_their_verdicts():
    """They had no row for the loss, BatchNorm's statistics, augmentation, rank, architecture."""
    for figure, without in (("fig01", ()), ("fig16", ()), ("fig17", ("statistics",))):
        said = " ".join(r.setting for r in texts.settings() if figure in r.figure.split())
        for what in ("loss", "augmentation", "rank", "architecture", "pruned", "statistics"):
            assert (what in said) == (what not in without), (figure, what)


def test_no_setting_is_silent_where_the_published_code_speaks():
    """Only what neither text nor code says is "says nothing" in both columns."""
    known = {"rates", "loss", "epochs", "kernels and filters", "initial weights", "slopes alpha"}
    for row in texts.settings():
        if any(word in row.setting for word in known) and row.figure[0] == "f":
            assert row.code or "fig16" in row.figure or row.figure == "fig09", row.setting
    page = appendices.pages()["settings"]
    assert "silent" not in page


def test_tests_that_stand_for_a_sentence_without_a_claim_exist():
    named = [re.search(r"tests/\S+::\w+", row.why) for row in texts.without_claim()]
    assert sum(found is not None for found in named) >= 4
    assert all(_exists(found[0]) for found in named if found)


def test_a_sentence_without_a_claim_stands_on_the_pages_of_its_figures():
    rows = [row for row in texts.without_claim() if row.figure]
    assert any("prints no outcome" in row.why for row in rows)
    for row in rows:
        for figure in row.figure.split():
            assert escaped(row.why) in "".join(figure_findings.verdicts(figure, []))


def _sentences():
    sources = [claim.source for claim in readings.all_claims()]
    return list(dict.fromkeys(source for source in sources if isinstance(source, Sentence)))


def test_every_sentence_says_who_prints_it_where_and_in_which_words():
    found = _sentences()
    assert {one.paper for one in found} == {"A", "B"}
    assert all(one.place and one.words and one.rule in (ALL, SOME) for one in found)
    assert len({(one.paper, one.words) for one in found}) == len(found)
    assert not {one.words for one in found} & {row.printed for row in texts.without_claim()}


def test_places_are_those_of_the_papers_text():
    """They were cited wrongly once; Appendix H of paper A has proofs alone."""
    places = {one.place.partition(",")[0] for one in _sentences() if one.paper == "A"}
    assert not {place for place in places if "Appendix H" in place or "I.1" in place}
    by_figure = {claim.figure: claim.source for claim in readings.all_claims()}
    for figure, place in (("18", "Appendix I.2"), ("22", "Appendix I.3"), ("B4", "Appendix B")):
        claims = [c for c in readings.all_claims() if c.figure == figure]
        assert any(place in str(claim.source) for claim in claims), by_figure[figure]


def test_figures_10_and_8_are_judged_once_for_each_sentence():
    """Readings of one sentence under several starts, gains or networks are no sentences more."""
    for figure, count in (("8", 1), ("9", 1), ("10", 4), ("11", 5)):
        sources = {
            claim.source
            for claim in readings.all_claims()
            if claim.figure == figure and isinstance(claim.source, Sentence)
        }
        assert len(sources) == count
    printed = [c.source for c in training_path.CLAIMS if isinstance(c.source, Sentence)]
    assert {sentence.rule for sentence in printed} == {SOME}


def test_loss_and_kappa_of_pruned_networks_are_judged_by_one_rule():
    for network in set(pruning_sweep.FIGURES.values()) - {"C2"}:
        claims = [c for c in pruning_sweep.CLAIMS if c.figure == network]
        along = [c for c in claims if isinstance(c.source, Sentence) and "epochs" in c.statement]
        assert {(*c.source.ratios, *c.ratios) for c in along} == {("p/(k n)", "batch/n")}
        assert [c.statement.split(", ")[0] for c in along] == ["kappa", "the loss"]
        assert along[0].statement.endswith("grows with the pruning rate")
        assert along[1].statement.endswith("is larger at every rate than unpruned")


def test_pruned_networks_are_harder_to_train_by_one_criterion_in_every_figure():
    """Class: one sentence has a slope in one figure and every rate in another."""
    of_every_rate = ("above that of the unpruned", "larger at every rate than unpruned")
    for sentence in (pruning_sweep.HARDER, pruning_sweep.WORSE):
        about = [c for c in readings.all_claims() if c.source is sentence]
        assert {"1, 14", "16", "17", "13"} <= {claim.figure for claim in about}
        for claim in about:
            assert any(words in claim.statement for words in of_every_rate), claim.statement


def test_the_findings_are_those_of_the_records_and_of_these_tables():
    """After a change of words: python -m reproduction.findings."""
    known = records.read(records.EXPECTED)
    for path, text in findings.written(known, readings.all_claims()).items():
        assert (findings.FOLDER / path).read_text(encoding="utf-8") == text, path
    pages = {path.name for path in (findings.FOLDER / "findings").iterdir()}
    assert pages == {Path(path).name for path in findings.written(known, ())} - {findings.SCREEN}


def test_the_readme_has_the_ten_answers_of_the_records():
    """Class: numbers in a text that a new run leaves behind. After one: make the findings again."""
    known, text = records.read(records.EXPECTED), Path("README.md").read_text(encoding="utf-8")
    answers = findings.answered(known, readings.all_claims(), "figures/findings/{}.md".format)
    assert text == findings.with_answers(text, answers)
    assert len(answers.splitlines()) == len(texts.answers()) == 10
    assert "Not run" not in answers
    for line in answers.splitlines():
        several = any(word in line for word in (standing.DEPENDS, standing.MOSTLY))
        assert ("printed sentences: " in line) == several


def test_what_a_rank_rule_gives_is_what_the_published_tables_say():
    """4.5e11 is the largest kappa that float64's default can give; 2.6e16 is certified."""
    rules = {row.rule: row for row in texts.rank_rules()}
    frame = table.read(Path("figures/gallery/paper/pruning_sweep.csv"))
    start = frame[(frame["network"] == "vit") & (frame["pruned"] == 0.9) & (frame["epoch"] == 0)]
    (row,) = start.to_dict("records")
    single, double = (1e4 * np.finfo(kind).eps for kind in (np.float32, np.float64))
    assert f"{1 / single:.0f}" == "839"
    assert "839" in rules["single precision's default"].gives
    gives = rules["double precision's default"].gives
    for number in (1 / double, row["kappa_numerical"], row["kappa"]):
        assert f"{number:.1e}".replace("e+", "e") in gives
    assert row["tolerance"] == double
    assert f"{row['kappa']:.1e}".replace("e+", "e") in rules["certified"].gives


def test_answers_name_sentences_readings_and_figures_that_exist():
    """Class: a reading is reworded, and the answer that its number stands in is lost."""
    words, names = ({one.words for one in _sentences()}, set(map(readings.name, _all())))
    for row in texts.answers():
        assert set(row.sentences) <= words
        assert set(row.figures) <= set(catalogue.from_tables())
    found = [(row.number, row.readings) for row in texts.answers()]
    found += [(" ".join(row.found), row.readings) for row in texts.explained()]
    for text, named in found:
        assert {one.partition(standing.AT)[0] for one in named} <= names
        assert text.format("", *("%" * 3 for _ in named)).count("%%%") == len(named)


def _all():
    return readings.all_claims()


def test_what_makes_figure_1_says_what_its_table_says():
    """The numbers that no reading has: dead channels, and what the authors' own spectra give."""
    (row,) = (row for row in texts.explained() if "Figure 1" in row.title)
    frame = table.read(Path("figures/gallery/paper/pruning_arms.csv"))
    frame = frame[frame["network"] == "resnet20"]
    pruned = frame[(frame["tensors"] == "every tensor") & (frame["pruned"] == 0.8)]
    (dead,) = pruned[pruned["what"] == "losses"]["dead"].unique()
    assert f"({dead:.0f} of 784 at 80%)" in row.found[1]
    assert (findings.FOLDER / row.picture).is_file()
    theirs = [
        one
        for one in authors.targets()
        if one.figure == "fig14" and "same spectrum's lambda_min after" in one.quantity
    ]
    for rate, number in ((0, "2.5e6"), (20, "6.7e4"), (40, "9.5e4")):
        ends = [one for one in theirs if one.quantity.startswith(f"{rate}% pruned")]
        assert any(number in paragraph for paragraph in row.found)
        last = ends[-1].listed.split(", ")[-1] or ends[-1].theirs
        assert float(last) == float(number), rate


@pytest.mark.parametrize(
    ("figure", "network"),
    [("fig01 fig14", "resnet20"), ("fig15", "resnet32"), ("fig13", "vit")],
)
def test_kappas_from_few_images_are_quoted_as_their_table_has_them(figure, network):
    """Unpruned to 80% pruned with every column of J, before training and after it."""
    (row,) = (row for row in texts.pictures() if row.figure == figure)
    told = " ".join(row.differs.split())
    rows = of_few_images(table.read(Path("figures/gallery/paper/pruning_arms.csv")))
    rows = rows[(rows["what"] == "kappa") & (rows["columns"] == "all")]
    rows = rows[rows["network"] == network].sort_values("pruned")
    assert f"From {rows['samples'].iloc[0]} of the images" in told
    for epoch in (0, rows["epoch"].max()):
        of_epoch = rows[rows["epoch"] == epoch]
        *others, last = (
            _short(one.kappa) if one.resolved else f"at least {_short(one.kappa_low)}"
            for one in of_epoch.itertuples()
        )
        assert len(others) == 4
        assert f"{', '.join(others)} and {last}" in told


def _short(value):
    """Two digits, as 1.7e6."""
    return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def test_a_number_of_a_place_is_that_of_the_last_list_and_no_longer_one():
    entry = {"number": "quotient 3 at 80%: 1.5 at rate=0.0, 2e+04 at rate=0.8, 9 at rate=0.85"}
    entry |= {"images": "mnist", "seeds": "1", "value": "7 (one seed)"}
    claim = Claim("2a", "it grows", Sentence("A", "Section 1", "grows"), lambda table: None)
    side = Side("paper", {"2a: it grows": entry}, [claim], GALLERY)
    named = ("2a: it grows @ rate=0.8", "2a: it grows")
    assert standing.filled("{1}, {2}", named, side) == "2e+04, 7 (one seed) (MNIST; 1 seed)"
    with pytest.raises(ValueError, match=r"lists no number at 'rate=0\.5'"):
        standing.filled("{1}", ("2a: it grows @ rate=0.5",), side)


def test_the_first_screen_says_no_exponent_without_its_words():
    """Class: "e = 1.4" of a reader who does not know e."""
    for text in ((findings.FOLDER / findings.SCREEN).read_text(), Path("README.md").read_text()):
        assert not re.search(r"\be = |\^e\b|\\\^e", text)


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [
        (["holds", "holds"], standing.YES),
        (["fails"], standing.NO),
        (["holds", "fails"], standing.DEPENDS),
        (["holds", "undecided"], standing.DEPENDS),
        (["holds", "fails", "undecided", "undecided", "not testable"], standing.MOSTLY),
        (["not testable", "undecided"], standing.OPEN),
    ],
)
def test_one_word_answers_several_sentences(statuses, answer):
    assert standing.said(statuses) == answer


def test_the_papers_sizes_decide_a_sentence_where_they_can():
    """A smaller table counts where the sentence is not testable at the paper's, and is named."""
    sentence = Sentence("A", "Section 1", "grows")
    claim = Claim("2a", "it grows", sentence, lambda table: None)

    def stands(laptop, paper):
        pairs = {"laptop": laptop, "paper": paper}
        sides = [
            Side(profile, {readings.name(claim): {"status": status}}, [claim], GALLERY)
            for profile, status in pairs.items()
        ]
        found = standing.standings(sides)[sentence]
        return found.side.profile, found.status, found.elsewhere()

    assert stands("holds", "fails") == ("paper", "fails", "holds at the laptop's sizes")
    assert stands("holds", "undecided") == ("paper", "undecided", "holds at the laptop's sizes")
    assert stands("holds", "not testable") == ("laptop", "holds", "")
    assert stands("not testable", "undecided") == ("paper", "undecided", "")


def test_the_tables_of_the_first_screen_have_a_row_for_each_sentence_of_the_tally():
    """Class: seven rows for a tally of six, because a row was of another profile's verdict."""
    sides = of_records(records.read(records.EXPECTED), readings.all_claims())
    (paper,) = (side for side in sides if side.profile == "paper")
    shown = [one.status for one in standing.standings(sides).values() if one.side is paper]
    tallied = [one.status for one in paper.judged().values()]
    for status in (HOLDS, FAILS, UNDECIDED):
        assert shown.count(status) == tallied.count(status), status


@pytest.mark.parametrize(
    ("value", "seeds", "takes"),
    [
        ("0.8 (0.5 to 1.2)", "3", "more seeds than 3"),
        ("2.2 (one seed)", "1", "more seeds than 1"),
        ("0.3", "3", "more points of the same sweep"),  # a correlation has no interval
    ],
)
def test_what_would_decide_a_reading_follows_from_why_it_is_open(value, seeds, takes):
    entry = {"status": UNDECIDED, "value": value, "seeds": seeds, "number": ""}
    assert standing.taken(entry) == takes


def test_why_a_sentence_is_open_is_told_of_its_open_readings_alone():
    """Class: the number of a reading that holds among the reasons why nothing was decided."""
    sentence = Sentence("A", "Section 1", "grows")
    claims = [Claim("2a", name, sentence, lambda table: None) for name in ("wide", "deep")]
    recorded = {
        readings.name(claims[0]): {"status": HOLDS, "number": "a power of 2"},
        readings.name(claims[1]): {"status": NOT_TESTABLE, "number": "no row. Here: 3"},
    }
    (found,) = standing.standings([Side("paper", recorded, claims, GALLERY)]).values()
    assert (found.status, found.reasons()) == (UNDECIDED, ["deep: no row"])


def test_where_more_seeds_would_not_decide_a_reading_says_what_would():
    """Class: "more seeds than 3" for two groups of starts, one of which has a filter too few."""
    sides = of_records(records.read(records.EXPECTED), readings.all_claims())
    (one,) = (
        one
        for one in standing.standings(sides).values()
        if "which is also reflected" in one.sentence.words
    )
    assert any("two groups" in needed for needed in one.takes())


def test_every_experiment_lists_its_claims_once():
    for experiment in {figure.EXPERIMENT for figure in catalogue.from_tables().values()}:
        claims = command_line.named(experiment).claims
        names = [readings.name(claim) for claim in claims]
        assert len(names) == len(set(names))
