"""Figures B1 and B2 show what their table says."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from pandas import DataFrame

from figures import b1, b2
from sweeps.rows import where
from tests.drawn import band_edges, line, mean_and_interval

SHARES = (0.1, 0.4, 0.7, 1.0)
DATA = {"fashion_mnist_5000": "Fashion-MNIST", "cifar10": "CIFAR-10"}
FRACTIONS = (0.0, 0.9, 1.1)


def row(figure: str, data: str, **values: object) -> dict:
    """Every column, empty where a panel has none."""
    empty = dict.fromkeys(("share", "index", "norm", "epoch", "rate", "fraction", "least"), np.nan)
    return {
        "figure": figure, "data": data, "samples": 500.0, "inputs": 64, "outputs": 10, "depth": 4,
        "width": 64, "seed": 0, "error": 1e-9, **empty, **values,
    }  # fmt: skip


def trained(figure: str, inputs: str) -> list[dict]:
    return [
        row(
            figure, f"{name}, {inputs}", inputs=60 + int(10 * share), share=share, seed=seed,
            epoch=10_000.0, rate=1e-9, measured=(3 + place) * share + 0.1 * seed,
            least=3.5 * share**0.75 - 0.1 * place, printed=4 * share**0.75,
        )
        for place, name in enumerate(DATA)
        for share in SHARES
        for seed in range(3)
    ]  # fmt: skip


@pytest.fixture
def table() -> DataFrame:
    spectrum = [
        row(
            "1a",
            "gaussian",
            index=i,
            inputs=3,
            depth=5,
            seed=s,
            measured=10.0**-i,
            printed=10.0**-i,
        )
        for s in range(2)
        for i in range(1, 10)
    ] + [row("1a", "gaussian", index=10, inputs=3, depth=5, measured=1e-30, printed=0.0)]
    contour = [
        row("1b", "balanced networks", depth=depth, norm=norm, measured=value, printed=value)
        for depth in (4, 1, 2)
        for norm in (0.5, 1.0, 1.5)
        for value in [depth * norm ** (2 - 2 / depth)]
    ]
    edge = [
        row(
            "2d", "fashion_mnist_5000, orthogonalised", share=0.5, epoch=float(epoch),
            rate=fraction or 0.01, fraction=fraction, least=2.0, printed=2.4,
            measured=1.0 + fraction + epoch / 1000,
        )
        for fraction in FRACTIONS
        for epoch in (0, 10, 1000)
    ]  # fmt: skip
    panels = [
        *trained("1c", "orthogonalised"),
        *trained("2a", "raw"),
        *trained("2b", "orthogonalised"),
        *trained("2c", "orthogonalised"),
    ]
    return DataFrame([*spectrum, *contour, *panels, *edge])


def assert_shares(axes: Axes, shown: DataFrame) -> None:
    """Markers at the means inside a band, the projected Eq 14 dashed, the printed one black."""
    for index, (name, label) in enumerate(sorted(DATA.items())):
        rows = where(shown, data=[f"{name}, orthogonalised", f"{name}, raw"])
        x, mean, *ends = mean_and_interval(rows, "share", rows["measured"])
        np.testing.assert_allclose(line(axes, label).get_xydata().T, [x, mean], rtol=1e-12)
        _, low, high = band_edges(axes, index)
        np.testing.assert_allclose([low, high], ends, rtol=1e-10)
        colour = line(axes, label).get_color()
        (dashed,) = [d for d in axes.lines if d.is_dashed() and d.get_color() == colour]
        expected = mean_and_interval(rows, "share", rows["least"])[:2]
        np.testing.assert_allclose(dashed.get_xydata().T, expected, rtol=1e-12)
    (black,) = [drawn for drawn in axes.lines if drawn.get_color() == "black"]
    np.testing.assert_allclose(black.get_ydata(), 4 * np.array(SHARES) ** 0.75, rtol=1e-12)


def test_b1_draws_spectrum_contours_and_trained_networks(table: DataFrame) -> None:
    spectrum, contours, networks = b1.draw(table).axes
    assert spectrum.get_yscale() == "log"
    for label in ("computed", "Eqs 9, 13"):  # one network, and not the zero after its spectrum
        expected = [(i, 10.0**-i) for i in range(1, 10)]
        np.testing.assert_allclose(line(spectrum, label).get_xydata(), expected, rtol=1e-12)
    (dashed,) = contours.lines
    x, y = dashed.get_xydata().T
    np.testing.assert_allclose(x, np.log(1 / y**2), rtol=1e-12)
    assert_shares(networks, where(table, figure="1c"))


def test_b1_is_drawn_for_other_seeds(table: DataFrame) -> None:
    """As `reproduce --first_seed=100` has them; it ended in a traceback after an hour."""
    moved = table.assign(seed=table["seed"] + 100)
    lines = [one.axes[0].get_lines()[0].get_xydata() for one in (b1.draw(table), b1.draw(moved))]
    assert len(lines[0])
    np.testing.assert_array_equal(*lines)
    assert "for a network of" in b1.caption(moved, {"precision": "float64"})


def test_b1_contours_are_of_the_measured_values_in_their_places(table: DataFrame) -> None:
    depths, norms, values = b1.grid(where(table, figure="1b"))
    assert (depths.tolist(), norms.tolist()) == ([1, 2, 4], [0.5, 1.0, 1.5])
    np.testing.assert_allclose(values, depths * norms[:, None] ** (2 - 2 / depths), rtol=1e-12)


def test_b2_draws_three_ablations(table: DataFrame) -> None:
    figure = b2.draw(table)
    for axes, name in zip(figure.axes, ("2a", "2b", "2c"), strict=False):
        assert_shares(axes, where(table, figure=name))
    assert [axes.get_yscale() for axes in figure.axes] == ["log"] + ["linear"] * 3
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:2] == ["CIFAR-10", "Fashion-MNIST"]
    assert len(texts) == 4


def test_b2_draws_runs_beside_their_edges(table: DataFrame) -> None:
    edge = b2.draw(table).axes[-1]
    for fraction in FRACTIONS:
        run = where(table, figure="2d", fraction=fraction)
        drawn = line(edge, f"$\\eta = {run['rate'][0]:.3g}$")
        np.testing.assert_allclose(drawn.get_xydata().T, [run["epoch"], run["measured"]])
    limits = {d.get_color(): d.get_ydata()[0] for d in edge.lines if d.is_dashed()}
    colours = {f: line(edge, f"$\\eta = {f or 0.01:.3g}$").get_color() for f in FRACTIONS}
    assert limits == {colours[0.9]: 2 / 0.9, colours[1.1]: 2 / 1.1}  # that of 0.01 is far above
    assert line(edge, r"$\lambda_\star$").get_ydata()[0] == 2.0


@pytest.mark.parametrize("module", [b1, b2])
def test_a_profile_without_the_extra_panels_says_so(module: object, table: DataFrame) -> None:
    figure = module.draw(where(table, figure=["1a", "1c", "2a", "2b", "2c"]))
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said == ["not part of this profile"]
