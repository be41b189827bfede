"""A convolution is z_tg = W_g a_tg, whatever its layout, strides, dilations, borders and groups."""

import jax
import numpy as np
import pytest

from gnjax.networks import layers
from gnjax.networks.layer_types import LAYER_TYPES

_LENGTHS = {"H": 2, "W": 3, "I": 2, "O": 4}
SHAPES = [
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (2, 3)),
    ((2, 1), ((3, 0), (1, 2)), (1, 1), (1, 2)),
    ((1, 2), ((1, 2), (2, 2)), (2, 3), (1, 1)),  # a transposed convolution
    ((2, 3), ((-1, 2), (1, -1)), (2, 1), (2, 1)),
]


@pytest.mark.parametrize("layout", [("NHWC", "HWIO", "NHWC"), ("CNHW", "OIWH", "NCHW")])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("images", [1, 3])
def test_patches_times_matrices_are_the_convolution(layout, groups, images):
    rng = np.random.default_rng(0)
    x = jax.device_put(rng.standard_normal((images, 9, 8, 2 * groups)))
    x = x.transpose(["NHWC".index(axis) for axis in layout[0]])
    kernel = jax.device_put(rng.standard_normal([_LENGTHS[axis] for axis in layout[1]]))
    for shape in SHAPES:

        def convolve(leaves, x, shape=shape):
            options = {"feature_group_count": groups, "precision": "highest"}
            return jax.lax.conv_general_dilated(x, leaves[0], *shape, layout, **options)

        ((use,),) = (layer.uses for layer in layers.traced_layers(convolve, [kernel], x).layers)
        kind = LAYER_TYPES[use.kind]

        def parts(kernel, x, convolve=convolve, use=use, kind=kind):
            z = kind.sensitivities(use, convolve([kernel], x)[None])[0]
            return kind.inputs(use, x), kind.entries(use, kernel), z

        a, w, z = jax.jit(parts)(kernel, x)
        assert (len(a), w.shape) == (use.positions, tuple(use.sizes))
        np.testing.assert_allclose(np.einsum("tgi,gio->tgo", a, w), z, rtol=0, atol=1e-13)
