"""Networks pruned by the published protocol: crops, masks, J through statistics of batches."""

from dataclasses import replace
from itertools import product
from math import nan
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from flax import nnx

import gnjax
from configs.pruning_arms import get_config
from experiments.claims.pruning_arms import CLAIMS, OF_FEW, of_all_images, of_few_images
from experiments.claims.pruning_sweep import INCREASE
from experiments.pruning_arms import cost, settings
from experiments.shared import batch_kernels as kernels
from experiments.shared import protocol
from experiments.shared.pruned_kernel import pruned_kernel
from experiments.shared.pruned_networks import frozen
from gnjax.numerics.limits import Limits
from gnjax.papers.training import minibatch, pruning
from sweeps import table
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, judge

RUN = protocol.Training(
    "resnet20", 8, 2, "fashion_mnist_5000", 6, 8, protocol.EVERY, 0.5, True, 0, batch=4
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The weights after one epoch."""
    path = tmp_path_factory.mktemp("weights")
    protocol.trained(RUN, (1,), path)
    return path


def _dense(of):
    """J by forward mode, one column for each weight."""
    flat, unravel = jax.flatten_util.ravel_pytree(of.params)

    def outputs(weights):
        parts = [of.apply(unravel(weights), x) for group in of.groups for x in group]
        return jnp.concatenate([part.ravel() for part in parts])

    return np.asarray(jax.jacfwd(outputs)(flat))


@pytest.mark.slow
@pytest.mark.parametrize("way", kernels.WAYS)
def test_the_kernels_are_those_of_a_dense_jacobian(way, folder):
    """All columns, and those left; by rows of J, by products, and by forward mode."""
    of = kernels.function(RUN, protocol.network_at(RUN, 1, folder), way, 1)
    jacobian, found = _dense(of), kernels.matrices(of)
    left = jacobian[:, of.kept]
    for columns, expected in (("all", jacobian @ jacobian.T), ("left", left @ left.T)):
        size = np.abs(expected).max()
        np.testing.assert_allclose(found[columns], expected, atol=1e-11 * size)
        v = np.random.default_rng(0).standard_normal(len(expected))
        np.testing.assert_allclose(kernels.product(of, columns, v), expected @ v, atol=1e-10 * size)
        error = np.linalg.norm(found[columns] - expected)
        assert error <= kernels.measured_error(of, columns, found[columns]) + 1e-13 * size
        top, residual = kernels.largest(of, columns, 20, 0)
        assert top == pytest.approx(np.linalg.eigvalsh(expected)[-1], rel=1e-6)
        assert residual < 1e-2 * top


def test_the_kernel_of_frozen_statistics_is_that_of_the_other_experiment(folder):
    net, start = protocol.network_at(RUN, 1, folder), protocol.begun(RUN)
    of = kernels.function(RUN, net, "all", 1)
    other = pruned_kernel(frozen(net, start.x), start.x, start.mask).as_matrix()
    np.testing.assert_allclose(kernels.matrices(of)["left"], other, rtol=1e-9)


def test_a_jacobian_that_is_held_in_a_file_gives_the_same(folder, monkeypatch):
    of = kernels.function(RUN, protocol.network_at(RUN, 1, folder), "batches", 1)
    expected = kernels.matrices(of)
    monkeypatch.setattr(kernels, "LIMITS", Limits(factor_bytes=1))
    for columns, matrix in kernels.matrices(of).items():
        np.testing.assert_array_equal(matrix, expected[columns])


def test_batches_couple_their_samples_and_no_others(folder):
    """The outputs of a batch follow when another sample of it changes."""
    of = kernels.function(RUN, protocol.network_at(RUN, 1, folder), "plain batches", 1)
    (batch, *_) = of.groups
    other = batch[0].at[1].add(1.0)
    first = of.apply(of.params, batch[0])[0], of.apply(of.params, other)[0]
    assert np.abs(first[0] - first[1]).max() > 1e-6
    alone = kernels.function(RUN, protocol.network_at(RUN, 1, folder), "all", 1)
    (samples, *_) = alone.wide
    kept = alone.apply(alone.params, samples[0])[0]
    changed = alone.apply(alone.params, samples[0].at[1].add(1.0))[0]
    np.testing.assert_allclose(kept, changed, rtol=1e-12)


def test_weights_that_are_not_kept_are_trained_again(folder, tmp_path):
    kept = nnx.state(protocol.network_at(RUN, 1, folder), nnx.Param)
    again = nnx.state(protocol.network_at(RUN, 1, tmp_path), nnx.Param)
    jax.tree.map(np.testing.assert_array_equal, kept, again)


def test_a_pruned_scale_kills_its_channel():
    """Scale and shift are pruned together, so that the outputs do not read the channel's kernel."""
    start = protocol.begun(RUN)
    state = minibatch.trained(start.net, start.state)
    state.train()
    norm = state.stem.norm
    dead = np.flatnonzero(np.asarray(norm.scale[...]) == 0)
    assert len(dead) == int(RUN.pruned * norm.scale[...].size)
    assert not np.asarray(norm.bias[...])[dead].any()
    before = state(jnp.asarray(start.x))
    state.stem.conv.kernel[...] = state.stem.conv.kernel[...].at[..., dead].add(1.0)
    np.testing.assert_array_equal(before, state(jnp.asarray(start.x)))


def test_ties_at_random_leave_channels_alive_that_the_first_ones_kill():
    """A channel is dead where scale and shift are drawn, by chance: fewer than with the first."""
    counts = {}
    for tensors in (protocol.EVERY, protocol.SCATTERED):
        start = protocol.begun(replace(RUN, width=8, tensors=tensors))
        pruned = replace(start.state, params=start.mask)  # every shift starts at 0, pruned or not
        counts[tensors] = protocol._dead(pruned), pruning.remaining(start.mask)
    (dead, left), (fewer, same) = counts.values()
    assert left == same
    assert 0 < fewer < dead
    with pytest.raises(ValueError, match="'biases' is not one of 'every tensor', 'kernels'"):
        protocol.begun(replace(RUN, tensors="biases"))


def _silent(kernel, pruned):
    """Entries of a 1 x 1 shortcut from live channels into live ones without variance, by hand.

    The first channels of every layer lose scale and shift and are 0. A live output whose kept
    weights all come from such inputs is constant: BatchNorm divides its variance 0 by the root of
    1e-5, and so what its pruned weights from live inputs would do counts 316 times.
    """
    (inputs, outputs) = kernel.shape[2:]
    from_live, into_live = (np.arange(size) >= int(pruned * size) for size in (inputs, outputs))
    kept = np.asarray(kernel[0, 0]) != 0
    constant = into_live & ~kept[from_live].any(axis=0)
    return np.outer(from_live, constant)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_grows_are_pruned_weights_of_shortcuts_into_channels_without_variance(seed):
    """Most of the top right singular vector of J lies in these entries, and none of them is left.

    Without their columns lambda_max is at least ten times smaller.
    """
    run = replace(RUN, width=8, pruned=0.8, augment=False, seed=seed)
    start = protocol.begun(run)
    net = minibatch.trained(start.net, start.state)
    of = kernels.function(run, net, "all", 0)
    jacobian = np.concatenate([kernels._rows(of.apply, of.params, group) for group in of.groups])
    places = jax.tree_util.tree_leaves_with_path(of.params)
    entries = np.concatenate(
        [
            _silent(leaf, run.pruned).ravel() if "shortcut/conv" in name else np.zeros(leaf.size)
            for name, leaf in (
                (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
                for path, leaf in places
            )
        ]
    ).astype(bool)
    assert entries.any()
    assert not of.kept[entries].any()
    top = np.linalg.svd(jacobian, full_matrices=False)[2][0]
    assert np.sum(top[entries] ** 2) > 0.5
    largest = np.linalg.norm(jacobian, 2) ** 2
    assert np.linalg.norm(jacobian[:, ~entries], 2) ** 2 < largest / 10


def test_a_crop_is_a_window_of_the_image_in_black_and_perhaps_its_mirror():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5, 5, 3))
    black = (-1.0, 2.0, 0.5)
    framed = np.broadcast_to(black, (3, 13, 13, 3)).copy()
    framed[:, 4:9, 4:9] = x
    seen, crops = set(), jax.jit(protocol.Crops(black))
    for seed in range(20):
        found = np.asarray(crops(jax.random.key(seed), jnp.asarray(x)))
        for image, whole in zip(found, framed, strict=True):
            windows = [
                (i, j, mirror)
                for i, j, mirror in product(range(9), range(9), (1, -1))
                if np.allclose(whole[i : i + 5, j : j + 5][:, ::mirror], image)
            ]
            assert windows
            seen.add(windows[0][2])
    assert seen == {1, -1}


