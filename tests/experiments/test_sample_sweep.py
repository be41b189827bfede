"""The NTK over the number of samples: a row by the Jacobian."""

import jax
import numpy as np

import gnjax
from experiments import sample_sweep
from tests import references


def test_a_row_is_kappa_of_the_jacobian():
    setting = {"side": 4, "width": 32, "depth": 2, "activation": "tanh", "most": 20, "samples": 5}
    row = sample_sweep.measure("fashion_mnist_5000", data_seed=0, seed=1, **setting)
    data = gnjax.data.load("fashion_mnist_5000", samples=20, seed=0)
    images = gnjax.data.downsample(data.inputs, data.shape, (4, 4))[:5]
    model = gnjax.models.MLP((16, 32, 1), activation="tanh", key=jax.random.key(1))
    apply, params = gnjax.functional(model)
    sigma = np.linalg.svd(references.jacobian(apply, params, images), compute_uv=False)
    np.testing.assert_allclose(row["kappa"], (sigma[0] / sigma[-1]) ** 2, rtol=1e-9)
    np.testing.assert_allclose(row["lambda_max"], sigma[0] ** 2, rtol=1e-12)
    assert row["resolved"]
