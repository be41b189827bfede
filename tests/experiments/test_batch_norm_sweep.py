"""One hidden layer with and without normalisation: cells, ranks and claims of figure 7."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from pandas import DataFrame

import gnjax
from experiments import batch_norm_sweep as sweep
from experiments.claims.batch_norm_sweep import MODES
from experiments.shared import published_data
from experiments.shared.linear_network import initial_weights
from gnjax import data
from sweeps import config
from sweeps.claims import FAILS, HOLDS
from tests import references
from tests.experiments.configs import computed, records


def smoke(*overrides: str) -> ConfigDict:
    edge, _ = config.load("configs/batch_norm_sweep.py:smoke")
    return config.override(edge, overrides)


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> Iterator[data.Dataset]:
    """Crops of photographs for any data set: in general position, as LayerNorm's rank asks for."""
    sweep.images.cache_clear()
    colour = data.load("photo_patches", samples=40, seed=0)
    monkeypatch.setattr(published_data.datasets, "load", lambda *_, **__: colour)
    yield colour
    sweep.images.cache_clear()


def small() -> sweep.Cell:
    """A cell whose Jacobian of all samples and parameters is quickly formed."""
    cell = records(sweep.EXPERIMENT, "smoke")[0]
    return replace(
        cell, data="photo_patches", samples=40, step=11, outputs=3, width=12, norms=sweep.NORMS
    )


def _network(norm: str, epsilon: float) -> Callable:
    """The network written out for the whole batch."""

    def apply(params: dict, x: jnp.ndarray) -> jnp.ndarray:
        z = x @ params["v"].T
        if norm == "none":
            return z @ params["w"].T
        if norm == "initial":
            h = z / jnp.sqrt(1 + epsilon)
            return (params["scale"][None] * h + params["shift"][None]) @ params["w"].T
        statistics = x @ params["held"].T if norm == "frozen" else z
        axis = 1 if norm == "layer" else 0
        mean, variance = (f(statistics, axis=axis, keepdims=True) for f in (jnp.mean, jnp.var))
        h = (z - mean) / jnp.sqrt(variance + epsilon)
        return (params["scale"][None] * h + params["shift"][None]) @ params["w"].T

    return apply


@pytest.mark.parametrize("norm", sweep.NORMS)
@pytest.mark.usefixtures("patches")
def test_a_cell_is_what_the_whole_batch_says(norm: str) -> None:
    """kappa and rank beside singular values of the Jacobian of the network written out."""
    cell = small()
    found = next(row for row in sweep.measure(cell) if row["norm"] == norm)
    x = sweep.images(cell.data, cell.samples, cell.step).inputs
    assert x.shape == (cell.samples, found["inputs"]) == (40, 9)
    v, w = initial_weights(9, cell)
    held = _network(norm, cell.epsilon)

    def apply(params: dict, rows: jnp.ndarray) -> jnp.ndarray:
        return held({**params, "held": v}, rows)

    params = {"v": v, "w": w}
    if norm != "none":
        params |= {"scale": np.ones(12), "shift": np.zeros(12)}
    sigma = np.linalg.svd(references.jacobian(apply, params, x), compute_uv=False)
    rank = found["rank"]
    assert found["rank_found"] == rank == (sigma > 1e-12 * sigma[0]).sum()
    np.testing.assert_allclose(found["kappa"], (sigma[0] / sigma[rank - 1]) ** 2, rtol=1e-6)
    leading = min(rank, 3 * 10)
    expected = (sigma[0] / sigma[leading - 1]) ** 2
    np.testing.assert_allclose(found["kappa_leading"], expected, rtol=1e-6)
    assert found["resolved"]
    assert found["kappa_low"] <= found["kappa"] <= found["kappa_high"]


@pytest.mark.parametrize("width", [3, 6, 9, 20])
@pytest.mark.usefixtures("patches")
def test_ranks_found_by_the_engine_are_those_of_theory(width: int) -> None:
    """Where the engine is told nothing and looks for a gap or a full matrix itself.

    Without normalisation it is p - m^2 up to m = k = 3: W V forgets an invertible (m, m) matrix.
    """
    cell = replace(small(), width=width)
    x = sweep.images(cell.data, cell.samples, cell.step).inputs
    for norm in sweep.NORMS if width > 9 else sweep.NORMS[:-1]:
        op = sweep.operator(norm, *initial_weights(9, cell), x, cell.epsilon)
        found = gnjax.condition_number(op)
        assert found.rank == sweep.theoretical_rank(cell, norm, 9)
        assert found.rank_source in ("full", "gap", "analytic")
    if width == 3:
        assert sweep.theoretical_rank(cell, "none", 9) == width * (9 + 3) - width**2


