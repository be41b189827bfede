"""Samples: an array (n, ...), or a dict, a tuple or another pytree of arrays (n, ...)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.numerics.host import on_cpu, on_device
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_finite, check_held


def sample_count(x: Any) -> int:
    """n, the length of the first axis of every leaf."""
    return int(jax.tree.leaves(x)[0].shape[0])


def take(x: Any, part: Any) -> Any:
    """``array[part]`` for each array of a pytree, such as some samples by a slice or by indices."""
    return jax.tree.map(lambda leaf: rearranged(leaf, lambda array: array[part]), x)


def converted(array: jax.Array | np.ndarray, dtype: Any) -> jax.Array:
    """The array in a dtype, as an array of JAX.

    One of NumPy is copied, so that later changes of it by the caller are not seen.
    """
    if isinstance(array, np.ndarray):
        return on_device(array, dtype)
    if array.dtype == dtype:
        return array.astype(dtype)
    with np.errstate(over="ignore"):  # infinities are refused where they are
        return rearranged(array, lambda array: array.astype(dtype))


def as_floats(name: str, array: jax.Array, dtype: Any) -> jax.Array:
    """The array in a floating point type; integers that it does not hold exactly are refused."""
    floats = array.astype(dtype)
    if jnp.issubdtype(array.dtype, jnp.integer):
        check_held(name, array, floats)
    return floats


def rearranged(array: Any, change: Callable[[Any], Any]) -> Any:
    """``change(array)`` for a function that only moves or converts entries, such as a reshape.

    An array in the memory of one CPU is changed by NumPy, as JAX would compile a program for every
    shape. An array that the caller has put on a device stays there.
    """
    if isinstance(array, jax.Array) and on_cpu(array) and len(array.devices()) == 1:
        result = change(np.asarray(array))
        return jax.device_put(result, *array.devices()) if array.committed else on_device(result)
    return change(array)


def digest(x: Any, start: int, stop: int) -> bytes:
    """A hash of the samples from ``start`` to ``stop`` of arrays in host memory."""
    parts = [np.asarray(array[start:stop]).tobytes() for array in jax.tree.leaves(x)]
    return hashlib.blake2b(b"".join(parts)).digest()


def even_size(n: int, most: int) -> int:
    """The size of the batches if n samples are divided evenly into batches of at most ``most``."""
    return -(-n // -(-n // most))


def same_size(n: int, near: int) -> int:
    """The size of the batches if n samples are divided into batches of about ``near`` samples.

    The size is the largest divisor of n that is more than near / 2 and at most near, or else the
    smallest divisor up to 5/4 near. If there is none, the last batch is shorter.
    """
    sizes = itertools.chain(range(near, near // 2, -1), range(near + 1, near + near // 4 + 1))
    return next((size for size in sizes if n % size == 0), even_size(n, near))


def windows(x: Any, size: int) -> Iterator[tuple[Any, int]]:
    """Yield batches of ``size`` samples, each with how many of its samples the one before had too.

    Only the last batch overlaps the one before it, so that all have the same size: one compiled
    program serves all, and no sample is evaluated alone.
    """
    n = sample_count(x)
    if size >= n:
        yield x, 0
        return
    for start in range(0, n, size):
        first = min(start, n - size)
        yield take(x, slice(first, first + size)), start - first


def one_sample(x: Any) -> Any:
    """The shape and the dtype of one sample without its first axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)


def check_samples(name: str, tree: Any) -> Any:
    """A pytree of samples with every leaf as a JAX array (n, ...), checked.

    Floats get the working precision; integers and booleans, such as tokens and masks, stay what
    they are. A list counts as an array. ``name`` is the argument's name in messages, such as "x".
    """
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda v: isinstance(v, list))
    arrays = [_checked_leaf(name, leaf) for leaf in leaves]
    if not arrays:
        msg = f"{name} holds no array; give an array (n, ...) or a dict or a tuple of them"
        raise ValueError(msg)
    counts = {len(array) for array in arrays}
    if len(counts) > 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        msg = f"the arrays of {name} must have the same number of samples first, got {shapes}"
        raise ValueError(msg)
    return jax.tree.unflatten(structure, arrays)


def _checked_leaf(name: str, leaf: Any) -> jax.Array:
    """One leaf of :func:`check_samples` as a finite JAX array (n, ...) of at least one sample."""
    unchecked = as_arrays(name, leaf)
    if jnp.issubdtype(unchecked.dtype, jnp.integer) or unchecked.dtype == bool:
        array = converted(unchecked, unchecked.dtype)
        check_held(name, unchecked, array)
    elif jnp.issubdtype(unchecked.dtype, jnp.floating):
        array = converted(unchecked, real_dtype())
    else:
        hint = "give an array (n, ...) of numbers, or a dict or a tuple of such arrays"
        hint += ", or a list of batches (x, y)" if name == "x" else ""
        if jnp.issubdtype(unchecked.dtype, jnp.complexfloating):
            hint = "pass the real and the imaginary part as two arrays"
        kind = f" in a {type(leaf).__name__}" if unchecked.dtype.kind == "O" else ""
        msg = f"{name} must hold real numbers, got dtype {unchecked.dtype}{kind}; {hint}"
        raise ValueError(msg)
    if array.ndim == 0 or 0 in array.shape:
        msg = f"{name} must be a batch (n, ...) of at least one sample, got shape {array.shape}"
        raise ValueError(msg)
    check_finite(name, unchecked, array, "remove or impute those samples")
    return array


def as_arrays(name: str, tree: Any) -> Any:
    """The pytree with every leaf as an array of JAX or NumPy, such as a tensor of PyTorch.

    A list counts as an array; one of rows of different lengths is refused. ``name`` is the name of
    the argument in the message.
    """
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda v: isinstance(v, list))
    try:
        arrays = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in leaves]
    except ValueError as error:
        msg = (
            f"{name} is a list whose entries differ in shape and make no array; give a tuple or "
            "a dict for several arrays, or a list of batches (x, y)"
        )
        raise ValueError(msg) from error
    return jax.tree.unflatten(structure, arrays)
