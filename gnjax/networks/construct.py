"""Make a :class:`Network` of a model and its inputs, and check both before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs, layers
from gnjax.networks.coupling import Coupling, coupling_of
from gnjax.networks.equations.beside import compare_maxima
from gnjax.networks.equations.rewritten import rewritten_alike
from gnjax.networks.forms.derivatives import check_differentiable
from gnjax.networks.forms.refusals import RAISED
from gnjax.networks.forms.samples import same_size, sample_count, take
from gnjax.networks.losses import Loss, check_loss
from gnjax.networks.model import (
    Apply,
    apply_and_outputs,
    apply_and_params,
    apply_params_and_inputs,
    check_outputs,
)
from gnjax.networks.network import Network, stated_by
from gnjax.networks.outputs.hessians import check_convex
from gnjax.networks.outputs.shapes import Outputs, described_outputs
from gnjax.networks.outputs.targets import make_target
from gnjax.networks.outputs.values import check_values
from gnjax.networks.parameters import Only, choose
from gnjax.numerics.bounded_jit import bounded_jit, by_shapes
from gnjax.numerics.memory.device import device
from gnjax.numerics.precision import real_dtype
from gnjax.numerics.validation import check_known, is_traced


def network(
    model: Any,
    x: Any,
    *,
    y: Any = None,
    loss: Loss = "squared_error",
    weights: Any = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: Any = None,
    batch_size: int | None = None,
    convex: bool = True,
    idle: bool = False,
) -> Network:
    """Check the arguments, choose the parameters, and decide how many samples go at once.

    With a ``batch_size`` the checks also evaluate at most so many samples at once (two, if it is
    one). Without, they evaluate all samples as one batch, as the caller would. With ``convex`` a
    loss that is not convex in the outputs is refused. With ``idle`` it is allowed that all samples
    have the weight zero. Of what is traced, as in a compiled step of an optimiser, only shapes are
    checked, and all samples are one function, which is right whether they are coupled or not.
    """
    check_loss(loss)
    _check_declared(coupled, batch_size)
    apply, params, inputs = apply_params_and_inputs(model, x, has_aux=has_aux)
    n = sample_count(inputs)
    size = n if batch_size is None else min(n, max(batch_size, 2))
    apply, shapes = _apply_and_outputs(apply, params, inputs, size)
    try:
        target, total = make_target(loss, y, weights, shapes, n, real_dtype(), idle=idle)
    except ValueError:
        _check_same_outputs(apply, params, inputs, size, shapes)
        raise
    leaves, structure = jax.tree.flatten(params)
    leaf_indices, entry_indices = choose(params, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(leaf_indices, entry_indices, strict=True)
    )
    net = Network(
        tuple(leaves),
        entry_indices,
        inputs,
        target,
        np.float64(total),
        apply,
        structure,
        leaf_indices,
        counts,
        shapes,
        coupled=False,
        convolves=False,
        forward=True,
        written=1.0,
        batch=size,
        layered=(),
        narrowest=real_dtype(),
    )
    if is_traced(net):
        return _of_shapes(net, batch_size)
    takes_one = _takes_one(apply, params, inputs, shapes)
    if not (takes_one or coupled):
        _check_not_one_sample(inputs)
    few = 1 if takes_one else size
    facts, coarsest = _facts(replace(net, target=None), few)
    compare_maxima("the model", apply, params, take(inputs, slice(0, few)))
    net = replace(net, **facts)
    net = replace(net, batch=_batch(net, batch_size))
    coupling = _checked_coupling(net, size, coarsest, coupled, takes_one, convex)
    _check_coupled(coupling, coupled, batch_size)
    if not coupling.coupled:
        return net
    return replace(net, coupled=True, batch=net.samples)  # the batch is one function


def _of_shapes(net: Network, batch_size: int | None) -> Network:
    """The network of traced arrays."""
    if batch_size is not None:
        check_known("a batch_size, before which a test looks for coupled samples,", net)
    facts, _ = _facts(replace(net, target=None), net.samples)
    return replace(net, **facts, coupled=True)


def at_parameters_of(net: Network, model: Any, *, has_aux: bool = False) -> Network | None:
    """The network at the parameters of ``model``; None if the model has another structure.

    Its facts about the structure are reused: coupled samples, layers, sizes of batches.
    """
    apply, params = apply_and_params(model, has_aux=has_aux)
    apply = rewritten_alike(apply, net.apply)
    leaves, structure = jax.tree.flatten(params)
    expected = (net.structure, jax.tree.structure(net.apply), _shapes(net.leaves))
    if (structure, jax.tree.structure(apply), _shapes(leaves)) != expected:
        return None
    return replace(net, leaves=tuple(leaves), apply=apply)


def _shapes(leaves: Sequence[jax.Array]) -> list[tuple[int, ...]]:
    return [leaf.shape for leaf in leaves]


def _check_declared(coupled: bool | None, batch_size: int | None) -> None:
    if not (coupled is None or isinstance(coupled, bool)):
        msg = f"coupled={coupled!r} is neither True nor False, nor None to find out"
        raise ValueError(msg)
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = f"batch_size={batch_size!r} is not a positive integer"
        raise ValueError(msg)


def _apply_and_outputs(apply: Apply, params: Any, x: Any, size: int) -> tuple[Apply, Outputs]:
    """Call :func:`described` at the first samples, with a clear error if the model refuses them."""
    try:
        return apply_and_outputs(apply, params, take(x, slice(0, size)))
    except ValueError as error:
        if size == sample_count(x):
            raise
        msg = (
            f"with batch_size the model is given {size} of the {sample_count(x)} samples, and "
            f"{error}; leave batch_size out where the model takes the whole of x alone"
        )
        raise ValueError(msg) from error


def _check_same_outputs(apply: Apply, params: Any, x: Any, size: int, shapes: Outputs) -> None:
    """Refuse a model whose outputs of one sample have another shape in a batch of another size."""
    if size == sample_count(x):
        return
    _, of_all = apply_and_outputs(apply, params, x)
    if of_all != shapes:
        msg = (
            f"with batch_size the outputs of a sample have shape {shapes.shapes}, and "
            f"{of_all.shapes} among all {sample_count(x)} samples; leave batch_size out where the "
            "model compares samples of one batch"
        )
        raise ValueError(msg)


def _check_not_one_sample(x: Any) -> None:
    """Refuse a vector x whose entries the model does not take one by one: x is one sample."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(x)]
    if len(shapes) == 1 and len(shapes[0]) == 1:
        msg = (
            f"x has shape {shapes[0]}, and the model does not take one of its entries alone: it "
            "seems to be a single sample; give x[None], or say coupled=True if its entries are "
            "samples"
        )
        raise ValueError(msg)


