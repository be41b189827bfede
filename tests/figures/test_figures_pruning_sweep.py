"""Figures 13, 16 and 17 show what their table says: losses, kappas, and lower bounds as such."""

import numpy as np
import pytest
import scipy.stats
from pandas import DataFrame, concat

from figures import c2, catalogue, fig13, fig16
from figures.shared import paths, pruning
from sweeps.rows import where
from sweeps.table import TableError
from tests.drawn import assert_curve, line, mean_and_interval

RATES, EPOCHS, SEEDS = (0.0, 0.4, 0.8), (0, 1, 2, 3, 4), (0, 1, 2)
NETWORKS = {"fig13": "vit", "fig16": "vgg5"}


def row(network: str, pruned: float, epoch: int, seed: int) -> dict:
    """An epoch, with kappa at every second one; no loss before the first step."""
    measured = epoch % 2 == 0
    kappa = 1e4 * (1 + pruned) * (1 + 0.1 * seed) * 10.0**epoch if measured else np.nan
    return {
        "network": network, "depth": 20, "width": 4, "pruned": pruned, "seed": seed, "epoch": epoch,
        "steps": "printed",
        "measured": measured, "samples": 100, "inputs": 768, "outputs": 10,
        "parameters": round(272_474 * (1 - pruned)), "data": "photo_patches",
        "optimizer": "adamw" if network == "vit" else "sgd", "rate": 0.1, "batch": 64,
        "momentum": 0.0 if network == "vit" else 0.9, "decay": 1e-4,
        "drop_after": 0 if network == "vit" else 91,
        "loss": (2 + pruned) * (1 + 0.1 * seed) / epoch if epoch else np.nan,
        "kappa": kappa, "kappa_low": 0.9 * kappa, "kappa_high": 1.1 * kappa,
        "kappa_numerical": np.nan, "rank_numerical": 1000, "tolerance": 1e-13,  # not drawn
        "evidence": "measured", "failure": 0.0, "resolved": measured,
    }  # fmt: skip


