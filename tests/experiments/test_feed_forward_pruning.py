"""Figure 17's experiment: its numbers by NumPy and autodiff, its claims on made-up tables."""

import itertools

import jax
import numpy as np
import pytest
from flax import nnx
from pandas import DataFrame, concat

from experiments import feed_forward_pruning as experiment
from experiments.claims.pruning_sweep import BECAUSE, HARDER, WORSE
from experiments.shared import published_data
from experiments.shared.relu_networks import relu_network
from gnjax.networks.model import functional
from gnjax.papers.training.recipe import Recipe
from sweeps.claims import (
    AS_COMPUTED,
    AS_PRINTED,
    CERTIFIED,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    UNDECIDED,
)
from sweeps.config import load
from tests import references

SETTING = {
    "data": "fashion_mnist_5000",
    "samples": 10,
    "step": 7,
    "hidden": (6, 5),
    "scaling": "standardised",
    "initializer": "kaiming_normal",
    "biases": "normal",
    "pruned": 0.3,
    "seed": 1,
    "recipe": Recipe("sgd", 0.05, 4, "mse", scale=0.2),
}


def _by_numpy(epochs):
    """Tensors, their masks, and the losses of the steps: pruned and trained, written out."""
    images = published_data.standardised(
        published_data.first_images(SETTING["data"], SETTING["samples"], SETTING["step"])
    )
    x, y = images.inputs, np.eye(10)[images.labels]
    net = relu_network((x.shape[1], 6, 5, 10), "kaiming_normal", "normal", 1)
    layers = [net.dense1, net.dense2, net.dense3]
    tensors = [np.array(t[...]) for layer in layers for t in (layer.kernel, layer.bias)]
    masks = []
    for tensor in tensors:
        size = np.abs(tensor).ravel()
        smallest = np.argsort(size)[: int(0.3 * size.size)]
        masks.append(np.isin(np.arange(size.size), smallest, invert=True).reshape(tensor.shape))
    tensors = [t * m for t, m in zip(tensors, masks, strict=True)]
    losses = []
    for _, start in itertools.product(range(epochs), range(0, 10, 4)):
        losses.append(_step(tensors, masks, x[start : start + 4], y[start : start + 4]))
    return net, tensors, masks, losses, images


def _step(tensors, masks, x, y):
    (w1, b1, w2, b2, w3, b3) = tensors
    h1 = np.maximum(x @ w1 + b1, 0)
    h2 = np.maximum(h1 @ w2 + b2, 0)
    f = h2 @ w3 + b3
    e3 = 2 * (f - y) / f.size
    e2 = (e3 @ w3.T) * (h2 > 0)
    e1 = (e2 @ w2.T) * (h1 > 0)
    slopes = (x.T @ e1, e1.sum(0), h1.T @ e2, e2.sum(0), h2.T @ e3, e3.sum(0))
    for tensor, slope, mask in zip(tensors, slopes, masks, strict=True):
        tensor -= 0.05 * slope * mask
    return ((f - y) ** 2).mean(), len(x)


@pytest.mark.parametrize("columns", ["all", "left"])
def test_kappa_is_that_of_the_network_trained_by_hand(columns):
    (row,) = experiment.measure(**SETTING, columns=columns, epochs=3)
    net, tensors, masks, _, images = _by_numpy(3)
    apply, params = functional(net)
    names = [("dense1", "kernel"), ("dense1", "bias"), ("dense2", "kernel"), ("dense2", "bias"),
             ("dense3", "kernel"), ("dense3", "bias")]  # fmt: skip
    flat = nnx.to_flat_state(params)
    by_name = dict(zip(names, tensors, strict=True))
    kept = dict(zip(names, masks, strict=True))
    trained = nnx.from_flat_state([(path, leaf.replace(by_name[path])) for path, leaf in flat])
    jacobian = np.asarray(references.jacobian(apply, trained, images.inputs))
    which = np.concatenate([kept[path].ravel() for path, _ in flat])
    if columns == "left":
        jacobian = jacobian[:, which]
    values = np.linalg.svd(jacobian, compute_uv=False) ** 2
    assert row["kappa"] == pytest.approx(values[0] / values[row["rank"] - 1], rel=1e-6)
    assert row["parameters"] == which.sum()
    assert (row["epoch"], row["measured"], row["loss"]) == (3, True, None)


