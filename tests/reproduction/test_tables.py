"""The tables that no run writes cannot rot: what they name exists, and nothing is left out."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import gnjax
from experiments.claims import pruning_sweep, training_path
from figures import catalogue
from reproduction import findings, readings, records
from reproduction.corrections import CORRECTIONS, KINDS
from reproduction.settings import SETTINGS
from reproduction.sides import Side
from reproduction.silent import WITHOUT_CLAIM
from reproduction.theory import THEORY
from sweeps.claims import ALL, SOME, Sentence

NUMBERED = {
    "A": {("Lemma", n) for n in range(1, 8)} | {("Eq", n) for n in range(1, 29)},
    "B": {("Eq", n) for n in range(1, 17)},
}


def _exists(test):
    path, _, name = test.partition("::")
    return f"def {name}(" in Path(path).read_text()


def test_every_lemma_and_numbered_equation_of_both_papers_has_one_row():
    for paper, numbers in NUMBERED.items():
        named = [number for row in THEORY if row.paper == paper for number in row.numbers]
        assert len(named) == len(set(named))
        assert set(named) == numbers


@pytest.mark.parametrize("row", THEORY, ids=lambda row: f"{row.paper} {row.what}")
def test_its_code_and_its_test_exist(row):
    found = gnjax
    for part in row.code.split("."):
        found = getattr(found, part)
    assert found is not None
    assert _exists(row.test), row.test


@pytest.mark.parametrize("row", CORRECTIONS, ids=lambda row: f"{row.paper} {row.where}")
def test_every_correction_is_of_one_group_and_names_a_test_that_exists(row):
    assert row.kind in KINDS
    assert _exists(row.test), row.test


def test_every_figure_that_is_drawn_from_a_table_has_settings():
    of_papers = {name for name in catalogue.from_tables() if name.startswith(("fig", "b"))}
    named = {figure for row in SETTINGS for figure in row.figure.split()}
    assert named == of_papers
    assert all(row.ours and row.why for row in SETTINGS)


def test_tests_that_stand_for_a_sentence_without_a_claim_exist():
    named = [re.search(r"tests/\S+::\w+", why) for *_, why in WITHOUT_CLAIM]
    assert sum(found is not None for found in named) >= 4
    assert all(_exists(found[0]) for found in named if found)


def _sentences():
    sources = [claim.source for claim in readings.all_claims()]
    return list(dict.fromkeys(source for source in sources if isinstance(source, Sentence)))


def test_every_sentence_says_who_prints_it_where_and_in_which_words():
    found = _sentences()
    assert {one.paper for one in found} == {"A", "B"}
    assert all(one.place and one.words and one.rule in (ALL, SOME) for one in found)
    assert len({(one.paper, one.words) for one in found}) == len(found)
    assert not {one.words for one in found} & {words for _, _, words, _ in WITHOUT_CLAIM}


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
    for figure, count in (("8", 1), ("9", 2), ("10", 3), ("11", 5)):
        sources = {
            claim.source
            for claim in readings.all_claims()
            if claim.figure == figure and isinstance(claim.source, Sentence)
        }
        assert len(sources) == count
    printed = [c.source for c in training_path.CLAIMS if isinstance(c.source, Sentence)]
    assert {sentence.rule for sentence in printed} == {SOME}


def test_loss_and_kappa_of_pruned_networks_are_judged_by_one_rule():
    for network in pruning_sweep.FIGURES.values():
        claims = [c for c in pruning_sweep.CLAIMS if c.figure == network]
        along = [c for c in claims if isinstance(c.source, Sentence) and "epochs" in c.statement]
        assert {c.gates for c in along} == {("p/(k n)", "batch/n")}
        assert [c.statement.split(", ")[0] for c in along] == ["kappa", "the loss"]
        assert all(c.statement.endswith("grows with the pruning rate") for c in along)


def test_the_findings_are_those_of_the_records_and_of_these_tables():
    """After a change of words: python -m reproduction.findings."""
    known = records.read(records.EXPECTED)
    for path, text in findings.written(known, readings.all_claims()).items():
        assert (findings.FOLDER / path).read_text(encoding="utf-8") == text, path
    pages = {path.name for path in (findings.FOLDER / "findings").iterdir()}
    assert pages == {Path(path).name for path in findings.written(known, ())} - {findings.SCREEN}


def test_the_readme_has_the_tallies_of_the_records():
    """Class: numbers in a text that a new run leaves behind."""
    known, text = records.read(records.EXPECTED), Path("README.md").read_text(encoding="utf-8")
    for profile in records.PROFILES:
        printed = list(Side(profile, known[profile], readings.all_claims()).tallies())[:2]
        assert f"| {' | '.join([profile, *printed])} |" in text


def test_every_experiment_lists_its_claims_once():
    for experiment in {figure.EXPERIMENT for figure in catalogue.from_tables().values()}:
        claims = import_module(f"experiments.{experiment}").PROGRAM.claims
        names = [readings.name(claim) for claim in claims]
        assert len(names) == len(set(names))
