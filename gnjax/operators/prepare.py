"""How an operator is multiplied: many times, in another precision, on several devices.

An operator may state each of these as a fact, see :mod:`gnjax.operators.facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from gnjax.numerics.host import on_device
from gnjax.numerics.precision import x64
from gnjax.operators.protocol import Operator

Product = Callable[[Any], Any]
"""v -> A v, for vectors (n,) and blocks of columns (n, b)."""


def prepared_product(op: Operator) -> Product:
    """The fastest way at hand to multiply many times: what the operator states as ``prepared``."""
    prepare: Callable[[], Product] | None = getattr(op, "prepared", None)
    return multiplied(op) if prepare is None else prepare()


def multiplied(op: Operator) -> Product:
    """v -> A v on the device, as the operator makes its products."""
    return lambda v: op.mv(on_device(v, v.dtype))


def compiled(op: Operator) -> Product:
    """v -> A v compiled as a whole, for an operator that is a pytree."""
    return partial(_compiled_product, op)


@jax.jit
def _compiled_product(op: Operator, block: jax.Array) -> jax.Array:
    return op.mv(block)


def narrows(op: Operator) -> bool:
    """Whether the operator may have products in float32 although its numbers are in float64."""
    return hasattr(op, "in_float32")


def in_float32(op: Any) -> Operator | None:
    """The operator with products in float32, or None where float64 stays inside."""
    if not narrows(op):
        return None
    with float32_rules():
        light: Operator | None = op.in_float32()
    return light


def in_float64(op: Any) -> Operator | None:
    """An operator in float32 with its numbers in float64, or None where that is not possible.

    Its matrix in exact arithmetic is the same. Use it only inside of :func:`gnjax.x64`. Where a
    model computes in float32 whatever the dtype of its parameters is, it still does so, and the
    error that the operator states includes that.
    """
    if op.dtype != jnp.float32 or not hasattr(op, "in_float64"):
        return None
    with x64():
        wide: Operator | None = op.in_float64()
    return wide


@contextmanager
def float32_rules() -> Iterator[None]:
    """Matrix products in full float32 precision, and the usual promotion of types."""
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        yield


def devices_of(op: Operator) -> tuple[jax.Device, ...]:
    """The devices over which its vectors are divided, in the order of their mesh; () for one."""
    stated: tuple[jax.Device, ...] | None = getattr(op, "devices", None)
    return devices_of_arrays(op) if stated is None else stated


def devices_of_arrays(tree: Any) -> tuple[jax.Device, ...]:
    """The devices of the first array of a pytree that lies on several; () where none does."""
    for leaf in jax.tree.leaves(tree):
        devices = leaf.sharding.device_set if isinstance(leaf, jax.Array) else ()
        if len(devices) > 1:
            if isinstance(leaf.sharding, NamedSharding):
                return tuple(leaf.sharding.mesh.devices.flat)
            return tuple(sorted(devices, key=lambda device: device.id))
    return ()
