"""Figure 19: each reading is judged by the sizes of its networks; the floor of kappa."""

import numpy as np
import pytest
from pandas import DataFrame

from experiments.claims.whitening_sweep import CLAIMS, FULL, RAW, SMALL, WHITENED
from reproduction.published import gallery, table_of
from sweeps import command_line, table
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, judge
from sweeps.rows import geometric_means, where

_SETTINGS = command_line.load("configs/whitening_sweep.py:paper")[0].paper_ratios


def _table(power, outputs):
    """Small networks alone, whose kappa is kappa(Sigma)^power, in three seeds at two depths."""
    return DataFrame(
        {
            "figure": SMALL, "whitening": kind, "depth": depth, "seed": seed, "inputs": 3072,
            "outputs": outputs, "width": 3100, "samples": 4000, "covariance_condition": sigma,
            "kappa": 2.0 * sigma**power, "one_triangle": 2.0 * sigma**power,
        }
        for kind, sigma in ((RAW, 1e4), (WHITENED, 1.0))
        for depth in (2, 3)
        for seed in (0, 1, 2)
    )  # fmt: skip


@pytest.mark.parametrize(("power", "status"), [(1.0, HOLDS), (0.5, FAILS)])
def test_readings_of_small_images_are_gated_by_the_sizes_of_their_own_networks(power, status):
    readings = [claim for claim in CLAIMS if "on small images" in claim.statement]
    assert [claim.panel for claim in readings] == [(("figure", SMALL),)] * 2
    papers, others = ([judge(c, _table(power, k), _SETTINGS) for c in readings] for k in (10, 2))
    assert [found.status for found in others] == [NOT_TESTABLE] * 2
    assert [found.status for found in papers] == [status] * 2


def _off(found, kappa):
    """The largest factor between two curves."""
    return np.exp(np.abs(np.log(found / kappa)).max())


@pytest.mark.parametrize(
    ("profile", "ends", "within", "power", "flat"),
    [
        ("laptop", (1.32, 3.53), 1.19, (1.75, 2.70), 1.28),
        ("paper", (1.50, 4.56), 1.22, (1.634, 2.485), 1.366),
    ],
)
def test_kappa_is_the_larger_of_a_floor_and_a_multiple_of_kappa_of_sigma(
    profile, ends, within, power, flat
):
    """The numbers that FINDINGS quotes: one factor for each depth, and one power for comparison."""
    rows = where(table.read(table_of("fig19", gallery(profile))), figure=FULL, resolved=True)
    factors, floors, powers, proportions = [], [], [], []
    for depth in range(2, 7):
        x, kappa = geometric_means(where(rows, depth=depth), "covariance_condition", "kappa")
        quotients = kappa[1:] / x[1:]  # without the whitened inputs
        factor = np.exp(np.log(quotients).mean())
        proportions.append(quotients.max() / quotients.min())
        factors.append(factor)
        floors.append(_off(np.maximum(kappa[0], factor * x), kappa))
        fitted = np.polyfit(np.log(x), np.log(kappa), 1)
        powers.append(_off(np.exp(np.polyval(fitted, np.log(x))), kappa))
    assert factors == sorted(factors)
    assert (factors[0], factors[-1]) == pytest.approx(ends, abs=5e-3)
    assert max(floors) == pytest.approx(within, abs=5e-3)
    assert (min(powers), max(powers)) == pytest.approx(power, abs=5e-3)
    assert max(proportions) == pytest.approx(flat, abs=5e-3)


def test_small_networks_are_paired_by_their_seeds_and_one_without_a_partner_is_left_out():
    """Class: a table that is computed in part ends in a traceback, or pairs two other seeds."""
    (reading,) = [claim for claim in CLAIMS if "kappa of the whole matrix" in claim.statement]
    table = _table(1.0, 10)
    table["kappa"] *= 1 + table["seed"]  # which only pairs of one seed take away again
    whole = reading.check(table)
    mixed = table.sample(frac=1, random_state=0)
    lacks = table[(table["whitening"] == RAW) | (table["seed"] > 0)]
    for found in (whole, reading.check(mixed), reading.check(lacks)):
        assert (found.status, found.number) == (HOLDS, pytest.approx(1))
    assert reading.check(table[table["whitening"] == RAW]).status == NOT_TESTABLE
