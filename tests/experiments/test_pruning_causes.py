"""pruning_causes: what a variant changes, what it measures, and the claims of figure C4."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from experiments import pruning_causes, pruning_sweep
from experiments.claims.pruning_causes import CLAIMS, TITLES
from experiments.shared.pruned_networks import frozen as with_statistics
from gnjax.papers.training import minibatch as training
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED
from tests.experiments.configs import frozen


def _cell():
    return pruning_causes.cells(frozen(pruning_causes, "smoke"))[-1]


def test_the_printed_recipe_is_that_of_figure_16():
    ours = frozen(pruning_causes, "laptop")
    theirs = frozen(pruning_sweep, "laptop").vgg5
    for name in ("samples", "side", "depth", "width", "seeds", "recipe"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.epochs == theirs.stops[-1]


def test_a_variant_changes_one_thing():
    printed = frozen(pruning_causes, "laptop").recipe
    changed = {name: change(printed) for name, change in pruning_causes.CHANGES.items()}
    fields = {
        name: {
            field.name
            for field in dataclasses.fields(printed)
            if getattr(recipe, field.name) != getattr(printed, field.name)
        }
        for name, recipe in changed.items()
    }
    assert fields == {
        "no_drop": {"drop_after"},
        "no_decay": {"decay"},
        "no_momentum": {"momentum"},
        "long_steps": {"momentum", "rate"},
        "short_steps": {"rate"},
    }
    lengths = {name: recipe.rate / (1 - recipe.momentum) for name, recipe in changed.items()}
    long = printed.rate / (1 - printed.momentum)
    assert lengths == pytest.approx(
        {
            "no_drop": long,
            "no_decay": long,
            "no_momentum": long / 10,
            "long_steps": long,
            "short_steps": long / 10,
        }
    )


@pytest.mark.slow
def test_the_sharpness_is_that_of_the_dense_hessian():
    """Of the kept weights alone, through BatchNorm's statistics, column by column."""
    start = pruning_causes.begun(_cell(), 0.4)
    graph, params, rest = nnx.split(start.net, nnx.Param, ...)
    flat, unravel = ravel_pytree(params)
    keep = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(start.mask)])

    def loss(vector):
        net = nnx.merge(graph, unravel(vector), rest, copy=True)
        net.train()
        outputs = net(jnp.asarray(start.x))
        return optax.softmax_cross_entropy_with_integer_labels(outputs, start.labels).mean()

    @jax.jit
    def column(direction):
        return jax.jvp(jax.grad(loss), (flat,), (direction,))[1]

    units = np.eye(len(keep))[keep]
    hessian = np.array([column(unit) for unit in units])[:, keep]
    assert pruning_causes.sharpness(start) == pytest.approx(
        np.linalg.eigvalsh(hessian)[-1], rel=1e-3
    )
    assert np.count_nonzero(flat) <= np.count_nonzero(keep)


def test_filters_get_their_first_norms_back_and_the_outputs_stay():
    start = pruning_causes.begun(_cell(), 0.4)
    net = nnx.clone(start.net)
    for _, module in nnx.iter_graph(net):
        if isinstance(module, nnx.Conv):
            module.kernel[...] = module.kernel[...] * 3.0
    before = with_statistics(net, start.x)(jnp.asarray(start.x))
    pruning_causes.rescale(net, start.net)
    after = with_statistics(net, start.x)(jnp.asarray(start.x))
    np.testing.assert_allclose(after, before, atol=1e-3 * float(jnp.abs(before).max()))
    pairs = zip(nnx.iter_graph(net), nnx.iter_graph(start.net), strict=True)
    for (_, now), (_, first) in pairs:
        if isinstance(now, nnx.Conv):
            np.testing.assert_allclose(now.kernel[...], first.kernel[...], rtol=1e-12)


def test_alike_steps_are_as_near_to_instability_as_the_unpruned_network():
    """Four times its sharpness: a quarter of its rate, to the nearest power of sqrt(2)."""
    printed = _cell().recipe
    recipe = pruning_causes._recipe("alike", printed, 4.0)
    assert recipe.rate == pytest.approx(printed.rate / 4, rel=2**0.25 - 1)
    assert np.log2(recipe.rate) * 2 == pytest.approx(round(np.log2(recipe.rate) * 2))
    assert pruning_causes._recipe("printed", printed, 4.0) == printed


