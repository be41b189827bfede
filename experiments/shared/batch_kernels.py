"""J J^T of a network in any of the ways in which BatchNorm can take its statistics.

The samples come in batches, whose outputs are one function of the weights: through BatchNorm in
training mode an output depends on all samples of its batch. J has a row for each output and a
column for each weight; the matrix of the weights that pruning has left is formed beside it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from numpy.typing import NDArray

import gnjax
from experiments.shared.protocol import Begun, Training, begun
from experiments.shared.pruned_kernel import LIMITS, frobenius_by_products, on_gpu
from experiments.shared.pruned_networks import frozen
from gnjax.papers.training import minibatch as training

WAYS = ("batches", "plain batches", "all", "running")
"""Whose statistics BatchNorm takes.

``batches``: those of each batch, whose images are cropped and flipped as in training; ``plain
batches``: the same batches of the images as they are; ``all``: those of all samples, fixed;
``running``: the averages kept while training, fixed.
"""

ALL, LEFT = "all", "left"  # the columns of J: those of every weight, or those that are not pruned
ABSOLUTE = 1e-7  # the tolerance of the published code
_TOGETHER = 32  # rows of J from one backward pass
_GROUP = 50  # samples whose rows one program computes
_WIDE = 100  # samples in one product with J, where batches do not matter
_BLOCK = 8192  # columns of J that are multiplied at once


@dataclass(frozen=True, eq=False)
class Alone:
    """A network each of whose outputs depends on one sample, its samples, and its mask."""

    net: nnx.Module
    x: NDArray[np.float64]
    mask: Any


@dataclass(frozen=True, eq=False)
class Function:
    """Outputs as a function of the weights, batch by batch.

    ``groups`` are arrays (g, b, ...) of g batches of b samples; outputs follow in that order.
    ``wide`` are the same samples in the same order for products with J. Where batches do not
    matter, these are fewer and larger.
    """

    apply: Any
    params: Any
    groups: tuple[jax.Array, ...]
    wide: tuple[jax.Array, ...]
    kept: NDArray[np.bool_]  # of all weights, flat: whether pruning has left them
    alone: Alone | None = None  # where no output depends on other samples


def function(run: Training, net: nnx.Module, way: str, epoch: int) -> Function:
    """The outputs of a network at its samples with BatchNorm's statistics taken in this way."""
    start, alone = begun(run), None
    if way not in WAYS:
        msg = f"statistics={way!r} is not one of {', '.join(map(repr, WAYS))}"
        raise ValueError(msg)
    if way in ("batches", "plain batches"):
        net = nnx.clone(net)
        net.train()
        groups = wide = _batches(start, epoch, changed=way == "batches")
    else:
        net = frozen(net, start.x) if way == "all" else _evaluating(net)
        groups, wide = _one_by_one(start.x), _in_parts(start.x, _WIDE)
        alone = Alone(net, start.x, start.mask)
    apply, params = gnjax.functional(net)
    kept = np.concatenate([np.asarray(leaf, bool).ravel() for leaf in jax.tree.leaves(start.mask)])
    return Function(apply, params, groups, wide, kept, alone)


def _evaluating(net: nnx.Module) -> nnx.Module:
    copied = nnx.clone(net)
    copied.eval()
    return copied


def _one_by_one(x: NDArray[np.float64]) -> tuple[jax.Array, ...]:
    """Groups of batches of one sample."""
    parts = np.split(x, range(_GROUP, len(x), _GROUP))
    return tuple(jnp.asarray(part[:, None]) for part in parts)


def _in_parts(x: jax.Array | NDArray[np.float64], size: int) -> tuple[jax.Array, ...]:
    """All batches of ``size`` samples as one group, and the samples that are left as another."""
    full = len(x) // size * size
    whole = (jnp.asarray(x[:full]).reshape(-1, size, *x.shape[1:]),) if full else ()
    return *whole, *((jnp.asarray(x[full:])[None],) if full < len(x) else ())


def _batches(start: Begun, epoch: int, *, changed: bool) -> tuple[jax.Array, ...]:
    """The batches of the epoch after this one, as training would see them."""
    key = jax.random.fold_in(start.key, epoch)
    order, change = jax.random.split(key)
    x = jnp.asarray(start.x)[jax.random.permutation(order, len(start.x))]
    if changed and start.problem.augment is not None:
        x = start.problem.augment(change, x)
    return _in_parts(x, start.problem.recipe.batch)


@jax.jit
def _rows(apply: Any, params: Any, group: jax.Array) -> jax.Array:
    """The rows of J for all outputs of a group of batches, one column for each weight."""

    def of_batch(x: jax.Array) -> jax.Array:
        outputs, pull = jax.vjp(lambda w: apply(w, x), params)
        unit = jnp.eye(outputs.size, dtype=outputs.dtype).reshape(-1, *outputs.shape)

        def one(weights: jax.Array) -> jax.Array:
            (slopes,) = pull(weights)
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(slopes)])

        return lax.map(one, unit, batch_size=min(_TOGETHER, outputs.size))

    rows = lax.map(of_batch, group)
    return rows.reshape(-1, rows.shape[-1])