def test_a_resized_crop_keeps_a_constant_image_and_stays_inside():
    """Linear interpolation of values between two numbers lies between them."""
    x = jnp.concatenate(
        [jnp.ones((2, 8, 8, 3)), jax.random.uniform(jax.random.key(1), (8, 8, 8, 3))]
    )
    found = np.asarray(jax.jit(protocol._resized)(jax.random.key(0), x))
    np.testing.assert_allclose(found[:2], 1.0, rtol=1e-6)
    assert found[2:].min() >= -1e-6
    assert found[2:].max() <= 1 + 1e-6
    assert np.abs(found[2:] - np.asarray(x[2:])).max() > 0.1


def test_the_transformer_starts_small_with_scales_of_one():
    run = replace(RUN, network="vit", depth=1, width=8, tensors=protocol.KERNELS, pruned=0.0)
    params = nnx.state(protocol.begun(run).net, nnx.Param)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if "scale" in name or "bias" in name:
            np.testing.assert_array_equal(leaf, float("scale" in name))
        else:
            assert 0.01 < np.asarray(leaf).std() < 0.03, name


def test_what_float32_has_is_near_what_float64_has(folder):
    of = kernels.function(RUN, protocol.network_at(RUN, 1, folder), "batches", 1)
    values = np.linalg.eigvalsh(kernels.matrices(of)["all"])
    largest, _, rank = kernels.as_computed(of)["all"]
    assert largest == pytest.approx(values[-1], rel=1e-5)
    assert rank == np.count_nonzero(np.abs(values) > kernels.ABSOLUTE) or values[0] < 1e-4


