"""How an operator is multiplied: many times, in another precision, on several devices.

An operator may state each of these as a fact, see :class:`gnjax.operators.facts.Facts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from gnjax.numerics.host import on_device
from gnjax.numerics.precision import x64
from gnjax.operators.facts import Product, facts_of
from gnjax.operators.protocol import Operator


def prepared_product(op: Operator) -> Product:
    """The fastest way at hand to multiply many times: what the operator states as ``product``."""
    product = facts_of(op).product
    return multiplied(op) if product is None else product()


def multiplied(op: Operator) -> Product:
    """v -> A v on the device, as the operator makes its products."""
    return lambda v: op.mv(on_device(v, v.dtype))


def in_float32(op: Operator) -> Operator | None:
    """The operator with products in float32; None where it has none, or float64 stays inside."""
    narrow = facts_of(op).in_float32
    if narrow is None:
        return None
    with float32_rules():
        return narrow()


def in_float64(op: Operator) -> Operator | None:
    """An operator in float32 with its numbers in float64, or None where that is not possible.

    Use it only inside of :func:`gnjax.x64`. Where a model computes in float32 whatever the dtype of
    its parameters is, it still does so, and the error that the operator states includes that.
    """
    widen = facts_of(op).in_float64
    if op.dtype != jnp.float32 or widen is None:
        return None
    with x64():
        return widen()


@contextmanager
def float32_rules() -> Iterator[None]:
    """Matrix products in full float32 precision, and the usual promotion of types."""
    with jax.numpy_dtype_promotion("standard"), jax.default_matmul_precision("highest"):
        yield


def devices_of(op: Operator) -> tuple[jax.Device, ...]:
    """The devices over which its vectors are divided, in the order of their mesh; () for one."""
    devices = facts_of(op).devices
    return devices_of_arrays(op) if devices is None else devices()


def devices_of_arrays(tree: Any) -> tuple[jax.Device, ...]:
    """The devices of the first array of a pytree that lies on several; () where none does.

    They are in the order of the mesh by which the array is divided, if it has one.
    """
    for leaf in jax.tree.leaves(tree):
        devices = leaf.sharding.device_set if isinstance(leaf, jax.Array) else ()
        if len(devices) > 1:
            if isinstance(leaf.sharding, NamedSharding):
                return tuple(leaf.sharding.mesh.devices.flat)
            return tuple(sorted(devices, key=lambda device: device.id))
    return ()
