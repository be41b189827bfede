"""Figures 9 and 18 against slow references from the table."""

import numpy as np
import pytest
from pandas import DataFrame

from figures import fig09, fig18
from figures.shared import style
from tests.drawn import assert_curve, mean_and_interval

WIDTHS, EPOCHS, STOPS = (15, 20, 50), range(5), (0, 2, 4)
RANKS = {"float64": 28, "absolute": 24, "absolute over rows": 28, "float32": 18}


def _row(figure, width, seed, epoch, **values):
    empty = dict.fromkeys(("loss", "kappa", "kappa_low", "kappa_high"), np.nan)
    numerical = {f"kappa_numerical{end}": np.nan for end in ("", "_low", "_high")}
    shared = {
        "figure": figure, "reading": "published", "width": width, "seed": seed, "epoch": epoch,
        "measured": True, "samples": 200, "inputs": 64, "outputs": 10, "data": "digits",
        "training_loss": "mse", "rate": 0.3 if width <= 20 else 0.5, "batch": 13,
        "biases": "none", "shuffled": False, "evidence": "measured", "failure": 0.0,
        "resolved": True, "rank": 30.0,
    }  # fmt: skip
    return shared | empty | numerical | values


def _path(width, seed, epoch, rng):
    measured = epoch in STOPS
    kappa = rng.uniform(5e3, 1e4) if measured else np.nan
    ends = {"": kappa, "_low": kappa, "_high": 1.01 * kappa}
    kappas = {f"{of}{end}": at for of in ("kappa", "kappa_numerical") for end, at in ends.items()}
    loss = rng.uniform(0.1, 1) if epoch else np.nan
    return _row("18", width, seed, epoch, measured=measured, resolved=measured, loss=loss, **kappas)


def _eigenvalue(epoch, at):
    """40 of them, the last ten below their errors."""
    names = [name for name, rank in RANKS.items() if rank == at + 1]
    return _row(
        "9", 20, 0, epoch,
        assumed_rank=at + 1, rule=", ".join(names) or np.nan, resolved=at < 30,
        eigenvalue=0.5 ** (at + epoch), eigenvalue_error=1e-15, kappa=2.0**at,
    )  # fmt: skip


@pytest.fixture(name="frame")
def _frame():
    rng = np.random.default_rng(0)
    paths = [_path(m, s, e, rng) for m in WIDTHS for s in range(2) for e in EPOCHS]
    spectra = [_eigenvalue(e, at) for e in (0, 4) for at in reversed(range(40))]
    return DataFrame([*paths, *spectra])


def test_figure_18_is_loss_and_kappa_of_every_width(frame):
    losses, kappas = fig18.draw(frame).axes
    for index, width in enumerate(WIDTHS):
        rows = frame[(frame["figure"] == "18") & (frame["width"] == width)]
        after = rows[rows["epoch"] > 0]
        drawn = losses.lines[index]
        expected = mean_and_interval(after, "epoch", after["loss"].to_numpy())
        np.testing.assert_array_equal(drawn.get_xdata(), expected[0])
        np.testing.assert_allclose(drawn.get_ydata(), expected[1])
        measured = rows[rows["measured"]]
        expected = mean_and_interval(measured, "epoch", measured["kappa"].to_numpy())
        assert_curve(kappas, f"$m = {width}$", index, expected)
    assert [axes.get_yscale() for axes in (losses, kappas)] == ["log", "log"]


def _hide(frame, **numerical):
    """kappa of m = 15 at epoch 2 is known by a lower bound alone."""
    at = (frame["width"] == 15) & (frame["epoch"] == 2)
    changed = {"resolved": False, "kappa_high": np.inf} | numerical
    return frame.assign(**{name: frame[name].mask(at, value) for name, value in changed.items()})


