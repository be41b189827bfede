"""Exponents and the picture of ResNet20 over n, and the mask of its pruned weights."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import resnet_kappa, resnet_scaling
from gnjax.models.resnet import ResNet


def _sizes(power):
    return [
        {"samples": n, "seconds": 0.3 * n**power, "gigabytes": 2.0 * n**0.5} for n in (5, 20, 80)
    ]


@pytest.mark.parametrize("power", [0.5, 1.0, 2.25])
def test_exponents_are_those_of_the_powers(power):
    found = resnet_scaling.exponents(_sizes(power))
    assert found == {"seconds": power, "gigabytes": 0.5}
    assert resnet_scaling.exponents(_sizes(power)[:1]) == {}


def test_the_picture_shows_every_size_and_the_exponents():
    sizes = _sizes(1.5)
    canvas = resnet_scaling.figure({"sizes": sizes, "exponents": resnet_scaling.exponents(sizes)})
    titles = [axes.get_title() for axes in canvas.axes]
    assert titles == ["fitted 1.50, predicted 1", "fitted 0.50, predicted 1"]
    for axes, name in zip(canvas.axes, ("seconds", "gigabytes"), strict=True):
        x, y = axes.lines[0].get_data()
        np.testing.assert_array_equal(x, [5, 20, 80])
        np.testing.assert_allclose(y, [size[name] for size in sizes])


def test_a_mask_leaves_out_a_share_of_the_weights_and_no_vector():
    model = ResNet(8, 3, width=8, key=jax.random.key(0))
    entries = jax.tree.leaves(resnet_kappa.random_mask(model, 0.9))
    matrices = np.concatenate([m.ravel() for m in entries if m.ndim > 1])
    assert matrices.mean() == pytest.approx(0.1, abs=4 * (0.09 / matrices.size) ** 0.5)
    assert all(m.all() for m in entries if m.ndim == 1)
