"""J of a network row by row, and J^T J as the sum over its rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.arguments.samples import rearranged
from gnjax.networks.jacobians.items import as_columns
from gnjax.networks.jacobians.pieces import pieces_of
from gnjax.networks.network import Network
from gnjax.numerics.host import on_host
from gnjax.numerics.rounding import added, with_lost

_FEW = 256  # parameters of which float64 on the host costs nothing
SMALL = 1e6  # the most entries of a J that is kept with its network


def row_blocks(net: Network) -> Iterator[jax.Array]:
    """Yield J (n r, p) some rows at a time, columns in the order of the parameter vector."""
    for _, rows in pieces_of(net, as_columns(net)):
        yield rearranged(rows, lambda array: array.reshape(-1, net.parameters))


def jacobian(net: Network) -> np.ndarray:
    """J (n r, p) with its columns in the order of the parameter vector.

    It is read only. With at most 1e6 entries it is formed once and kept with the network.
    """

    def formed() -> np.ndarray:
        rows = np.concatenate(list(map(on_host, row_blocks(net))))
        rows.setflags(write=False)
        return rows

    is_small = net.samples * net.rows * net.parameters <= SMALL
    return net.once("jacobian", formed) if is_small else formed()


def parameter_gram(net: Network, vectors: np.ndarray) -> tuple[jax.Array, np.ndarray]:
    """J^T J (p, p), and U J (m, p) for m vectors U (m, n r), without holding J.

    Both are sums over blocks of rows of J. What rounding takes from the sum of the blocks' products
    is kept, and added at the end.

    Within a block, a compiled float32 product of a few columns adds its terms one after the other.
    The rounding of equal terms does not average out: for 1e5 equal rows of 3 parameters, J^T J had
    a relative error of 6e-4. Up to 256 parameters, float32 products are therefore made and added in
    float64 on the host.
    """
    few = net.parameters <= _FEW and jnp.finfo(net.dtype).bits < 64
    in_double: float | np.ndarray = 0.0  # J^T J of few parameters so far
    gram: jax.Array | None = None
    lost: jax.Array | None = None  # what rounding has taken from ``gram``, to be put back
    images, start = 0.0, 0  # U J so far, and the number of rows of J in it
    for block in row_blocks(net):
        rows = on_host(block)
        images = images + vectors[:, start : start + len(rows)] @ rows
        if few:
            wide = rows.astype(np.float64)
            in_double = in_double + wide.T @ wide
        else:
            gram, lost = _add_product(gram, lost, block)
        start += len(rows)
    if gram is None:
        gram = jnp.asarray(in_double, net.dtype)
    return gram if lost is None else _with_lost(gram, lost), np.asarray(images)


@partial(jax.jit, donate_argnums=(0, 1))  # the sum is written into the memory of the old one
def _add_product(
    total: jax.Array | None, lost: jax.Array | None, rows: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """``total`` (p, p) plus A^T A for some rows A (b, p), and what rounding took from the total.

    ``lost`` is what it took before. Both are None for the first product, which loses nothing.
    """
    product = jnp.matmul(rows.T, rows, precision="highest")
    return (product, None) if total is None else added(total, lost, product)


_with_lost = jax.jit(with_lost)
