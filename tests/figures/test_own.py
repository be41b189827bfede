"""The picture of a sweep of one's own, against means that are computed by hand."""

import numpy as np
from matplotlib.colors import to_hex
from pandas import DataFrame

from figures.shared.own import curves
from tests.drawn import mean_and_interval


def _table(least=1.0):
    rng = np.random.default_rng(0)
    rows = [
        {"width": width, "activation": activation, "seed": seed, "kappa": least * rng.lognormal()}
        for width in (16, 32, 64)
        for activation in ("relu", "tanh")
        for seed in range(4)
    ]
    return DataFrame(rows).assign(
        resolved=lambda f: (f["width"] < 64) | (f["activation"] == "tanh")
    )


def test_each_group_is_a_curve_of_geometric_means_with_its_interval():
    table = _table()
    (axes,) = curves("width", "kappa", by="activation")(table).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "32", "64"]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["activation relu", "activation tanh"]
    for name, container in zip(("relu", "tanh"), axes.containers, strict=True):
        drawn, _, (bars,) = container
        rows = table[table["activation"] == name]
        expected = mean_and_interval(rows, "width", rows["kappa"].to_numpy()).T
        for x, y, ends, (place, *known) in zip(
            *drawn.get_data(), bars.get_segments(), expected, strict=True
        ):
            assert x == place
            if not rows[rows["width"] == x]["resolved"].all():
                assert np.isnan(y)  # it has an open marker instead
                continue
            np.testing.assert_allclose([y, *ends[:, 1]], known, rtol=1e-9)
    (marker,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert marker.get_xdata().tolist() == [64]
    assert to_hex(marker.get_color()) == to_hex(axes.containers[0][0].get_color())


def test_numbers_that_are_not_positive_have_a_straight_axis():
    table = _table().assign(kappa=lambda f: f["kappa"] - 5, width=lambda f: f["width"] - 16)
    (axes,) = curves("width", "kappa")(table.drop(columns="resolved")).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert axes.get_legend() is None
