"""Figure 8: what is drawn is what the table says, over kernel sizes and over filters."""

import itertools

import numpy as np
import pytest

from figures import fig08
from tests.drawn import as_columns, assert_curve, line, mean_and_interval

_PROVENANCE = {"precision": "float64"}
_SIZES = {"8": ((3, 5, 9), (1, 2, 4)), "8-depth-3": ((3, 7), (1, 8)), "8-all": ((3, 5), (1, 2))}


def _table(seeds=3):
    rng = np.random.default_rng(0)
    rows = []
    for figure, (kernels, filters) in _SIZES.items():
        for kernel, count, seed in itertools.product(kernels, filters, range(seeds)):
            kappa = kernel * 1000 / count * (1 + 0.1 * rng.random())
            rows.append(
                {
                    "figure": figure,
                    "kernel": kernel,
                    "filters": count,
                    "seed": seed,
                    "inputs": 100,
                    "outputs": 10,
                    "samples": 1000,
                    "data": "fashion_mnist_5000, whitened",
                    "whitening": "zca",
                    "whitened_on": "all" if figure == "8-all" else "drawn",
                    "gain": 2.0,
                    "kappa": kappa,
                    "kappa_low": kappa * 0.999,
                    "kappa_high": kappa * 1.001,
                    "evidence": "measured",
                    "failure": 0.0,
                    "resolved": True,
                }
            )
    return as_columns(rows)


def _select(table, **wanted):
    keep = np.logical_and.reduce([table[name] == value for name, value in wanted.items()])
    return {name: column[keep] for name, column in table.items()}


def test_the_table_has_the_columns_that_are_asked_for():
    assert set(fig08.COLUMNS) <= set(_table())


@pytest.mark.parametrize(("row", "figure"), [(0, "8"), (1, "8-depth-3")])
@pytest.mark.parametrize(
    ("column", "over", "by", "symbol"),
    [(0, "kernel", "filters", "F"), (1, "filters", "kernel", "K")],
)
def test_every_curve_is_the_mean_over_the_seeds(row, figure, column, over, by, symbol):
    table = _table()
    axes = fig08.draw(table).axes[2 * row + column]
    values = _SIZES[figure][1 if by == "filters" else 0]
    for index, value in enumerate(values):
        shown = _select(table, figure=figure, **{by: value})
        expected = mean_and_interval(shown, over, shown["kappa"])
        assert_curve(axes, f"${symbol} = {value}$", index, expected)
    assert len(axes.collections) == len(values)
    looks = {(line(axes, f"${symbol} = {v}$").get_color(), v) for v in values}
    assert len({colour for colour, _ in looks}) == len(values)


def test_axes_say_what_they_show():
    figure = fig08.draw(_table())
    for axes, (figure_name, over) in zip(
        figure.axes, itertools.product(("8", "8-depth-3"), (0, 1)), strict=True
    ):
        places = _SIZES[figure_name][over]
        assert axes.get_yscale() == "log"
        assert axes.get_xscale() == ("linear" if over == 0 else "log")
        assert axes.get_xticks().tolist() == list(places)
        assert [label.get_text() for label in axes.get_xticklabels()] == [str(p) for p in places]
        assert axes.get_xlabel() == ("kernel size $K$", "number of filters $F$")[over]
    titles = [axes.get_title(loc="left").split()[0] for axes in figure.axes]
    assert titles == ["one", "one", "two", "two"]


def test_an_unresolved_kappa_is_drawn_as_a_lower_bound():
    table = _table()
    table["resolved"] = ~(
        (table["figure"] == "8") & (table["kernel"] == 5) & (table["filters"] == 2)
    )
    axes = fig08.draw(table).axes[0]
    drawn = line(axes, "$F = 2$").get_ydata()
    assert np.isnan(drawn).tolist() == [False, True, False]
    caption = fig08.caption(table, _PROVENANCE)
    assert "3 of 39 cells are unresolved" in caption


def test_the_caption_states_sizes_seeds_data_and_how_it_was_whitened():
    caption = fig08.caption(_table(), _PROVENANCE)
    for words in (
        "Kaiming normal, variance 2 / fan-in",
        "ZCA, whitened on the samples drawn",
        "Geometric mean over 3 initialisations",
        "n = 1,000, d = 100, k = 10",
        "Logarithmic",
        "float64",
    ):
        assert words in caption
    table = _table()
    fewer = (table["figure"] == "8") | (table["seed"] < 2)
    shorter = {name: column[fewer] for name, column in table.items()}
    caption = fig08.caption(shorter, _PROVENANCE)
    assert "Mean over 3 initialisations (top) and 2 (bottom)" in caption