@by_shapes
def _takes_one(apply: Apply, params: Any, x: Any, shapes: Outputs) -> bool:
    """Whether the model takes a single sample; a graph network with a fixed graph does not."""
    if sample_count(x) == 1:
        return True
    try:
        alone = jax.eval_shape(apply, params, take(x, slice(0, 1)))
        return described_outputs(alone, 1) == shapes
    except RAISED:
        return False


@by_shapes
def _facts(net: Network, samples: int) -> tuple[dict[str, Any], float]:
    """What the equations of the model at the first samples state, and their coarsest eps."""
    few = take(net.x, slice(0, samples))
    trace = layers.traced_layers(net.outputs, net.leaves, few)
    jaxpr = trace.jaxpr
    facts = stated_by(jaxpr, samples)
    if jaxprs.may_have_no_derivative(jaxpr) or not facts["forward"]:
        some = partial(net.outputs, x=few)
        check_differentiable(some, list(net.leaves), forward=facts["forward"])
    facts["layered"] = tuple(layer.leaf for layer in trace.layers)
    return facts, max(jaxprs.coarsest_eps(jaxpr), float(jnp.finfo(net.dtype).eps))


def _batch(net: Network, batch_size: int | None) -> int:
    """How many samples go at once, where they are not coupled."""
    if batch_size is not None:
        return min(batch_size, net.samples)
    largest = int(np.clip(device().batch / net.written, 1, net.samples))
    return same_size(net.samples, largest)


def _checked_coupling(
    net: Network,
    together: int,
    coarsest: float,
    coupled: bool | None,
    takes_one: bool,
    convex: bool,
) -> Coupling:
    """Check the outputs, and say what is known of the coupling of samples."""
    check = partial(_check_part, net, convex)
    if coupled or not takes_one:
        check(_outputs(replace(net, target=None)), slice(0, net.samples))
        reason = "it is declared" if takes_one else "the model does not take a single sample"
        return Coupling(True, reason)
    without_loss = replace(net, target=None)  # one program for every loss
    return coupling_of(without_loss, together, coarsest, apart=coupled is False, see=check)


def _check_part(net: Network, convex: bool, outputs: jax.Array, part: slice) -> None:
    """Check the outputs of some samples."""
    check_outputs(outputs)
    if net.target is None:
        return
    target = take(net.target, part)
    check_values(target, outputs)
    if convex:
        check_convex(target, outputs)


@bounded_jit
def _outputs(net: Network) -> jax.Array:
    return net.outputs(net.leaves, net.x)


def _check_coupled(coupling: Coupling, coupled: bool | None, batch_size: int | None) -> None:
    """Refuse a declaration that is not true, and batches that would split a coupled batch."""
    if not coupling.coupled:
        return
    if coupled is False:
        msg = f"coupled=False, but the samples are coupled: {coupling.reason}"
        raise ValueError(msg)
    if batch_size is not None:
        msg = (
            f"batch_size={batch_size} splits the samples, but this model's outputs depend on the "
            f"whole batch (BatchNorm or dropout in training mode?): {coupling.reason}. Call "
            "model.eval() for per-sample derivatives, or leave batch_size out to differentiate the "
            "batch as one function"
        )
        raise ValueError(msg)
