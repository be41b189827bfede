"""One verdict for each printed sentence, whatever the number of its readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame

from sweeps import sentences
from sweeps.claims import (
    ALL,
    AS_COMPUTED,
    AS_PRINTED,
    BEYOND,
    CERTIFIED,
    COLUMNS,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    PARTLY,
    SOME,
    STATUSES,
    UNDECIDED,
    Claim,
    Sentence,
    Verdict,
    elsewhere,
    every,
    halves,
    implied,
    judge,
    verdict,
)


def _reading(source, statement="a reading", figure="1", **options):
    return Claim(figure, statement, source, lambda frame: verdict(True, 1, "one"), **options)


def _as(column, statement, sentence, figure="1"):
    """A reading in a column; as computed, it says how its slip is mended."""
    mended = f"{statement} is mended" if column == AS_COMPUTED else ""
    return _reading(sentence, statement, figure, column=column, mended=mended)


@pytest.mark.parametrize(
    ("statuses", "of_all", "of_some"),
    [
        ([HOLDS, HOLDS], HOLDS, HOLDS),
        ([HOLDS, FAILS], FAILS, HOLDS),
        ([FAILS, FAILS], FAILS, FAILS),
        ([HOLDS, UNDECIDED], UNDECIDED, HOLDS),
        ([FAILS, UNDECIDED], FAILS, UNDECIDED),
        ([HOLDS, NOT_TESTABLE], UNDECIDED, HOLDS),  # what nobody could test is not all of them
        ([NOT_TESTABLE, FAILS], FAILS, UNDECIDED),
        ([HOLDS, PARTLY], PARTLY, HOLDS),
        ([PARTLY, FAILS], FAILS, PARTLY),
        ([PARTLY, UNDECIDED], UNDECIDED, PARTLY),
        ([NOT_TESTABLE, NOT_TESTABLE], NOT_TESTABLE, NOT_TESTABLE),
    ],
)
def test_a_sentence_is_judged_by_its_rule(statuses, of_all, of_some):
    assert sentences.of_readings(ALL, statuses) == of_all
    assert sentences.of_readings(SOME, statuses) == of_some


def test_a_sentence_counts_once_and_says_what_its_readings_do():
    open_ended = Sentence("A", "Appendix D", "remains tight", rule=SOME)
    other = Sentence("B", "Section 4", "exactly")
    readings = [
        (_reading(open_ended, "gain 1"), HOLDS),
        (_reading(other), FAILS),
        (_reading(open_ended, "gain 2"), FAILS),
        (_reading(open_ended, "gain 3"), NOT_TESTABLE),
    ]
    first, second = sentences.judged(readings)
    assert (first.sentence, first.status) == (open_ended, HOLDS)
    assert first.summary == "1 of 3 readings hold, 1 fail, 1 not testable"
    assert [claim.statement for claim, _ in first.readings] == ["gain 1", "gain 2", "gain 3"]
    assert (second.status, second.summary) == (FAILS, "")


def test_each_tally_counts_its_own():
    """What other papers say is beyond these two, and no claim is counted twice."""
    sentence = Sentence("A", "Section 1", "grows")
    found = sentences.tallies(
        [
            (_reading(sentence, "one network"), HOLDS),
            (_reading(sentence, "another"), UNDECIDED),
            (_reading(Sentence("B", "Section 4", "exactly")), HOLDS),
            (_reading(implied("Lemma 2")), HOLDS),
            (_reading(BEYOND), FAILS),
            (_reading(elsewhere("arXiv 1, abstract")), NOT_TESTABLE),
        ]
    )
    assert tuple(found) == sentences.TALLIES
    assert list(found.values()) == [[UNDECIDED], [HOLDS], [HOLDS], [FAILS, NOT_TESTABLE]]


def test_a_statement_of_several_parts_holds_where_each_of_them_does():
    def part(status):
        return lambda frame: verdict(status == HOLDS, 2.0, status)

    assert every(part(HOLDS), part(HOLDS))({}).status == HOLDS
    found = every(part(HOLDS), part(FAILS))({})
    assert (found.status, found.text) == (FAILS, "holds; fails")


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (HOLDS, HOLDS, HOLDS),
        (HOLDS, FAILS, PARTLY),
        (FAILS, FAILS, FAILS),
        (HOLDS, UNDECIDED, UNDECIDED),
        (FAILS, UNDECIDED, FAILS),
        (FAILS, NOT_TESTABLE, FAILS),
    ],
)
def test_a_statement_that_says_two_things_holds_in_part(first, second, whole):
    parts = [lambda frame, s=s: Verdict(s, 2.0, f"told {s}", seeds=3) for s in (first, second)]
    found = halves(*parts)({})
    assert (found.status, found.number, found.seeds) == (whole, 2.0, 3)
    assert f"told {first}" in found.text
    assert f"told {second}" in found.text


def test_in_short_a_statement_that_holds_in_part_says_what_fails():
    """Class: the half that holds stands alone among what fails."""
    parts = [lambda frame, s=s: Verdict(s, 2.0, f"{s} by 2; at last") for s in (HOLDS, FAILS)]
    assert halves(*parts)({}).short == "holds: holds by 2; fails: fails by 2"


def test_a_sentence_about_other_images_is_not_testable():
    """Where the images decide, a table of others shows its number and speaks for itself alone."""
    sentence = Sentence("A", "Section 5", "improves", data=("mnist",))
    panel = {"panel": (("figure", "23"),)}
    table = DataFrame({"figure": ["23", "6"], "data": ["fashion_mnist_5000", "mnist"]})
    found = judge(_reading(sentence, **panel), table, ())
    assert found.status == NOT_TESTABLE
    assert found.text == "the data are fashion_mnist_5000, the paper's mnist. Here: one"
    same = table.assign(data=["mnist, test split", "digits"])
    assert judge(_reading(sentence, **panel), same, ()).status == HOLDS
    assert judge(_reading(BEYOND, **panel), table, ()).status == HOLDS


_ROOT = Sentence("A", "caption of Figure 8", "improves conditioning")


@given(st.lists(st.tuples(st.sampled_from(COLUMNS), st.sampled_from(STATUSES)), min_size=1))
def test_a_sentence_has_the_verdict_of_its_certified_readings_else_of_those_as_printed(found):
    """Class: a reading that is not of the paper's data and settings decides a sentence."""
    readings = [(_as(column, str(i), _ROOT), status) for i, (column, status) in enumerate(found)]
    (one,) = sentences.judged(readings)
    for column in (CERTIFIED, AS_PRINTED):
        statuses = [status for its, status in found if its == column]
        if statuses:
            assert one.status == sentences.of_readings(ALL, statuses)
            return
    assert one.status == NOT_TESTABLE
    assert "no reading has the paper's data and settings" in one.summary


