"""From a model and its inputs to a :class:`Network`: every check is made here, before any work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.networks import jaxprs, layers
from gnjax.networks.coupling import Coupling, compare
from gnjax.networks.losses import (
    Loss,
    check_call,
    check_convex,
    check_loss,
    check_targets,
    factor_columns,
    hessian_factors,
)
from gnjax.networks.model import REFUSALS, Apply, check_outputs, described, prepared
from gnjax.networks.network import Network
from gnjax.networks.parameters import Only, choose
from gnjax.numerics.precision import real_dtype

_WORKING = 2.5e7  # numbers that one evaluation of a batch writes: more would leave the caches


def network(
    model: Any,
    x: ArrayLike,
    *,
    loss: Loss = "squared_error",
    y: ArrayLike | None = None,
    batch_size: int | None = None,
    coupled: bool | None = None,
    mask: Any = None,
    only: Only | None = None,
) -> Network:
    """Check what comes in, choose the parameters, and decide how many samples go at once.

    With a ``batch_size`` no more samples than that are evaluated at once here either (two, where it
    is one). Without, the batch is evaluated as a whole, as the caller would.
    """
    check_loss(loss)
    _check_declared(coupled, batch_size)
    apply, params, inputs = prepared(model, x)
    size = len(inputs) if batch_size is None else min(len(inputs), max(batch_size, 2))
    shape = described(apply, params, inputs[:size])
    k = shape.shape[1]
    factor_columns(loss, k)
    described_outputs = jax.ShapeDtypeStruct((len(inputs), k), real_dtype())
    targets = None if y is None else check_targets(loss, y, described_outputs)
    check_call(loss, described_outputs, targets)
    leaves, structure = jax.tree.flatten(params)
    chosen, kept = choose(params, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(chosen, kept, strict=True)
    )
    made = Network(
        tuple(leaves),
        kept,
        inputs,
        None,
        targets if callable(loss) else None,
        apply,
        structure,
        chosen,
        counts,
        loss,
        k,
        coupled=False,
        convolves=False,
        forward=True,
        targeted=callable(loss) and targets is not None,
        written=1.0,
        batch=size,
    )
    one = _takes_one(apply, params, inputs, k)
    made, coarsest = _traced(made, 1 if one else size)
    made = replace(made, batch=_batch(made, batch_size))
    outputs, found = _outputs(made, size, coarsest, coupled, one)
    _check_coupled(found, coupled, batch_size)
    if found.coupled:
        made = replace(made, coupled=True, batch=made.samples)
    return replace(made, factors=_factors(loss, outputs, targets, made.batch))


def _check_declared(coupled: bool | None, batch_size: int | None) -> None:
    if not (coupled is None or isinstance(coupled, bool)):
        msg = f"coupled={coupled!r} is neither True nor False, nor None to find out"
        raise ValueError(msg)
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = f"batch_size={batch_size!r} is not a positive integer"
        raise ValueError(msg)


def _takes_one(apply: Apply, params: Any, x: jax.Array, k: int) -> bool:
    """Whether the model takes a single sample; a graph network with a fixed graph does not."""
    if len(x) == 1:
        return True
    try:
        alone = jax.eval_shape(apply, params, x[:1])
    except REFUSALS:
        return False
    return getattr(alone, "shape", None) == (1, k)


def _traced(net: Network, samples: int) -> tuple[Network, float]:
    """What the equations of the model say, and the eps of the coarsest format that they use."""
    jaxpr = layers.trace(net.outputs, net.leaves, net.x[:samples]).jaxpr
    written = sum(v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars)
    names = {eqn.primitive.name for eqn in jaxpr.eqns}
    traced = replace(
        net,
        written=max(written / samples, 1.0),
        convolves="conv_general_dilated" in names,
        forward=not jaxprs.has_custom_vjp(jaxpr),
    )
    return traced, max(jaxprs.coarsest_eps(jaxpr), float(jnp.finfo(net.dtype).eps))


def _batch(net: Network, batch_size: int | None) -> int:
    """How many samples go at once, where they are not coupled."""
    if batch_size is not None:
        return min(batch_size, net.samples)
    largest = int(np.clip(_WORKING / net.written, 1, net.samples))
    return -(-net.samples // -(-net.samples // largest))


def _outputs(
    net: Network, together: int, coarsest: float, coupled: bool | None, one: bool
) -> tuple[jax.Array, Coupling]:
    """F (n, k), checked to be finite, and what is known of the coupling of samples."""
    if coupled or not one:
        reason = "it is declared" if one else "the model does not take a single sample"
        outputs, found = _evaluated(net), Coupling(True, reason)
    else:
        outputs, found = compare(net, together, coarsest, apart=coupled is False)
    check_outputs(outputs)
    return outputs, found


@jax.jit
def _evaluated(net: Network) -> jax.Array:
    return net.outputs(net.leaves, net.x)


def _check_coupled(found: Coupling, coupled: bool | None, batch_size: int | None) -> None:
    """Refuse a declaration that is not true, and batches that would split a coupled batch."""
    if not found.coupled:
        return
    if coupled is False:
        msg = f"coupled=False, but the samples are coupled: {found.reason}"
        raise ValueError(msg)
    if batch_size is not None:
        msg = (
            f"batch_size={batch_size} splits the samples, but this model's outputs depend on the "
            f"whole batch (BatchNorm or dropout in training mode?): {found.reason}. Call "
            "model.eval() for per-sample derivatives, or leave batch_size out to differentiate the "
            "batch as one function"
        )
        raise ValueError(msg)


def _factors(
    loss: Loss, outputs: jax.Array, targets: jax.Array | None, batch: int
) -> jax.Array | None:
    """R (n, k, r), some samples at a time."""
    parts: list[jax.Array] = []
    for start in range(0, len(outputs), batch):
        part = slice(start, start + batch)
        y = None if targets is None else targets[part]
        check_convex(loss, outputs[part], y)
        factors = hessian_factors(loss, outputs[part], y)
        if factors is None:
            return None
        parts.append(factors)
    return jnp.concatenate(parts)
