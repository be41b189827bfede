"""One hidden layer with and without normalisation: cells, ranks and claims of figure 7."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from experiments import batch_norm_sweep as sweep
from experiments.shared.linear_network import initial_weights
from gnjax import data
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED
from sweeps.table import Columns
from tests import references


def smoke(*overrides: str) -> sweep.Config:
    edge, _ = config.load("configs/batch_norm_sweep.py:smoke")
    return config.freeze(sweep.Config, config.override(edge, overrides))


def small() -> sweep.Cell:
    """A cell whose Jacobian of all samples and parameters is quickly formed."""
    chosen = smoke("samples=40", "side=3", "outputs=3", "widths=(12,)", "seeds=1")
    return sweep.cells(chosen)[0]


def _network(norm: str, epsilon: float) -> Callable:
    """The network written out for the whole batch."""

    def apply(params: dict, x: jnp.ndarray) -> jnp.ndarray:
        z = x @ params["v"].T
        if norm == "none":
            return z @ params["w"].T
        statistics = x @ params["held"].T if norm == "frozen" else z
        axis = 1 if norm == "layer" else 0
        mean, variance = (f(statistics, axis=axis, keepdims=True) for f in (jnp.mean, jnp.var))
        h = (z - mean) / jnp.sqrt(variance + epsilon)
        return (params["scale"][None] * h + params["shift"][None]) @ params["w"].T

    return apply


@pytest.mark.parametrize("norm", sweep.NORMS)
def test_a_cell_is_what_the_whole_batch_says(norm: str) -> None:
    """kappa and rank beside singular values of the Jacobian of the network written out."""
    cell = small()
    found = sweep.measure(cell)
    x = sweep.images(cell.data, cell.samples, cell.data_seed, cell.side).inputs
    assert x.shape == (cell.samples, found["inputs"]) == (40, 9)
    v, w = initial_weights(9, cell)
    held = _network(norm, cell.epsilon)

    def apply(params: dict, rows: jnp.ndarray) -> jnp.ndarray:
        return held({**params, "held": v}, rows)

    params = {"v": v, "w": w}
    if norm != "none":
        params |= {"scale": np.ones(12), "shift": np.zeros(12)}
    sigma = np.linalg.svd(references.jacobian(apply, params, x), compute_uv=False)
    at = cell.norms.index(norm)
    rank = found["rank"][at]
    assert found["rank_found"][at] == rank == (sigma > 1e-12 * sigma[0]).sum()
    np.testing.assert_allclose(found["kappa"][at], (sigma[0] / sigma[rank - 1]) ** 2, rtol=1e-6)
    leading = min(rank, 3 * 10)
    expected = (sigma[0] / sigma[leading - 1]) ** 2
    np.testing.assert_allclose(found["kappa_leading"][at], expected, rtol=1e-6)
    assert found["resolved"][at]
    assert found["kappa_low"][at] <= found["kappa"][at] <= found["kappa_high"][at]


@pytest.mark.parametrize("width", [3, 6, 9, 20])
def test_ranks_found_by_the_engine_are_those_of_theory(width: int) -> None:
    """Where the engine is told nothing and looks for a gap or a full matrix itself.

    Without normalisation it is p - m^2 up to m = k = 3: W V forgets an invertible (m, m) matrix.
    """
    cell = replace(small(), width=width)
    x = sweep.images(cell.data, cell.samples, cell.data_seed, cell.side).inputs
    for norm in sweep.NORMS if width > 9 else sweep.NORMS[:-1]:
        op = sweep.operator(norm, *initial_weights(9, cell), x, cell.epsilon)
        found = gnjax.condition_number(op)
        assert found.rank == sweep.theoretical_rank(cell, norm, 9)
        assert found.rank_source in ("full", "gap", "analytic")
    if width == 3:
        assert sweep.theoretical_rank(cell, "none", 9) == width * (9 + 3) - width**2


def test_layer_norm_is_measured_where_its_rank_is_known() -> None:
    for cell in sweep.cells(smoke()):
        assert ("layer" in cell.norms) == (cell.width > 16)


def test_images_are_grey_small_and_not_whitened() -> None:
    found = sweep.images("photo_patches", 100, 0, 4)
    colour = data.load("photo_patches", samples=100, seed=0)
    small_first = data.downsample(colour.inputs, (32, 32, 3), (4, 4))
    np.testing.assert_allclose(found.inputs, data.grayscale(small_first, (4, 4, 3)), rtol=1e-12)
    assert "not whitened" in found.source
    grey = sweep.images("digits", 100, 0, 2)
    assert grey.inputs.shape == (100, 4)


def test_samples_that_span_too_little_are_refused() -> None:
    with pytest.raises(ValueError, match="take more samples"):
        sweep.images("photo_patches", 10, 0, 4)


@pytest.mark.parametrize("overrides", [["widths=(9,)"], ["seeds=0"]])
def test_a_config_that_makes_no_figure_is_refused(overrides: list[str]) -> None:
    with pytest.raises(config.ConfigError, match="widths of at least outputs"):
        smoke(*overrides)


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_profiles_are_configs_with_cells(profile: str) -> None:
    edge, _ = config.load(f"configs/batch_norm_sweep.py:{profile}")
    cells = sweep.cells(config.freeze(sweep.Config, edge))
    assert len(set(cells)) == len(cells)
    costs = [sweep.cost(cell) for cell in cells]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0


def test_rows_go_by_norm_and_width() -> None:
    chosen = smoke("seeds=1", "widths=(80, 10)")
    table = sweep.rows(chosen, {cell: sweep.measure(cell) for cell in sweep.cells(chosen)})
    assert [(row.norm, row.width) for row in table] == [
        *[(norm, width) for norm in sweep.NORMS[:-1] for width in (10, 80)],
        ("layer", 80),
    ]
    assert {row.data for row in table} == {"fashion_mnist_5000, grey, 4 x 4"}


# Claims -----------------------------------------------------------------------------------------


def made(kappa: Callable[[str, int], float]) -> Columns:
    """d = 64, so that width 10 is narrow; two seeds, whose kappas are the same."""
    cells = [(norm, m) for norm in sweep.NORMS for m in (10, 100, 200) for _ in (0, 1)]
    cells = [cell for cell in cells if cell != ("layer", 10)]
    values = np.array([kappa(*cell) for cell in cells])
    return {
        "seed": np.arange(len(cells)) % 2,
        "inputs": np.full(len(cells), 64),
        "outputs": np.full(len(cells), 10),
        "norm": np.array([norm for norm, _ in cells]),
        "width": np.array([m for _, m in cells]),
        "kappa": values,
        "kappa_leading": values / 2,
        "resolved": np.ones(len(cells), bool),
        "rank": np.full(len(cells), 650),
        "rank_found": np.full(len(cells), 650),
    }


STRENGTH = {"none": 4.0, "frozen": 2.0, "batch": 1.0, "layer": 3.0}


def test_claims_can_hold_and_fail() -> None:
    good = made(lambda norm, m: STRENGTH[norm] / m)
    assert {claim.check(good).status for claim in sweep.CLAIMS} == {HOLDS}
    bad = made(lambda norm, m: m / STRENGTH[norm])
    bad["rank_found"] = bad["rank"] - 1
    assert {claim.check(bad).status for claim in sweep.CLAIMS} == {FAILS}


def test_narrow_networks_are_judged_apart() -> None:
    """Lemma 1 asks for m > d, and so does what is said of wide networks."""
    narrow = made(lambda norm, m: (9 if (norm, m) == ("batch", 10) else STRENGTH[norm]) / m)
    found = {claim.statement: claim.check(narrow) for claim in sweep.CLAIMS}
    assert found["BatchNorm lowers kappa at every m > d"].status == HOLDS
    below = found["BatchNorm lowers kappa at every m <= d"]
    assert (below.status, below.number) == (FAILS, pytest.approx(9 / 4))


def test_the_claim_on_layer_norm_counts_the_eigenvalues() -> None:
    """It is checked at the widths that it has, and says what its leading eigenvalues do."""
    (claim,) = [c for c in sweep.CLAIMS if "LayerNorm" in c.statement]
    table = made(lambda norm, m: (800.0 if norm == "layer" else STRENGTH[norm]) / m)
    table["rank"] = np.where(table["norm"] == "layer", 1649, 640)
    found = claim.check(table)
    assert (found.status, found.number) == (FAILS, pytest.approx(200))
    assert "BatchNorm's rank, 640 of 1649, the ratio is 100 at m=100, 100 at m=200" in found.text


def test_claims_on_too_little_are_undecided_or_not_testable() -> None:
    one_seed = made(lambda norm, m: 1 / m)
    one_seed = {name: column[one_seed["seed"] == 0] for name, column in one_seed.items()}
    open_ended = {UNDECIDED, NOT_TESTABLE}
    assert {claim.check(one_seed).status for claim in sweep.CLAIMS[:-1]} <= open_ended
    none = {name: column[:0] for name, column in one_seed.items()}
    assert {claim.check(none).status for claim in sweep.CLAIMS[:-1]} == {NOT_TESTABLE}
