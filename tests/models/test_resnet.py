"""ResNet: the forward pass and the initialisation are PyTorch's, and what is refused."""

import math

import jax
import numpy as np
import pytest
from flax import nnx

from gnjax import initializers
from gnjax.models import CNN, MLP, ResNet
from tests.models import outputs
from tests.torch_fixtures import FIXTURES, assert_outputs_are_torchs

_KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "depth", "shortcut"),
    [
        ("ResNet20", 20, "projection"),
        ("ResNet20, zeros", 20, "zeros"),
        ("ResNet32", 32, "projection"),
    ],
)
def test_outputs_are_torchs(name, depth, shortcut):
    assert_outputs_are_torchs(ResNet(depth, 10, shortcut=shortcut, key=_KEY), name)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_the_width_is_the_filters_of_the_first_stage(width):
    """Weights counted by hand: 9 a b for a 3 x 3 convolution from a to b channels, a b for the
    shortcut, 2 b for its BatchNorm. ResNet8 has one block in each of the stages w, 2 w, 4 w."""
    model = ResNet(8, 10, width=width, channels=1, key=_KEY)
    stem = 9 * width + 2 * width
    blocks = 2 * (9 * width**2 + 2 * width)
    for before, after in ((width, 2 * width), (2 * width, 4 * width)):
        blocks += 9 * before * after + 9 * after**2 + before * after + 3 * 2 * after
    head = 4 * width * 10 + 10
    counted = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    assert counted == stem + blocks + head
    model.eval()
    assert outputs(model, np.ones((2, 8, 8, 1))).shape == (2, 10)


def test_every_layer_starts_within_its_bounds_and_fills_them():
    """U(-b, b) with b = 1/sqrt(fan_in): largest of s draws above b (1 - 20/s) but for e^-20."""
    model = ResNet(8, 10, key=_KEY)
    for path, node in nnx.iter_graph(model):
        if isinstance(node, nnx.BatchNorm):
            np.testing.assert_array_equal(node.scale[...], 1.0)
            np.testing.assert_array_equal(node.bias[...], 0.0)
        if not isinstance(node, nnx.Conv | nnx.Linear):
            continue
        edge = math.prod(node.kernel.shape[:-1]) ** -0.5
        largest = np.abs(np.asarray(node.kernel[...])).max()
        assert (1 - 20 / node.kernel.size) * edge < largest <= edge, path
        assert node.bias is None or np.abs(np.asarray(node.bias[...])).max() <= edge, path


@pytest.mark.parametrize("name", FIXTURES["initialisation"])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_draws_have_torchs_moments_and_bounds(name, part):
    """Means and variances of c draws each, within five standard errors of their difference."""
    torch = FIXTURES["initialisation"][name][part]
    drawn = np.concatenate([_drawn(name, part, seed).ravel() for seed in range(8)])
    edge = math.sqrt(3 * torch["variance"])
    errors = [1 / torch["count"] + 1 / drawn.size] * np.array([1.0, 4 / 5])  # of a uniform law
    mean_error, variance_error = np.sqrt(errors * [edge**2 / 3, edge**4 / 9])
    assert abs(drawn.mean() - torch["mean"]) < 5 * mean_error
    assert abs(drawn.var() - torch["variance"]) < 5 * variance_error
    assert np.abs(drawn).max() <= torch["largest"] * (1 + 20 / torch["count"])
    assert torch["largest"] <= np.abs(drawn).max() * (1 + 20 / drawn.size)


def _drawn(name, part, seed):
    """The layer of the fixture's name, drawn by us."""
    sizes = [int(word.strip(",")) for word in name.split() if word.strip(",").isdigit()]
    key = jax.random.key(seed)
    if name.startswith("linear"):
        model = MLP(sizes, key=key)
        layer = model.dense1
    else:
        channels, filters, kernel = sizes
        model = CNN((4, 4, channels), 1, filters=(filters,), kernel=kernel, key=key)
        layer = model.conv1
    initializers.start_as_pytorch(model, key)
    return np.asarray((layer.kernel if part == "weight" else layer.bias)[...])


def test_seeds_decide_the_draw_and_layers_differ():
    first, again, other = (ResNet(8, 3, key=jax.random.key(seed)) for seed in (0, 0, 1))
    leaves = [jax.tree.leaves(nnx.state(model, nnx.Param)) for model in (first, again, other)]
    assert all(np.array_equal(a, b) for a, b in zip(leaves[0], leaves[1], strict=True))
    assert not np.allclose(first.head.kernel[...], other.head.kernel[...])
    same_shape = first.stage1_block1.first.conv.kernel, first.stage1_block1.second.conv.kernel
    assert not np.allclose(same_shape[0][...], same_shape[1][...])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ResNet(21, 10, key=_KEY), "6 b"),
        (lambda: ResNet(2, 10, key=_KEY), "6 b"),
        (lambda: ResNet(8, 10, width=0, key=_KEY), "width=0 .* 1 or more"),
        (lambda: ResNet(8, 10, shortcut="identity", key=_KEY), "'projection', 'zeros'"),
        (lambda: ResNet(8, 10, key=_KEY)(np.ones((2, 8, 8, 1))), "width, 3"),
        (lambda: initializers.start_as_pytorch(nnx.BatchNorm(2, rngs=nnx.Rngs(0)), _KEY), "no nnx"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