def test_losses_and_accuracies_are_those_of_the_network_trained_by_hand():
    rows = experiment.measure(**SETTING, columns="none", epochs=3)
    _, tensors, _, steps, images = _by_numpy(3)
    losses, sizes = np.array(steps).reshape(3, 3, 2).transpose(2, 0, 1)
    expected = (losses * sizes).sum(1) / sizes.sum(1)
    assert rows[0]["loss"] is None
    np.testing.assert_allclose([row["loss"] for row in rows[1:]], expected, rtol=1e-10)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    (w1, b1, w2, b2, w3, b3) = tensors
    hidden = np.maximum(np.maximum(images.inputs @ w1 + b1, 0) @ w2 + b2, 0)
    right = ((hidden @ w3 + b3).argmax(1) == images.labels).mean()
    assert rows[-1]["accuracy"] == pytest.approx(right)


def test_the_paper_profile_is_the_published_network():
    config, _ = load("configs/feed_forward_pruning.py:paper")
    net = relu_network((3072, *config.hidden, 10), "kaiming_normal", "normal", 0)
    assert sum(leaf.size for leaf in jax.tree.leaves(nnx.state(net, nnx.Param))) == 427_658
    cells = experiment.EXPERIMENT.cells(config)
    kinds = [(cell.keywords["columns"], cell.keywords["pruned"]) for cell in cells]
    starts = 2 * (5 + 4) * 2  # of two more networks at each rate, with both kinds of columns
    more_losses = 2 * 5 * 2  # of these, along training
    assert len(cells) == (5 + 30 + 24) * 2 + starts + more_losses + 5 + 10
    assert ("left", 0.0) not in kinds  # which is a cell of "all"


@pytest.mark.parametrize("biases", ["none", "zero", "normal", "pytorch"])
def test_biases_are_drawn_as_their_name_says(biases):
    net = relu_network((400, 300, 10), "kaiming_normal", biases, 0)
    if biases == "none":
        assert net.dense1.bias is None
        return
    bias = np.asarray(net.dense1.bias[...])
    deviation = {"zero": 0.0, "normal": 1.0, "pytorch": 1 / np.sqrt(3 * 400)}[biases]
    assert bias.std() == pytest.approx(deviation, rel=0.15)
    weights = np.asarray(net.dense1.kernel[...]).std()
    assert weights == pytest.approx((1 / 1200 if biases == "pytorch" else 2 / 400) ** 0.5, rel=0.05)
    with pytest.raises(ValueError, match="biases='xavier' is not one of none, zero, normal"):
        relu_network((4, 2), "kaiming_normal", "xavier", 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"stops": (1, 2)}, "begin with 0"), ({"seeds": 0}, "seeds"), ({"columns": "some"}, "some")],
)
def test_a_run_that_cannot_be_is_refused(change, said):
    config, _ = load("configs/feed_forward_pruning.py:smoke")
    for name, value in change.items():
        config.plotted[name] = value
    with pytest.raises(ValueError, match=said):
        experiment.EXPERIMENT.cells(config)


def _table(kappas, losses, seeds=(0,)):
    """kappa of each rate at the start, the same later, and the losses of two epochs."""
    rows = []
    rates = (0.0, 0.2, 0.8) if len(kappas) == 3 else (0.0, 0.2, 0.4, 0.6, 0.8)
    runs = itertools.product(("plotted", "default"), seeds, enumerate(rates))
    for run, seed, (at, rate) in runs:
        shared = {"run": run, "pruned": rate, "seed": seed}
        for of, epoch in itertools.product(("all", "left"), (0, 199)):
            kappa = kappas[at] * (2 if of == "left" and rate else 1)
            ends = {"kappa": kappa, "kappa_low": 0.99 * kappa, "kappa_high": 1.01 * kappa}
            rows.append({**shared, "of": of, "epoch": epoch, "measured": True, **ends})
        loss = {"measured": False, "loss": losses[at]}
        rows += [{**shared, "epoch": epoch, **loss} for epoch in (1, 199)]
    return DataFrame(rows)


def _verdicts(frame):
    return [claim.check(frame) for claim in experiment.CLAIMS]


def test_claims_hold_where_every_rate_is_above_unpruned():
    grown = (1.0, 1.2, 1.5, 2.0, 3.0)
    found = _verdicts(_table(grown, grown, (0, 1)))
    assert [v.status for v in found] == [HOLDS] * len(found)
    opposite = _verdicts(_table(grown, grown[::-1], (0, 1)))
    (link,) = [i for i, claim in enumerate(experiment.CLAIMS) if claim.source is BECAUSE]
    assert found[link].number == pytest.approx(1.0)
    assert opposite[link].status == FAILS
    assert found[2].number == pytest.approx(1.2)  # J of all: the rate that is worst for the claim


