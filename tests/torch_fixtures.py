"""What torch computed, and our modules filled with the weights that its modules had."""

import json
import math
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from tests.models import outputs
from tests.torch_weights import filled, spread

FIXTURES = json.loads((Path(__file__).parent / "fixtures" / "torch.json").read_text())


def fill(model):
    """Give every parameter and statistic of a module the value that torch's had in the fixture."""
    for path, value in nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat))):
        value[...] = jax.device_put(_ours(".".join(map(str, path)), value.shape))


def _ours(name, shape):
    """From torch's order of axes: kernels there start with the outputs, and end with them here."""
    if not name.endswith("kernel"):
        return filled(name, shape)
    if name == "patches.kernel":  # a convolution there; here a matrix on flattened patches
        side = math.isqrt(shape[0] // 3)
        return filled(name, (shape[1], 3, side, side)).transpose(2, 3, 1, 0).reshape(shape)
    *positions, inputs, outputs = shape
    weight = filled(name, (outputs, inputs, *positions))
    return weight.T if not positions else weight.transpose(2, 3, 1, 0)


def assert_outputs_are_torchs(model, name, rtol=1e-10):
    """In evaluation and in training mode; both sides compute in float64, some 30 layers deep."""
    fixture, x = FIXTURES["outputs"][name], spread("images", (4, 16, 16, 3))
    fill(model)
    assert (
        sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param))) == fixture["parameters"]
    )
    for mode in ("evaluation", "training"):
        model.train() if mode == "training" else model.eval()
        expected = np.array(fixture[mode])
        np.testing.assert_allclose(
            outputs(model, x), expected, rtol=0, atol=rtol * np.abs(expected).max()
        )
