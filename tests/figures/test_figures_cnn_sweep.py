"""Figures 8 and C3: what is drawn is what the table says, over kernel sizes and over filters."""

import itertools

import numpy as np
import pytest

from figures import c3, fig08
from figures.shared.series import select
from tests.drawn import as_columns, assert_curve, line, mean_and_interval

_PROVENANCE = {"precision": "float64"}
_SIZES = {
    "8-convolutions": (28, (3, 5, 9), (1, 2, 4)),
    "8-convolutions_half": (14, (3, 5), (1, 2)),
    "8-dense": (28, (3, 7), (1, 8)),
    "8-dense_half": (14, (3, 7), (1, 8)),
    "8-shared": (14, (3, 5, 7), (2, 4)),
    "8-shared_other": (10, (3, 5), (2, 4)),
    "8-channels": (14, (3, 5), (1, 2)),
}


def _rises(kernel, filters):
    return 1000 * filters**2 / kernel


def _table(kappa=_rises, seeds=3):
    rng = np.random.default_rng(0)
    rows = []
    for figure, (side, kernels, filters) in _SIZES.items():
        for kernel, count, seed in itertools.product(kernels, filters, range(seeds)):
            value = kappa(kernel, count) * (1 + 0.01 * rng.random())
            rows.append(
                {
                    "figure": figure,
                    "kernel": kernel,
                    "filters": count,
                    "seed": seed,
                    "side": side,
                    "inputs": side**2,
                    "size": 10 * side**2,
                    "rank": 10 * side**2 - (figure.startswith("8-shared") and count == 2),
                    "outputs": 10,
                    "samples": 1000,
                    "data": "fashion_mnist_5000, whitened",
                    "gain": 2.0,
                    "kappa": value,
                    "kappa_low": value * 0.999,
                    "kappa_high": value * 1.001,
                    "evidence": "measured",
                    "failure": 0.0,
                    "resolved": True,
                }
            )
    return as_columns(rows)


def test_the_table_has_the_columns_that_are_asked_for():
    assert set(c3.COLUMNS) | set(fig08.COLUMNS) <= set(_table())


def test_figure_8_is_the_printed_reading_in_two_panels():
    table = _table()
    shown = select(table, figure="8-convolutions")
    panels = fig08.draw(table).axes
    for axes, (over, by, symbol) in zip(
        panels, (("kernel", "filters", "F"), ("filters", "kernel", "K")), strict=True
    ):
        for index, value in enumerate(np.unique(shown[by])):
            curve = select(shown, **{by: value})
            expected = mean_and_interval(curve, over, curve["kappa"])
            assert_curve(axes, f"${symbol} = {value}$", index, expected)
    caption = fig08.caption(table, _PROVENANCE)
    for words in ("Eqs 15 and 16", "over 3 initialisations", "n = 1,000, d = 784, k = 10"):
        assert words in caption


def _panels(table):
    figure = c3.draw(table)
    return dict(zip(c3.READINGS, (list(block.axes) for block in figure.subfigs), strict=True))


@pytest.mark.parametrize("name", c3.READINGS)
@pytest.mark.parametrize(
    ("column", "over", "by", "symbol"),
    [(0, "kernel", "filters", "F"), (1, "filters", "kernel", "K")],
)
def test_every_curve_is_the_geometric_mean_over_the_seeds(name, column, over, by, symbol):
    table = _table()
    axes = _panels(table)[name][column]
    for index, value in enumerate(_SIZES[name][2 if by == "filters" else 1]):
        shown = select(table, figure=name, **{by: value})
        expected = mean_and_interval(shown, over, shown["kappa"])
        assert_curve(axes, f"${symbol} = {value}$", index, expected)
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == ("linear" if over == "kernel" else "log")


@pytest.mark.parametrize(
    ("kappa", "filters", "kernels"),
    [
        (_rises, c3.AGREES, c3.AGREES),
        (lambda k, f: 1 / _rises(k, f), c3.OPPOSES, c3.OPPOSES),
        (lambda k, f: _rises(k, f) * k**2, c3.AGREES, c3.OPPOSES),
        (lambda *_: 10.0, c3.OPEN, c3.OPEN),
    ],
)
def test_a_map_shows_the_sign_of_every_step(kappa, filters, kernels):
    shown = select(_table(kappa), figure="8-convolutions")
    steps = list(c3.steps(shown))
    assert len(steps) == 2 * 3 + 3 * 2
    across = {sign for start, end, sign in steps if start[1] == end[1]}
    up = {sign for start, end, sign in steps if start[0] == end[0]}
    assert (across, up) == ({filters}, {kernels})
    axes = _panels(_table(kappa))["8-convolutions"][2]
    drawn = [one for one in axes.lines if len(one.get_xdata()) == 2]
    assert [one.get_color() for one in drawn] == [c3.SIGNS[sign]["color"] for *_, sign in steps]


def test_a_line_parts_the_networks_without_full_rank_from_the_others():
    panels = _panels(_table())
    for name, kernels in (("8-shared", (3, 5, 7)), ("8-convolutions", None)):
        black = [one for one in panels[name][2].lines if one.get_drawstyle() == "steps-mid"]
        assert len(black) == (kernels is not None)
        if kernels:
            np.testing.assert_allclose(black[0].get_xdata(), 8**0.5)
            assert tuple(black[0].get_ydata()) == kernels


def test_an_unresolved_kappa_is_drawn_as_a_lower_bound_and_opens_its_steps():
    table = _table()
    odd = (table["figure"] == "8-convolutions") & (table["kernel"] == 5) & (table["filters"] == 2)
    table["resolved"] = ~odd
    table["kappa_high"] = np.where(odd, np.inf, table["kappa_high"])
    drawn = line(_panels(table)["8-convolutions"][0], "$F = 2$").get_ydata()
    assert np.isnan(drawn).tolist() == [False, True, False]
    shown = select(table, figure="8-convolutions")
    signs = [sign for start, end, sign in c3.steps(shown) if (2, 5) in (start, end)]
    # A lower bound says that kappa rises to it and falls from it, and nothing else.
    assert signs == [c3.AGREES, c3.OPEN, c3.OPEN, c3.AGREES]
    assert "3 of 57 cells are unresolved" in c3.caption(table, _PROVENANCE)


def test_the_caption_states_readings_sizes_seeds_and_data():
    caption = c3.caption(_table(), _PROVENANCE)
    for words in (
        "Kaiming normal, variance 2 / fan-in",
        "entries of their Toeplitz matrices",
        "weights are shared",
        "3 (top), 3 (middle) and 3 (bottom) initialisations",
        "n = 1,000, d = 196, 784, k = 10",
        "float64",
    ):
        assert words in caption
