"""Initial weights of networks, W of shape (out, in), so that fan_in is the number of columns."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.nn import initializers as jax_initializers
from jax.typing import ArrayLike

from gnjax.models.gaussian_chains import reduced_chain as reduced_chain
from gnjax.numerics.host import by_numpy, on_device
from gnjax.numerics.precision import real_dtype

Shape = tuple[int, int]

_GRAIN = 2**16  # longer draws are rounded up to multiples of this, shorter ones to powers of two
_AROUND_ZERO = partial(jax.random.uniform, minval=-1.0, maxval=1.0)  # its variance is 1 / 3


def kaiming_normal(
    key: jax.Array, shape: Shape, gain: float = 2.0, dtype: jnp.dtype | None = None
) -> jax.Array:
    """Entries N(0, gain / fan_in) for a matrix of ``shape`` (fan_out, fan_in).

    ``gain`` 2 is PyTorch's default, 1 what paper A's Appendix G writes.

    >>> weight = gnjax.initializers.kaiming_normal(jax.random.key(0), (200, 100))
    >>> weight.shape, bool(abs(weight.var() - 2 / 100) < 1e-3)
    ((200, 100), True)
    """
    return _scaled_draw(jax.random.normal, key, shape, math.sqrt(gain / shape[1]), dtype)


def kaiming_uniform(
    key: jax.Array, shape: Shape, gain: float = 2.0, dtype: jnp.dtype | None = None
) -> jax.Array:
    """Uniform entries of mean 0 and variance gain / fan_in, for ``shape`` (fan_out, fan_in).

    >>> weight = gnjax.initializers.kaiming_uniform(jax.random.key(0), (200, 100))
    >>> bool(abs(weight).max() <= (3 * 2 / 100) ** 0.5)
    True
    """
    return _scaled_draw(_AROUND_ZERO, key, shape, math.sqrt(3 * (gain / shape[1])), dtype)


def xavier_normal(key: jax.Array, shape: Shape, dtype: jnp.dtype | None = None) -> jax.Array:
    """Entries N(0, 2 / (fan_in + fan_out)) for a matrix of ``shape`` (fan_out, fan_in).

    >>> weight = gnjax.initializers.xavier_normal(jax.random.key(0), (200, 100))
    >>> bool(abs(weight.var() - 2 / 300) < 4e-4)
    True
    """
    return _scaled_draw(jax.random.normal, key, shape, math.sqrt(2 / sum(shape)), dtype)


def xavier_uniform(key: jax.Array, shape: Shape, dtype: jnp.dtype | None = None) -> jax.Array:
    """Uniform entries of mean 0 and variance 2 / (fan_in + fan_out), ``shape`` (fan_out, fan_in).

    >>> weight = gnjax.initializers.xavier_uniform(jax.random.key(0), (200, 100))
    >>> bool(abs(weight).max() <= (3 * 2 / 300) ** 0.5)
    True
    """
    return _scaled_draw(_AROUND_ZERO, key, shape, math.sqrt(3 * (2 / sum(shape))), dtype)


def pytorch_default(key: jax.Array, shape: Shape, dtype: jnp.dtype | None = None) -> jax.Array:
    """Entries U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as PyTorch's linear layer starts.

    ``shape`` is (fan_out, fan_in).

    >>> weight = gnjax.initializers.pytorch_default(jax.random.key(0), (200, 100))
    >>> bool(abs(weight).max() <= 1 / 10)
    True
    """
    return _scaled_draw(_AROUND_ZERO, key, shape, math.sqrt(3 * (1 / (3 * shape[1]))), dtype)


def orthogonal(key: jax.Array, shape: Shape, dtype: jnp.dtype | None = None) -> jax.Array:
    """A matrix with orthonormal rows or columns, whichever are fewer, uniformly distributed.

    >>> weight = gnjax.initializers.orthogonal(jax.random.key(0), (2, 5))
    >>> np.allclose(weight @ weight.T, np.eye(2))
    True
    """
    matrix: jax.Array = _orthogonal(key, shape, dtype or real_dtype())
    return matrix


_orthogonal = jax.jit(jax_initializers.orthogonal(), static_argnums=(1, 2))


def balanced(
    key: jax.Array,
    widths: Sequence[int],
    singular_values: ArrayLike,
    dtype: jnp.dtype | None = None,
) -> list[jax.Array]:
    """Balanced weights W_1 .. W_L: W_{l+1}^T W_{l+1} = W_l W_l^T for every l.

    With the widths d_0 .. d_L and the r singular values s, W_l = U_l diag(s) U_{l-1}^T. Each U_l
    (d_l, r) has orthonormal columns that are drawn at random.

    >>> first, second = gnjax.initializers.balanced(jax.random.key(0), (3, 4, 2), [2.0, 1.0])
    >>> np.allclose(second.T @ second, first @ first.T)
    True
    """
    dtype = dtype or real_dtype()
    s = on_device(singular_values, dtype)
    rank = s.shape[0] if s.ndim == 1 else 0
    if not 1 <= rank <= min(widths):
        msg = (
            f"balanced weights of widths {tuple(widths)} need a list of 1 to {min(widths)} "
            f"singular values, got shape {s.shape}"
        )
        raise ValueError(msg)
    keys = [jax.random.fold_in(key, layer) for layer in range(len(widths))]
    bases = [orthogonal(k, (w, rank), dtype) for k, w in zip(keys, widths, strict=True)]
    bases = [by_numpy(basis) for basis in bases]  # U_0 .. U_L
    scaled_bases = [on_device(basis * by_numpy(s)[None, :]) for basis in bases[1:]]  # U_l diag(s)
    return [
        scaled @ on_device(before.T) for scaled, before in zip(scaled_bases, bases, strict=False)
    ]


def start_as_pytorch(model: nnx.Module, key: jax.Array) -> None:
    """Redraw, in place, the linear and convolution layers of a model as PyTorch starts them.

    Weights and biases are U(-1/sqrt(fan_in), 1/sqrt(fan_in)), with fan_in the inputs of one output:
    channels times positions for a kernel. Normalisations start at scale 1 and shift 0, here as
    there. The numbers of all layers, in the order of their paths, are drawn at once and cut on the
    host: a draw for each layer would be compiled for every shape.

    >>> model = gnjax.models.MLP((4, 8, 2), key=jax.random.key(0))
    >>> gnjax.initializers.start_as_pytorch(model, jax.random.key(1))
    >>> bool(abs(model.dense1.kernel[...]).max() <= 1 / 2)  # 4 inputs
    True
    """
    nodes = {tuple(map(str, path)): node for path, node in nnx.iter_graph(model)}
    layers = [nodes[path] for path in sorted(nodes)]
    limits_and_values = [
        (math.prod(layer.kernel.shape[:-1]) ** -0.5, value)  # 1 / sqrt(fan_in)
        for layer in layers
        if isinstance(layer, nnx.Linear | nnx.Conv)
        for value in (layer.kernel, layer.bias)
        if value is not None
    ]
    if not limits_and_values:
        msg = f"{type(model).__name__} has no nnx.Linear or nnx.Conv layer to draw"
        raise ValueError(msg)
    ends = np.cumsum([value.size for _, value in limits_and_values])
    numbers = np.asarray(_scaled_draw(_AROUND_ZERO, key, (int(ends[-1]),), 1.0))
    parts = np.split(numbers, ends[:-1])
    for (limit, value), part in zip(limits_and_values, parts, strict=True):
        value[...] = on_device(limit * part.reshape(value.shape), value.dtype)


_LAYERS: dict[str, Callable[..., jax.Array]] = {
    "kaiming_normal": kaiming_normal,
    "kaiming_uniform": kaiming_uniform,
    "xavier_normal": xavier_normal,
    "xavier_uniform": xavier_uniform,
    "pytorch_default": pytorch_default,
    "orthogonal": orthogonal,
}


def names() -> tuple[str, ...]:
    """The names of the initializers that ``chain`` takes.

    >>> "xavier_normal" in gnjax.initializers.names()
    True
    """
    return (*_LAYERS, "balanced")


def check_options(model: Any, initializer: str, options: Mapping[str, object]) -> None:
    """Refuse ``options`` that neither a model nor its initialiser takes, with the nearest name.

    >>> mlp = gnjax.models.MLP
    >>> gnjax.initializers.check_options(mlp, "orthogonal", {"biass": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    TypeError: MLP has no argument biass=; did you mean bias=? it takes ...
    """
    of_model = list(inspect.signature(model.__init__).parameters)[1:-1]  # no self, no options
    taken = inspect.signature(_LAYERS.get(initializer, balanced)).parameters
    of_initializer = [name for name in taken if name not in ("key", "shape", "widths")]
    for name in options:
        if name not in of_initializer:
            similar = difflib.get_close_matches(name, of_model, n=1)
            hint = f"; did you mean {similar[0]}=?" if similar else ""
            msg = (
                f"{model.__name__} has no argument {name}={hint or ';'} it takes "
                f"{', '.join(of_model)}, and {', '.join(of_initializer)} for its initialiser"
            )
            raise TypeError(msg)


def chain(key: jax.Array, widths: Sequence[int], name: str, **options: object) -> list[jax.Array]:
    """Weights W_1 .. W_L for widths (d, m, .., m, k).

    Layer l draws from ``fold_in(key, l)``, so that networks of one seed and width share their
    first layers whatever their depth.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 8, 3), "xavier_normal")
    >>> [w.shape for w in weights]
    [(8, 4), (8, 8), (3, 8)]
    """
    if len(widths) < 2 or min(widths) < 1:
        msg = f"widths must be (inputs, .., outputs), all at least 1, got {tuple(widths)}"
        raise ValueError(msg)
    if name == "balanced":
        return balanced(key, widths, **options)  # type: ignore[arg-type]
    if name not in _LAYERS:
        similar = difflib.get_close_matches(name, names(), n=1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        msg = f"initialiser {name!r} is not one of {', '.join(names())}{hint}"
        raise ValueError(msg)
    shapes = [(after, before) for before, after in pairwise(widths)]
    return [
        _LAYERS[name](jax.random.fold_in(key, layer), shape, **options)
        for layer, shape in enumerate(shapes, start=1)
    ]


def _scaled_draw(
    law: Callable[..., jax.Array],
    key: jax.Array,
    shape: tuple[int, ...],
    scale: float,
    dtype: jnp.dtype | None = None,
) -> jax.Array:
    """scale * law(key, shape, dtype), without a compilation for every shape.

    ``law`` draws independent numbers. With partitionable Threefry keys, JAX's default, number i
    depends on the key and on i alone. A longer draw, of one of a few lengths, therefore starts with
    the numbers wanted. It is cut on the host.
    """
    dtype = dtype or real_dtype()
    partitionable = getattr(jax.config, "jax_threefry_partitionable", False)
    traced = isinstance(key, jax.core.Tracer)
    if traced or not partitionable or "fry" not in str(jax.random.key_impl(key)):
        return scale * law(key, shape, dtype)
    size = math.prod(shape)
    length = -(-size // _GRAIN) * _GRAIN if size > _GRAIN else 1 << max(size - 1, 0).bit_length()
    longer = law(key, (length,), dtype)
    return on_device(np.asarray(longer)[:size].reshape(shape) * longer.dtype.type(scale))
