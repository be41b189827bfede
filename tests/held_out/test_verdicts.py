"""The judge of the held-out trials finds what is wrong, and nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import flint
import numpy as np
import pytest

import gnjax
from gnjax.numerics.certificate import Error, certificate
from tests.held_out import many_digits, verdicts
from tests.held_out.verdicts import Row, asked, broken, kappa_judge, spectrum_judge

ROW = Row("matrices", "made up", "0:0", "kappa", "auto")
TRUTH = many_digits.of_matrix(np.diag([8.0, 2.0, 0.0]))  # kappa 4, rank 2


def _answer(**changes):
    given = {
        "value": 4.0,
        "interval": (3.9, 4.1),
        "rank": 2,
        "rank_source": "full",
        "resolved": True,
        "method": "dense",
        "certificate": certificate(Error(0.1)),
    }
    return SimpleNamespace(**(given | changes))


@pytest.mark.parametrize(
    ("inside", "changes"),
    [
        (True, {}),
        (True, {"interval": (4.0, 4.0)}),
        (False, {"interval": (4.0000001, 4.1), "value": 4.05}),
        (False, {"interval": (3.9, 3.9999999), "value": 3.95}),
        (False, {"value": 4.2}),
        (True, {"resolved": False, "interval": (3.0, math.inf), "value": 3.0}),
        (False, {"resolved": False, "interval": (5.0, math.inf), "value": 5.0}),
        (True, {"resolved": False, "interval": (math.nan, math.nan), "value": math.nan}),
        (False, {"resolved": True, "interval": (math.nan, math.nan), "value": math.nan}),
        # one eigenvalue alone: kappa at that numerical rank is 1, and the answer may say so
        (
            True,
            {"resolved": False, "rank": 1, "rank_source": "gap", "interval": (1.0, 1.1)},
        ),
        (
            False,
            {"resolved": True, "rank": 1, "rank_source": "gap", "interval": (1, 1.1), "value": 1},
        ),
    ],
)
def test_an_interval_is_judged_by_the_truth(inside, changes):
    assert kappa_judge(TRUTH)(ROW, _answer(**changes)).inside is inside


def test_a_given_rank_is_answered_for_that_rank():
    assert kappa_judge(TRUTH, 1)(ROW, _answer(interval=(1.0, 1.0), value=1.0)).inside
    assert not kappa_judge(TRUTH, 1)(ROW, _answer()).inside
    assert not kappa_judge(TRUTH, 3)(ROW, _answer()).inside  # lambda_3 is zero: kappa is infinite


def test_hidden_eigenvalues_leave_an_upper_end_undecided():
    hidden = replace(TRUTH, hidden=True)
    assert kappa_judge(hidden)(ROW, _answer()).inside is None
    assert kappa_judge(hidden)(ROW, _answer(interval=(1.0, 3.9), value=2.0)).inside is False
    assert kappa_judge(hidden)(ROW, _answer(resolved=False, interval=(1.0, math.inf))).inside


def test_the_zero_matrix_has_no_condition_number():
    zero = many_digits.of_matrix(np.zeros((2, 2)))
    assert kappa_judge(zero)(ROW, _answer()).inside is False
    assert kappa_judge(zero)(ROW, gnjax.condition_number(np.zeros((2, 2)))).inside


def test_every_eigenvalue_lies_within_its_own_error():
    truth = [flint.arb(2), flint.arb(1)]
    spectrum = SimpleNamespace(values=[2.0, 1.5], errors=[0.0, 0.5], method="dense")
    assert spectrum_judge(truth)(ROW, spectrum).inside
    spectrum.errors = [0.0, 0.4999]
    found = spectrum_judge(truth)(ROW, spectrum)
    assert not found.inside
    assert (found.lower, found.truth) == (1.5 - 0.4999, "1.000000000000000000000000")
    one = SimpleNamespace(values=[1.0], errors=[0.0], method="krylov")
    assert spectrum_judge(truth, "smallest")(ROW, one).inside
    assert not spectrum_judge(truth, "largest")(ROW, one).inside
    assert not spectrum_judge(truth)(ROW, one).inside  # one value is not all


def test_an_unknown_error_is_infinite_and_says_nothing_false():
    unknown = SimpleNamespace(values=[2.0, 9.0], errors=[np.inf, np.inf], method="krylov")
    found = spectrum_judge([flint.arb(2), flint.arb(1)])(ROW, unknown)
    assert found.inside
    assert not found.resolved
    unknown.values = [2.0, np.nan]
    assert not spectrum_judge([flint.arb(2), flint.arb(1)])(ROW, unknown).inside


def test_refusals_and_failures_are_told_apart():
    def fail(error):
        raise error

    judge = kappa_judge(TRUTH)
    assert asked(ROW, lambda: fail(ValueError("rank=9")), judge).outcome == verdicts.REFUSED
    failed = asked(ROW, lambda: fail(IndexError("9")), judge)
    assert failed.outcome == verdicts.FAILED
    assert broken([failed]) == [failed]


def test_probable_answers_may_miss_as_often_as_they_state():
    def rows(misses, kind="probable", failure=1e-3):
        return [
            replace(ROW, inside=i >= misses, kind=kind, failure=failure, resolved=True)
            for i in range(2000)
        ]

    assert broken(rows(5)) == []
    assert broken(rows(5, kind="measured")) == []  # with a random start in it
    assert len(broken(rows(40))) == 40
    assert len(broken(rows(1, kind="measured", failure=0.0))) == 1
    assert len(broken(rows(1, kind="proved", failure=0.0))) == 1


def test_widths_are_compared_where_both_answers_are_right(tmp_path):
    def table(name, *widths):
        rows = [
            replace(ROW, draw=str(i), inside=w < 100, resolved=True, relative_width=w)
            for i, w in enumerate(widths)
        ]
        verdicts.write(rows, tmp_path / name)
        return tmp_path / name

    found = verdicts.compared_widths(table("a", 1.0, 2.0, 4.0), table("b", 3.0, 4.0, 200.0))
    assert found["matrices / made up / kappa"] == (2, 2.5)


def test_each_quantity_answers_for_its_own_chances():
    """Twenty misses of twenty are too many at 5%, however well another quantity does."""
    good = [replace(ROW, what="log", inside=True, failure=0.05) for _ in range(400)]
    bad = [replace(ROW, what="inverse", inside=False, failure=0.05) for _ in range(20)]
    assert broken([*good, *bad]) == bad
    few = [replace(ROW, what="inverse", inside=index > 0, failure=0.05) for index in range(20)]
    assert broken([*good, *few]) == []


@pytest.mark.parametrize(
    ("inside", "values", "errors"),
    [
        (True, [1.0, 2.0], [0.0, 0.0]),
        (True, [1.1, 2.0], [0.2, 0.0]),
        (False, [1.1, 2.0], [0.0, 0.2]),
        (True, [[1.3, 0.0], [2.4, 0.0]], [0.51, 0.0]),  # columns, in the 2-norm
        (False, [[1.3, 0.0], [2.4, 0.0]], [0.49, 0.0]),
        (False, [np.nan, 2.0], [np.inf, 0.0]),
        (False, [1.0], [0.0]),
    ],
)
def test_numbers_and_columns_are_judged_by_their_errors(inside, values, errors):
    exact = [[1.0, 0.0], [2.0, 0.0]] if np.ndim(values) == 2 else [1.0, 2.0]
    balls = np.vectorize(flint.arb, otypes=[object])(exact)
    answer = np.array(values), np.array(errors)
    assert verdicts.within_judge(balls, lambda answer: answer)(ROW, answer).inside is inside
    assert verdicts.within_judge(None, lambda answer: answer)(ROW, answer).inside is False
