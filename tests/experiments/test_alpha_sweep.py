"""Leaky-ReLU networks at several slopes: one network's matrices, the cells and the claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gnjax
from experiments import alpha_sweep
from experiments.shared.linear_network import initial_weights
from experiments.shared.whitened import drawn, whitened
from gnjax import data
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED
from sweeps.effects import crossovers, trend
from sweeps.table import Columns

SLOPES = (0.0, 0.01, 0.3, 0.5, 0.8, 1.0)


def smoke(*overrides: str) -> alpha_sweep.Config:
    edge, _ = config.load("configs/alpha_sweep.py:smoke")
    return config.freeze(alpha_sweep.Config, config.override(edge, overrides))


# Cells ------------------------------------------------------------------------------------------


def test_samples_are_drawn_from_data_whitened_whole() -> None:
    """All of them have the identity as covariance, the drawn ones do not."""
    part = drawn("fashion_mnist_5000", 500, 0, 8, 40)
    rank = whitened("fashion_mnist_5000", 500, 0, 8).rank
    assert part.inputs.shape == (40, rank)
    whole = drawn("fashion_mnist_5000", 500, 0, 8, 500).inputs
    np.testing.assert_allclose(data.covariance(whole), np.eye(rank), atol=1e-10)
    assert {tuple(row) for row in part.inputs} <= {tuple(row) for row in whole}
    assert "40 of 500 samples drawn" in part.source
    assert f"rank {rank}" in part.source


def test_a_cell_is_what_dense_eigenvalues_say() -> None:
    """Every slope of one hidden layer, by the Jacobian of the model rather than by Eq 10."""
    cell = next(c for c in alpha_sweep.cells(smoke()) if c.depth == 2 and c.width == 20)
    found = alpha_sweep.measure(cell)
    x = drawn(cell.data, cell.samples, cell.data_seed, cell.side, cell.drawn).inputs
    assert (found["samples"], found["inputs"]) == x.shape
    for index in (0, 1, len(cell.slopes) - 1):
        model = alpha_sweep.network(cell, x.shape[1], cell.slopes[index])
        values = np.linalg.eigvalsh(np.asarray(gnjax.ntk(model, x).as_matrix()))
        assert found["rank"][index] == len(values) == cell.drawn * cell.outputs
        np.testing.assert_allclose(found["kappa"][index], values[-1] / values[0], rtol=1e-3)


def test_a_deeper_cell_has_a_measurement_and_no_bound() -> None:
    cell = next(c for c in alpha_sweep.cells(smoke()) if c.depth == 3 and c.width == 20)
    found = alpha_sweep.measure(cell)
    x = drawn(cell.data, cell.samples, cell.data_seed, cell.side, cell.drawn).inputs
    model = alpha_sweep.network(cell, x.shape[1], 0.01)
    weights = initial_weights(x.shape[1], cell)
    assert [w.shape for w in weights] == [(20, x.shape[1]), (20, 20), (10, 20)]
    for weight, layer in zip(weights, (model.dense1, model.dense2, model.dense3), strict=True):
        np.testing.assert_array_equal(weight, layer.kernel[...].T)
    values = np.linalg.eigvalsh(np.asarray(gnjax.ntk(model, x).as_matrix()))
    np.testing.assert_allclose(found["kappa"], [values[-1] / values[0]], rtol=1e-3)
    assert (found["bound"], found["bound_applicable"]) == ([None], [False])


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_profiles_differ_in_sizes_and_data_alone(profile: str) -> None:
    edge, _ = config.load(f"configs/alpha_sweep.py:{profile}")
    frozen = config.freeze(alpha_sweep.Config, edge)
    cells = alpha_sweep.cells(frozen)
    assert len(set(cells)) == len(cells)
    assert {cell.slopes for cell in cells if cell.depth == 2} == {frozen.slopes}
    costs = [alpha_sweep.cost(cell) for cell in cells]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0


def test_every_figure_has_its_rows() -> None:
    chosen = smoke("widths=(20,)", "seeds=1", "deep_widths=(20,)", "deep_seeds=1")
    fields = (
        "kappa",
        "kappa_low",
        "kappa_high",
        "evidence",
        "failure",
        "resolved",
        "method",
        "rank",
    )
    fields += ("lambda_max", "lambda_min", "bound", "bound_estimate", "bound_applicable")
    measured = {
        cell: {"inputs": 64, "samples": 40, "slope": list(cell.slopes)}
        | {name: [cell.depth + slope for slope in cell.slopes] for name in fields}
        for cell in alpha_sweep.cells(chosen)
    }
    table = alpha_sweep.rows(chosen, measured)
    assert [(row.figure, row.depth, row.kappa) for row in table] == [
        ("6", 2, 2.01),
        ("6-deep", 3, 3.01),
        *[("23", 2, 2 + slope) for slope in chosen.slopes],
    ]
    assert [row.slope for row in table] == [0.01, 0.01, *chosen.slopes]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["slope=0.02"], "must be one of slopes"),
        (["seeds=0"], "at least 1"),
        (["widths=(0,)"], "widths of at least 1"),
    ],
)
def test_a_config_that_makes_no_figure_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(config.ConfigError, match=words):
        smoke(*overrides)


# Claims -----------------------------------------------------------------------------------------


def made(kappa: Callable[[int, float, int], float], bound: float = 2.0) -> Columns:
    """A table of figures 6 and 23 with two seeds."""
    widths, slopes, seeds = (100, 200, 400), (0.0, 0.01, 1.0), (0, 1)
    cells = [
        (f, m, a, s) for f in ("6", "6-deep", "23") for m in widths for a in slopes for s in seeds
    ]
    cells = [cell for cell in cells if cell[0] == "23" or cell[2] == 0.01]
    values = np.array([kappa(m, a, s) for _, m, a, s in cells])
    figures = np.array([cell[0] for cell in cells])
    return {
        "figure": figures,
        "width": np.array([m for _, m, _, _ in cells]),
        "slope": np.array([a for _, _, a, _ in cells]),
        "seed": np.array([s for _, _, _, s in cells]),
        "samples": np.full(len(cells), 150),
        "kappa": values,
        "kappa_low": values,
        "resolved": np.ones(len(cells), bool),
        "bound": values * bound,
        "bound_applicable": figures != "6-deep",
    }


def checked(statement: str, table: Columns) -> tuple[str, float, str]:
    (claim,) = [c for c in alpha_sweep.CLAIMS if c.statement.startswith(statement)]
    found = claim.check(table)
    return found.status, found.number, found.text


def test_claims_of_figure_6_can_hold_and_fail() -> None:
    """n = 150, so that widths 200 and 400 are the wide ones."""
    rising = made(lambda m, a, s: m + a)
    assert checked("kappa increases", rising)[0] == HOLDS
    assert checked("two hidden", rising)[0] == HOLDS
    falling = made(lambda m, a, s: 1000 / m)
    status, number, _ = checked("kappa increases", falling)
    assert (status, number) == (FAILS, pytest.approx(-1))
    noisy = made(lambda m, a, s: m if s else 1000 / m)
    assert checked("kappa increases", noisy)[0] == UNDECIDED
    assert checked("kappa <= bound", rising)[0] == HOLDS
    assert checked("kappa <= bound", made(lambda m, a, s: m, bound=0.99))[:2] == (
        FAILS,
        pytest.approx(0.99),
    )
    looser = {**rising, "bound": rising["kappa"] * (1 + rising["width"])}
    assert checked("the bound becomes tighter", looser)[0] == FAILS
    tighter = {**rising, "bound": rising["kappa"] * (1 + 100 / rising["width"])}
    assert checked("the bound becomes tighter", tighter)[0] == HOLDS


def test_a_bound_becomes_more_predictive_where_its_slope_comes_nearer() -> None:
    """Bounds kappa (1 + m^p): the slope of bound / kappa over m goes to 0 for p < 0 alone."""
    table = made(lambda m, a, s: m * (1 + 0.01 * s))
    wide = {**table, "samples": np.full(len(table["width"]), 100)}
    for power, status in ((-2.0, HOLDS), (2.0, FAILS)):
        gap = 1 + (wide["width"] / 100) ** power + 1e-3 * wide["seed"]
        found = checked("the bound becomes more", {**wide, "bound": wide["kappa"] * gap})
        assert found[0] == status
    assert checked("the bound becomes more", table)[0] == NOT_TESTABLE  # 2 widths of at least n


def test_below_n_the_valley_is_found() -> None:
    table = made(lambda m, a, s: m)
    narrow = {**table, "samples": np.full(len(table["width"]), 400)}
    assert checked("below m = n", narrow)[0] == FAILS
    valley = {**narrow, "kappa": 1e4 / narrow["width"]}
    assert checked("below m = n", valley)[:2] == (HOLDS, pytest.approx(4))
    assert checked("below m = n", table)[0] == NOT_TESTABLE  # one width of at most n


def test_claims_of_figure_23_find_the_crossover() -> None:
    """kappa(0) = m^2 / m* and kappa(1) = m meet at m*, exactly so on log-log axes."""
    better = made(lambda m, a, s: 100 * np.exp(a))
    assert checked("reducing alpha", better)[:2] == (HOLDS, pytest.approx(1))
    assert checked("ReLU improves", better)[0] == HOLDS
    crossing = made(lambda m, a, s: m if a == 1 else m**2 / (259 + 2 * s) * (1 + a))
    status, number, text = checked("ReLU improves", crossing)
    assert (status, number) == (FAILS, pytest.approx(400 / np.sqrt(259 * 261)))
    assert f"from m={np.sqrt(259 * 261):.3g} (" in text
    assert checked("reducing alpha", crossing)[0] == FAILS


def test_a_crossover_is_a_rise() -> None:
    relu, linear = ({"seed": np.zeros(3, int), "width": np.array([1, 2, 4])} for _ in range(2))
    linear["kappa"] = np.full(3, 8.0)
    for kappa, place in (([2, 4, 16], 2**1.5), ([16, 4, 2], np.nan), ([8, 16, 16], 1.0)):
        relu["kappa"] = np.array(kappa, float)
        np.testing.assert_allclose(crossovers(relu, linear, "width", "kappa"), [place])


def test_claims_on_too_little_are_not_testable() -> None:
    table = made(lambda m, a, s: m)
    empty = {name: column[:0] for name, column in table.items()}
    assert {claim.check(empty).status for claim in alpha_sweep.CLAIMS} == {NOT_TESTABLE}
    unresolved = {**table, "resolved": ~table["resolved"]}
    assert trend(unresolved, "width", "m", rises=True).status == NOT_TESTABLE
    assert checked("reducing alpha", unresolved)[0] == NOT_TESTABLE