def test_the_numerical_kappa_stands_where_the_certified_one_is_open(frame):
    _, kappas = fig18.draw(_hide(frame, kappa=1.0)).axes
    assert not [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    rows = frame[(frame["width"] == 15) & (frame["epoch"] == 2)]
    mean = np.exp(np.log(rows["kappa_numerical"]).mean())
    np.testing.assert_allclose(kappas.lines[0].get_ydata()[1], mean)


def test_an_unresolved_kappa_is_an_open_marker(frame):
    _, kappas = fig18.draw(_hide(frame, kappa_numerical_high=np.inf)).axes
    (opened,) = [drawn for drawn in kappas.lines if drawn.get_markerfacecolor() == "white"]
    assert list(opened.get_xdata()) == [2]


def test_another_reading_is_drawn_where_the_published_one_is_missing(frame):
    other = frame.assign(
        reading=frame["reading"].mask(frame["figure"] == "18", "shuffled"),
        shuffled=True, biases="zero", training_loss="cross_entropy",
    )  # fmt: skip
    drawn, published = fig18.draw(other).axes[1].lines, fig18.draw(frame).axes[1].lines
    for ours, theirs in zip(drawn, published, strict=True):
        np.testing.assert_array_equal(ours.get_ydata(), theirs.get_ydata())
    text = fig18.caption(other, {"precision": "float64"})
    assert "SGD on the cross-entropy, batches of 13 samples drawn at random, biases in" in text


def test_figure_9_marks_the_rank_of_each_rule(frame):
    spectra, kappas = fig09.draw(frame).axes
    for axes, column in ((spectra, "eigenvalue"), (kappas, "kappa")):
        for index, epoch in enumerate((0, 4)):
            curve, *marks = axes.lines[5 * index : 5 * index + 5]
            rows = [_eigenvalue(epoch, at) for at in range(30)]
            np.testing.assert_array_equal(curve.get_xdata(), np.arange(1, 31))
            np.testing.assert_array_equal(curve.get_ydata(), [row[column] for row in rows])
            for rule, mark in zip(fig09.MARKERS, marks, strict=True):
                at = RANKS[rule]
                assert mark.get_marker() == fig09.MARKERS[rule][0]
                assert mark.get_xydata().tolist() == [[at, rows[at - 1][column]]]
                assert mark.get_color() == curve.get_color() == style.looks(2)[index].colour
        assert axes.get_yscale() == "log"


def test_a_rule_without_a_rank_in_the_table_has_no_marker(frame):
    """Where only the spectrum above one tolerance is kept."""
    fewer = frame.assign(rule=frame["rule"].mask(frame["rule"] != "float32"))
    spectra, _ = fig09.draw(fewer).axes
    drawn = [mark for mark in spectra.lines if len(mark.get_xdata()) == 1]
    assert {mark.get_marker() for mark in drawn} == {fig09.MARKERS["float32"][0]}
    text = fig09.caption(fewer, {"precision": "float64"})
    assert "the numbers are these ranks: matrix_rank in single precision, 18 at epoch 0" in text


def test_a_label_points_to_the_end_of_its_curve_also_where_that_is_a_lower_bound(frame):
    """Class: a label's line from an early point crosses the panel and reads as a curve."""
    at = (frame["width"] == 15) & (frame["epoch"] > 0)
    hidden = frame.assign(
        resolved=frame["resolved"].mask(at, False),
        kappa_numerical_high=frame["kappa_numerical_high"].mask(at, np.inf),
    )
    figure = fig18.draw(hidden)
    figure.canvas.draw()
    _, kappas = figure.axes
    (label,) = [text for text in kappas.texts if text.get_text() == "$m = 15$"]
    bounds = next(line for line in kappas.lines if line.get_markerfacecolor() == "white")
    place = kappas.transData.transform(bounds.get_xydata()[-1])
    np.testing.assert_allclose(label.xy, kappas.transAxes.inverted().transform(place), atol=1e-6)


def test_captions_are_written_from_the_table(frame):
    provenance = {"precision": "float64"}
    nine, eighteen = fig09.caption(frame, provenance), fig18.caption(frame, provenance)
    for part in (
        "m = 20 ReLU",
        "matrix_rank in double precision, 28 at epoch 0 and 28 at epoch 4",
        "above 1e-7, 24 at",
        "n = 200",
        "mean square error",
    ):
        assert part in nine
    for part in ("no biases", "0.3 for m = 15, 20 and 0.5 for m = 50", "2 initialisations"):
        assert part in eighteen
    assert set(fig09.COLUMNS) | set(fig18.COLUMNS) <= set(frame)
