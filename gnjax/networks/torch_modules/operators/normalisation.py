"""Normalisation, by statistics that are given or by those of the input.

PyTorch's operators have two more results, statistics that no later operator of a graph reads; None
stands for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def _by_channel(vector: jax.Array, x: jax.Array) -> jax.Array:
    """A number for each channel in a shape that broadcasts against x (n, channels, ..)."""
    return vector.reshape(-1, *[1] * (x.ndim - 2))


def _batch_norm(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    mean: jax.Array,
    variance: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, None, None]:
    """PyTorch's batch norm in evaluation mode: (x - mean) / sqrt(variance + eps) weight + bias.

    All vectors have one number for each channel of x (n, channels, ..).
    """
    scale = jax.lax.rsqrt(variance + eps)
    normalised = (x - _by_channel(mean, x)) * _by_channel(scale, x)
    return _scaled(normalised, weight, bias, x), None, None


def _scaled(
    normalised: jax.Array, weight: jax.Array | None, bias: jax.Array | None, x: jax.Array
) -> jax.Array:
    """weight ``normalised`` + bias, (n, channels, ..), with one of each for a channel, or None."""
    normalised = normalised if weight is None else normalised * _by_channel(weight, x)
    return normalised if bias is None else normalised + _by_channel(bias, x)


def _normalised(x: jax.Array, axes: Sequence[int], eps: float) -> jax.Array:
    """(x - mean) / sqrt(variance + eps), with the mean and variance of x over some axes."""
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    variance = jnp.mean(jnp.square(centred), axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps)


def _batch_norm_of_input(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, None, None]:
    """Normalise each channel of x (n, channels, ..) by its own mean and variance over all else.

    The arguments are those of PyTorch's operator, of which ``training`` and ``momentum`` change no
    result here; None stands for its two results that no later operator reads.
    """
    axes = [axis for axis in range(x.ndim) if axis != 1]
    return _scaled(_normalised(x, axes, eps), weight, bias, x), None, None


def _layer_norm(
    x: jax.Array,
    shape: Sequence[int],
    weight: jax.Array | None,
    bias: jax.Array | None,
    eps: float,
) -> tuple[jax.Array, None, None]:
    """PyTorch's native_layer_norm: x is normalised over its last axes, as many as ``shape`` has."""
    normalised = _normalised(x, range(x.ndim - len(shape), x.ndim), eps)
    normalised = normalised if weight is None else normalised * weight
    return (normalised if bias is None else normalised + bias), None, None


def _group_norm(
    x: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    samples: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[jax.Array, None, None]:
    """Each group of channels of a sample of x (n, channels, ..) is normalised by itself."""
    by_group = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    normalised = _normalised(by_group, (2,), eps).reshape(x.shape)
    return _scaled(normalised, weight, bias, x), None, None


TABLE: dict[str, Callable[..., Any]] = {
    "_native_batch_norm_legit": _batch_norm_of_input,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
}