def test_each_figure_of_a_sentence_has_its_own_deciding_column():
    """The published code of one figure says nothing of another, of which there is none."""
    readings = [
        (_as(CERTIFIED, "code", _ROOT, "17"), HOLDS),
        (_as(AS_PRINTED, "text", _ROOT, "17"), FAILS),
        (_as(AS_PRINTED, "no code", _ROOT, "16"), UNDECIDED),
        (_as(OTHER, "other images", _ROOT, "16"), FAILS),
    ]
    (one,) = sentences.judged(readings)
    assert [claim.statement for claim, _ in one.deciding] == ["code", "no code"]
    assert one.status == UNDECIDED
    assert one.summary.startswith("1 of 2 readings hold, 1 undecided; as printed: fails")


@pytest.mark.parametrize(
    ("computed", "certified", "told"),
    [
        (HOLDS, FAILS, "holds as computed in the published code, fails once slip is mended"),
        (FAILS, HOLDS, "fails as computed in the published code, holds once slip is mended"),
        (HOLDS, HOLDS, ""),
        (HOLDS, NOT_TESTABLE, ""),
        (NOT_TESTABLE, FAILS, ""),
        (
            HOLDS,
            UNDECIDED,
            "holds as computed in the published code, is undecided once slip is mended",
        ),
    ],
)
def test_a_sentence_says_in_one_line_where_a_slip_decides(computed, certified, told):
    pairs = [
        (_as(CERTIFIED, "root", _ROOT, "8"), certified),
        (_as(AS_COMPUTED, "slip", _ROOT, "8"), computed),
        (_as(AS_PRINTED, "elsewhere", _ROOT, "5"), FAILS),
    ]
    (one,) = sentences.judged(pairs)
    assert one.difference == told
    assert told in one.summary
    assert one.columns == {"as printed": FAILS, "as computed": computed, "certified": certified}
    assert f"as printed: fails, as computed: {computed}, certified: {certified}" in one.summary


def test_a_reading_as_computed_says_how_its_slip_is_mended_and_no_other_does():
    for options in (
        {"column": AS_COMPUTED},
        {"column": CERTIFIED, "mended": "the root is one"},
        {"column": "as they did"},
    ):
        with pytest.raises(ValueError, match="a reading"):
            _reading(_ROOT, **options)


def test_a_reading_of_other_data_is_judged_by_its_own_numbers():
    sentence = Sentence("A", "Section 5", "improves", ("no such ratio",), data=("mnist",))
    table = DataFrame({"data": ["digits"], "seed": [3]})
    found = judge(_reading(sentence, column=OTHER), table, ())
    assert (found.status, found.text, found.seeds) == (HOLDS, "one", 1)


def test_a_sentence_of_one_figure_is_not_judged_by_others():
    """Class: a vision transformer under AdamW that speaks of a ResNet20 under SGD."""
    sentence = Sentence("A", "Section 1, of Figure 1", "slower", figures=("1, 14",), data=("a",))
    of_figure = _reading(sentence, "ResNet20", "1, 14", column=CERTIFIED)
    other = _reading(sentence, "ViT", "13", column=CERTIFIED)
    assert (of_figure.read_as, other.read_as) == (CERTIFIED, OTHER)
    (one,) = sentences.judged([(of_figure, HOLDS), (other, FAILS)])
    assert (one.status, one.columns) == (HOLDS, {CERTIFIED: HOLDS, OTHER: FAILS})
    table = DataFrame({"data": ["b"]})
    assert judge(other, table, ()).status == HOLDS  # by its own numbers, whatever its data
    assert judge(of_figure, table, ()).status == NOT_TESTABLE
