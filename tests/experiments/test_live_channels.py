"""What pruning leaves of a ResNet: counted channels, the smaller network, and idle columns of J."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import gnjax
from experiments.dead_channels import EXPERIMENT, counts
from experiments.shared import live_channels as channels
from experiments.shared import protocol
from gnjax.models import ResNet
from gnjax.models.parts import ConvNorm
from gnjax.papers.training import minibatch, pruning
from reproduction.published import gallery, table_of
from sweeps import command_line, table
from sweeps.rows import where
from sweeps.storage import archive

EVERY, KERNELS, SCATTERED = "every tensor", "kernels", "every tensor, ties at random"
RUN = protocol.Training(
    "resnet20", 8, 8, "fashion_mnist_5000", 6, 8, protocol.EVERY, 0.6, True, 0, batch=3
)
SHORTCUT = "stage2_block1/shortcut"


def _mask(net, tensors, rate, ties=None):
    kernels = tensors == KERNELS
    return pruning.magnitude_mask(
        nnx.state(net, nnx.Param),
        rate,
        only="*kernel*" if kernels else None,
        vectors=not kernels,
        count=int,
        ties=ties,
    )


@pytest.fixture(scope="module")
def resnets():
    """The ResNet20 of Figure 1 from each of three starts."""
    return [ResNet(20, 10, key=jax.random.key(seed)) for seed in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tensors", "rate", "seed", "left", "live", "idle", "empty"),
    [
        (EVERY, 0.2, 0, 218011, 144539, 0, 0),
        (EVERY, 0.4, 0, 163521, 62265, 0, 0),
        (EVERY, 0.6, 0, 109016, 18757, 1, 0),
        (EVERY, 0.8, 0, 54526, 2662, 6, 0),
        (KERNELS, 0.8, 0, 55766, 55766, 0, 0),
        (KERNELS, 0.8, 1, 55766, 55766, 1, 1),
        (KERNELS, 0.8, 2, 55766, 55766, 0, 0),
    ],
)
def test_what_is_left_of_figure_1(resnets, tensors, rate, seed, left, live, idle, empty):
    """The numbers that FINDINGS quotes."""
    found = counts(_mask(resnets[seed], tensors, rate))
    assert found == {"parameters": left, "live": live, "idle": idle, "empty": empty}


@pytest.mark.parametrize("profile", ["smoke", "laptop", "paper"])
def test_a_network_of_two_arms_counts_once(profile):
    """Starts with kernels pruned are in the arm of every epsilon and in the one of ten starts."""
    config, _ = command_line.load(f"configs/dead_channels.py:{profile}")
    told = [setting for _, setting in EXPERIMENT.settings(config)]
    assert all(told.count(setting) == 1 for setting in told)


@pytest.mark.slow
def test_where_the_idle_channels_are(resnets):
    """At 80%: 4 of 7 and 2 of 13 of the shortcuts' channels with a scale; 4, 7 and 13 live ones."""
    units = channels.units(_mask(resnets[0], EVERY, 0.8))
    shortcuts = [unit for unit in units if unit.name.endswith("shortcut")]
    assert [int(unit.idle.sum()) for unit in shortcuts] == [4, 2]
    assert [int(unit.live.sum()) for unit in shortcuts] == [7, 13]
    assert {int(unit.live.sum()) for unit in units} == {4, 7, 13}
    assert sum(int((~unit.live).sum()) for unit in units) == 616