def test_one_start_decides_what_is_drawn_of_one_and_nothing_of_networks_in_general():
    found = _verdicts(_table((1.0, 1.2, 3.0), (1.0, 1.1, 2.0)))
    of_one = [c for c in experiment.CLAIMS if c.source not in (HARDER, WORSE, BECAUSE)]
    general = [claim not in of_one for claim in experiment.CLAIMS]
    assert sum(general) == 8
    assert {v.status for v, one in zip(found, general, strict=True) if one} == {
        UNDECIDED,
        NOT_TESTABLE,
    }
    assert {v.status for v, one in zip(found, general, strict=True) if not one} == {HOLDS}
    assert "(one seed) at rate=0.2" in found[1].text


def test_one_rate_below_unpruned_fails_and_a_rate_within_the_certificate_does_not_decide():
    below = _verdicts(_table((1.0, 0.4, 9.0), (1.0, 0.9, 9.0), (0, 1)))
    assert [v.status for v in below[:6]] == [FAILS] * 6
    near = _verdicts(_table((1.0, 1.09, 9.0), (1.0, 1.1, 9.0)))
    assert near[3].status not in (HOLDS, FAILS)


def test_nothing_holds_at_every_rate_while_one_is_not_computed():
    frame = _table((1.0, 1.2, 3.0), (1.0, 1.1, 2.0), (0, 1))
    fewer = frame[(frame["pruned"] < 0.8) | ~frame["measured"]]
    found = [v for v in _verdicts(fewer) if "not computed yet at rates of 0.8" in v.text]
    assert [v.status for v in found] == [NOT_TESTABLE] * 7  # all claims on kappa
    below = _table((1.0, 0.4, 3.0), (1.0, 1.1, 2.0), (0, 1))
    assert _verdicts(below[(below["pruned"] < 0.8) | ~below["measured"]])[2].status == FAILS


def test_an_epoch_that_one_network_lacks_counts_for_none():
    frame = _table((1.0, 1.2, 3.0), (1.0, 1.1, 2.0), (0, 1))
    lacks = (frame["of"] == "all") & (frame["epoch"] == 199) & (frame["pruned"] == 0.8)
    lacks &= frame["run"] == "plotted"
    found = _verdicts(frame[~lacks])
    assert (found[2].status, found[3].status) == (HOLDS, NOT_TESTABLE)


def test_starts_that_are_not_trained_count_before_training_alone():
    """Six starts decide the sentences on networks in general; the trained one keeps its verdict."""
    trained = _table((1.0, 1.2, 3.0), (1.0, 1.1, 2.0))
    start = trained[trained["measured"] & (trained["epoch"] == 0)]
    more = concat([trained, *(start.assign(seed=seed) for seed in range(1, 6))])
    before, after = _verdicts(trained), _verdicts(more)
    general = [claim.source is WORSE for claim in experiment.CLAIMS]
    assert {b.status for b, one in zip(before, general, strict=True) if one} == {UNDECIDED}
    assert {a.status for a, one in zip(after, general, strict=True) if one} == {HOLDS}
    assert [b.text for b, one in zip(before, general, strict=True) if not one] == [
        a.text for a, one in zip(after, general, strict=True) if not one
    ]


def test_the_order_of_loss_and_kappa_is_that_of_the_seeds_that_have_both():
    """Starts without a loss have the opposite kappas, and do not count; the verdict says one."""
    grown = (1.0, 1.2, 1.5, 2.0, 3.0)
    both, other = _table(grown, grown), _table(grown[::-1], grown)
    starts = [other[other["measured"]].assign(seed=seed) for seed in (1, 2, 3)]
    claim = next(c for c in experiment.CLAIMS if c.source is BECAUSE)
    found = claim.check(concat([both, *starts]))
    assert (found.status, found.number, found.seeds) == (HOLDS, pytest.approx(1.0), 1)


def test_which_columns_of_j_decide_is_said_by_the_column_of_the_reading():
    kinds = [(dict(c.panel).get("of"), dict(c.panel)["run"], c.column) for c in experiment.CLAIMS]
    assert kinds[:4:2] == [("left", "plotted", CERTIFIED), ("all", "plotted", AS_COMPUTED)]
    assert {column for _, run, column in kinds if run == "default"} == {OTHER}
    assert kinds[4][2] == AS_PRINTED