@partial(jax.jit, donate_argnums=0)
def _written(jacobian: jax.Array, rows: jax.Array, first: int) -> jax.Array:
    return lax.dynamic_update_slice(jacobian, rows, (first, 0))


@jax.jit
def _squared(jacobian: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
    """J J^T, and that of the columns in ``kept`` alone."""
    blocks = jacobian.shape[1] // _BLOCK

    def add(place: int, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        columns = lax.dynamic_slice_in_dim(jacobian, place * _BLOCK, _BLOCK, axis=1)
        left = columns * lax.dynamic_slice_in_dim(kept, place * _BLOCK, _BLOCK)
        every, some = (jnp.matmul(part, part.T, precision="highest") for part in (columns, left))
        return sums[0] + every, sums[1] + some

    zero = jnp.zeros((len(jacobian), len(jacobian)), jacobian.dtype)
    return lax.fori_loop(0, blocks, add, (zero, zero))


def cast(of: Function, dtype: Any) -> Function:
    """The same function in another precision; what it does not learn is cast along with it."""

    def changed(tree: Any) -> Any:
        return training.cast(tree, dtype)

    return replace(
        of,
        apply=changed(of.apply),
        params=changed(of.params),
        groups=changed(of.groups),
        wide=changed(of.wide),
    )


def matrices(of: Function, dtype: Any = jnp.float64) -> dict[str, jax.Array | NDArray]:
    """J J^T for every column of J, and for the columns of the weights that are left.

    On a GPU, J is held there twice. Elsewhere it is held in memory, or in a file where it is large.
    """
    of = cast(of, dtype)
    rows = [jax.eval_shape(_rows, of.apply, of.params, group).shape[0] for group in of.groups]
    parts = (
        (first, _rows(of.apply, of.params, group))
        for first, group in zip(np.cumsum([0, *rows]), of.groups, strict=False)
    )
    form = _on_gpu if on_gpu() else _on_host
    every, left = form(parts, sum(rows), of.kept, dtype)
    return {ALL: every, LEFT: left}


Parts = Iterable[tuple[int, jax.Array]]
"""Rows of J, each with the number of its first row."""


def _on_gpu(
    parts: Parts, rows: int, kept: NDArray[np.bool_], dtype: Any
) -> tuple[jax.Array, jax.Array]:
    width = -(-kept.size // _BLOCK) * _BLOCK
    jacobian = jnp.zeros((rows, width), dtype)
    for first, part in parts:
        jacobian = _written(jacobian, part, first)
    padded = jnp.zeros(width, dtype).at[: kept.size].set(jnp.asarray(kept, dtype))
    return _squared(jacobian, padded)


def _on_host(
    parts: Parts, rows: int, kept: NDArray[np.bool_], dtype: Any
) -> tuple[NDArray, NDArray]:
    shape = rows, kept.size
    with tempfile.TemporaryFile() as file:
        large = rows * kept.size * np.dtype(dtype).itemsize > LIMITS.factor_bytes
        jacobian = np.memmap(file, dtype, "w+", shape=shape) if large else np.empty(shape, dtype)
        for first, part in parts:
            jacobian[first : first + len(part)] = part
        every, left = np.zeros((2, rows, rows), dtype)
        for first in range(0, kept.size, _BLOCK):
            block = slice(first, first + _BLOCK)
            columns = np.ascontiguousarray(jacobian[:, block])
            some = columns[:, kept[block]]
            every += columns @ columns.T
            left += some @ some.T
    return every, left


@jax.jit
def _pulled(apply: Any, params: Any, group: jax.Array, v: jax.Array) -> Any:
    """J^T v for the rows of one group.

    One batch alone is not looped over: in a loop XLA's convolutions on a CPU take ten times longer.
    """
    if len(group) == 1:
        return jax.vjp(lambda w: apply(w, group[0]), params)[1](v[0])[0]

    def of_batch(total: Any, item: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        x, weights = item
        (slopes,) = jax.vjp(lambda w: apply(w, x), params)[1](weights)
        return jax.tree.map(jnp.add, total, slopes), None

    return lax.scan(of_batch, jax.tree.map(jnp.zeros_like, params), (group, v))[0]


@jax.jit
def _pushed(apply: Any, params: Any, group: jax.Array, direction: Any) -> jax.Array:
    """J u for the rows of one group, from forward mode."""
    if len(group) == 1:
        return jax.jvp(lambda w: apply(w, group[0]), (params,), (direction,))[1][None]
    return lax.map(lambda x: jax.jvp(lambda w: apply(w, x), (params,), (direction,))[1], group)


def product(of: Function, columns: str, v: NDArray[np.float64]) -> NDArray[np.float64]:
    """J J^T v by one backward and one forward pass through all samples."""
    slopes = pulled(of, columns, v)
    pushed = [_pushed(of.apply, of.params, group, slopes) for group in of.wide]
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in pushed])


def pulled(of: Function, columns: str, v: NDArray[np.float64]) -> Any:
    """J^T v as a pytree like the weights, zero at the columns that J does not have."""
    shapes = _shapes(of)
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = [part.reshape(s) for part, s in zip(np.split(v, ends), shapes, strict=True)]
    sums: Any = None
    for group, part in zip(of.wide, parts, strict=True):
        slopes = _pulled(of.apply, of.params, group, jnp.asarray(part, group.dtype))
        sums = slopes if sums is None else jax.tree.map(jnp.add, sums, slopes)
    if columns == LEFT:
        leaves, structure = jax.tree.flatten(sums)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        kept = np.split(of.kept, ends)
        masked = [leaf * mask.reshape(leaf.shape) for leaf, mask in zip(leaves, kept, strict=True)]
        sums = jax.tree.unflatten(structure, masked)
    return sums


def _shapes(of: Function) -> list[tuple[int, ...]]:
    """The shapes (g, b, k) of the outputs of every group of samples for products."""
    return [jax.eval_shape(_pushed, of.apply, of.params, g, of.params).shape for g in of.wide]


def measured_error(of: Function, columns: str, matrix: jax.Array | NDArray) -> float:
    """A measured bound on ||computed J J^T - J J^T||_F, from products by another way.

    The matrix comes from rows of J, and the products from one backward and one forward pass.
    """

    def difference(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.asarray(matrix @ v) - product(of, columns, v))

    return frobenius_by_products(difference, len(matrix))


def operators(of: Function) -> Mapping[str, gnjax.Operator]:
    """J J^T with its measured error, for all columns and for those that are left.

    Where samples do not depend on each other, a CPU uses :func:`gnjax.ntk`, which computes the rows
    of J in a quarter of the time and holds them in memory. Where nothing is pruned, both are one.
    """
    if of.alone is not None and not on_gpu():
        net, x, mask = of.alone.net, of.alone.x, of.alone.mask
        every = gnjax.ntk(net, x)
        return {ALL: every, LEFT: every if of.kept.all() else gnjax.ntk(net, x, mask=mask)}
    limits = gnjax.Limits(matrix_rows=10**5)
    return {
        columns: gnjax.dense(
            np.asarray(matrix),
            error=gnjax.Error(
                measured_error(of, columns, matrix), "measured", reason="rounding of J J^T"
            ),
            limits=limits,
        )
        for columns, matrix in matrices(of).items()
    }


def largest(of: Function, columns: str, steps: int, seed: int) -> tuple[float, float]:
    """lambda_max by ``steps`` of Lanczos, and the length of its residual; see :func:`top`."""
    value, residual, _ = top(of, columns, steps, seed)
    return value, residual


def top(
    of: Function, columns: str, steps: int, seed: int
) -> tuple[float, float, NDArray[np.float64]]:
    """lambda_max by ``steps`` of Lanczos, the length of its residual, and its unit vector.

    The value is a Rayleigh quotient, which is at most lambda_max. Fewer steps are made where what
    is left of a product is zero, as of a network whose outputs no longer depend on its weights.
    """
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(sum(map(math.prod, _shapes(of))))
    basis: list[NDArray] = []
    images: list[NDArray] = []
    for _ in range(steps):
        for other in (*basis, *basis):
            v = v - (other @ v) * other
        length = np.linalg.norm(v)
        if length == 0:
            break
        basis.append(v / length)
        images.append(product(of, columns, basis[-1]))
        v = images[-1]
    space, mapped = np.stack(basis), np.stack(images)
    small = space @ mapped.T
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    vector, image = vectors[:, -1] @ space, vectors[:, -1] @ mapped
    return float(values[-1]), float(np.linalg.norm(image - values[-1] * vector)), vector


def as_computed(of: Function) -> dict[str, tuple[float, float, int]]:
    """What a program that works in float32 has for lambda_max, lambda_min and the rank of J J^T.

    The rank counts the eigenvalues whose absolute value is above 1e-7, and lambda_min is the one of
    that rank in the list that is sorted with its signs, as in the published code.
    """
    found = {}
    for columns, matrix in matrices(of, jnp.float32).items():
        values = np.asarray(jnp.linalg.eigvalsh(matrix), np.float64)
        rank = int(np.count_nonzero(np.abs(values) > ABSOLUTE))
        found[columns] = float(values[-1]), float(values[-rank]), rank
    return found