def _drawn(tree, seed):
    """Leaves like those of a tree, all of whose entries are drawn."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape)), tree)


@pytest.mark.slow
def test_live_weights_are_those_whose_gradient_is_not_zero():
    """By differentiation, at weights and images that are drawn; all of them but idle scales.

    The scale of a channel of variance 0 multiplies 0, so that it changes nothing either. The head
    is whole here, so that it reads every channel.
    """
    net = ResNet(8, 3, width=8, key=jax.random.key(0))
    mask = jax.tree_util.tree_map_with_path(
        lambda path, keep: keep | ("head" in jax.tree_util.keystr(path)),
        _mask(net, EVERY, 0.6),
    )
    net.train()
    apply, params = gnjax.functional(net)
    x = jnp.asarray(np.random.default_rng(1).standard_normal((40, 8, 8, 3)))
    flags = np.concatenate([np.ravel(keep) for keep in jax.tree.leaves(mask)])
    moved = np.zeros(flags.size, bool)
    for seed in range(8):  # a ReLU is zero for all images in some of them
        weights = jax.tree.map(lambda draw, keep: draw * keep, _drawn(params, seed), mask)
        pull = _drawn(jax.eval_shape(apply, weights, x), seed + 100)
        slopes = jax.grad(lambda w, pull=pull: jnp.vdot(apply(w, x), pull))(weights)
        flat = np.concatenate([np.ravel(slope) for slope in jax.tree.leaves(slopes)])
        moved |= (np.abs(flat) > 1e-9) & flags
    idle = sum(int(unit.idle.sum()) for unit in channels.units(mask))
    assert channels.live_weights(mask) < pruning.remaining(mask)
    assert np.count_nonzero(moved) == channels.live_weights(mask) - idle


@pytest.fixture(scope="module")
def begun():
    return protocol.begun(RUN)


@pytest.mark.slow
def test_the_network_of_live_channels_trains_as_the_whole_one_does(begun):
    """The same losses in float64, and the whole network once it is put back."""
    start = begun
    small = channels.shrunk(start.net, start.mask)
    assert pruning.remaining(small.mask) < pruning.remaining(start.mask)
    states = []
    for net, mask in ((start.net, start.mask), (small.net, small.mask)):
        problem, state = minibatch.begin(
            net,
            start.x,
            start.labels,
            start.problem.recipe,
            start.key,
            mask=mask,
            augment=start.problem.augment,
            dtype="float64",
        )
        state, losses = minibatch.train(problem, state, 3)
        states.append((state, losses, minibatch.evaluated(problem, state)[0]))
    (whole, losses, loss), (inner, of_small, loss_of_small) = states
    np.testing.assert_allclose(of_small, losses, rtol=1e-9)
    assert loss_of_small == pytest.approx(loss, rel=1e-9)
    again = channels.put_back(whole, inner, small.places)
    apply, params = gnjax.functional(minibatch.trained(start.net, whole))
    _, other = gnjax.functional(minibatch.trained(start.net, again))
    x = jnp.asarray(start.x)
    np.testing.assert_allclose(apply(other, x), apply(params, x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_a_pruned_weight_of_a_channel_without_variance_has_a_column_over_root_epsilon(epsilon):
    """The proposition: g (a - mean a) / sqrt(epsilon), for a channel of which no weight is left."""
    unit = ConvNorm(2, 2, kernel=1, rngs=nnx.Rngs(0))
    kernel = jnp.asarray([[[[0.7, 0.0], [0.3, 0.0]]]])  # the second filter is wholly pruned
    scale = jnp.asarray([1.5, 1.25])
    unit.conv.kernel[...], unit.norm.scale[...] = kernel, scale
    unit.norm.epsilon = epsilon
    unit.train()
    apply, params = gnjax.functional(unit)
    images = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4, 4, 2)))
    along = jax.tree.map(jnp.zeros_like, params)
    place = {name: leaf for name, leaf in channels.named(along).items()}
    moved = place["conv/kernel"].at[0, 0, 0, 1].set(1.0)
    direction = jax.tree.unflatten(
        jax.tree.structure(along),
        [moved if name == "conv/kernel" else leaf for name, leaf in place.items()],
    )
    _, column = jax.jvp(lambda w: apply(w, images), (params,), (direction,))
    inputs = images[..., 0]
    expected = 1.25 * (inputs - inputs.mean()) / np.sqrt(epsilon)
    np.testing.assert_allclose(column[..., 1], expected, rtol=1e-9)
    np.testing.assert_array_equal(column[..., 0], 0)


def _squared_column(net, mask, unit, epsilon, x):
    """Of the pruned weights of a unit's idle channels the largest squared length of a column."""
    changed = nnx.clone(net)
    for _, node in nnx.iter_graph(changed):
        if isinstance(node, nnx.BatchNorm):
            node.epsilon = epsilon
    changed.train()
    apply, params = gnjax.functional(changed)
    jacobian = channels.named(jax.jacrev(lambda w: apply(w, x))(params))
    kernel = np.asarray(jacobian[f"{unit.name}/conv/kernel"])
    squares = np.square(kernel).sum(axis=(0, 1))[0, 0]
    squares = squares * ~np.asarray(channels.named(mask)[f"{unit.name}/conv/kernel"], bool)[0, 0]
    return squares[:, unit.idle].max(), squares[:, unit.live & ~unit.idle].max()