@pytest.fixture
def table() -> DataFrame:
    return DataFrame(
        row(network, pruned, epoch, seed)
        for network in pruning.TITLES
        for pruned in RATES
        for epoch in EPOCHS
        for seed in SEEDS
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_figure_draws_its_network(name: str, table: DataFrame) -> None:
    """The loss at every epoch after the first step, kappa where it was measured."""
    scale = {network: 1.0 + index for index, network in enumerate(pruning.TITLES)}
    factor = np.array([scale[network] for network in table["network"]])
    scaled = table.assign(loss=table["loss"] * factor, kappa=table["kappa"] * factor)
    losses, kappas = catalogue.load(name).draw(scaled).axes
    rows = where(scaled, network=NETWORKS[name])
    for index, rate in enumerate(RATES):
        of_rate = where(rows, pruned=rate)
        measured = where(of_rate, measured=True)
        expected = mean_and_interval(measured, "epoch", measured["kappa"])
        assert_curve(kappas, f"{rate:.0%} pruned", index, expected)
        trained = where(of_rate, epoch=EPOCHS[1:])
        x, mean, *_ = mean_and_interval(trained, "epoch", trained["loss"])
        drawn = losses.lines[index]
        np.testing.assert_array_equal(drawn.get_xdata(), x)
        np.testing.assert_allclose(drawn.get_ydata(), mean, rtol=1e-12)
        assert drawn.get_color() == line(kappas, f"{rate:.0%} pruned").get_color()
    assert (losses.get_yscale(), kappas.get_yscale()) == ("log", "log")


def test_an_unresolved_kappa_is_an_open_marker_under_an_arrow(table: DataFrame) -> None:
    hidden = (table["pruned"] == 0.4) & (table["epoch"] == 2) & (table["seed"] == 1)
    high = np.where(hidden, np.inf, table["kappa_high"])
    unresolved = table.assign(kappa_high=high, resolved=table["resolved"] & ~hidden)
    kappas = fig16.draw(unresolved).axes[1]
    curve = line(kappas, "40% pruned")
    assert np.isnan(curve.get_ydata()).tolist() == [False, True, False]
    (opened,) = [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    cell = where(unresolved, network="vgg5", pruned=0.4, epoch=2)
    known = np.isfinite(cell["kappa_high"])
    ends = np.where(known, cell["kappa"], cell["kappa_low"])
    lowest = scipy.stats.gmean(ends)
    np.testing.assert_allclose(opened.get_xydata(), [[2, lowest]])
    assert opened.get_markeredgecolor() == curve.get_color()
    arrows = [a for a in kappas.texts if getattr(a, "arrow_patch", None) and not a.get_text()]
    assert len(arrows) == 1
    assert "lower bounds (1 of 27 cells" in fig16.caption(unresolved, {"precision": "float64"})


def test_both_panels_name_their_curves(table: DataFrame) -> None:
    """In one style of ticks: powers of ten over many decades, else plain numbers."""
    figure = fig16.draw(table)
    figure.draw_without_rendering()
    named = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert named == [["0% pruned", "40% pruned", "80% pruned"]] * 2
    kappas = figure.axes[1].yaxis
    assert {label.get_text() for label in kappas.get_minorticklabels()} == {""}
    losses = [label.get_text() for label in figure.axes[0].get_yticklabels(which="both")]
    assert all(text == f"{float(text):g}" for text in losses if text)


def test_where_a_seed_has_lost_rank_the_marker_is_open(table: DataFrame) -> None:
    lost = (table["pruned"] == 0.8) & (table["epoch"] == 4) & (table["seed"] == 2)
    found = table.assign(rank_numerical=np.where(lost, 900, table["rank_numerical"]))
    kappas = fig16.draw(found).axes[1]
    (opened,) = [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    curve = line(kappas, "80% pruned")
    np.testing.assert_allclose(opened.get_xydata(), curve.get_xydata()[-1:])
    text = fig16.caption(found, {"precision": "float64"})
    assert "numerical rank below k n (1 of 27 cells), which counts eigenvalues above 1e-13" in text
    assert "numerical rank" not in fig16.caption(table, {"precision": "float64"})


def test_the_picture_says_what_it_shows(table: DataFrame) -> None:
    """Class: a reader has to look for the network, the drop and open markers in the caption."""
    dropped = table.assign(drop_after=np.where(table["drop_after"] > 0, 3, 0))
    lost = dropped.assign(rank_numerical=np.where(table["epoch"] == 4, 900, 1000))
    losses, kappas = fig16.draw(lost).axes
    assert losses.get_title(loc="left") == "VGG5"
    for axes in (losses, kappas):
        assert "the rate drops" in [text.get_text() for text in axes.texts]
    assert [text.get_text() for text in kappas.get_legend().get_texts()] == [
        "numerical rank below $k\\,n$"
    ]
    without = fig13.draw(table).axes
    assert without[1].get_legend() is None
    assert "the rate drops" not in [text.get_text() for text in without[0].texts]


@pytest.mark.parametrize(
    ("count", "places"), [(1, {0}), (2, {0, 1}), (4, {0, 2, 3}), (6, {0, 2, 5})]
)
def test_three_curves_at_most_have_a_band(count: int, places: set[int]) -> None:
    """The first, one between, the last."""
    assert paths.spaced(count, 3) == places


def test_a_caption_names_the_curves_with_a_band(table: DataFrame) -> None:
    more = concat([table, table.assign(pruned=table["pruned"] + 0.1)], ignore_index=True)
    assert "bands, of 0%, 40%, 90%, are" in fig16.caption(more, {"precision": "float64"})


def test_with_smaller_steps_nothing_is_drawn(table: DataFrame) -> None:
    smaller = table.assign(steps="small", loss=3 * table["loss"])
    both = concat([table, smaller], ignore_index=True)
    for axes, expected in zip(fig16.draw(both).axes, fig16.draw(table).axes, strict=True):
        for drawn, curve in zip(axes.lines, expected.lines, strict=True):
            np.testing.assert_array_equal(drawn.get_ydata(), curve.get_ydata())


def test_a_seed_that_was_not_trained_is_not_in_the_curves(table: DataFrame) -> None:
    start = where(table, epoch=0)
    more = start.assign(seed=start["seed"] + 3, kappa=1e9 * start["kappa"])
    both = concat([table, more], ignore_index=True)
    for axes, expected in zip(fig16.draw(both).axes, fig16.draw(table).axes, strict=True):
        for drawn, curve in zip(axes.lines, expected.lines, strict=True):
            np.testing.assert_array_equal(drawn.get_ydata(), curve.get_ydata())


def test_figure_c2_draws_kappa_over_the_parameters_of_every_network(table: DataFrame) -> None:
    """Before training, and the geometric mean over the later epochs, at p/(k n)."""
    before, after = c2.draw(table).axes
    for name, label in c2.NAMES.items():
        rows = where(table, network=name, measured=True)
        rows["share"] = rows["parameters"] / 1000
        start = where(rows, epoch=0)
        for axes, mean in (
            (before, mean_and_interval(start, "share", start["kappa"])[1]),
            (after, [_over_later_epochs(rows, rate) for rate in reversed(RATES)]),
        ):
            drawn = line(axes, label)
            np.testing.assert_allclose(drawn.get_xdata(), np.unique(rows["share"]))
            np.testing.assert_allclose(drawn.get_ydata(), mean, rtol=1e-12)
    text = c2.caption(table, {"precision": "float64"})
    assert "From right to left, rates 0%, 40%, 80%." in text
    assert "Geometric means over 3 initialisations (a) and 3 (b)" in text


def _over_later_epochs(rows: DataFrame, rate: float) -> float:
    later = where(rows, pruned=rate, epoch=[2, 4])
    return scipy.stats.gmean(later["kappa"])


def test_captions_say_how_much_is_not_computed_yet(table: DataFrame) -> None:
    """Class: a part of a sweep is shown as if it were the whole."""
    planned = {"rates": [*RATES, 0.9], "seeds": 3}
    provenance = {"precision": "float64", "missing": 5, "config": {"vgg5": planned}}
    text = fig16.caption(table, provenance)
    assert "Not all is computed yet: 9 of 12 trainings are shown, none at 90%." in text
    fewer = table[table["seed"] < 2]
    planned["rates"] = list(RATES)
    assert "6 of 9 trainings are shown. " in fig16.caption(fewer, provenance)
    assert "computed yet" not in fig16.caption(table, provenance)
    assert "computed yet" not in fig16.caption(table, {"precision": "float64"})


def test_a_network_without_a_cell_is_told(table: DataFrame) -> None:
    others = table[table["network"] != "vgg5"]
    with pytest.raises(TableError, match="no VGG5 is in the table"):
        fig16.draw(others)


def test_captions_say_what_was_pruned_and_how_it_was_trained(table: DataFrame) -> None:
    text = fig16.caption(table, {"precision": "float64"})
    assert text.startswith("Figure 16. ")
    assert (
        "a VGG20 with 4 filters in its first layer, of which 0%, 40%, 80% of every layer's weights"
        in text
    )
    assert "272,474, 163,484, 54,495 parameters that are left" in text
    assert "SGD on the cross-entropy, batches of 64, learning rate 0.1, a tenth of it after" in text
    assert "epoch 91, momentum 0.9, weight decay 0.0001." in text
    assert "BatchNorm" in text
    other = fig13.caption(table, {"precision": "float64"})
    assert "vision transformer" in other
    assert "AdamW" in other
    assert "BatchNorm" not in other
    assert "momentum" not in other
