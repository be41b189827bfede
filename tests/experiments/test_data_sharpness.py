"""Sharpness over the number of samples and its peaks: numbers, claims and figure C5."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from pandas import DataFrame

import gnjax
from experiments import data_sharpness
from experiments.claims.data_sharpness import CLAIMS, FITTED, _learned
from experiments.data_sharpness import EXPERIMENT
from experiments.shared.linear_training import Data
from figures import c5
from gnjax.papers import balanced
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, judge
from sweeps.storage import archive
from tests import references
from tests.experiments.configs import changed, records

RECIPE = {"depth", "width", "initializer"}


@pytest.mark.parametrize("share", [0.28, 0.46])
@pytest.mark.parametrize("samples", [100, 400])
def test_a_linear_map_of_the_fitted_inputs_gives_the_labels(samples, share):
    """The share is the same for every n, and Eq 14 as printed is that of the labels' projection."""
    found = data_sharpness.drawn(Data(FITTED, samples, share, 0, 4))
    assert found.inputs.shape == (samples, 16)
    assert found.largest_share == pytest.approx(share, rel=1e-12)
    counts = found.labels.sum(axis=0)
    assert counts[0] == counts.max() == round(share * samples)
    assert len(set(counts[1:])) == 1
    solved = np.linalg.lstsq(found.inputs, found.labels)[0]
    np.testing.assert_allclose(found.inputs @ solved, found.labels, atol=1e-9)
    white = gnjax.data.orthogonalise(found.inputs)
    least = balanced.least_sharpness(white, found.labels, 4, 1.0)
    assert least == pytest.approx(4 * share ** (3 / 4), rel=1e-9)
    assert balanced.printed_sharpness(white, found.labels, 4, 1.0) == pytest.approx(least, rel=1e-9)


@pytest.mark.slow
def test_a_published_cell_is_what_this_code_computes():
    """The cheapest cell stands for all that are published, see ``Experiment.version``."""
    cells = EXPERIMENT.cells(changed(EXPERIMENT, "paper"))
    wanted = {"data": FITTED, "samples": 1000}.items()
    cell = next(cell for cell in cells if wanted <= cell.keywords.items())
    store = archive.archive(EXPERIMENT)
    (published,) = archive.published(store, [cell]).values()
    found, known = EXPERIMENT.measure_cell(cell)["rows"], published.measurement["rows"]
    measured = [[row["measured"] for row in rows] for rows in (found, known)]
    np.testing.assert_allclose(*measured, rtol=1e-7)
    assert set(EXPERIMENT.columns) <= set(known[0]) | cell.keywords.keys() | RECIPE


def test_every_published_cell_is_found_and_makes_rows():
    """Converted, and none of them computed again."""
    config = changed(EXPERIMENT, "paper")
    store = archive.archive(EXPERIMENT)
    published = archive.published(store, EXPERIMENT.cells(config))
    assert len(published) == len(list(store.folder.glob("*.json")))
    rows = EXPERIMENT.rows(config, {cell: one.measurement for cell, one in published.items()})
    assert all(isinstance(row["measured"], float) and row["width"] for row in rows)


def test_a_row_is_the_largest_eigenvalue_of_the_hessian_of_all_parameters():
    """At the start, by automatic differentiation in the coordinates before any reduction."""
    cell = next(cell for cell in records(EXPERIMENT, "smoke") if cell.panel == "b")
    row = data_sharpness.measure(cell)[0]
    assert (row["epoch"], row["seed"], cell.recipe.initializer) == (0, 0, "balanced")
    drawn = data_sharpness.drawn(cell.runs()[0])
    x, y = gnjax.data.orthogonalise(drawn.inputs), drawn.labels
    widths, values = (x.shape[1], 16, 16, 16, 10), np.full(10, 0.5)
    weights = gnjax.initializers.chain(
        jax.random.key(0), widths, "balanced", singular_values=values
    )
    flat, unravel = ravel_pytree(weights)

    def loss(vector):
        outputs = x
        for layer in unravel(vector):
            outputs = outputs @ layer.T
        return ((outputs - y) ** 2).sum() / (2 * len(x))

    assert row["measured"] == pytest.approx(
        np.linalg.eigvalsh(references.hessian(loss, flat))[-1], rel=1e-8
    )
    assert row["loss"] == pytest.approx(float(loss(flat)), rel=1e-9)
    assert row["share"] == drawn.largest_share


