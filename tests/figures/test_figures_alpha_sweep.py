"""Figures 6 and 23 show what their table says."""

import numpy as np
import pytest

from figures import fig06, fig23
from figures.shared.series import Columns, select
from sweeps.effects import crossovers
from tests.drawn import as_columns, assert_curve, assert_texts_fit, line, mean_and_interval

SLOPES = (0.0, 0.01, 0.3, 1.0)
WIDTHS = (50, 200, 800)


def row(figure: str, depth: int, width: int, slope: float, seed: int) -> dict:
    """ReLU grows as m, the linear network does not grow: they meet at 300 and 330."""
    share = slope + (1 - slope) * width / (300 + 30 * seed)
    kappa = 1000 * share * depth
    return {
        "figure": figure, "depth": depth, "width": width, "slope": slope, "seed": seed,
        "inputs": 784, "outputs": 10, "samples": 500, "data": "fashion_mnist_5000, whitened",
        "gain": 2.0, "kappa": kappa, "kappa_low": 0.9995 * kappa, "kappa_high": 1.0005 * kappa,
        "evidence": "probable", "failure": 0.001, "resolved": True,
        "bound": 3.0 * kappa if depth == 2 else np.nan,
    }  # fmt: skip


@pytest.fixture
def table() -> Columns:
    cells = [("6", 2, m, 0.01) for m in WIDTHS] + [("6-deep", 3, m, 0.01) for m in WIDTHS[:-1]]
    cells += [("23", 2, m, slope) for m in WIDTHS for slope in SLOPES]
    return as_columns(row(*cell, seed) for cell in cells for seed in (0, 1))


def test_figure_6_draws_kappa_below_its_bound(table: Columns) -> None:
    left, right = fig06.draw(table).axes
    one, two = select(table, figure="6"), select(table, figure="6-deep")
    assert {axes.get_yscale() for axes in (left, right)} == {"log"}
    bound = mean_and_interval(one, "width", one["bound"])
    assert_curve(left, "bound\n(Eq 11)", 0, bound)
    measured = mean_and_interval(one, "width", one["kappa"])
    assert_curve(left, "measured", 1, measured)
    assert_curve(right, "one\nhidden", 0, measured)
    assert_curve(right, "two\nhidden", 1, mean_and_interval(two, "width", two["kappa"]))


def test_figure_6_marks_the_width_of_n_units(table: Columns) -> None:
    left = fig06.draw(table).axes[0]
    (marked,) = [drawn for drawn in left.lines if drawn.get_linestyle() == ":"]
    assert list(marked.get_xdata()) == [500.0, 500.0]


def test_a_bound_that_does_not_apply_is_absent(table: Columns) -> None:
    narrow = {**table, "bound": np.where(table["width"] == 50, np.nan, table["bound"])}
    left = fig06.draw(narrow).axes[0]
    assert line(left, "bound\n(Eq 11)").get_xdata().tolist() == [200, 800]


def test_figure_23_draws_one_curve_a_slope(table: Columns) -> None:
    (axes,) = fig23.draw(table).axes
    assert axes.get_yscale() == "log"
    for index, slope in enumerate(SLOPES):
        rows = select(table, figure="23", slope=slope)
        expected = mean_and_interval(rows, "width", rows["kappa"])
        assert_curve(axes, rf"$\alpha = {slope:g}$", index, expected)


def test_figure_23_draws_the_crossover(table: Columns) -> None:
    """At the mean over seeds of the log-log interpolation, which is exact for powers."""
    (axes,) = fig23.draw(table).axes
    (marked,) = [drawn for drawn in axes.lines if drawn.get_linestyle() == ":"]
    place = np.sqrt(300 * 330)
    np.testing.assert_allclose(marked.get_xdata(), [place, place], rtol=1e-12)
    assert "$m = 315$" in [text.get_text() for text in axes.texts]
    caption = fig23.caption(table, {"precision": "float64"})
    assert "m = 315 (172, 576) (geometric mean over the seeds" in caption
    relu, linear = (select(table, figure="23", slope=slope) for slope in (0.0, 1.0))
    np.testing.assert_allclose(crossovers(relu, linear, "width", "kappa"), [300, 330], rtol=1e-12)


def test_figure_23_without_a_crossover_says_so(table: Columns) -> None:
    narrow = select(table, width=[50, 200])
    (axes,) = fig23.draw(narrow).axes
    assert not [drawn for drawn in axes.lines if drawn.get_linestyle() == ":"]
    assert "does not rise above" in fig23.caption(narrow, {"precision": "float64"})


@pytest.mark.parametrize("module", [fig06, fig23])
def test_captions_and_columns(module: object, table: Columns) -> None:
    declared = {name: table[name] for name in module.COLUMNS}
    assert module.draw(declared).axes
    caption = module.caption(declared, {"precision": "float64"})
    for part in (
        "n = 500",
        "d = 784",
        "k = 10",
        "Geometric mean over 2 initialisations",
        "float64",
    ):
        assert part in caption


@pytest.mark.parametrize("draw", [fig06.draw, fig23.draw])
def test_no_text_leaves_the_figure_or_touches_another(draw: object, table: Columns) -> None:
    assert_texts_fit(draw(table))
    assert_texts_fit(draw({**table, "samples": np.full(len(table["width"]), 80)}))
