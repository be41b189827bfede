"""Figure B3 draws traces, their standard errors and their distances as the table has them."""

import numpy as np
import pytest
from pandas import DataFrame

from figures import b3
from sweeps.rows import where
from tests.drawn import line

EPOCHS = (0, 10, 100, 1000)


def row(panel: str, data: str, width: int, seed: int, epoch: int) -> dict:
    predicted = width * (1 + 0.01 * epoch**0.5) + seed
    return {
        "panel": panel, "data": f"{data}, orthogonalised", "epoch": epoch, "seed": seed,
        "depth": 4, "width": width, "inputs": 700, "outputs": 10, "samples": 5000, "probes": 100,
        "predicted": predicted,
        "estimate": predicted + (-1) ** seed * 0.02 * width,
        "standard_error": 0.01 * width * (1 + seed),
        "exact": predicted if width == 12 else np.nan,
    }  # fmt: skip


@pytest.fixture
def table() -> DataFrame:
    return DataFrame(
        row(panel, data, width, seed, epoch)
        for panel, data in (("a", "mnist"), ("b", "fashion_mnist"), ("c", "cifar10"))
        for width in (256, 12)
        for seed in (0, 1)
        for epoch in EPOCHS
    )


def test_the_top_row_draws_eq_7_the_estimates_and_the_exact_trace(table: DataFrame) -> None:
    for axes, panel in zip(b3.draw(table).axes[:3], "abc", strict=True):
        for width in (256, 12):
            rows = where(table, panel=panel, width=width)
            pairs = [rows[name].to_numpy().reshape(2, 4) for name in ("predicted", "estimate")]
            predicted = line(axes, f"Eq 7, $m = {width}$")
            np.testing.assert_allclose(predicted.get_xydata().T, [EPOCHS, pairs[0].mean(axis=0)])
            (bars,) = [c for c in axes.containers if c.get_label() == f"Hutchinson, $m = {width}$"]
            points, _, (segments,) = bars
            np.testing.assert_allclose(points.get_xydata().T, [EPOCHS, pairs[1].mean(axis=0)])
            ends = np.array([segment[:, 1] for segment in segments.get_segments()])
            half = 0.01 * width * (1**2 + 2**2) ** 0.5 / 2  # of the mean of two estimates
            np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, half)
        exact = line(axes, "exact, $m = 12$")
        rows = where(table, panel=panel, width=12)["exact"].to_numpy().reshape(2, 4)
        np.testing.assert_allclose(exact.get_xydata().T, [EPOCHS, rows.mean(axis=0)])
        assert "exact, $m = 256$" not in [drawn.get_label() for drawn in axes.lines]


def test_the_bottom_row_draws_every_distance_in_standard_errors(table: DataFrame) -> None:
    for axes, panel in zip(b3.draw(table).axes[3:], "abc", strict=True):
        marked = [drawn for drawn in axes.lines if drawn.get_marker() not in ("None", "")]
        for drawn, width in zip(marked, (256, 12), strict=True):
            rows = where(table, panel=panel, width=width)
            expected = (rows["estimate"] - rows["predicted"]) / rows["standard_error"]
            np.testing.assert_allclose(drawn.get_xydata().T, [rows["epoch"], expected])
        edges = {drawn.get_ydata()[0] for drawn in axes.lines if drawn.is_dashed()}
        assert edges == {-4.0, 4.0}


def test_the_caption_says_widths_probes_and_limits(table: DataFrame) -> None:
    caption = b3.caption(table, {"precision": "float64"})
    for part in (
        "4 layers",
        "m = 12, 256",
        "100 products",
        "exact trace (crosses)",
        "at 4 of them",
    ):
        assert part in caption
    wide = b3.caption(where(table, width=256), {"precision": "float64"})
    assert "crosses" not in wide
