"""The NTK over the number of samples: numbers, claims and figure."""

import jax
import numpy as np
from pandas import DataFrame

import gnjax
from experiments import sample_sweep
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
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


def _table(power=2.0, least=-1.0, resolved=True):
    """lambda_max = n, lambda_min = n^least and kappa = n^power: the claims read one each."""
    return DataFrame(
        {
            "samples": n, "seed": seed, "inputs": 16, "outputs": 1, "depth": 2, "width": 32,
            "data": "fashion_mnist_5000", "activation": "tanh", "kappa": n**power * (1 + seed),
            "kappa_low": n**power, "kappa_high": 2.1 * n**power, "evidence": "measured",
            "failure": 0.0,
            "resolved": resolved, "lambda_max": float(n), "lambda_min": float(n) ** least,
        }
        for n in (5, 10, 20)
        for seed in (0, 1)
    )  # fmt: skip


def test_claims_can_hold_fail_and_be_out_of_reach():
    def statuses(table):
        return [claim.check(table).status for claim in sample_sweep.CLAIMS]

    assert statuses(_table()) == [HOLDS, HOLDS]
    assert statuses(_table(power=0.9, least=0.1)) == [FAILS, FAILS]
    assert statuses(_table(resolved=False)) == [NOT_TESTABLE, NOT_TESTABLE]
