"""One verdict for each printed sentence, whatever the number of its readings."""

import numpy as np
import pytest

from sweeps import sentences
from sweeps.claims import (
    ALL,
    BEYOND,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    SOME,
    UNDECIDED,
    Claim,
    Sentence,
    elsewhere,
    every,
    implied,
    judge,
    verdict,
)


def _reading(source, statement="a reading", **options):
    return Claim("1", statement, source, lambda table: verdict(True, 1, "one"), **options)


@pytest.mark.parametrize(
    ("statuses", "of_all", "of_some"),
    [
        ([HOLDS, HOLDS], HOLDS, HOLDS),
        ([HOLDS, FAILS], FAILS, HOLDS),
        ([FAILS, FAILS], FAILS, FAILS),
        ([HOLDS, UNDECIDED], UNDECIDED, HOLDS),
        ([FAILS, UNDECIDED], FAILS, UNDECIDED),
        ([HOLDS, NOT_TESTABLE], HOLDS, HOLDS),
        ([NOT_TESTABLE, FAILS], FAILS, FAILS),
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
        return lambda table: verdict(status == HOLDS, 2.0, status)

    assert every(part(HOLDS), part(HOLDS))({}).status == HOLDS
    found = every(part(HOLDS), part(FAILS))({})
    assert (found.status, found.text) == (FAILS, "holds; fails")


def test_a_sentence_about_other_images_is_not_testable():
    """Where the images decide, a table of others shows its number and speaks for itself alone."""
    sentence = Sentence("A", "Section 5", "improves", data=("mnist",))
    panel = {"panel": (("figure", "23"),)}
    table = {"figure": np.array(["23", "6"]), "data": np.array(["fashion_mnist_5000", "mnist"])}
    found = judge(_reading(sentence, **panel), table, ())
    assert found.status == NOT_TESTABLE
    assert found.text == "the data are fashion_mnist_5000, the paper's mnist. Here: one"
    same = {**table, "data": np.array(["mnist, test split", "digits"])}
    assert judge(_reading(sentence, **panel), same, ()).status == HOLDS
    assert judge(_reading(BEYOND, **panel), table, ()).status == HOLDS
