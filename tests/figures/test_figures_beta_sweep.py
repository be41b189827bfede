"""Figures 5, 20, 21, 22 and 19 show what the tables of `beta_sweep` and `whitening_sweep` say."""

from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pytest
from matplotlib.axes import Axes
from pandas import DataFrame

from figures import fig05, fig19, fig20, fig21, fig22
from figures.shared import depths
from sweeps.rows import where
from sweeps.table import TableError
from tests.drawn import assert_curve, line, mean_and_interval

SEEDS = (0, 1, 2)
DEPTHS = (1, 2, 3, 4)
BETAS = {"0": 0.0, "1/H": 0.25, "1/sqrt(H)": 0.5, "1": 1.0, "2": 2.0}
FROM_BETAS = (fig05, fig20, fig21, fig22)
PROVENANCE = {"precision": "float64"}


def certified(kappa: float, bound: float, seed: int) -> dict[str, object]:
    return {
        "outputs": 10,
        "samples": 5000,
        "gain": 2.0,
        "kappa": kappa,
        "kappa_low": 0.9995 * kappa,
        "kappa_high": 1.0005 * kappa,
        "evidence": "probable",
        "failure": 1e-6 * seed,
        "resolved": True,
        "bound_convex": bound,
        "seed": seed,
    }


def beta_row(figure: str, depth: int, beta: str, seed: int) -> dict[str, object]:
    """One network with numbers like those of a real sweep: the deeper, the more beta matters."""
    colour = figure in ("5-right", "21", "22")
    kappa = depth**2 * (1 + 0.05 * seed) / (1 + 0.1 * BETAS[beta] * (depth - 1)) + colour
    return {
        "figure": figure,
        "depth": depth,
        "beta": beta,
        "width": 775 if colour else 1000,
        "inputs": 768 if colour else 784,
        "data": ("photo_patches" if colour else "fashion_mnist_5000") + ", whitened",
        **certified(kappa, 1.2 * kappa, seed),
    }


@pytest.fixture
def betas() -> DataFrame:
    figures = {"5-left": "01", "5-right": "01", "20": BETAS, "21": "01", "22": BETAS}
    return DataFrame(
        beta_row(figure, depth, beta, seed)
        for figure, drawn in figures.items()
        for depth in DEPTHS
        for beta in drawn
        for seed in SEEDS
    )


@pytest.fixture
def whitening() -> DataFrame:
    return DataFrame(
        {
            "figure": "19",
            "depth": depth,
            "whitening": kind,
            "width": 775,
            "inputs": 768,
            "data": "photo_patches",
            "covariance_condition": condition,
            **certified(scale * depth**2 * (1 + 0.1 * seed), 30 * scale * depth**2, seed),
        }
        for depth in DEPTHS
        for kind, scale, condition in (
            ("whitened", 1.0, 1.0),
            ("Sigma^0.5", 2e3, 3.3e3),
            ("raw", 1e6, 1.1e7),
        )
        for seed in SEEDS
    )


def assert_bounded_curves(
    axes: Axes, table: DataFrame, column: str, labels: Mapping[str, str], bounded: bool = True
) -> None:
    """Each value of the column is a curve of kappa, with its bound dashed in the same colour."""
    for band, (value, label) in enumerate(labels.items()):
        rows = where(table, **{column: value})
        assert_curve(axes, label, band, mean_and_interval(rows, "depth", rows["kappa"]))
        dashed = [
            drawn
            for drawn in axes.lines
            if drawn.is_dashed() and drawn.get_color() == line(axes, label).get_color()
        ]
        assert len(dashed) == bounded
        for bound in dashed:
            expected = mean_and_interval(rows, "depth", rows["bound_convex"])
            np.testing.assert_allclose(bound.get_xydata().T, expected[:2], rtol=1e-12)


