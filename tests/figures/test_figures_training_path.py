"""Figure 10's curves against slow references from the table."""

import numpy as np
import pytest

from figures import fig10
from tests.drawn import as_columns, assert_curve, line, mean_and_interval

EPOCHS, STOPS = range(6), (0, 1, 5)


@pytest.fixture(name="table")
def _table():
    rng = np.random.default_rng(0)
    return as_columns(_row(i, s, e, rng) for i in fig10.NAMES for s in range(3) for e in EPOCHS)


def _row(initializer, seed, epoch, rng):
    measured = epoch in STOPS
    kappa = rng.uniform(8, 10) if measured else np.nan
    return {
        "initializer": initializer,
        "seed": seed,
        "epoch": epoch,
        "measured": measured,
        "resolved": measured,
        "depth": 3,
        "width": 500,
        "inputs": 192,
        "outputs": 10,
        "samples": 1000,
        "data": "cifar10, downsampled and whitened",
        "gain": 2.0,
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


def _of(table, initializer, **wanted):
    keep = table["initializer"] == initializer
    for name, value in wanted.items():
        keep &= table[name] == value
    return {name: column[keep] for name, column in table.items()}


def test_the_panels_are_loss_and_kappa_with_its_bound(table):
    losses, kappas = fig10.draw(table).axes
    for index, (initializer, name) in enumerate(fig10.NAMES.items()):
        after = _of(table, initializer)
        after = {column: values[after["epoch"] > 0] for column, values in after.items()}
        assert_curve(losses, name, index, mean_and_interval(after, "epoch", after["loss"]))
        measured = _of(table, initializer, measured=True)
        curve, bound = kappas.lines[2 * index : 2 * index + 2]
        expected = mean_and_interval(measured, "epoch", measured["kappa"])
        np.testing.assert_array_equal(curve.get_xdata(), STOPS)
        np.testing.assert_allclose(curve.get_ydata(), expected[1])
        np.testing.assert_allclose(bound.get_ydata(), 1.2 * expected[1])
        assert bound.get_color() == curve.get_color() == line(losses, name).get_color()
    assert [axes.get_yscale() for axes in (losses, kappas)] == ["log", "log"]
    assert [axes.get_xscale() for axes in (losses, kappas)] == ["symlog", "symlog"]


def test_the_caption_is_written_from_the_table(table):
    text = fig10.caption(table, {"precision": "float64"})
    for part in (
        "L = 3",
        "m = 500",
        "batches of 256",
        "rate 0.2",
        "3 initialisations",
        "d = 192",
        "float32",
    ):
        assert part in text
    assert set(fig10.COLUMNS) <= set(table)