@pytest.mark.slow
def test_the_squared_column_grows_like_one_over_epsilon_and_bounds_lambda_max(begun):
    """In a whole ResNet; those of channels with a variance do not change."""
    run = replace(RUN, depth=8, width=8, pruned=0.6)
    start = begun if run == RUN else protocol.begun(run)
    units = [u for u in channels.units(start.mask) if u.name == SHORTCUT]
    (unit,) = units
    net, x = minibatch.trained(start.net, start.state), jnp.asarray(start.x)
    if not unit.idle.any():
        pytest.fail("this start has no idle channel: choose another seed")
    found = [_squared_column(net, start.mask, unit, epsilon, x) for epsilon in (1e-6, 1e-5, 1e-4)]
    idle, others = np.array(found).T
    np.testing.assert_allclose(idle[:-1] / idle[1:], 10, rtol=0.05)
    np.testing.assert_allclose(others[:-1] / others[1:], 1, rtol=0.05)
    assert idle[1] > 1e3 * others[1]


def test_published_dense_networks_end_above_pruned_ones_of_their_live_size():
    """The losses that FINDINGS quotes."""
    config, _ = command_line.load("configs/dead_channels.py:paper")
    wanted = [cell for cell in EXPERIMENT.cells(config) if cell.keywords["what"] == "losses"]
    found = archive.published(archive.archive(EXPERIMENT), wanted)
    ends = {
        tuple(cell.keywords[name] for name in ("tensors", "width", "pruned", "seed")): (
            one.measurement["rows"][-1]
        )
        for cell, one in found.items()
    }

    def of(name, *network):
        return [ends[*network, seed][name] for seed in range(3)]

    for width, live, losses, rounding in (
        (1, 1229, (1.61, 1.55, 1.63), 5e-3),
        (2, 4556, (1.22, 1.27, 1.2), 5e-3),
        (4, 17534, (0.549, 0.679, 0.716), 5e-4),
        (8, 68786, (0.205, 0.234, 0.209), 5e-4),
    ):
        assert of("live", EVERY, width, 0.0) == [live] * 3
        assert of("loss", EVERY, width, 0.0) == pytest.approx(losses, abs=rounding)
    assert of("live", EVERY, 16, 0.6) == [18757, 18711, 18845]
    assert of("loss", EVERY, 16, 0.6) == pytest.approx((0.427, 0.397, 0.419), abs=5e-4)
    assert of("loss", EVERY, 16, 0.8) == pytest.approx((1.18, 1.3, 1.22), abs=5e-3)
    assert of("live", SCATTERED, 16, 0.8) == [7388, 7013, 7336]
    assert of("loss", SCATTERED, 16, 0.8) == pytest.approx((1.01, 1.03, 1.08), abs=5e-3)
    arms = where(table.read(table_of("c4", gallery("paper"))), what="losses", network="resnet20")
    whole = where(arms, tensors=EVERY, augment=True, epoch=100)
    for rate, losses, rounding in (
        (0.4, (0.154, 0.159, 0.195), 5e-4),
        (0.6, (0.443,), 5e-4),
        (0.8, (1.17, 1.29, 1.38), 5e-3),
    ):
        assert where(whole, pruned=rate)["loss"].tolist() == pytest.approx(losses, abs=rounding)
