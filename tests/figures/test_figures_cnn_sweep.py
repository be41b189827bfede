"""Figures 8 and C3: what is drawn is what the table says, over kernel sizes and over filters."""

import itertools

import numpy as np
import pytest
from pandas import DataFrame, concat

from figures import c3, fig08
from sweeps.rows import where
from tests.drawn import assert_curve, line, mean_and_interval

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
    return DataFrame(rows)


def test_the_table_has_the_columns_that_are_asked_for():
    assert set(c3.COLUMNS) <= set(_table())


def _line_table():
    rng = np.random.default_rng(0)
    rows = []
    for protocol, kernel, filters, seed in itertools.product(
        fig08.PANELS, (7, 9), (2, 3, 5), range(3)
    ):
        value = 100 * filters**2 / kernel * (1 + 0.01 * rng.random())
        rows.append(
            {
                **{"figure": "8-line", "protocol": protocol, "kernel": kernel, "filters": filters},
                **{"seed": seed, "inputs": 36, "outputs": filters * (38 - 2 * kernel)},
                **{"samples": 1000, "data": "mnist, not whitened", "gain": 1.0},
                "covariance_condition": 1378.9,
                **{"kappa": value, "kappa_low": value * 0.999, "kappa_high": value * 1.001},
                **{"evidence": "measured", "failure": 0.0, "resolved": True},
                **{"bound": 2 * value, "bound_published": 3 * value},
            }
        )
    return DataFrame(rows)


def test_figure_8_is_on_a_line_with_either_root_and_whitened():
    frame = _line_table()
    other = frame.assign(figure="8-dense", kernel=3)
    figure = fig08.draw(concat([frame, other], ignore_index=True))
    for axes, protocol in zip(figure.axes, fig08.PANELS, strict=True):
        shown = frame[frame["protocol"] == protocol]
        for index, kernel in enumerate((7, 9)):
            curve = shown[shown["kernel"] == kernel]
            columns = {name: curve[name].to_numpy() for name in ("filters", "kappa")}
            expected = mean_and_interval(columns, "filters", columns["kappa"])
            assert_curve(axes, f"$K = {kernel}$", index, expected)
        factor = 3 if "2" in protocol else 2  # the published code's bound where it is that code's
        dashed = next(drawn for drawn in axes.lines if drawn.is_dashed())
        drawn = line(axes, "$K = 7$").get_ydata()
        np.testing.assert_allclose(dashed.get_ydata(), factor * drawn, rtol=1e-9)
    assert set(fig08.COLUMNS) <= set(frame)
    caption = fig08.caption(frame, _PROVENANCE)
    for words in ("Eqs 15 and 16", "over 3 initialisations", "n = 1,000, d = 36", "number 1379"):
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
        shown = where(table, figure=name, **{by: value})
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
    shown = where(_table(kappa), figure="8-convolutions")
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
    shown = where(table, figure="8-convolutions")
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