def _table(fitted=0.0, images=-0.1, peak=0.7, left=-0.25):
    """Sharpness is n^fitted and n^images in panel a, and its peak alpha^peak in panel b.

    Of the loss above its floor half is left at epoch 100, and 0.05 alpha^left in the end.
    """
    common = {
        "inputs": 64, "outputs": 10, "depth": 4, "width": 64, "error": 1e-9, "loss": 0.1,
        "floor": 0.1, "printed": 2.0, "least": 1.9,
    }  # fmt: skip
    over_samples = [
        {"panel": "a", "data": f"{name}, orthogonalised", "initializer": "balanced", "samples": n,
         "seed": seed, "share": share, "epoch": 10_000,
         "measured": share * n**power * (1 + 1e-5 * seed)}
        for name, power in ((FITTED, fitted), ("fashion_mnist_5000", images))
        for n in (100, 200, 400)
        for share in (0.28, 0.46)
        for seed in (0, 1, 2)
    ]  # fmt: skip
    along = [
        {"panel": "b", "data": "fashion_mnist_5000, orthogonalised", "initializer": start,
         "samples": 500, "seed": seed, "share": share, "epoch": epoch,
         "measured": share**peak * height * (1 + 0.01 * seed * share),
         "loss": 0.1 + {0: 1.0, 100: 0.5}.get(epoch, 0.05 * share**left * (1 + 0.001 * seed))}
        for start in c5.STARTS
        for share in (0.1, 0.5, 0.9)
        for seed in (0, 1, 2)
        for epoch, height in ((0, 1.0), (100, 3.0), (10_000, 2.0))
    ]  # fmt: skip
    return DataFrame(common | row for row in over_samples + along)


def _statuses(table):
    ratios = changed(EXPERIMENT, "laptop").paper_ratios
    return [judge(claim, table, ratios).status for claim in CLAIMS]


def test_claims_can_hold_fail_and_be_out_of_reach():
    assert _statuses(_table()) == [HOLDS, FAILS, *[HOLDS] * 4]
    turned = _table(fitted=0.01, images=0.0, peak=-0.5, left=0.25)
    assert _statuses(turned) == [FAILS, HOLDS, *[FAILS] * 4]
    never = _table(left=-1.0)  # a fifth of the loss is left of the smallest class
    assert _statuses(never)[4:] == [NOT_TESTABLE] * 2
    few = _table()
    few = few[few["samples"] == 100]
    assert _statuses(few) == [NOT_TESTABLE] * 6
    small = _table()
    small["samples"] = np.where(small["panel"] == "b", 1000, small["samples"])
    assert _statuses(small)[2:] == [NOT_TESTABLE] * 4


def test_the_largest_class_is_compared_with_the_smallest_whatever_lies_between():
    """Class: one slope over all proportions decides of two of them."""
    table = _table(left=0.25)
    middle = (table["panel"] == "b") & (table["share"] == 0.5) & (table["epoch"] > 100)
    table.loc[middle, "loss"] = 0.1 + 1e-6
    left = [claim.check(table) for claim in CLAIMS if "in the end" in claim.statement]
    assert [v.status for v in left] == [FAILS] * 2
    assert all(f"what is left of it in the end, ratio: {9**0.25:.3g}" in v.text for v in left)


def test_when_a_run_is_learned_lies_between_two_stops():
    """Half of the loss is left at epoch 100, an exponent of t at the end: a line in logarithms."""
    found = _learned(_table(left=0.0), "balanced")
    slope = np.log(0.05 / 0.5) / np.log(10_000 / 100)
    first = found["until"][found["seed"] == 0]
    np.testing.assert_allclose(first, 100 * (0.1 / 0.5) ** (1 / slope), rtol=1e-12)
