"""Figure 19: each reading is judged by the sizes of the networks that it reads."""

import pytest
from pandas import DataFrame

from experiments.claims.whitening_sweep import CLAIMS, RAW, SMALL, WHITENED
from sweeps import command_line
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, judge

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