def _stop(pruned, epoch, kappa, seed=0):
    shared = {"what": "kappa", "network": "resnet20", "augment": True, "tensors": "kernels"}
    ends = {"kappa": kappa, "kappa_low": kappa, "kappa_high": kappa}
    ends |= {"lambda_max": kappa, "lambda_min": 1.0}
    ways = {"statistics": "all", "columns": "left", "seed": seed}
    return {**shared, **ways, **ends, "pruned": pruned, "epoch": epoch, "data": "cifar10_part"}


def _claim_of(words):
    (found,) = [claim for claim in CLAIMS if claim.statement.startswith(words)]
    return found


def test_a_mean_over_stops_and_the_last_stop_are_two_readings():
    """kappa that is large at the start alone: its mean is above the unpruned one, the last below.

    A stop that one of the networks lacks is left out of the mean, and so is a network that was not
    measured after training.
    """
    whole = [_stop(0.0, epoch, 10.0) for epoch in (0, 20, 100)] + [_stop(0.0, 60, 1e9)]
    pruned = [_stop(0.8, epoch, kappa) for epoch, kappa in ((0, 1e6), (20, 10.0), (100, 1.0))]
    frame = pandas.DataFrame([*whole, *pruned, _stop(0.4, 0, 1e-3)])
    way = "kappa at 80%, kernels alone pruned, J with the columns left"
    mean = _claim_of(f"averaged over the stops {way}").check(frame)
    assert mean.status == HOLDS
    assert mean.number == pytest.approx((1e5 * 0.1) ** (1 / 3))
    assert _claim_of(f"after training {way}").check(frame).status == FAILS


def test_one_start_decides_no_sentence_about_networks_in_general():
    """Section 7 speaks of pruned networks; from three starts of one kappa each it is decided."""
    claim = _claim_of("before training kappa, kernels alone pruned")
    rows = [_stop(p, 0, k * (1 + s / 9), s) for s in range(3) for p, k in ((0.0, 10), (0.8, 99))]
    frame = pandas.DataFrame(rows)
    assert claim.check(frame[frame["seed"] == 0]).status == UNDECIDED
    assert claim.check(frame).status == HOLDS


def test_one_start_decides_on_the_images_of_the_paper_alone():
    """On smaller images kappa after training is another one on the next machine."""
    frame = pandas.DataFrame([_stop(0.0, 100, 10.0), _stop(0.8, 100, 99.0)])
    claim = _claim_of("after training kappa at 80%, kernels alone pruned, J with the columns left")
    assert claim.check(frame).status == HOLDS
    assert claim.check(frame.assign(data="fashion_mnist_5000, cut")).status == UNDECIDED


def test_every_reading_of_an_increase_is_judged_at_the_same_rate():
    """Class: one reading is judged at 40% and 80%, and the one beside it at 80% alone."""
    claims = [
        claim for claim in CLAIMS if claim.source is INCREASE and "few" not in claim.statement
    ]
    rows = [_stop(p, e, k) for e in (0, 100) for p, k in ((0.0, 10.0), (0.4, 1.0), (0.8, 99.0))]
    ways = product(("batches", "all"), ("all", "left"), ("every tensor", "kernels"))
    frame = pandas.concat(
        pandas.DataFrame(rows).assign(
            statistics=s, columns=c, tensors=t, lambda_max=9.9, lambda_min=1
        )
        for s, c, t in ways
    )
    frame.loc[frame["pruned"] == 0, "tensors"] = "every tensor"
    frame = frame.drop_duplicates(["statistics", "columns", "tensors", "pruned", "epoch"])
    frame.loc[frame["pruned"] == 0.8, "lambda_max"] = 99.0
    for claim in claims:
        found = claim.check(frame)
        assert (found.status, " at 80%" in found.text) == (HOLDS, True), claim.statement


