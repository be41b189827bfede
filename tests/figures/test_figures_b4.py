"""Figure B4 draws the error of Eq 15 and its bound as the table has them."""

import numpy as np
import pytest
from pandas import DataFrame

from figures import b4
from sweeps.rows import where
from tests.drawn import assert_curve, mean_and_interval

DATA = {"a": "mnist", "b": "fashion_mnist", "c": "cifar10"}
EPOCHS = (0, 300, 1000, 10_000)


@pytest.fixture
def table() -> DataFrame:
    return DataFrame(
        {
            "panel": panel, "data": f"{data}, orthogonalised", "epoch": epoch, "index": index,
            "seed": seed, "depth": 2, "width": 256, "inputs": 700, "outputs": 10, "samples": 5000,
            "measured": 3.0 / index,
            "error": 1.7e-9 / index,
            "predicted": 3.0 / index * (1 + (-1) ** index * (1 + seed) * 0.1 / (1 + epoch)),
            "bound": 0.9 / (1 + epoch) ** 0.5 + 0.01 * seed,
        }
        for panel, data in DATA.items()
        for seed in (0, 1, 2)
        for epoch in EPOCHS
        for index in (1, 2, 3)
    )  # fmt: skip


def test_each_panel_draws_mean_errors_and_bounds_in_per_cent(table: DataFrame) -> None:
    figure = b4.draw(table)
    titles = ["(a) MNIST", "(b) Fashion-MNIST", "(c) CIFAR-10"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles
    for axes, panel in zip(figure.axes, "abc", strict=True):
        assert axes.get_yscale() == "log"
        shown = where(table, panel=panel)
        networks = [(epoch, seed) for seed in (0, 1, 2) for epoch in EPOCHS]
        means = {"epoch": np.array([epoch for epoch, _ in networks])}
        error, bound = [], []
        for epoch, seed in networks:
            rows = where(shown, epoch=epoch, seed=seed)
            error.append(np.mean(100 * abs(rows["predicted"] / rows["measured"] - 1)))
            bound.append(np.mean(100 * rows["bound"] / rows["measured"]))
        expected = mean_and_interval(means, "epoch", np.array(bound))
        assert_curve(axes, r"bound $\|H - G\|_2$", 0, expected)
        expected = mean_and_interval(means, "epoch", np.array(error))
        x, mean, *_ = expected
        drawn = next(line for line in axes.lines if line.get_label() == "error of Eq 15")
        np.testing.assert_allclose(drawn.get_xydata().T, [x, mean], rtol=1e-12)


def test_the_axis_of_epochs_shows_the_start_and_decades(table: DataFrame) -> None:
    (axes, *_) = b4.draw(table).axes
    assert axes.get_xscale() == "symlog"
    assert axes.get_xticks().tolist() == [0, 1000, 10_000]
    low, high = axes.get_xlim()
    assert low < 0 < 10_000 < high


def test_a_table_of_the_start_alone_can_be_drawn(table: DataFrame) -> None:
    (axes, *_) = b4.draw(where(table, epoch=0)).axes
    assert axes.get_xticks().tolist() == [0]


def test_the_caption_says_what_is_proved(table: DataFrame) -> None:
    caption = b4.caption(table, {"precision": "float64"})
    for part in (
        "the 3 largest",
        "m = 256",
        "within 6e-10 of each",
        "Geometric mean over 3",
        "d = 700",
    ):
        assert part in caption