def test_figure_5_draws_both_networks_with_their_bounds(betas: DataFrame) -> None:
    left, right = fig05.draw(betas).axes
    labels = {"0": "linear", "1": "residual"}
    assert_bounded_curves(left, where(betas, figure="5-left"), "beta", labels)
    assert_bounded_curves(right, where(betas, figure="5-right"), "beta", labels)
    assert [axes.get_title("left") for axes in (left, right)] == [
        "Fashion-MNIST (5,000-image subset), whitened",
        "photograph patches, whitened",
    ]


@pytest.mark.parametrize(("figure", "module"), [("20", fig20), ("22", fig22)])
def test_figures_20_and_22_draw_every_beta_and_its_gain(
    betas: DataFrame, figure: str, module: ModuleType
) -> None:
    left, right = module.draw(betas).axes
    rows = where(betas, figure=figure)
    assert_bounded_curves(left, rows, "beta", depths.BETAS)
    linear = where(rows, beta="0")
    for band, (beta, label) in enumerate(depths.BETAS.items()):
        curve = where(rows, beta=beta)  # networks in the order of `linear`
        gain = curve["kappa"] / linear["kappa"]
        assert_curve(right, label, band, mean_and_interval(curve, "depth", gain))


def test_a_gain_against_an_unresolved_network_is_left_out(betas: DataFrame) -> None:
    table = where(betas, figure="20")
    network = (table["depth"] == 3) & (table["seed"] == 1)
    table["resolved"] = ~(network & (table["beta"] == "0"))
    ratios = depths.against_linear(table)["ratio"]
    np.testing.assert_array_equal(np.isnan(ratios), network)
    own = table.assign(resolved=~(network & (table["beta"] == "2")))
    np.testing.assert_array_equal(np.isnan(depths.against_linear(own)["ratio"]), ~own["resolved"])


def test_figure_21_draws_both_networks_without_bounds(betas: DataFrame) -> None:
    (axes,) = fig21.draw(betas).axes
    labels = {"0": "linear", "1": "residual"}
    assert_bounded_curves(axes, where(betas, figure="21"), "beta", labels, bounded=False)


def test_figure_19_draws_raw_and_whitened_on_a_logarithmic_axis(whitening: DataFrame) -> None:
    axes, powers = fig19.draw(whitening).axes
    assert axes.get_yscale() == "log"
    labels = {"raw": "raw", "whitened": "whitened"}
    assert_bounded_curves(axes, whitening, "whitening", labels)
    assert (powers.get_xscale(), powers.get_yscale()) == ("log", "log")
    for band, depth in enumerate(DEPTHS):
        rows = where(whitening, depth=depth)
        expected = mean_and_interval(rows, "covariance_condition", rows["kappa"])
        assert_curve(powers, f"$L = {depth}$", band, expected)
    (proportional,) = (drawn for drawn in powers.lines if drawn.is_dashed())
    x, y = proportional.get_data()
    np.testing.assert_allclose(y[1] / y[0], x[1] / x[0])


def test_a_figure_refuses_to_average_over_widths_or_data(betas: DataFrame) -> None:
    for column, other in (("width", betas["width"] + betas["seed"]), ("data", betas["seed"])):
        for module in FROM_BETAS:
            with pytest.raises(TableError, match="one width on one data set"):
                module.draw(betas.assign(**{column: other}))


def test_captions_tell_data_sizes_seeds_and_precision(
    betas: DataFrame, whitening: DataFrame
) -> None:
    assert "width m = 1,000, Kaiming normal" in fig05.caption(betas, PROVENANCE)
    assert "Right: width m = 775" in fig05.caption(betas, PROVENANCE)
    raw = fig19.caption(whitening, PROVENANCE)
    for part in ("number 1.1e+07", "n = 5,000, d = 768, k = 10", "over 3 init", "float64"):
        assert part in raw
    for module, number in ((fig20, "20"), (fig22, "22"), (fig21, "21")):
        assert module.caption(betas, PROVENANCE).startswith(f"Figure {number}. ")
