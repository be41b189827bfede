"""Figures 1 and 13 to 17 show what their table says: losses, kappas, and lower bounds as such."""

import numpy as np
import pytest
import scipy.stats

from figures import catalogue, fig01, fig13, fig14
from figures.shared import pruning
from figures.shared.series import Columns, select
from tests.drawn import as_columns, assert_curve, line, mean_and_interval

RATES, EPOCHS, SEEDS = (0.0, 0.4, 0.8), (0, 1, 2, 3, 4), (0, 1, 2)
NETWORKS = {"fig01": "resnet20", "fig13": "vit", "fig14": "resnet20", "fig15": "resnet32",
            "fig16": "vgg5", "fig17": "feed_forward"}  # fmt: skip


def row(network: str, pruned: float, epoch: int, seed: int) -> dict:
    """An epoch, with kappa at every second one; no loss before the first step."""
    measured = epoch % 2 == 0
    kappa = 1e4 * (1 + pruned) * (1 + 0.1 * seed) * 10.0**epoch if measured else np.nan
    return {
        "network": network, "depth": 20, "pruned": pruned, "seed": seed, "epoch": epoch,
        "measured": measured, "samples": 100, "inputs": 768, "outputs": 10,
        "parameters": round(272_474 * (1 - pruned)), "data": "photo_patches",
        "optimizer": "adamw" if network == "vit" else "sgd", "rate": 0.1, "batch": 64,
        "momentum": 0.0 if network == "vit" else 0.9, "decay": 1e-4,
        "drop_after": 0 if network == "vit" else 91,
        "loss": (2 + pruned) * (1 + 0.1 * seed) / epoch if epoch else np.nan,
        "kappa": kappa, "kappa_low": 0.9 * kappa, "kappa_high": 1.1 * kappa,
        "evidence": "measured", "failure": 0.0, "resolved": measured,
    }  # fmt: skip


@pytest.fixture
def table() -> Columns:
    return as_columns(
        row(network, pruned, epoch, seed)
        for network in pruning.TITLES
        for pruned in RATES
        for epoch in EPOCHS
        for seed in SEEDS
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_figure_draws_its_network(name: str, table: Columns) -> None:
    """The loss at every epoch after the first step, kappa where it was measured."""
    scale = {network: 1.0 + index for index, network in enumerate(pruning.TITLES)}
    factor = np.array([scale[network] for network in table["network"]])
    scaled = {**table, "loss": table["loss"] * factor, "kappa": table["kappa"] * factor}
    losses, kappas = catalogue.load(name).draw(scaled).axes
    rows = select(scaled, network=NETWORKS[name])
    for index, rate in enumerate(RATES):
        of_rate = select(rows, pruned=rate)
        measured = select(of_rate, measured=True)
        expected = mean_and_interval(measured, "epoch", measured["kappa"])
        assert_curve(kappas, f"{rate:.0%} pruned", index, expected)
        trained = select(of_rate, epoch=EPOCHS[1:])
        x, mean, *_ = mean_and_interval(trained, "epoch", trained["loss"])
        drawn = losses.lines[index]
        np.testing.assert_array_equal(drawn.get_xdata(), x)
        np.testing.assert_allclose(drawn.get_ydata(), mean, rtol=1e-12)
        assert drawn.get_color() == line(kappas, f"{rate:.0%} pruned").get_color()
    assert (losses.get_yscale(), kappas.get_yscale()) == ("log", "log")


def test_an_unresolved_kappa_is_an_open_marker_under_an_arrow(table: Columns) -> None:
    hidden = (table["pruned"] == 0.4) & (table["epoch"] == 2) & (table["seed"] == 1)
    unresolved = {**table, "resolved": table["resolved"] & ~hidden}
    kappas = fig14.draw(unresolved).axes[1]
    curve = line(kappas, "40% pruned")
    assert np.isnan(curve.get_ydata()).tolist() == [False, True, False]
    (opened,) = [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    cell = select(unresolved, network="resnet20", pruned=0.4, epoch=2)
    lowest = scipy.stats.gmean(np.where(cell["resolved"], cell["kappa"], cell["kappa_low"]))
    np.testing.assert_allclose(opened.get_xydata(), [[2, lowest]])
    assert opened.get_markeredgecolor() == curve.get_color()
    arrows = [a for a in kappas.texts if getattr(a, "arrow_patch", None) and not a.get_text()]
    assert len(arrows) == 1
    assert "lower bounds (1 of 27 cells" in fig14.caption(unresolved, {"precision": "float64"})


def test_captions_say_what_was_pruned_and_how_it_was_trained(table: Columns) -> None:
    text = fig01.caption(table, {"precision": "float64"})
    assert text.startswith("Figure 1. ")
    assert "ResNet20, of which 0%, 40%, 80% of every layer's weights" in text
    assert "272,474, 163,484, 54,495 parameters that are left" in text
    assert "SGD on the cross-entropy, batches of 64, learning rate 0.1, a tenth of it after" in text
    assert "epoch 91, momentum 0.9, weight decay 0.0001." in text
    assert "BatchNorm" in text
    other = fig13.caption(table, {"precision": "float64"})
    assert "vision transformer" in other
    assert "AdamW" in other
    assert "BatchNorm" not in other
    assert "momentum" not in other
