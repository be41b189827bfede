"""A program: python -m tests.divided_parameters DEVICES; parameters divided over simulated devices.

It prints a few eigenvalues of a Hessian, how the basis lies on the devices, and what the compiled
steps send between them.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import gnjax
from gnjax.operators.prepare import devices_of
from gnjax.spectra.krylov import device_basis


def hessian(place, dtype=None):
    """Of a network whose layers can be divided over 8 devices, but not its number of parameters."""
    rng = np.random.default_rng(1)
    params = {
        "first": place(rng.standard_normal((6, 24)), None, "model"),
        "last": place(rng.standard_normal((24, 3)), "model", None),
        "bias": place(rng.standard_normal(3)),
    }
    x, y = rng.standard_normal((32, 6)), rng.integers(0, 3, 32)

    def apply(p, x):
        return jnp.tanh(x @ p["first"]) @ p["last"] + p["bias"][None]

    return gnjax.hessian((apply, params), x, y, loss="cross_entropy")


def main():
    gnjax.enable_x64()
    assert len(jax.devices()) == int(sys.argv[1]), jax.devices()
    mesh = Mesh(np.array(jax.devices()), ("model",))

    def placed(array, *axes):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*axes)))

    op = hessian(placed)
    form = device_basis.layout(op.shape[0], jnp.dtype(float), devices_of(op))
    basis, row = device_basis.empty_basis(form, 10), device_basis.random_row(form, 1)
    steps = {
        "products": device_basis._shares.lower(basis, row),
        "subtraction": device_basis._less.lower(basis, row, np.zeros(10)),
        "storing": device_basis.with_row.lower(basis, row, 0, 1.0),
        "rotation": device_basis._rotated_piece.lower(basis, np.zeros((5, 10)), 0),
    }
    texts = [lowered.compile().as_text() for lowered in steps.values()]
    rotated = device_basis.rotated(device_basis.with_row(basis, row, 0, 1.0), np.eye(5, 10))
    limits = gnjax.Limits(whole_rows=20, basis_bytes=14 * 8 * op.shape[0])  # the host takes 16
    found = gnjax.eigenvalues(op, k=4, vectors=True, limits=limits)
    sys.stdout.write(
        json.dumps(
            {
                "size": op.shape[0],
                "values": found.values.tolist(),
                "errors": found.errors.tolist(),
                "converged": found.converged,
                "certificate": str(found.certificate),
                "first": np.asarray(device_basis.as_vector(form, row)).tolist(),
                "vectors": found.vectors.tolist(),
                "devices": len(rotated.sharding.device_set),
                "shards": [list(shard.data.shape) for shard in rotated.addressable_shards],
                "whole": list(rotated.shape),
                "sends": [
                    word
                    for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute")
                    if any(word in text for text in texts)
                ],
            }
        )
    )


if __name__ == "__main__":
    main()
