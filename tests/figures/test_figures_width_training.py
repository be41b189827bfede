"""Figures 9 and 18 against slow references from the table."""

import numpy as np
import pytest

from figures import fig09, fig18
from figures.shared import style
from tests.drawn import as_columns, assert_curve, mean_and_interval

WIDTHS, EPOCHS, STOPS = (15, 20, 50), range(5), (0, 2, 4)
NUMERICAL = 18  # of 40 eigenvalues 1, 1/2, 1/4, .. those above 40 x 2^-23


def _row(figure, width, seed, epoch, **values):
    empty = dict.fromkeys(
        ("loss", "kappa", "kappa_low", "kappa_high", "eigenvalue", "eigenvalue_error"), np.nan
    )
    shared = {"figure": figure, "width": width, "seed": seed, "epoch": epoch, "measured": True}
    data = {"samples": 200, "inputs": 64, "outputs": 10, "data": "digits"}
    trained = {
        "training_loss": "cross_entropy",
        "rate": 0.3 if width <= 20 else 0.5,
        "batch": 13,
        "dtype": "float32",
    }
    certified = {
        "evidence": "measured",
        "failure": 0.0,
        "resolved": True,
        "rank": 30.0,
        "assumed_rank": 0,
        "counted": False,
    }
    return shared | data | trained | certified | empty | values


def _path(width, seed, epoch, rng):
    measured = epoch in STOPS
    kappa = rng.uniform(5e3, 1e4) if measured else np.nan
    return _row(
        18,
        width,
        seed,
        epoch,
        measured=measured,
        resolved=measured,
        loss=rng.uniform(0.1, 1) if epoch else np.nan,
        kappa=kappa,
        kappa_low=kappa,
        kappa_high=1.01 * kappa,
    )


def _eigenvalue(epoch, at):
    """40 of them, the last ten below their errors."""
    value = 0.5 ** (at + epoch) if at < 30 else 1e-16
    kappa = 0.5**-at
    return _row(
        9,
        20,
        0,
        epoch,
        assumed_rank=at + 1,
        counted=at < NUMERICAL,
        eigenvalue=value,
        eigenvalue_error=1e-15,
        kappa=kappa,
        kappa_low=kappa,
        kappa_high=kappa,
    )


@pytest.fixture(name="table")
def _table():
    rng = np.random.default_rng(0)
    paths = [_path(m, s, e, rng) for m in WIDTHS for s in range(2) for e in EPOCHS]
    spectra = [_eigenvalue(e, at) for e in (0, 4) for at in reversed(range(40))]
    return as_columns([*paths, *spectra])


def test_figure_18_is_loss_and_kappa_of_every_width(table):
    losses, kappas = fig18.draw(table).axes
    for index, width in enumerate(WIDTHS):
        keep = (table["figure"] == 18) & (table["width"] == width)
        after = {name: column[keep & (table["epoch"] > 0)] for name, column in table.items()}
        drawn, expected = losses.lines[index], mean_and_interval(after, "epoch", after["loss"])
        np.testing.assert_array_equal(drawn.get_xdata(), expected[0])
        np.testing.assert_allclose(drawn.get_ydata(), expected[1])
        measured = {name: column[keep & table["measured"]] for name, column in table.items()}
        expected = mean_and_interval(measured, "epoch", measured["kappa"])
        assert_curve(kappas, f"$m = {width}$", index, expected)
    assert [axes.get_yscale() for axes in (losses, kappas)] == ["log", "log"]


def test_an_unresolved_kappa_is_an_open_marker(table):
    table["resolved"][(table["width"] == 15) & (table["epoch"] == 2)] = False
    _, kappas = fig18.draw(table).axes
    (opened,) = [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    assert list(opened.get_xdata()) == [2]


def test_figure_9_ends_at_the_numerical_rank_with_a_star(table):
    """The paper's star is where a user of matrix_rank finds it, not at the float64 floor."""
    spectra, kappas = fig09.draw(table).axes
    for axes, column in ((spectra, "eigenvalue"), (kappas, "kappa")):
        for index, epoch in enumerate((0, 4)):
            curve, star = axes.lines[2 * index : 2 * index + 2]
            expected = [row[column] for row in (_eigenvalue(epoch, at) for at in range(NUMERICAL))]
            np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, NUMERICAL + 1))
            np.testing.assert_array_equal(curve.get_ydata(), expected)
            assert star.get_marker() == "*"
            assert (star.get_xdata()[0], star.get_ydata()[0]) == (NUMERICAL, expected[-1])
            assert star.get_color() == curve.get_color() == style.looks(2)[index].colour
        assert axes.get_yscale() == "log"
        assert axes.get_xlim()[1] < NUMERICAL + 1


def test_a_label_points_to_the_end_of_its_curve_also_where_that_is_a_lower_bound(table):
    """Class: a label's line from an early point crosses the panel and reads as a curve."""
    table["resolved"][(table["width"] == 15) & (table["epoch"] > 0)] = False
    figure = fig18.draw(table)
    figure.canvas.draw()
    _, kappas = figure.axes
    (label,) = [text for text in kappas.texts if text.get_text() == "$m = 15$"]
    bounds = next(line for line in kappas.lines if line.get_markerfacecolor() == "white")
    at = kappas.transData.transform(bounds.get_xydata()[-1])
    np.testing.assert_allclose(label.xy, kappas.transAxes.inverted().transform(at), atol=1e-6)


def test_captions_are_written_from_the_table(table):
    provenance = {"precision": "float64"}
    nine, eighteen = fig09.caption(table, provenance), fig18.caption(table, provenance)
    for part in ("m = 20 ReLU", "18 at epoch 0 and 18 at epoch 4", "30 and 30 eig", "n = 200"):
        assert part in nine
    for part in ("cross entropy", "0.3 for m = 15, 20 and 0.5 for m = 50", "2 initialisations"):
        assert part in eighteen
    assert set(fig09.COLUMNS) | set(fig18.COLUMNS) <= set(table)
