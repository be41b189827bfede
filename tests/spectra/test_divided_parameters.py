"""Parameters divided over 8 simulated devices: a basis divided alike, and the same numbers."""

import json
import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.spectra.krylov.device_basis import as_vector, layout, random_row
from tests.divided_parameters import hessian


@pytest.mark.slow
def test_eight_simulated_devices_hold_a_part_of_every_row():
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "tests.divided_parameters", "8"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    op = hessian(lambda array, *axes: jnp.asarray(array))
    assert op.shape[0] == found["size"]
    assert found["size"] % 8  # so that vectors themselves cannot be divided evenly
    matrix = np.asarray(op.as_matrix())
    true = np.linalg.eigvalsh(matrix)[::-1][:4]
    assert found["converged"]
    assert "no room to count" in found["certificate"]
    assert (np.abs(true - found["values"]) <= found["errors"]).all()
    assert max(found["errors"]) < 1e-9 * true[0]
    vectors = np.array(found["vectors"])
    missed = vectors @ matrix - np.array(found["values"])[:, None] * vectors
    assert (np.linalg.norm(missed, axis=1) <= found["errors"]).all()
    slabs, rows, width = found["whole"]
    assert found["devices"] == 8
    assert found["shards"] == [[slabs // 8, rows, width]] * 8
    assert not found["sends"]  # steps need nothing of the other devices
    form = layout(op.shape[0], jnp.dtype(float))
    row = as_vector(form, random_row(form, 1))
    np.testing.assert_array_equal(row, found["first"])
