"""Figures 6 and 23 show what their table says."""

import numpy as np
import pytest
from pandas import DataFrame

from figures import fig06, fig23
from sweeps.effects import crossovers
from tests.drawn import assert_curve, line, mean_and_interval

SLOPES = (0.0, 0.01, 0.3, 1.0)
WIDTHS = (50, 200, 800)


def row(panel: str, sign: str, depth: int, width: int, slope: float, seed: int) -> dict:
    """ReLU grows as m, the linear network does not grow: they meet at 300 and 330.

    With -alpha the linear network is above ReLU at every width.
    """
    share = slope + (1 - slope) * width / (300 + 30 * seed)
    kappa = 1000 * share * depth
    if sign == "-alpha":
        kappa *= 1 + 90 * slope
    return {
        "panel": panel, "sign": sign, "depth": depth, "width": width, "slope": slope, "seed": seed,
        "inputs": 784, "outputs": 10, "samples": 500, "data": "mnist, these samples whitened",
        "gain": 2.0, "kappa": kappa, "kappa_low": 0.9995 * kappa, "kappa_high": 1.0005 * kappa,
        "evidence": "probable", "failure": 0.001, "resolved": True,
        "bound": 3.0 * kappa if depth == 2 else np.nan,
    }  # fmt: skip


@pytest.fixture
def table() -> DataFrame:
    cells = [("one", sign, 2, m, a) for sign in fig23.TITLES for m in WIDTHS for a in SLOPES]
    cells += [("two", "alpha", 3, m, 0.01) for m in WIDTHS[:-1]]
    cells += [("drawn", "alpha", 2, m, a) for m in WIDTHS for a in SLOPES]
    return DataFrame(row(*cell, seed) for cell in cells for seed in (0, 1))


def _curve(table: DataFrame, of: str = "kappa", **wanted: object) -> np.ndarray:
    for name, value in wanted.items():
        table = table[table[name] == value]
    columns = {name: table[name].to_numpy() for name in ("width", of)}
    return mean_and_interval(columns, "width", columns[of])


def test_figure_6_draws_kappa_below_its_bound(table: DataFrame) -> None:
    left, right = fig06.draw(table).axes
    one = {"panel": "one", "sign": "alpha", "slope": 0.01}
    assert {axes.get_yscale() for axes in (left, right)} == {"log"}
    for index, (label, rows) in enumerate(
        {
            "bound, $m < n$": table[table["width"] < table["samples"]],
            "bound\n(Eq 11)": table[table["width"] >= table["samples"]],
        }.items()
    ):
        assert_curve(left, label, index, _curve(rows, "bound", **one))
    assert_curve(left, "measured", 2, _curve(table, **one))
    assert_curve(right, r"$\alpha$", 0, _curve(table, **one))
    assert_curve(right, r"$-\alpha$", 1, _curve(table, **one | {"sign": "-alpha"}))
    assert_curve(right, "two\nhidden", 2, _curve(table, **one | {"panel": "two"}))


def test_figure_6_without_deeper_networks_says_nothing_of_them(table: DataFrame) -> None:
    shallow = table[table["panel"] != "two"]
    assert "two\nhidden" not in [drawn.get_label() for drawn in fig06.draw(shallow).axes[1].lines]
    captions = [fig06.caption(t, {"precision": "float64"}) for t in (table, shallow)]
    assert ["two hidden layers" in caption for caption in captions] == [True, False]


def test_figure_6_marks_the_width_of_n_units(table: DataFrame) -> None:
    left = fig06.draw(table).axes[0]
    (marked,) = [drawn for drawn in left.lines if drawn.get_linestyle() == ":"]
    assert list(marked.get_xdata()) == [500.0, 500.0]


def test_a_bound_that_does_not_apply_is_absent(table: DataFrame) -> None:
    narrow = table.assign(bound=np.where(table["width"] == 50, np.nan, table["bound"]))
    left = fig06.draw(narrow).axes[0]
    assert line(left, "bound, $m < n$").get_xdata().tolist() == [200]
    assert line(left, "bound\n(Eq 11)").get_xdata().tolist() == [800]


def test_figure_23_draws_one_curve_a_slope_for_either_sign(table: DataFrame) -> None:
    for axes, sign in zip(fig23.draw(table).axes, fig23.TITLES, strict=True):
        assert axes.get_yscale() == "log"
        for index, slope in enumerate(SLOPES):
            expected = _curve(table, panel="one", sign=sign, slope=slope)
            assert_curve(axes, rf"$\alpha = {slope:g}$", index, expected)


def test_figure_23_draws_the_crossover_where_there_is_one(table: DataFrame) -> None:
    """At the mean over seeds of the log-log interpolation, which is exact for powers."""
    left, right = fig23.draw(table).axes
    (marked,) = [drawn for drawn in left.lines if drawn.get_linestyle() == ":"]
    place = np.sqrt(300 * 330)
    np.testing.assert_allclose(marked.get_xdata(), [place, place], rtol=1e-12)
    assert "$m = 315$" in [text.get_text() for text in left.texts]
    assert not [drawn for drawn in right.lines if drawn.get_linestyle() == ":"]
    shown = table[(table["panel"] == "one") & (table["sign"] == "alpha")]
    relu, linear = (shown[shown["slope"] == slope] for slope in (0.0, 1.0))
    np.testing.assert_allclose(crossovers(relu, linear, "width", "kappa"), [300, 330], rtol=1e-12)


@pytest.mark.parametrize("module", [fig06, fig23])
def test_captions_and_columns(module: object, table: DataFrame) -> None:
    declared = table[list(module.COLUMNS)]
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
