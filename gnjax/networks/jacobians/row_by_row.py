"""J of a network row by row, and J^T J as the sum over its rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.forms.samples import reshaped
from gnjax.networks.jacobians.items import as_rows
from gnjax.networks.jacobians.pieces import pieces_of
from gnjax.networks.network import Network
from gnjax.numerics.host import on_host

SMALL = 1e6  # the most entries of a J that is kept with its network


def row_blocks(net: Network) -> Iterator[jax.Array]:
    """Yield J (n r, p) some rows at a time, columns in the order of the parameter vector."""
    for _, rows in pieces_of(net, as_rows(net)):
        yield reshaped(rows, -1, net.parameters)


def jacobian(net: Network) -> np.ndarray:
    """J (n r, p), columns in the order of the parameter vector; a small one is formed once."""
    if net.samples * net.rows * net.parameters > SMALL:
        return np.concatenate(list(map(on_host, row_blocks(net))))
    if "jacobian" not in net.kept:
        rows = np.concatenate(list(map(on_host, row_blocks(net))))
        rows.setflags(write=False)
        net.kept["jacobian"] = rows
    kept: np.ndarray = net.kept["jacobian"]
    return kept


def parameter_gram(net: Network, vectors: np.ndarray) -> tuple[jax.Array, np.ndarray]:
    """J^T J (p, p), and U J (m, p) for vectors U (m, n r), both summed over rows."""
    total, images = jnp.zeros((net.parameters, net.parameters), net.dtype), 0.0
    start = 0
    for block in row_blocks(net):
        images = images + vectors[:, start : start + len(block)] @ on_host(block)
        total = _accumulate(total, block)
        start += len(block)
    return total, np.asarray(images)


@partial(jax.jit, donate_argnums=0)
def _accumulate(total: jax.Array, rows: jax.Array) -> jax.Array:
    return total + jnp.matmul(rows.T, rows, precision="highest")
