"""A network at fixed inputs as a function of its parameters, and products with its Jacobian.

J is the Jacobian (n k, p) of the outputs F(x_1) .. F(x_n) with respect to the chosen entries of
the parameters, samples first, weighted by R^T where a loss has the output Hessian R R^T.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax import layers
from gnjax.functional import Apply, checked, couples_samples
from gnjax.losses import Loss, check_loss, check_targets, hessian_factors
from gnjax.precision import real_dtype

Only = str | Callable[[str], bool]

_WORKING_BYTES = 5e8
_LARGEST_BATCH = 256
_PROBES = 4
_SAFETY = 4.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Network:
    """F(theta) at fixed inputs; theta holds the chosen entries of the parameters, in one vector."""

    leaves: tuple[jax.Array, ...]
    kept: tuple[jax.Array | None, ...]  # flat indices of a leaf's chosen entries, None for all
    x: jax.Array
    factors: jax.Array | None  # R (n, k, k)
    apply: Apply = field(metadata={"static": True})
    structure: Any = field(metadata={"static": True})
    chosen: tuple[int, ...] = field(metadata={"static": True})  # of the leaves
    counts: tuple[int, ...] = field(metadata={"static": True})  # entries of each chosen leaf
    k: int = field(metadata={"static": True})
    coupled: bool = field(metadata={"static": True})
    batch: int = field(metadata={"static": True})

    @property
    def samples(self) -> int:
        return len(self.x)

    @property
    def parameters(self) -> int:
        return sum(self.counts)

    @property
    def dtype(self) -> jnp.dtype:
        return self.leaves[0].dtype

    def outputs(self, leaves: Sequence[jax.Array], x: jax.Array) -> jax.Array:
        return self.apply(jax.tree.unflatten(self.structure, list(leaves)), x).astype(self.dtype)

    def one(self, leaves: Sequence[jax.Array], sample: jax.Array) -> jax.Array:
        return self.outputs(leaves, sample[None])[0]


def network(
    model: Any,
    x: ArrayLike,
    *,
    loss: Loss = "mse",
    y: ArrayLike | None = None,
    batch_size: int | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> Network:
    """Check what comes in, choose the parameters, and decide how many samples go at once."""
    check_loss(loss)
    apply, params, inputs, outputs = checked(model, x)
    targets = None if y is None else check_targets(loss, y, outputs)
    leaves, structure = jax.tree.flatten(params)
    chosen, kept = _choose(params, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(chosen, kept, strict=True)
    )
    coupled = couples_samples(apply, params, inputs, outputs)
    made = Network(
        tuple(leaves),
        kept,
        inputs,
        hessian_factors(loss, outputs.astype(real_dtype()), targets),
        apply,
        structure,
        chosen,
        counts,
        outputs.shape[1],
        coupled,
        len(inputs),
    )
    return made if coupled and batch_size is None else _batched(made, batch_size)


def _batched(net: Network, batch_size: int | None) -> Network:
    if net.coupled:
        msg = (
            f"batch_size={batch_size} splits the samples, but this model's outputs depend on the "
            "whole batch (BatchNorm in training mode?); call model.eval() for per-sample "
            "derivatives, or leave batch_size out to differentiate the batch as one function"
        )
        raise ValueError(msg)
    if batch_size is None:
        free = _WORKING_BYTES / (_sample_bytes(net) * (net.k + 2))
        return replace(net, batch=int(np.clip(free, 1, min(_LARGEST_BATCH, net.samples))))
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = f"batch_size={batch_size!r} is not a positive integer"
        raise ValueError(msg)
    return replace(net, batch=min(batch_size, net.samples))


def _sample_bytes(net: Network) -> int:
    """What one evaluation of one sample writes."""
    traced = layers.trace(net.one, net.leaves, net.x[0])
    return 1 + sum(
        v.aval.size * v.aval.dtype.itemsize for eqn in traced.jaxpr.eqns for v in eqn.outvars
    )


def _choose(
    params: Any, mask: Any, only: Only | None
) -> tuple[tuple[int, ...], tuple[jax.Array | None, ...]]:
    """The chosen leaves, and the flat indices of what the mask keeps of each."""
    paths = [_path(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    leaves, structure = jax.tree.flatten(params)
    masks: list[Any] = [None] * len(leaves)
    found: Any
    if mask is not None:
        masks, found = jax.tree.flatten(mask)
        shapes = [np.shape(m) for m in masks]
        if found != structure or shapes != [leaf.shape for leaf in leaves]:
            msg = (
                "mask must have the structure and the shapes of the parameters, one entry for "
                f"each; got {found} with shapes {shapes}, parameters {structure}"
            )
            raise ValueError(msg)
    chosen, kept = [], []
    for index, path in enumerate(paths):
        if only is not None and not _wanted(path, only):
            continue
        entries = None if masks[index] is None else np.flatnonzero(np.asarray(masks[index]))
        if entries is not None and len(entries) == leaves[index].size:
            entries = None
        if entries is None or len(entries):
            chosen.append(index)
            kept.append(None if entries is None else jnp.asarray(entries))
    if not chosen:
        msg = f"only={only!r} and the mask leave no parameter of {', '.join(paths)}"
        raise ValueError(msg)
    return tuple(chosen), tuple(kept)


def _path(path: tuple[Any, ...]) -> str:
    """layers/0/kernel, the same for dictionaries, lists and NNX states."""
    parts = [str(getattr(p, "key", getattr(p, "idx", getattr(p, "name", p)))) for p in path]
    if parts and parts[-1] in ("value", "raw_value"):
        parts = parts[:-1]
    return "/".join(parts)


def _wanted(path: str, only: Only) -> bool:
    return bool(only(path)) if callable(only) else fnmatch.fnmatch(path, only)


def parameter_names(net: Network) -> list[str]:
    """The path of every chosen leaf, in the order of the parameter vector."""
    params = jax.tree.unflatten(net.structure, list(net.leaves))
    paths = [_path(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return [paths[leaf] for leaf in net.chosen]


def spread(net: Network, v: jax.Array) -> list[jax.Array]:
    """A vector (p,) as tangents of the leaves, zero where an entry is not chosen."""
    tangents = [jnp.zeros_like(leaf) for leaf in net.leaves]
    parts = jnp.split(v, np.cumsum(net.counts)[:-1])
    for leaf, indices, part in zip(net.chosen, net.kept, parts, strict=True):
        shape = net.leaves[leaf].shape
        whole = part if indices is None else jnp.zeros(int(np.prod(shape))).at[indices].set(part)
        tangents[leaf] = whole.reshape(shape).astype(net.dtype)
    return tangents


def gather(net: Network, cotangents: Sequence[jax.Array]) -> jax.Array:
    """The transpose of :func:`spread`."""
    parts = []
    for leaf, indices in zip(net.chosen, net.kept, strict=True):
        flat = cotangents[leaf].reshape(-1)
        parts.append(flat if indices is None else flat[indices])
    return jnp.concatenate(parts)


def over_batches(
    net: Network, body: Callable[[jax.Array, Any], tuple[Any, Any]], rest: Any = None
) -> tuple[Any, Any]:
    """Sum the first and concatenate the second of ``body(x_b, rest_b)`` over batches of samples.

    ``rest`` is a pytree of arrays whose leading axis runs over samples.
    """
    n, size = net.samples, net.batch
    if size >= n:
        return body(net.x, rest)
    whole = n // size * size
    head = jax.tree.map(lambda a: a[:whole].reshape(-1, size, *a.shape[1:]), (net.x, rest))
    parts = jax.eval_shape(lambda h: body(*jax.tree.map(lambda a: a[0], h))[0], head)
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), parts)

    def step(total: Any, piece: Any) -> tuple[Any, Any]:
        summand, mapped = body(*piece)
        return jax.tree.map(jnp.add, total, summand), mapped

    total, mapped = jax.lax.scan(step, zero, head)
    mapped = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), mapped)
    if whole == n:
        return total, mapped
    last, tail = body(*jax.tree.map(lambda a: a[whole:], (net.x, rest)))
    join = partial(jax.tree.map, lambda a, b: jnp.concatenate([a, b]))
    return jax.tree.map(jnp.add, total, last), join(mapped, tail)


def _linear(net: Network, x: jax.Array) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """v -> J_b v (n_b, k) and its transpose, from one linearisation."""
    f = lambda leaves: net.outputs(leaves, x)  # noqa: E731
    _, forward = jax.linearize(f, list(net.leaves))
    backward = jax.linear_transpose(forward, list(net.leaves))
    return lambda v: forward(spread(net, v)), lambda u: gather(net, backward(u)[0])


def _columns(f: Callable[[jax.Array], jax.Array], v: jax.Array) -> jax.Array:
    """f on a vector, or on each column of a block."""
    return f(v) if v.ndim == 1 else jax.vmap(f, in_axes=1, out_axes=-1)(v)


def _weigh(factors: jax.Array | None, u: jax.Array, *, transpose: bool) -> jax.Array:
    """R u or R^T u, sample by sample."""
    if factors is None:
        return u
    return jnp.einsum("nij,nj->ni" if not transpose else "nji,nj->ni", factors, u)


def forward_products(net: Network, v: jax.Array) -> jax.Array:
    """J v for v (p,) or (p, b)."""

    def body(x: jax.Array, factors: Any) -> tuple[None, jax.Array]:
        forward, _ = _linear(net, x)
        return None, _columns(lambda w: _weigh(factors, forward(w), transpose=True), v)

    _, rows = over_batches(net, body, net.factors)
    return rows.reshape(net.samples * net.k, *v.shape[1:])


def backward_products(net: Network, u: jax.Array) -> jax.Array:
    """J^T u for u (n k,) or (n k, b)."""

    def body(x: jax.Array, rest: Any) -> tuple[jax.Array, None]:
        factors, part = rest  # part (n_b, k) or (n_b, k, b)
        _, backward = _linear(net, x)
        pull = lambda w: backward(_weigh(factors, w, transpose=False))  # noqa: E731
        return (pull(part) if u.ndim == 1 else jax.vmap(pull, in_axes=2, out_axes=1)(part)), None

    parts = u.reshape(net.samples, net.k, *u.shape[1:])
    return over_batches(net, body, (net.factors, parts))[0]


@jax.jit
def rounding(net: Network) -> jax.Array:
    """||J_forward - J_backward||_F, estimated from above: what rounding makes of the Jacobian.

    For Gaussian r and v the mean square of r^T (J v) - (J^T r)^T v is the squared norm of the
    difference between the Jacobians that the two modes see; both differ from the exact one by as
    much.
    """
    keys = jax.random.split(jax.random.key(0))
    v = jax.random.normal(keys[0], (net.parameters, _PROBES), net.dtype)
    r = jax.random.normal(keys[1], (net.samples * net.k, _PROBES), net.dtype)
    gaps = r.T @ forward_products(net, v) - backward_products(net, r).T @ v
    return _SAFETY * jnp.sqrt(jnp.square(gaps).mean())


def gauss_newton_products(net: Network, v: jax.Array) -> jax.Array:
    """J^T J v, forward and backward through one linearisation of each batch."""

    def body(x: jax.Array, factors: Any) -> tuple[jax.Array, None]:
        forward, backward = _linear(net, x)

        def product(w: jax.Array) -> jax.Array:
            weighed = _weigh(factors, forward(w), transpose=True)
            return backward(_weigh(factors, weighed, transpose=False))

        return _columns(product, v), None

    return over_batches(net, body, net.factors)[0]
