"""Figure 10's curves against slow references from the table."""

import numpy as np
import pytest
from pandas import DataFrame

from figures import fig10
from tests.drawn import assert_curve, line, mean_and_interval

EPOCHS, STOPS = range(6), (0, 1, 5)


@pytest.fixture(name="table")
def _table():
    rng = np.random.default_rng(0)
    return DataFrame(_row(i, s, e, rng) for i in fig10.NAMES for s in range(3) for e in EPOCHS)


def _row(reading, seed, epoch, rng):
    measured = epoch in STOPS
    kappa = rng.uniform(8, 10) if measured else np.nan
    return {
        "reading": reading,
        "seed": seed,
        "epoch": epoch,
        "measured": measured,
        "resolved": measured,
        "depth": 3,
        "width": 500,
        "inputs": 192,
        "outputs": 10,
        "samples": 1000,
        "data": "cifar10_part, whitened to X^T X = I",
        "rate": 0.2,
        "batch": 256,
        "dtype": "float32",
        "loss": rng.uniform(0.5, 1) if epoch else np.nan,
        "kappa": kappa,
        "kappa_low": kappa,
        "kappa_high": 1.001 * kappa,
        "evidence": "probable",
        "failure": 0.001,
        "bound_convex": 1.2 * kappa,
    }


def _of(table, reading, **wanted):
    for name, value in {"reading": reading, **wanted}.items():
        table = table[table[name] == value]
    return table


def _mean(table, of):
    columns = {name: table[name].to_numpy() for name in ("epoch", of)}
    return mean_and_interval(columns, "epoch", columns[of])


def test_the_panels_are_loss_and_kappa_with_its_bound(table):
    losses, kappas = fig10.draw(table).axes
    for index, (reading, name) in enumerate(fig10.NAMES.items()):
        after = _of(table, reading)
        assert_curve(losses, name, index, _mean(after[after["epoch"] > 0], "loss"))
        measured = _of(table, reading, measured=True)
        curve, bound = kappas.lines[2 * index : 2 * index + 2]
        expected = _mean(measured, "kappa")
        np.testing.assert_array_equal(curve.get_xdata(), STOPS)
        np.testing.assert_allclose(curve.get_ydata(), expected[1])
        np.testing.assert_allclose(bound.get_ydata(), 1.2 * expected[1])
        assert bound.get_color() == curve.get_color() == line(losses, name).get_color()
    assert [axes.get_yscale() for axes in (losses, kappas)] == ["log", "log"]
    low, high = (
        kappas.patches[0].get_y(),
        kappas.patches[0].get_y() + kappas.patches[0].get_height(),
    )
    assert (low, high) == fig10.PAPER_RANGE
    assert [axes.get_xscale() for axes in (losses, kappas)] == ["symlog", "symlog"]


def test_the_legend_has_the_readings_in_their_order(table):
    (legend,) = fig10.draw(table).legends
    assert [text.get_text() for text in legend.get_texts()] == list(fig10.NAMES.values())


def test_the_caption_is_written_from_the_table(table):
    text = fig10.caption(table, {"precision": "float64"})
    for part in (
        "L = 3",
        "m = 500",
        "batches of 256",
        "rate 0.2",
        "initialisations (3, 3, 3, 3, in the order",
        "d = 192",
        "float32",
    ):
        assert part in text
    assert set(fig10.COLUMNS) <= set(table)
