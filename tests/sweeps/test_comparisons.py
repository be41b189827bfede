"""Claims that are values: what is judged at which place, against numbers found another way."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame

from sweeps.claims import BEYOND, FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim, NotTestableError
from sweeps.claims import judge as judge_claim
from sweeps.comparisons import Bounded, Compare, Trend


def _table(rng, **columns):
    """Every combination of the values, in a random order; kappa is random, and so are the gaps."""
    frame = DataFrame(index=pandas.MultiIndex.from_product(columns.values(), names=columns))
    frame = frame.reset_index().sample(frac=1, random_state=int(rng.integers(1 << 31)))
    return frame.assign(kappa=np.exp(rng.normal(size=len(frame)))).reset_index(drop=True)


def _status(samples, limit, *, above):
    """By the intervals of each sample's mean; of several at once where one of them fails."""
    sign = 1 if above else -1
    tests = [scipy.stats.ttest_1samp(sign * (np.asarray(s) - limit), 0.0) for s in samples]
    if all(t.confidence_interval(0.95).low > 0 for t in tests):
        return HOLDS
    at_once = 1 - 0.05 / len(samples)
    return FAILS if any(t.confidence_interval(at_once).high < 0 for t in tests) else UNDECIDED


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-3, 3), lost=st.integers(0, 12))
def test_a_ratio_is_judged_at_every_value_that_both_sides_have(seed, shift, lost):
    rng = np.random.default_rng(seed)
    frame = _table(rng, network=["a", "b", "c"], depth=[2, 3, 4], seed=[0, 1, 2], panel=["x", "y"])
    frame.loc[frame["network"] == "a", "kappa"] *= np.exp(shift)
    cells = frame.drop_duplicates(["network", "depth", "panel"]).sample(lost, random_state=1)
    gone = frame[["network", "depth", "panel"]].merge(cells, how="left", indicator=True)["_merge"]
    frame = frame[(gone == "left_only").to_numpy()]
    rows = {"network": "a", "panel": "x"}
    asked = Compare(
        "kappa", rows, over={"network": "b"}, each="depth", below=2.0, name="a / b", missing="none"
    )
    found = asked(frame)
    wide = frame[frame["panel"] == "x"].pivot(
        index=["depth", "seed"], columns="network", values="kappa"
    )
    if not {"a", "b"} <= set(wide) or wide[["a", "b"]].dropna().empty:
        assert (found.status, found.text) == (NOT_TESTABLE, "none")
        return
    logs = np.log(wide["a"] / wide["b"]).dropna()
    samples = {depth: of_depth.to_numpy() for depth, of_depth in logs.groupby("depth")}
    assert found.number == pytest.approx(np.exp(max(map(np.mean, samples.values()))))
    assert found.status == _status(samples.values(), np.log(2.0), above=False)
    assert [f" at L={depth}" in found.text for depth in (2, 3, 4)] == [
        depth in samples for depth in (2, 3, 4)
    ]


def test_every_other_value_is_put_over_the_one_that_is_given():
    rng = np.random.default_rng(0)
    frame = _table(rng, pruned=[0.0, 0.2, 0.8], seed=[0, 1])
    frame["kappa"] = 1 + 10 * frame["pruned"] + 0.01 * frame["seed"]
    asked = Compare("kappa", over={"pruned": 0.0}, each="pruned", above=1.0, name="over whole:")
    found = asked(frame)
    assert found.status == HOLDS
    assert found.number == pytest.approx(np.sqrt(3.0 * 3.01 / 1.01), rel=1e-12)
    assert "at rate=0.8" in found.text
    assert "at rate=0 " not in f"{found.text} "
    assert asked(frame[frame["pruned"] == 0]).status == NOT_TESTABLE
    assert asked(frame[(frame["pruned"] > 0) == frame["seed"]]).status == NOT_TESTABLE  # no pair
    of_share = frame.rename(columns={"pruned": "share"})
    told = Compare("kappa", over={"share": 0.0}, each="share", above=1.0, name="x")(of_share).text
    assert "at share=0.2, " in told


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), power=st.floats(-3, 3))
def test_an_exponent_is_judged_at_every_place_that_has_two_points(seed, power):
    rng = np.random.default_rng(seed)
    frame = _table(rng, width=[8, 9, 11], depth=[2, 4, 8], seed=[0, 1, 2])
    frame["kappa"] = frame["depth"].astype(float) ** power * frame["kappa"] ** 0.1
    frame = frame[(frame["width"] < 11) | (frame["depth"] == 2)]
    asked = Compare("kappa", along="depth", each="width", above=1.0, below=2.0, name="e")
    fits = {
        width: [
            np.polyfit(np.log(one["depth"]), np.log(one["kappa"]), 1)[0]
            for _, one in of_width.groupby("seed")
        ]
        for width, of_width in frame[frame["width"] < 11].groupby("width")
    }
    found = asked(frame)
    sides = [_status(fits.values(), limit, above=above) for limit, above in ((1, True), (2, False))]
    assert found.status == (
        FAILS if FAILS in sides else HOLDS if set(sides) == {HOLDS} else UNDECIDED
    )
    means = [np.mean(slopes) for slopes in fits.values()]
    assert min(abs(found.number - end) for end in (min(means), max(means))) < 1e-9
    assert "m=11" not in found.text
    assert asked(frame[frame["depth"] == 2]).status == NOT_TESTABLE


