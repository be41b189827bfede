"""Effects against closed forms and simulation, and what verdicts are made of them."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from pandas import DataFrame

from sweeps import command_line, effects, regimes
from sweeps.claims import (
    BEYOND,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    UNDECIDED,
    Claim,
    NotTestableError,
    Sentence,
    implied,
    judge,
    verdict,
)
from sweeps.effects import Effect, decide


def _rows(kappa, seeds=(0, 1, 2), **columns):
    return DataFrame({"seed": seeds, "kappa": np.asarray(kappa, float), **columns})


def test_a_ratio_is_that_of_geometric_means_with_a_paired_interval():
    first, second = _rows([2.0, 8.0, 32.0]), _rows([1.0, 2.0, 4.0])
    found = effects.ratio(first, second)
    logs = np.log([2.0, 4.0, 8.0])
    low, high = scipy.stats.ttest_1samp(logs, 0).confidence_interval(0.95)
    assert found.value == pytest.approx(4)
    np.testing.assert_allclose([found.low, found.high], np.exp([low, high]), rtol=1e-9)


@pytest.mark.parametrize(("first", "second"), [([1.0, 2.0], [0.0, 1.0]), ([0.0, 2.0], [1.0, 1.0])])
def test_a_ratio_with_a_zero_decides_nothing(first, second):
    """Class: a value that is not finite counts as a large one. A run that died has sharpness 0."""
    found = effects.ratio(_rows(first, (0, 1)), _rows(second, (0, 1)))
    assert (found.low, found.high) == (0.0, math.inf)
    assert decide({"": found}, "ratio", below=1.0).status == UNDECIDED
    assert decide({"": found}, "ratio", above=1.0).status == UNDECIDED


def test_intervals_hold_as_often_as_they_say():
    """Of 4000 intervals at 95% about 200 miss; three at once by Bonferroni miss no more often.

    That all three lie above 0 without any being so is said in fewer than 2.5%, with no correction.
    """
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 3, 4))
    alone = [effects.mean(values[0]) for values in draws]
    missed = sum(not e.low <= 0 <= e.high for e in alone)
    assert 150 <= missed <= 250
    threes = [[effects.mean(v) for v in values] for values in draws]
    wider = [[effect.among(3) for effect in three] for three in threes]
    any_missed = sum(any(not e.low <= 0 <= e.high for e in three) for three in wider)
    assert 150 <= any_missed <= 250
    found = [
        decide(dict(zip("abc", three, strict=True)), "mean", above=0.0).status for three in threes
    ]
    assert found.count(HOLDS) <= 100
    assert 60 <= found.count(FAILS) <= 140  # 2.5%: they must hold at once


def test_an_interval_among_several_is_that_of_a_smaller_chance_to_miss():
    values = np.array([0.5, 1.0, 2.5, 3.0])
    error = np.std(values, ddof=1) / 2
    reach = scipy.stats.t.ppf(1 - 0.05 / 6, 3) * error
    wider = effects.mean(values).among(3)
    assert (wider.low, wider.high) == pytest.approx((1.75 - reach, 1.75 + reach))
    geometric = effects.geometric_mean(np.exp(values)).among(3)
    assert (geometric.low, geometric.high) == pytest.approx(
        (math.exp(1.75 - reach), math.exp(1.75 + reach))
    )
    open_above = effects.mean(values, highs=np.array([1.0, 2.0, 3.0, math.inf])).exponential()
    assert open_above.among(3).high == math.inf
    assert open_above.among(3).low == pytest.approx(math.exp(1.75 - reach))
    one = effects.mean(values[:1])
    assert one.among(3) == one


def test_the_extreme_of_several_has_the_interval_of_whichever_it_is():
    few = {"wide": effects.mean(np.array([0.0, 4.0, 8.0])), "sure": effects.mean(np.full(3, 2.0))}
    (label, found), *_ = effects.extreme(few, largest=True).items()
    assert label == "sure"
    assert (found.low, found.high) == (2.0, few["wide"].among(2).high)
    (label, found), *_ = effects.extreme(few, largest=False).items()
    assert label == "sure"
    assert (found.low, found.high) == (few["wide"].among(2).low, 2.0)


def test_every_effect_is_judged_alone_and_one_that_fails_is_judged_among_all():
    """Three seeds: what lies beyond 0 alone does not when it was picked from three."""
    values = np.array([1.0, 2.0, 3.0])
    assert effects.mean(values).among(3).low < 0 < effects.mean(values - 0.4).high
    close = effects.mean(np.array([1.6, 2.6, 3.6]))
    assert close.low > 0 > close.among(3).low
    several = dict.fromkeys("abc", close)
    assert decide(several, "", above=0.0).status == HOLDS
    assert decide(several, "", below=0.0).status == UNDECIDED
    assert decide({"": close}, "", below=0.0).status == FAILS
    assert decide({"": close}, "", below=0.0, judged=3).status == UNDECIDED


def test_seeds_pair_whatever_their_order_and_only_the_common_ones_count():
    first, second = _rows([9.0, 2.0, 4.0], (7, 0, 1)), _rows([2.0, 1.0], (1, 0))
    assert effects.ratio(first, second).value == pytest.approx(2)


def test_certified_ends_open_the_interval():
    first = _rows(
        [2.0, 2.0], (0, 1), kappa_low=np.array([2.0, 2.0]), kappa_high=np.array([2.0, np.inf])
    )
    second = _rows([1.0, 1.0], (0, 1), kappa_low=np.ones(2), kappa_high=np.ones(2))
    found = effects.ratio(first, second)
    assert (found.low, found.high) == (pytest.approx(2), math.inf)
    assert decide({"": found}, "ratio", above=1.0).status == HOLDS
    assert decide({"": found}, "ratio", below=3.0).status == UNDECIDED


def test_an_exponent_is_fitted_for_each_seed():
    x = np.tile([1.0, 2.0, 4.0], 2)
    rows = _rows(np.r_[x[:3] ** 2, 5 * x[:3] ** 3], np.repeat([0, 1], 3), width=x)
    found = effects.exponent(rows, "width")
    assert found.value == pytest.approx(2.5)
    assert found.high - found.low == pytest.approx(2 * 12.7062047 * 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("intervals", "above", "below"),
    [
        ([(1.1, 2.0), (1.5, 3.0)], HOLDS, FAILS),
        ([(1.1, 2.0), (0.9, 3.0)], UNDECIDED, FAILS),
        ([(1.1, 2.0), (0.1, 0.2)], FAILS, FAILS),
        ([(0.5, 2.0)], UNDECIDED, UNDECIDED),
        ([(-math.inf, math.inf)], UNDECIDED, UNDECIDED),
    ],
)
def test_the_worst_interval_decides(intervals, above, below):
    found = {str(i): Effect((low + high) / 2, low, high) for i, (low, high) in enumerate(intervals)}
    assert decide(found, "x", above=1.0).status == above
    assert decide(found, "x", below=1.0).status == below


def test_a_seed_that_is_not_computed_to_the_end_has_no_exponent():
    """Class: a part of a sweep ends in a number that is none, or counts as much as the whole."""
    width = np.array([1.0, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0, 8.0, 1.0, 8.0])
    kappa = np.array([1.0, 4.0, 16.0, 64.0, 1.0, 4.0, 16.0, 64.0, 1.0, 1e9])
    rows = _rows(kappa, seeds=(0, 0, 0, 0, 1, 1, 1, 1, 2, 2), width=width)
    found = effects.exponent(rows, "width")
    np.testing.assert_allclose([found.value, found.low, found.high], 2, rtol=1e-12)
    whole = rows.iloc[[0, 1, 2, 8]]  # one point of seed 2
    np.testing.assert_allclose(effects.exponent(whole, "width").value, 2, rtol=1e-12)
    # Through one point goes a line of any slope, and no line at all through none.
    for rest in (rows.iloc[[0, 7]], rows.iloc[:0]):
        with pytest.raises(NotTestableError, match="no seed has two values of width"):
            effects.exponent(rest, "width")


def test_a_trend_says_from_where_to_where_and_how_it_bends():
    """Class: an exponential or a step told as if one power held from end to end."""
    x = np.array([1.0, 2.0, 4.0, 8.0])
    rows = _rows(np.tile(2.0**x, 2), np.repeat([0, 1], 4), width=np.tile(x, 2))
    found = effects.trend(rows, "width", "m", rises=True)
    assert found.status == HOLDS
    assert found.short.endswith(" from m=1 to 8, 1 to 4 between neighbours")
    assert found.text == f"{found.short}: 2 at m=1.0, 4 at m=2.0, 16 at m=4.0, 256 at m=8.0"


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("column", ["skip", "kappa"])
def test_a_value_without_a_logarithm_is_named_and_the_claim_is_not_testable(column, value):
    """Class: a claim about a column that has 0 ends a sweep in a traceback of the SVD."""
    x = np.array([0.5, 1.0, 2.0])
    rows = _rows(x, skip=x)
    rows.loc[0, column] = value
    claim = Claim("1", "", BEYOND, lambda frame: effects.trend(frame, "skip", "s", rises=True))
    with np.errstate(all="raise"):
        found = judge(claim, rows, ())
    assert found.status == NOT_TESTABLE
    assert f"the column {column} has the value {value:g}, " in found.text
    assert "positive" in found.text


@pytest.mark.parametrize(("low", "high", "status"), [(1, 3, HOLDS), (3, 9, FAILS), (0, 1, FAILS)])
def test_between_fails_on_either_side_and_tells_the_worse(low, high, status):
    found = effects.between({"": Effect(2.0, 1.9, 2.1)}, "x", low, high)
    assert (found.status, found.number) == (status, 2.0)


def test_nothing_to_compare_is_not_testable_and_one_side_is_needed():
    assert decide({}, "x", above=1.0).status == NOT_TESTABLE
    with pytest.raises(ValueError, match="one of above and below"):
        decide({}, "x")


def test_one_seed_decides_nothing():
    found = decide({"": effects.ratio(_rows([2.0], (0,)), _rows([1.0], (0,)))}, "ratio", above=1.0)
    assert found.status == UNDECIDED
    assert "2 (one seed)" in found.text


def _claim(**options):
    return Claim("2", "holds", implied("here"), lambda frame: verdict(True, 1, "one"), **options)


TABLE = DataFrame(
    {
        "width": np.array([50, 100]),
        "inputs": np.array([100, 100]),
        "panel": np.array(["a", "b"]),
    }
)
PAPER = (("2", "m/d", 1.0, 1.5),)


def test_a_claim_outside_of_the_papers_ratio_is_not_testable():
    assert judge(_claim(), TABLE, ()).status == HOLDS
    assert judge(_claim(ratios=("m/d",)), TABLE, PAPER).status == HOLDS
    far = TABLE.assign(width=np.array([49, 100]))
    found = judge(_claim(ratios=("m/d",)), far, PAPER)
    assert found.status == NOT_TESTABLE
    assert found.text == "m/d is 0.49 to 1 where the paper has 1 to 1.5. Here: one"
    assert judge(_claim(ratios=("m/d",), panel=(("panel", "b"),)), far, PAPER).status == HOLDS


def test_a_ratio_that_the_config_does_not_state_is_an_error():
    with pytest.raises(ValueError, match="no paper ratio m/d of figure 2"):
        judge(_claim(ratios=("m/d",)), TABLE, ())


def test_every_ratio_that_a_claim_names_is_stated_by_the_config():
    """In every experiment and profile: no claim is refused at the end of a long run."""

    from figures import catalogue
    from sweeps import config

    for name in {figure.EXPERIMENT for figure in catalogue.from_tables().values()}:
        program = command_line.named(name)
        ratios = config.load(f"configs/{name}.py:laptop")[0].get("paper_ratios", ())
        stated = {(row[0], row[1]) for row in ratios}
        for claim in program.claims:
            for ratio in claim.gates:
                assert ratio in regimes.RATIOS
                assert (claim.figure, ratio) in stated, (name, claim.statement)


def test_every_claim_says_where_it_comes_from():

    from figures import catalogue

    for name in {figure.EXPERIMENT for figure in catalogue.from_tables().values()}:
        for claim in command_line.named(name).claims:
            assert claim.source == BEYOND or claim.source.place, (name, claim.statement)


def test_a_source_reads_well():
    assert str(implied("Eq 8")) == "implied: Eq 8"
    assert str(BEYOND) == "beyond the papers"
    assert str(Sentence("A", "Section 4.2", "seems tight")) == 'printed: Section 4.2, "seems tight"'


@given(st.floats(0.1, 10), st.floats(1, 5), st.floats(0.2, 5))
def test_one_seed_decides_only_where_it_is_asked_to_and_by_what_is_certified(value, width, limit):
    """Class: a verdict from one seed that does not say so, or that its certificate leaves open."""
    ends = {"kappa_low": value, "kappa": value, "kappa_high": value * width}
    one = DataFrame([{"seed": 0, **ends}])
    unit = DataFrame([{"seed": 0, **dict.fromkeys(ends, 1.0)}])
    effect = {"": effects.ratio(one, unit)}
    assert decide(effect, "kappa", above=limit).status == UNDECIDED
    found = decide(effect, "kappa", above=limit, from_one_seed=True)
    assert "(one seed)" in found.text
    assert found.seeds == 1
    margin = effects.ONE_SEED_MARGIN * limit
    ends = value - margin, value * width + margin
    if not np.isclose(ends, limit).any():
        expected = HOLDS if ends[0] > limit else FAILS if ends[1] < limit else UNDECIDED
        assert found.status == expected


def test_a_bound_of_one_seed_is_called_one():
    """Class: a kappa of which only a lower bound is certified is printed as a number."""
    unit = DataFrame([{"seed": 0, "kappa_low": 1.0, "kappa": 1.0, "kappa_high": 1.0}])
    open_ended = unit.assign(kappa=6.0, kappa_low=6.0, kappa_high=math.inf)
    assert str(effects.ratio(open_ended, unit)) == "at least 6 (one seed)"
    assert str(effects.ratio(unit, open_ended)) == "at most 0.167 (one seed)"
    assert str(effects.ratio(unit, unit)) == "1 (one seed)"
    assert str(effects.mean(np.array([-2.0]))) == "-2 (one seed)"


def test_several_seeds_are_judged_by_their_interval_whatever_is_asked():
    rows = _rows([1.0, 4.0, 2.0])
    effect = {"": effects.ratio(rows, _rows([1.0, 1.0, 1.0]))}
    found = decide(effect, "kappa", above=1.0, from_one_seed=True)
    assert (found.status, found.seeds) == (UNDECIDED, 3)
    assert "one seed" not in found.text


@pytest.mark.parametrize("side", ["above", "below"])
def test_a_verdict_says_at_which_limits_it_would_be_another(side):
    """What the page of all sentences moves: holds_to and fails_from are those of every limit."""
    found = {
        "at 1": effects.Effect(3.0, 2.0, 4.0, 5, own=(3.0, 3.0)),
        "at 2": effects.Effect(5.0, 3.5, 6.5, 5, own=(5.0, 5.0)),
    }
    told = effects.decide(found, "a ratio", **{side: 1.0})
    assert (told.limit, told.side) == (1.0, side)
    beyond = (lambda a, b: a < b) if side == "above" else (lambda a, b: a > b)
    seen = set()
    for limit in (0.5, 1.99, 2.01, 3.0, 3.49, 4.1, 5.0, 6.49, 6.51, 8.0, 20.0):
        status = effects.decide(found, "a ratio", **{side: limit}).status
        assert (status == HOLDS) == beyond(limit, told.holds_to)
        assert (status == FAILS) == beyond(told.fails_from, limit)
        seen.add(status)
    assert seen == {HOLDS, FAILS, UNDECIDED}