def test_layer_norm_is_measured_where_its_rank_is_known() -> None:
    for cell in records(sweep.EXPERIMENT, "smoke"):
        # 15 of the 16 pixels are not black; what the published code names has no LayerNorm.
        assert ("layer" in cell.norms) == (cell.step == 7 and cell.width > 15)


def test_images_are_the_first_strided_and_without_black_pixels() -> None:
    found = sweep.images("fashion_mnist_5000", 100, 7)
    images = data.load("fashion_mnist_5000").inputs[:100].reshape(100, 28, 28)[:, ::7, ::7]
    pixels = images.reshape(100, 16)
    np.testing.assert_array_equal(found.inputs, pixels[:, pixels.any(axis=0)])
    assert "not whitened" in found.source


def test_colours_become_grey(patches: data.Dataset) -> None:
    grey = data.grayscale(patches.inputs, (32, 32, 3)).reshape(40, 32, 32)[:, ::8, ::8]
    found = sweep.images("photo_patches", 40, 8)
    np.testing.assert_allclose(found.inputs, grey.reshape(40, 16), rtol=1e-12)


def test_samples_that_span_too_little_are_refused() -> None:
    with pytest.raises(ValueError, match="take more samples"):
        sweep.images("fashion_mnist_5000", 10, 7)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("printed.widths=(9,)", "widths of at least outputs"),
        ("published.seeds=0", "seeds of at least 1"),
        ("printed.norms=('none', 'batch', 'group')", "none, batch, frozen, initial, layer"),
    ],
)
def test_a_config_that_makes_no_figure_is_refused(override: str, words: str) -> None:
    with pytest.raises(config.ConfigError, match=words):
        sweep.EXPERIMENT.cells(smoke(override))


def test_rows_go_by_width_and_norm() -> None:
    chosen = smoke("printed.seeds=1", "printed.widths=(80, 10)", "published.seeds=1")
    table = computed(sweep.EXPERIMENT, chosen)
    printed = table[table["figure"] == "7"]
    assert list(zip(printed["norm"], printed["width"], strict=True)) == [
        *[(norm, 80) for norm in sweep.NORMS],
        *[(norm, 10) for norm in sweep.NORMS[:-1]],
    ]
    assert set(zip(table["figure"], table["data"], strict=True)) == {
        ("7", "fashion_mnist_5000, grey, 15 pixels"),
        ("7-published", "fashion_mnist_5000, grey, 14 pixels"),
    }


# Claims -----------------------------------------------------------------------------------------


def made(kappa: Callable[[str, int], float]) -> DataFrame:
    """d = 64, so that width 10 is narrow; two seeds, whose kappas are the same."""
    widths = (10, 100, 200)
    cells = [("7", norm, m) for norm in sweep.NORMS for m in widths for _ in (0, 1)]
    cells = [cell for cell in cells if cell[1:] != ("layer", 10)]
    cells += [("7-published", norm, m) for norm in sweep.NORMS[:-1] for m in widths for _ in (0, 1)]
    values = np.array([kappa(norm, m) for _, norm, m in cells])
    return DataFrame(
        {
            "figure": np.array([figure for figure, _, _ in cells]),
            "seed": np.arange(len(cells)) % 2,
            "inputs": np.full(len(cells), 64),
            "outputs": np.full(len(cells), 10),
            "norm": np.array([norm for _, norm, _ in cells]),
            "width": np.array([m for _, _, m in cells]),
            "kappa": values,
            "kappa_leading": values / 2,
            "resolved": np.ones(len(cells), bool),
            "rank": np.full(len(cells), 650),
            "rank_found": np.full(len(cells), 650),
        }
    )


STRENGTH = {"none": 4.0, "frozen": 2.0, "initial": 2.5, "batch": 1.0, "layer": 3.0}


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
    above = "BatchNorm lowers kappa at every m > d, with "
    assert found[above + MODES["batch"]].status == HOLDS
    below = found["BatchNorm lowers kappa at every m <= d"]
    assert (below.status, below.number) == (FAILS, pytest.approx(9 / 4))


def test_the_claim_on_layer_norm_counts_the_eigenvalues() -> None:
    """It is checked at the widths that it has, and says what its leading eigenvalues do."""
    (claim,) = [c for c in sweep.CLAIMS if "LayerNorm" in c.statement]
    table = made(lambda norm, m: (800.0 if norm == "layer" else STRENGTH[norm]) / m)
    table["rank"] = np.where(
        table["norm"] == "layer", 1649, np.where(table["norm"] == "none", 640, 650)
    )
    found = claim.check(table)
    assert (found.status, found.number) == (FAILS, pytest.approx(200))
    assert "BatchNorm's rank, 650 of 1649, the ratio is 100 at m=100, 100 at m=200" in found.text
