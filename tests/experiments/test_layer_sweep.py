"""Figures 11 and 12: rows of every gain, and their claims on made-up tables."""

import numpy as np
import pytest
from pandas import DataFrame, concat

from experiments.claims.layer_sweep import CLAIMS
from experiments.layer_sweep import EXPERIMENT
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, judge
from tests.experiments.configs import changed, computed

_OTHERS = [claim for claim in CLAIMS if claim.statement.endswith("another m, d and k")]
_OF_GAIN_1 = [
    claim for claim in CLAIMS if dict(claim.panel).get("gain", 1.0) == 1.0 and claim not in _OTHERS
]


def _table(term, seeds=3, depth=8, **changes):
    rng = np.random.default_rng(0)
    layers = np.tile(np.arange(1, depth + 1), seeds)
    noise = 1 + 0.01 * rng.random(len(layers))
    found = {
        "depth": np.full(len(layers), depth),
        "layer": layers,
        "seed": np.repeat(np.arange(seeds), depth),
        "gain": np.ones(len(layers)),
        "sizes": np.full(len(layers), "printed"),
        "inputs": np.full(len(layers), 196),
        "outputs": np.full(len(layers), 10),
        "width": np.full(len(layers), 300),
        "right_kappa2": term(layers) * noise,
        "right_smallest2": noise / term(layers) ** 2,
        "left_kappa2": noise * term(depth - layers) / term(depth / 2),
        "left_smallest2": term(layers) * noise,
        "term": term(layers) * noise,
        "weight": 1 / term(layers),
    }
    return DataFrame(found | changes)


def _statuses(table):
    return [claim.check(table).status for claim in _OF_GAIN_1]


def test_claims_can_hold_and_fail():
    growing = _table(lambda layer: np.exp(0.7 * layer))
    assert _statuses(growing) == [HOLDS] * 6
    falling = _table(lambda layer: np.exp(-0.7 * layer))
    assert _statuses(falling)[:4] == [FAILS] * 4
    weights = growing.assign(weight=growing["term"])
    assert _statuses(weights)[4] == FAILS
    same = growing.assign(right_smallest2=np.ones(len(growing["layer"])))
    assert _statuses(same)[5] == FAILS


def test_other_sizes_are_judged_one_by_one_and_not_with_the_printed_ones():
    claim = _OTHERS[0]
    printed = _table(lambda layer: np.exp(0.7 * layer))
    assert claim.check(printed).status == NOT_TESTABLE
    wider = printed.assign(width=2 * printed["width"], sizes=np.full(24, "other"))
    fewer = wider.assign(outputs=wider["outputs"] // 2)
    both = concat([printed, wider, fewer], ignore_index=True)
    found = claim.check(both)
    assert found.status == HOLDS
    assert "d=196, k=5, m=600: " in found.text
    assert _statuses(both) == _statuses(printed) == [HOLDS] * 6
    fewer["right_kappa2"] = 1 / fewer["right_kappa2"]
    both = concat([printed, wider, fewer], ignore_index=True)
    assert claim.check(both).status == FAILS
    assert _statuses(both) == [HOLDS] * 6


def test_a_trend_that_is_not_exponential_fails():
    bent = _table(lambda layer: np.exp(np.where(layer < 6, 0.0, layer - 5.0)))
    found = CLAIMS[0].check(bent)
    assert found.status == FAILS
    assert found.low > 1  # although it rises


def test_the_layer_without_a_matrix_does_not_count():
    """kappa of the empty product is 1, whatever the law of the others is."""
    table = _table(lambda layer: np.exp(0.7 * layer))
    odd = table.assign(right_kappa2=np.where(table["layer"] == 1, 1e-9, table["right_kappa2"]))
    assert CLAIMS[0].check(odd) == CLAIMS[0].check(table)
    last = table.assign(left_kappa2=np.where(table["layer"] == 8, 1e-9, table["left_kappa2"]))
    assert CLAIMS[3].check(last) == CLAIMS[3].check(table)


def test_one_seed_is_undecided_and_few_layers_are_not_testable():
    assert _statuses(_table(lambda layer: np.exp(0.7 * layer), seeds=1)) == [UNDECIDED] * 6
    few = _table(lambda layer: np.exp(0.7 * layer), depth=4)
    exponential = [claim for claim in _OF_GAIN_1 if "exponentially" in claim.statement]
    assert {claim.check(few).status for claim in exponential} == {NOT_TESTABLE}


@pytest.mark.parametrize("profile", ["laptop", "paper"])
def test_profiles_have_the_papers_ratios(profile):
    found = changed(EXPERIMENT, profile)
    table = _table(lambda layer: np.exp(0.7 * layer))
    assert (found.side**2, found.width, found.seeds) == (196, 300, 10)
    assert {judge(c, table, found.paper_ratios).status for c in _OF_GAIN_1} == {HOLDS}
    narrow = table.assign(width=table["width"] // 3)
    assert {judge(c, narrow, found.paper_ratios).status for c in _OF_GAIN_1} == {NOT_TESTABLE}


def test_a_gain_scales_every_product_and_no_condition_number():
    """Gain 2 multiplies sigma^2 by 2 for every matrix of the product."""
    chosen = changed(EXPERIMENT, "smoke", depths=(4,), seeds=1, first_seed=7, others=())
    rows = computed(EXPERIMENT, chosen)
    assert set(rows["seed"]) == {7}
    first, second = (rows[rows["gain"] == gain] for gain in (1.0, 2.0))
    for one, two in zip(first.itertuples(), second.itertuples(), strict=True):
        assert two.right_kappa2 == pytest.approx(one.right_kappa2, rel=1e-9)
        assert two.left_kappa2 == pytest.approx(one.left_kappa2, rel=1e-9)
        assert two.weight == pytest.approx(one.weight, rel=1e-9)
        assert two.right_smallest2 == pytest.approx(
            one.right_smallest2 * 2.0 ** (one.layer - 1), rel=1e-9
        )
        assert two.left_smallest2 == pytest.approx(
            one.left_smallest2 * 2.0 ** (4 - one.layer), rel=1e-9
        )