def _with_few(frame):
    """The table with every row once more, as of few images and with other numbers."""
    other = {name: frame[name] * 1e3 ** frame["pruned"] for name in ("kappa", "kappa_low", "loss")}
    few = frame.assign(what=frame["what"] + OF_FEW, samples=16, kappa_high=np.inf, **other)
    return pandas.concat([few, frame], ignore_index=True)


def test_rows_of_few_images_are_told_from_the_others():
    frame = pandas.DataFrame([_stop(0.8, 0, 5.0)]).assign(loss=1.0, samples=1000)
    both = _with_few(frame)
    pandas.testing.assert_frame_equal(of_all_images(both).reset_index(drop=True), frame)
    (few,) = of_few_images(both).to_dict("records")
    assert (few["what"], few["samples"]) == ("kappa", 16)
    assert few["kappa"] == pytest.approx(5.0 * 1e3**0.8)


def test_rows_of_few_images_change_no_verdict_but_their_own():
    """Class: another experiment's rows in a table are averaged with its own."""
    frame = table.read(Path("figures/gallery/pruning_arms.csv"))
    both = _with_few(frame)
    ratios = get_config("laptop").paper_ratios
    for claim in CLAIMS:
        alone, beside = (judge(claim, rows, ratios) for rows in (frame, both))
        if "from few images" in claim.statement:
            assert alone.status == NOT_TESTABLE
            assert beside.status == NOT_TESTABLE or "from 16 images" in beside.text
        else:
            assert alone == beside or (alone.number, beside.number) == (nan, nan), claim.statement


def test_an_arm_of_few_images_trains_and_measures_on_them():
    config = get_config("paper")
    few = [run for _, run in settings(config) if run["what"].endswith(OF_FEW)]
    assert {run["samples"] for run in few} == {256, 128, 64}
    assert {run["network"] for run in few} == {"resnet20", "resnet32", "vit"}
    assert not any("samples" in run for _, run in settings(config) if run not in few)
    both = [dict(run, samples=256, width=16, side=8) for run in few]
    asked = ("what", "network", "width", "samples", "side", "epoch")
    whole = {**both[0], "what": both[0]["what"].removesuffix(OF_FEW)}
    assert cost(*(both[0][name] for name in asked)) == cost(*(whole[name] for name in asked))


@pytest.mark.parametrize("when", ["before", "after"])
def test_growth_is_of_both_ends_and_a_bound_on_kappa_decides_one_side_alone(when):
    """kappa grows 100 times: 4 times by lambda_max and 25 times by lambda_min."""
    shared = {"statistics": "batches", "columns": "all", "tensors": "every tensor"}
    epoch = {"before": 0, "after": 100}[when]
    rows = [_stop(0.0, epoch, 10.0), _stop(0.8, epoch, 1e3)]
    frame = pandas.DataFrame(rows).assign(**shared, lambda_max=[5.0, 20.0])
    claim = _claim_of(f"{when} training kappa as computed grows more")
    found = claim.check(frame)
    assert found.number == pytest.approx(25 / 4)
    assert found.status == (HOLDS if when == "before" else FAILS)
    assert "100 (one seed) in kappa, 4 (one seed) in lambda_max, 25 (one seed) in 1" in found.text
    few = frame.assign(kappa=[10.0, 50.0], kappa_low=[10.0, 50.0], kappa_high=[10.0, np.inf])
    told = claim.check(few)
    assert told.status == UNDECIDED
    assert "at least 5 (one seed) in kappa" in told.text


def test_resnets_certified_kappa_has_its_lambda_ends(folder):
    of = kernels.function(RUN, protocol.network_at(RUN, 1, folder), "batches", 1)
    values = np.linalg.eigvalsh(np.asarray(kernels.matrices(of)["all"]))
    found = gnjax.condition_number(kernels.operators(of)["all"], method="inverse")
    if found.resolved:
        low, high = found.interval
        assert low <= values[-1] / values[0] <= high


def test_the_largest_eigenvalue_of_a_matrix_of_zeros_is_zero(folder, monkeypatch):
    """Class: a network that no longer depends on its weights ends in a division of 0 by 0."""
    of = kernels.function(RUN, protocol.network_at(RUN, 0, folder), "all", 0)
    monkeypatch.setattr(kernels, "product", lambda of, columns, v: np.zeros_like(v))
    assert kernels.largest(of, "all", 20, 0) == (0.0, 0.0)
