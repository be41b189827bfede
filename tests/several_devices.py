"""A program: python -m tests.several_devices DEVICES [PROCESS PORT]; prints kappa and checks.

It computes one Gauss-Newton matrix's condition number with samples sharded over simulated devices
of one process, or over two processes on this machine.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import gnjax


def network(place):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 6))
    params = [place(rng.standard_normal((12, 6))), place(rng.standard_normal((3, 12)))]
    return (lambda p, x: jnp.tanh(x @ p[0].T) @ p[1].T, params), x


def main():
    if len(sys.argv) > 2:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{sys.argv[3]}", 2, int(sys.argv[2]))
    gnjax.enable_x64()
    assert len(jax.devices()) == int(sys.argv[1]), jax.devices()
    mesh = Mesh(np.array(jax.devices()), ("data",))

    def placed(array, *axes):
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    model, x = network(placed)
    op = gnjax.gauss_newton(model, placed(x, "data"), side="parameters")
    product = jax.jit(lambda op, v: op.mv(v))
    compiled = product.lower(op, placed(np.ones(op.shape[0]))).compile().as_text()
    kappa = gnjax.condition_number(op, method="krylov")
    sys.stdout.write(
        json.dumps(
            {
                "kappa": kappa.value,
                "resolved": kappa.resolved,
                "sharded": not op.net.x.sharding.is_fully_replicated,
                "reduces": "all-reduce" in compiled,
                "gathers": "all-gather" in compiled,
            }
        )
    )


if __name__ == "__main__":
    main()