def test_a_mean_is_geometric_or_not_and_certified_ends_open_its_interval():
    frame = DataFrame({"seed": [0, 1, 2], "x": [1.0, 2.0, 4.0]})
    powers = {power: frame.assign(x=frame["x"] ** power) for power in (1.0, 1.1)}
    geometric = Compare("x", above=1.0, name="x")
    plain = Compare("x", geometric=False, above=1.0, name="x")
    assert geometric(frame).number == pytest.approx(2)
    assert plain(frame).number == pytest.approx(7 / 3)
    assert geometric(powers[1.1]).number == pytest.approx(2**1.1)
    narrow = frame.assign(x=[3.0, 3.1, 3.2], x_low=[2.9, 3.0, 3.1], x_high=[3.1, 3.2, 3.3])
    wide = narrow.assign(x_low=0.1, x_high=[6.0, 6.1, 6.2])
    for asked in (geometric, plain):
        assert [asked(rows).status for rows in (narrow, wide)] == [HOLDS, UNDECIDED]
        assert asked(wide).low == pytest.approx(0.1)


def test_a_number_of_each_run_is_averaged_over_the_seeds_and_paired():
    rows = [
        {"seed": seed, "way": way, "step": step, "loss": 2.0**-step * (1 + way * seed)}
        for seed in (0, 1)
        for way in (0, 1)
        for step in (1, 2, 3)
    ]
    frame = DataFrame(rows)

    def smallest(run):
        return run["loss"].min()

    assert Compare(smallest, {"way": 1}, below=1.0, name="loss")(frame).number == pytest.approx(
        np.sqrt(2) / 8
    )
    over = Compare(smallest, {"way": 1}, over={"way": 0}, below=1.0, name="loss")
    assert over(frame).number == pytest.approx(np.sqrt(2))


def test_while_a_listed_value_is_missing_a_claim_can_fail_and_cannot_hold():
    frame = _table(
        np.random.default_rng(0), network=["a", "b", "c"], late=[False, True], seed=[0, 1]
    )
    each = {"network": ("c", "a"), "late": (True, False)}
    asked = Compare(
        "kappa",
        each=each,
        at=lambda network, late: f"({network} {'late' if late else 'soon'})",
        above=0.0,
        name="kappa",
        missing="one is missing",
    )
    assert asked(frame).status == HOLDS
    places = [asked(frame).text.index(f"({p})") for p in ("c late", "c soon", "a late", "a soon")]
    assert places == sorted(places)
    assert "(b " not in asked(frame).text
    fewer = frame[(frame["network"] != "a") | frame["late"]]
    found = asked(fewer)
    assert found.status == NOT_TESTABLE
    assert found.text.startswith("one is missing: (a soon); kappa: ")
    assert replace(asked, above=1e9)(fewer).status == FAILS  # whatever is missing
    assert asked(frame[frame["network"] == "b"]).text == "one is missing"


