"""Figure 17 shows what its table says: the loss, and kappa with J of all parameters and of some."""

import itertools

import numpy as np
import pytest
from pandas import DataFrame

from figures import fig17

RATES, STOPS = (0.0, 0.4, 0.8), (0, 2, 4)


@pytest.fixture(name="frame")
def _frame():
    rows = []
    for run, rate, seed in itertools.product(("plotted", "default"), RATES, (0, 1)):
        shared = {"run": run, "pruned": rate, "seed": seed, "samples": 100, "inputs": 768,
                  "outputs": 10, "depth": 4, "width": 20, "parameters": round(5000 * (1 - rate)),
                  "data": "cifar10_part", "rate": 0.01, "batch": 4, "evidence": "measured",
                  "failure": 0.001, "kappa": np.nan, "kappa_low": np.nan, "kappa_high": np.nan,
                  "resolved": False, "loss": np.nan, "of": np.nan}  # fmt: skip
        for epoch in range(5):
            loss = (1 + rate) / epoch * (1 + seed) if epoch else np.nan
            rows.append({**shared, "epoch": epoch, "measured": False, "loss": loss})
        for of, epoch in itertools.product(("all", "left"), STOPS):
            kappa = (1 + rate) * 10.0 ** (epoch + seed) * (3 if of == "left" else 1)
            ends = {"kappa": kappa, "kappa_low": 0.9 * kappa, "kappa_high": 1.1 * kappa}
            measured = {"of": of, "epoch": epoch, "measured": True, "resolved": True}
            rows.append({**shared, **measured, **ends})
    return DataFrame(rows)


PROVENANCE = {
    "precision": "float64",
    "config": {"plotted": {"rates": RATES, "stops": STOPS, "seeds": 2}},
}


def test_each_panel_has_the_means_of_its_rows(frame):
    losses, whole, left = fig17.draw(frame).axes
    for index, rate in enumerate(RATES):
        curve = losses.lines[index]
        np.testing.assert_array_equal(curve.get_xdata(), [1, 2, 3, 4])
        mean = [(1 + rate) / epoch * 2**0.5 for epoch in (1, 2, 3, 4)]
        np.testing.assert_allclose(curve.get_ydata(), mean)
        for axes, factor in ((whole, 1), (left, 3)):
            drawn = axes.lines[index]
            np.testing.assert_array_equal(drawn.get_xdata(), STOPS)
            mean = [factor * (1 + rate) * 10 ** (epoch + 0.5) for epoch in STOPS]
            np.testing.assert_allclose(drawn.get_ydata(), mean)
            assert drawn.get_color() == curve.get_color()
    assert all(axes.get_yscale() == "log" for axes in (losses, whole, left))
    assert whole.get_ylim() == left.get_ylim()


def test_the_caption_says_what_was_pruned_and_what_is_missing(frame):
    text = fig17.caption(frame, PROVENANCE)
    for part in ("4 layers, 20 units", "0%, 40%, 80%", "all 5,000", "5,000, 3,000, 1,000", "0.01"):
        assert part in text
    assert "so far" not in text
    fewer = frame[(frame["of"] != "left") | (frame["epoch"] == 0)]
    text = fig17.caption(fewer, PROVENANCE)
    assert "18 of 18 with J of all parameters, 6 of 18 with J of those left" in text


def test_a_rate_has_one_colour_also_where_another_is_not_computed(frame):
    """Class: a colour by its place among the curves of a panel is that of another rate."""
    fewer = frame[(frame["of"] != "left") | (frame["pruned"] != 0.4)]
    losses, _, left = fig17.draw(fewer).axes
    assert left.lines[1].get_color() == losses.lines[2].get_color() != losses.lines[1].get_color()


def test_a_panel_without_rows_says_so(frame):
    *_, left = fig17.draw(frame[frame["of"] != "left"]).axes
    assert "not computed yet" in [text.get_text() for text in left.texts]