def test_a_reading_is_of_the_network_that_the_printed_recipe_trained():
    """Class: a variant that is measured on a network which another recipe trained."""
    cell = dataclasses.replace(_cell(), variants=("no_momentum", "first_norms", "printed"))
    records = pruning_causes.measure(cell)["records"]
    assert [(one["variant"], one["epoch"]) for one in records] == [
        ("no_momentum", 1),
        ("printed", 0),
        ("printed", 1),
        ("first_norms", 1),
    ]
    start, key = pruning_causes.begun(cell, cell.pruned), jax.random.key(cell.seed)
    problem, state = training.begin(
        start.net, start.x, start.labels, cell.recipe, key, mask=start.mask
    )
    net = training.trained(start.net, training.train(problem, state, 1)[0])
    pruning_causes.rescale(net, start.net)
    kernel = gnjax.ntk(with_statistics(net, start.x), start.x, mask=start.mask)
    exact = gnjax.condition_number(kernel, method="factored")
    assert records[-1]["kappa"] == pytest.approx(exact.value, rel=1e-6)
    assert records[2]["kappa"] != pytest.approx(exact.value, rel=1e-3)


def test_rows_are_the_stops_of_each_variant():
    """Variant by variant, in the order of the config, whatever the order of the cells."""
    chosen = frozen(pruning_causes, "smoke")
    stops = (("printed", 0), ("printed", 1), ("first_norms", 1))
    measured = {
        cell: {
            "inputs": 256, "outputs": 10, "parameters": 9,
            "records": [
                {"variant": name, "epoch": epoch, "rate": 0.1, "instability": 0.5, "kappa": 2.0}
                for name, epoch in stops
            ],
        }
        for cell in pruning_causes.cells(chosen)
    }  # fmt: skip
    found = pruning_causes.rows(chosen, measured)
    assert len(found) == len(stops) * len(chosen.rates) * chosen.seeds
    assert {(row.variant, row.epoch) for row in found} == set(stops)
    order = [chosen.variants.split().index(row.variant) for row in found]
    assert order == sorted(order)


def test_an_unknown_variant_is_refused():
    edge, _ = config.load("configs/pruning_causes.py:smoke")
    with pytest.raises(config.ConfigError, match="name printed and others of"):
        config.freeze(pruning_causes.Config, config.override(edge, ["variants=printed warm"]))


def _table(depths, instability=0.5):
    """kappa at 40% over unpruned is ``depths`` of the variant; at 80% it is as unpruned."""
    rows = [
        (variant, pruned, seed, 120, 1e5 * (depth if pruned == 0.4 else 1.0) * (1 + 0.1 * seed))
        for variant, depth in depths.items()
        for pruned in (0.0, 0.4, 0.8)
        for seed in range(3)
    ]
    names = ("variant", "pruned", "seed", "epoch", "kappa_numerical")
    found = {
        name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    wobble = 1 + 0.01 * found["seed"] * (found["pruned"] == 0.4) * (found["variant"] != "printed")
    found["kappa_numerical"] = found["kappa_numerical"] * wobble
    return {**found, "instability": instability * (1 + 0.01 * found["seed"])}


def _status(start, table):
    (claim,) = [claim for claim in CLAIMS if claim.statement.startswith(start)]
    return claim.check(table).status


def test_claims_can_hold_fail_and_be_undecided():
    table = _table({"printed": 0.1, "short_steps": 0.8, "no_decay": 0.05, "no_drop": 0.0995})
    assert _status("with the printed recipe", table) == HOLDS
    assert _status("with the printed recipe", _table({"printed": 2.0})) == FAILS
    assert _status("the printed step", table) == HOLDS
    assert _status("the printed step", _table({"printed": 0.1}, 3.0)) == FAILS
    assert _status(TITLES["short_steps"], table) == HOLDS
    assert _status(TITLES["no_decay"], table) == FAILS
    assert _status(TITLES["no_drop"], table) == UNDECIDED
    empty = {name: column[:0] for name, column in table.items()}
    assert {claim.check(empty).status for claim in CLAIMS} == {NOT_TESTABLE}