def test_rows_are_prepared_before_they_are_compared_and_told_behind_the_numbers():
    frame = _table(np.random.default_rng(0), depth=[2, 3], network=["a", "b"], seed=[0, 1])

    def deep(rows):
        if not (rows["depth"] > 2).any():
            msg = "no deep network"
            raise NotTestableError(msg)
        return rows[rows["depth"] > 2].assign(double=2 * rows["kappa"])

    asked = Compare(
        "double",
        {"network": "a"},
        over={"network": "b"},
        each="depth",
        above=0.0,
        name="ratio",
        prepare=deep,
        beside=lambda rows: f"; of {len(rows)} rows",
    )
    assert asked(frame).text.endswith(" at L=3; of 4 rows")  # those of either side
    found = judge_claim(Claim("1", "", BEYOND, asked), frame[frame["depth"] == 2], ())
    assert (found.status, found.text, found.seeds) == (NOT_TESTABLE, "no deep network", 2)


def test_one_seed_decides_where_it_is_asked_to_or_the_rows_say_so():
    frame = DataFrame({"seed": [0, 0], "kappa": [1.0, 5.0], "pruned": [0.0, 0.8], "data": "few"})
    options = {"over": {"pruned": 0.0}, "each": "pruned", "above": 1.0, "name": "x"}
    for alone, statuses in (
        (False, [UNDECIDED, UNDECIDED]),
        (True, [HOLDS, HOLDS]),
        (lambda rows: (rows["data"] == "all").all(), [UNDECIDED, HOLDS]),
    ):
        asked = Compare("kappa", from_one_seed=alone, **options)
        assert [asked(frame.assign(data=d)).status for d in ("few", "all")] == statuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"above": 1.0, "over": {"way": 1}, "along": "depth"}, "one of over and along"),
        ({"along": "depth", "of": len, "above": 1.0}, "give its name"),
        ({}, "above, below or both"),
        ({"above": 1.0, "below": 2.0, "from_one_seed": True}, "one seed does not decide"),
    ],
)
def test_a_comparison_that_says_two_things_or_none_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Compare(**{"of": "kappa", "name": "kappa", **options})


@pytest.mark.parametrize(("power", "status"), [(0.5, HOLDS), (-0.5, FAILS)])
def test_a_trend_is_that_of_the_rows_that_are_picked(power, status):
    frame = _table(np.random.default_rng(0), width=[2, 4, 8], norm=["a", "b"], seed=[0, 1, 2])
    sign = np.where(frame["norm"] == "a", 1.0, -1.0)
    frame["kappa"] = frame["width"] ** (sign * power) * (1 + 1e-3 * frame["seed"])
    rows = {"norm": "a"}
    rising, falling = (Trend("kappa", "width", "m", rises=r, rows=rows) for r in (True, False))
    assert rising(frame).status == status
    assert falling(frame).status == (FAILS if status == HOLDS else HOLDS)
    assert rising(frame).number == pytest.approx(power)
    narrow = {"prepare": lambda rows: rows[rows["width"] < 4]}
    one = Trend("kappa", "width", "m", rises=True, missing="too few", **narrow)(frame)
    assert (one.status, one.text) == (NOT_TESTABLE, "too few")
    assert "values of m" in Trend("kappa", "width", "m", rises=True, **narrow)(frame).text


@pytest.mark.parametrize(
    ("change", "status", "number"),
    [
        ({}, HOLDS, 1.5),
        ({"bound_convex": [3.0, 3.9]}, FAILS, 3.9 / 4),  # below kappa
        ({"bound_maximum": [3.0, 8.0]}, HOLDS, 1.5),  # equal bounds are ordered
        ({"bound_maximum": [2.9, 8.0]}, FAILS, 1.5),  # in the wrong order
        ({"bound_convex": [3.0, np.nan]}, NOT_TESTABLE, None),
        ({"bound_applicable": False}, NOT_TESTABLE, None),
        ({"kappa_low": [2.0, 9.0], "panel": ["x", "y"]}, HOLDS, 1.5),  # another panel
    ],
)
def test_bounds_hold_in_order_in_every_row_that_has_one(change, status, number):
    frame = DataFrame(
        {"panel": "x", "bound_applicable": True, "kappa_low": [2.0, 4.0],
         "bound_convex": [3.0, 6.0], "bound_maximum": [4.0, 8.0]}
    ).assign(**change)  # fmt: skip
    found = Bounded({"panel": "x"})(frame)
    assert found.status == status
    assert number is None or found.number == pytest.approx(number)
