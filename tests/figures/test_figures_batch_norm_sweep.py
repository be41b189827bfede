"""Figure 7 shows what its table says."""

import numpy as np
import pytest
import scipy.stats
from pandas import DataFrame

from figures import fig07
from sweeps.rows import where
from tests.drawn import assert_curve, line, mean_and_interval

STRENGTH = {"none": 4e6, "initial": 3e6, "frozen": 2e6, "batch": 1e6, "layer": 1e19}
RANKS = {"none": 640, "initial": 650, "frozen": 650, "batch": 650, "layer": 1649}


def row(norm: str, width: int, seed: int) -> dict:
    kappa = STRENGTH[norm] / width * (1 + 0.1 * seed)
    return {
        "figure": "7",
        "norm": norm, "depth": 2, "width": width, "seed": seed, "inputs": 64, "outputs": 10,
        "samples": 1000, "data": "photo_patches, grey, 8 x 8", "gain": 2.0, "kappa": kappa,
        "kappa_low": 0.99 * kappa, "kappa_high": 1.01 * kappa, "evidence": "measured",
        "failure": 0.0,
        "resolved": True, "rank": RANKS[norm],
        "kappa_leading": 3e6 / width * (1 + 0.1 * seed) if norm == "layer" else kappa,
    }  # fmt: skip


@pytest.fixture
def table() -> DataFrame:
    cells = [(norm, m) for norm in STRENGTH for m in (32, 128, 512) if (norm, m) != ("layer", 32)]
    return DataFrame(row(*cell, seed) for cell in cells for seed in (0, 1, 2))


def test_figure_7_draws_every_norm(table: DataFrame) -> None:
    panels = fig07.draw(table).axes
    for axes, norms in zip(
        panels, (("none", "initial", "frozen", "batch"), ("none", "batch", "layer")), strict=True
    ):
        assert axes.get_yscale() == "log"
        for index, norm in enumerate(norms):
            rows = where(table, norm=norm)
            expected = mean_and_interval(rows, "width", rows["kappa"])
            assert_curve(axes, fig07.LABELS[norm], index, expected)
    layer = where(table, norm="layer")
    leading = mean_and_interval(layer, "width", layer["kappa_leading"])
    assert_curve(panels[1], "LayerNorm,\nleading", 3, leading)


def test_an_unresolved_kappa_is_a_lower_bound(table: DataFrame) -> None:
    hidden = (table["norm"] == "layer") & (table["width"] == 512)
    unresolved = table.assign(resolved=~hidden)
    right = fig07.draw(unresolved).axes[1]
    assert np.isnan(line(right, "LayerNorm").get_ydata()).tolist() == [False, True]
    (opened,) = [drawn for drawn in right.lines if drawn.get_markerfacecolor() == "white"]
    low = scipy.stats.gmean(table["kappa_low"][hidden])
    np.testing.assert_allclose(opened.get_xydata(), [[512, low]], rtol=1e-12)


def test_the_caption_tells_ranks_data_and_seeds(table: DataFrame) -> None:
    caption = fig07.caption(table, {"precision": "float64"})
    for part in (
        "without normalisation 640, with BatchNorm 650; of LayerNorm, 1,649",
        "beside the 650 leading",
        "n = 1,000, d = 64, k = 10",
        "photograph patches, grey, 8 x 8",
        "Geometric mean over 3 initialisations",
        "float64",
    ):
        assert part in caption


def test_a_table_without_layer_norm_has_a_caption_without_it(table: DataFrame) -> None:
    narrow = where(table, width=32)
    assert "of LayerNorm" not in fig07.caption(narrow, {"precision": "float64"})
