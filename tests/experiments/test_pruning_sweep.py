"""pruning_sweep: what a row is, resuming, claims, and the Jacobian of a trained ResNet20."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import gnjax
from experiments import pruning_sweep
from gnjax.models import ResNet
from gnjax.training import minibatch as training
from sweeps import config
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
from sweeps.storage import checkpoint


def _config(profile):
    edge, _ = config.load(f"configs/pruning_sweep.py:{profile}")
    return config.freeze(pruning_sweep.Config, edge)


def _cell(network, **changed):
    cells = pruning_sweep.cells(_config("smoke"))
    found = next(cell for cell in cells if cell.network == network and cell.pruned > 0)
    return dataclasses.replace(found, **changed)


@pytest.mark.slow
def test_the_jacobian_of_a_trained_resnet20_is_that_of_each_example():
    """After two epochs, with frozen statistics, against jax.jacrev of one example at a time."""
    found = pruning_sweep.images("photo_patches", 8, 0, 8)
    model = ResNet(20, found.classes, key=jax.random.key(0))
    recipe = _cell("resnet20").recipe
    problem, state = training.begin(model, found.x, found.labels, recipe, jax.random.key(0))
    state, _ = training.train(problem, state, 2)
    net = pruning_sweep.frozen(training.trained(model, state), found.x)
    x = jnp.asarray(found.x[:3])
    apply, params = gnjax.functional(net)
    flat, unravel = ravel_pytree(params)

    @jax.jit
    def one(sample):
        return jax.jacrev(lambda v: apply(unravel(v), sample[None])[0])(flat)

    expected = np.concatenate([one(sample) for sample in x])
    factor = gnjax.ntk(net, x).factor()
    np.testing.assert_allclose(factor, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_frozen_statistics_are_those_of_all_samples():
    """Frozen, the network is on these samples what it is in training mode."""
    x = np.random.default_rng(0).standard_normal((4, 16, 16, 3))
    make = {name: kind.make for name, kind in pruning_sweep.KINDS.items()}
    net = make["vgg5"](5, x.shape[1:], 3, jax.random.key(0))
    batch = nnx.clone(net)
    batch.train()
    np.testing.assert_allclose(pruning_sweep.frozen(net, x)(x), batch(x), rtol=1e-9, atol=1e-12)
    unnormalised = make["feed_forward"](3, x.shape[1:], 3, jax.random.key(0))
    assert pruning_sweep.frozen(unnormalised, x) is unnormalised


def test_a_row_is_what_the_jacobian_of_the_kept_weights_says():
    """kappa at epoch 0 from singular values of a Jacobian by jacrev, without a mask."""
    cell = _cell("feed_forward")
    measured = pruning_sweep.measure(cell)
    found = pruning_sweep.images(cell.data, cell.samples, cell.data_seed, cell.side)
    x = jnp.asarray(found.x.reshape(cell.samples, -1))
    make = pruning_sweep.KINDS[cell.network].make
    model = make(3, found.x.shape[1:], found.classes, jax.random.key(cell.seed))
    apply, params = gnjax.functional(model)
    leaves, structure = jax.tree.flatten(params)
    # training is in float32, and so is what kappa is measured of
    leaves = [np.asarray(leaf, np.float32).astype(float) for leaf in leaves]
    cuts = [
        np.quantile(np.abs(leaf), cell.pruned, method="lower") if leaf.ndim == 2 else -1.0
        for leaf in leaves
    ]
    kept = [np.abs(leaf) > cut for leaf, cut in zip(leaves, cuts, strict=True)]
    pruned = jax.tree.unflatten(
        structure, [jnp.asarray(a * k) for a, k in zip(leaves, kept, strict=True)]
    )
    flat, unravel = ravel_pytree(pruned)
    jacobian = jax.jit(jax.jacrev(lambda v: apply(unravel(v), x).ravel()))(flat)
    columns = np.asarray(jacobian)[:, np.concatenate([k.ravel() for k in kept])]
    sigma = np.linalg.svd(columns, compute_uv=False)
    assert abs(measured["parameters"] - columns.shape[1]) <= 3  # one a layer at the cut
    np.testing.assert_allclose(
        measured["records"][0]["kappa"], (sigma[0] / sigma[-1]) ** 2, rtol=0.05
    )


def test_a_killed_run_resumes_to_the_same_measurement(tmp_path, monkeypatch):
    cell = _cell("feed_forward", epochs=3)
    whole = pruning_sweep.measure(cell)
    kept = checkpoint.Checkpoint(tmp_path / "state.json")
    kappa = gnjax.condition_number
    calls = []

    def killed(*args, **options):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return kappa(*args, **options)

    monkeypatch.setattr(gnjax, "condition_number", killed)
    with pytest.raises(KeyboardInterrupt):
        pruning_sweep.measure(cell, kept)
    assert pruning_sweep.measure(cell, kept) == whole
    assert len(calls) == 3 + 2  # the first two stops were not measured again


def test_rows_follow_every_epoch_and_kappa_every_stop():
    cell = _cell("vgg5", epochs=5, every=2)
    kappa = {"kappa": 2.0, "kappa_low": 1.0, "kappa_high": 3.0, "resolved": True}
    records = [
        {"epoch": 0, "losses": [], **kappa},
        {"epoch": 2, "losses": [9.0, 8.0], **kappa},
        {"epoch": 4, "losses": [7.0, 6.0], **kappa},
        {"epoch": 5, "losses": [5.0], **kappa},
    ]
    settings = _config("smoke")
    network = dataclasses.replace(settings.vgg5, epochs=5, every=2)
    measured = {cell: {"inputs": 768, "outputs": 10, "parameters": 50, "records": records}}
    found = pruning_sweep.rows(dataclasses.replace(settings, vgg5=network), measured)
    assert [row.epoch for row in found] == [0, 1, 2, 3, 4, 5]
    assert [row.loss for row in found] == [None, 9.0, 8.0, 7.0, 6.0, 5.0]
    assert [row.measured for row in found] == [True, False, True, False, True, True]
    assert [row.kappa for row in found] == [2.0, None, 2.0, None, 2.0, 2.0]


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_profiles_have_every_network(profile):
    cells = pruning_sweep.cells(_config(profile))
    assert {cell.network for cell in cells} == set(pruning_sweep.KINDS)
    assert [pruning_sweep.cost(cell) for cell in cells] == sorted(
        (pruning_sweep.cost(cell) for cell in cells), reverse=True
    )


def test_the_paper_profile_is_the_papers():
    """Appendix I.1: rates, drops and optimisers."""
    paper = _config("paper")
    assert {network.samples for network in vars(paper).values() if hasattr(network, "samples")} == {
        1000
    }
    residual = paper.resnet20.recipe
    assert residual == paper.resnet32.recipe
    assert (residual.rate, residual.momentum, residual.decay) == (0.1, 0.9, 1e-4)
    assert (residual.drop_after, residual.drop, residual.batch) == (91, 0.1, 64)
    assert paper.vgg5.recipe == dataclasses.replace(residual, drop_after=100)
    assert (paper.vit.recipe.optimizer, paper.vit.recipe.rate) == ("adamw", 0.01)
    assert (paper.vit.recipe.decay, paper.vit.seeds) == (0.01, 3)
    plain = paper.feed_forward.recipe
    assert (plain.rate, plain.momentum, plain.decay, plain.drop_after) == (0.01, 0.0, 0.0, 0)


def _table(kappa, loss, resolved=lambda rate, epoch: True, epochs=(0, 20, 40), rates=(0, 0.4, 0.8)):
    points = [(rate, epoch) for rate in rates for epoch in epochs]
    return {
        "network": np.full(len(points), "resnet20"),
        "pruned": np.array([rate for rate, _ in points], float),
        "epoch": np.array([epoch for _, epoch in points]),
        "measured": np.ones(len(points), bool),
        "parameters": np.array([round(1000 * (1 - rate)) for rate, _ in points]),
        "samples": np.full(len(points), 2),
        "outputs": np.full(len(points), 10),
        "resolved": np.array([resolved(*point) for point in points]),
        "kappa": np.array([kappa(*point) for point in points], float),
        "loss": np.array([loss(*point) if point[1] else np.nan for point in points]),
    }


def _verdicts(table):
    return [c.check(table) for c in pruning_sweep.CLAIMS if c.figure == "1, 14"]


def test_claims_can_hold_and_fail():
    grown = _table(lambda rate, epoch: 1 + rate + epoch, lambda rate, epoch: rate + 1 / epoch)
    kappa, loss = _verdicts(grown)
    assert (kappa.status, loss.status) == (HOLDS, HOLDS)
    np.testing.assert_allclose(kappa.number, 21.8 / 21.4)
    np.testing.assert_allclose(loss.number, (0.8 + 1 / 40) / (0.4 + 1 / 40))
    fallen = _table(lambda rate, epoch: 9 - rate, lambda rate, epoch: 9 - rate)
    assert [found.status for found in _verdicts(fallen)] == [FAILS, FAILS]


def test_a_failing_claim_says_where_it_holds():
    late = _table(
        lambda rate, epoch: 100 - 90 * rate if epoch == 0 else epoch * (1 + rate),
        lambda rate, epoch: 1.0,
    )
    text = _verdicts(late)[0].text
    assert "falls from 0 to 0.4" in text
    assert "grows at 2 of 3 epochs (20, 40)" in text
    assert "50 parameters an output at 0, 10 at 0.8" in text


def test_lower_bounds_prove_growth_towards_them_only():
    def loss(rate, epoch):
        return 1.0

    last = _table(lambda rate, epoch: 1 + rate, loss, lambda rate, epoch: rate < 0.8)
    assert _verdicts(last)[0].status == HOLDS
    first = _table(lambda rate, epoch: 1 + rate, loss, lambda rate, epoch: rate > 0)
    assert _verdicts(first)[0].status == NOT_TESTABLE
    assert "3 at 0" in _verdicts(first)[0].text
    below = _table(lambda rate, epoch: 2 - rate, loss, lambda rate, epoch: rate < 0.8)
    assert _verdicts(below)[0].status == FAILS  # the step from 0 to 0.4 is known to fall


@pytest.mark.parametrize("shorter", [{"epochs": (0, 2)}, {"rates": (0.4,)}])
def test_claims_on_too_little_are_not_testable(shorter):
    table = _table(lambda rate, epoch: 1.0, lambda rate, epoch: 1.0, **shorter)
    assert [found.status for found in _verdicts(table)] == [NOT_TESTABLE] * 2


def test_what_the_kernel_cannot_resolve_the_singular_values_of_j_do():
    j = np.diag(np.geomspace(1, 1e-9, 30))
    cell = _cell("feed_forward")
    assert cell.method == "inverse"
    assert not gnjax.condition_number(gnjax.factored(j), method="inverse").resolved
    found = pruning_sweep._kappa(gnjax.factored(j), cell)
    assert found.resolved
    np.testing.assert_allclose(found.value, 1e18, rtol=1e-5)
    near = pruning_sweep._kappa(gnjax.factored(np.eye(3)), cell)
    assert near.method == "inverse"
