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
from gnjax.networks.losses import UNNAMED, Loss, check_loss
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
    loss: Loss = UNNAMED,
    weights: Any = None,
    has_aux: bool = False,
    coupled: bool | None = None,
    only: Only | None = None,
    mask: Any = None,
    batch_size: int | None = None,
    convex: bool = True,
    idle: bool = False,
) -> Network:
    """A model at the samples x and targets y as a :class:`Network`, checked before any work.

    Six steps: check the arguments; trace the model for the shapes of its outputs, and check the
    targets; choose the parameters; read the facts from the model's equations (its jaxpr); choose
    how many samples go at once; find out whether samples are coupled, that is, whether an output of
    one sample depends on the others, as with BatchNorm in training mode.

    If an argument is a tracer of JAX, as inside of a compiled step of an optimiser, its numbers are
    not known. Then only shapes are checked, and all samples are treated as coupled, in one batch:
    this is right for every model, and only slower for one that does not couple its samples.

    Args:
      model: anything that :func:`gnjax.functional` takes.
      x: the samples, a pytree of arrays (n, ...).
      y: the targets of the samples, or None.
      loss: the name of a loss, or a function of one sample's outputs and targets.
      weights: the weights of the samples (n,) or of the terms of their losses, or None.
      has_aux: the model returns (outputs, extras).
      coupled: whether samples depend on each other, as the caller declares; None: it is found out.
      only: which parameters are differentiated, by their paths.
      mask: a pytree like the parameters, zero at the entries that are not differentiated.
      batch_size: at most how many samples go at once, in the checks too (there at least two, so
        that coupled samples are seen). Without it the checks evaluate all samples as one batch,
        as the caller would.
      convex: a loss that is not convex in the outputs is refused.
      idle: it is allowed that all samples have the weight zero.
    """
    # 1. The arguments, and the model as a function apply(params, inputs).
    check_loss(loss)
    _check_declared(coupled, batch_size)
    apply, params, inputs = apply_params_and_inputs(model, x, has_aux=has_aux)
    n = sample_count(inputs)
    together = n if batch_size is None else min(n, max(batch_size, 2))
    # 2. The shapes of the outputs, and the targets, which have to fit them.
    apply, shapes = _apply_and_outputs(apply, params, inputs, together)
    try:
        target, total = make_target(loss, y, weights, shapes, n, real_dtype(), idle=idle)
    except ValueError:
        # targets do not fit these shapes; say so first if outputs depend on the size of the batch
        _check_same_outputs(apply, params, inputs, together, shapes)
        raise
    # 3. The parameters that are differentiated, and how many entries of each chosen leaf.
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
        # What follows is not known yet. These values stand in until steps 4 to 6 replace them.
        coupled=False,
        convolves=False,  # whether an equation is a convolution
        forward=True,  # whether the model has JAX's forward mode
        written=1.0,  # how many numbers the equations compute for a sample
        batch=together,
        layered=(),  # the parameters in known layers, as dense ones
        narrowest=real_dtype(),  # the dtype with the smallest range of exponents in the equations
    )
    if is_traced(net):
        return _of_shapes(net, batch_size)
    # 4. The facts from the equations: the fields convolves, forward, written, layered, narrowest;
    # and ``coarsest``, the largest eps of a floating format in them, for step 6: a difference of
    # this size may be rounding. The equations are those for one sample, or for ``together`` samples
    # where the model takes no single one, as a graph network with a fixed graph.
    takes_one = _takes_one(apply, params, inputs, shapes)
    if not (takes_one or coupled):
        _check_not_one_sample(inputs)
    samples_traced = 1 if takes_one else together
    # without the target, so that what is cached serves every loss
    facts, coarsest = _facts(replace(net, target=None), samples_traced)
    # Compiled derivatives of JAX's maxima may be wrong. Where step 2 put other maxima into the
    # model for that reason, this compares the model with and without them.
    compare_maxima("the model", apply, params, take(inputs, slice(0, samples_traced)))
    net = replace(net, **facts)
    # 5. How many samples go at once, from ``written`` and the memory of the device.
    net = replace(net, batch=_batch(net, batch_size))
    # 6. The outputs, the loss and the coupling by evaluations. The first function finds out whether
    # samples are coupled; the second refuses that where it contradicts the caller's arguments.
    coupling = _checked_coupling(net, together, coarsest, coupled, takes_one, convex)
    _check_coupled(coupling, coupled, batch_size)
    if not coupling.coupled:
        return net
    return replace(net, coupled=True, batch=net.samples)  # the batch is one function


def _of_shapes(net: Network, batch_size: int | None) -> Network:
    """The network of traced arrays, whose values are not known: only its equations are read.

    All samples count as coupled, in one batch, which is right for every model.
    """
    if batch_size is not None:
        check_known("a batch_size, before which a test looks for coupled samples,", net)
    facts, _ = _facts(replace(net, target=None), net.samples)
    return replace(net, **facts, coupled=True)


def at_parameters_of(net: Network, model: Any, *, has_aux: bool = False) -> Network | None:
    """``net`` with the parameters of ``model``; None if the model has another structure.

    What was found out about the structure for ``net`` is reused: whether samples are coupled, which
    parameters are in known layers, and the sizes of batches.
    """
    apply, params = apply_and_params(model, has_aux=has_aux)
    apply = rewritten_alike(apply, net.apply)
    leaves, structure = jax.tree.flatten(params)
    known_structure = (net.structure, jax.tree.structure(net.apply), _shapes(net.leaves))
    if (structure, jax.tree.structure(apply), _shapes(leaves)) != known_structure:
        return None
    return replace(net, leaves=tuple(leaves), apply=apply)


def _shapes(leaves: Sequence[jax.Array]) -> list[tuple[int, ...]]:
    """The shapes of the arrays, in order."""
    return [leaf.shape for leaf in leaves]


def _check_declared(coupled: bool | None, batch_size: int | None) -> None:
    """Refuse a ``coupled`` that is no bool or None, and a ``batch_size`` below one."""
    if not (coupled is None or isinstance(coupled, bool)):
        msg = f"coupled={coupled!r} is neither True nor False, nor None to find out"
        raise ValueError(msg)
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = f"batch_size={batch_size!r} is not a positive integer"
        raise ValueError(msg)


def _apply_and_outputs(apply: Apply, params: Any, x: Any, together: int) -> tuple[Apply, Outputs]:
    """The model as the library differentiates it, and the shapes of one sample's outputs.

    The model apply(params, x) is traced at the first ``together`` samples of x. If it raises an
    error, the message says that it was given only these.
    """
    try:
        return apply_and_outputs(apply, params, take(x, slice(0, together)))
    except ValueError as error:
        if together == sample_count(x):
            raise
        msg = (
            f"with batch_size the model is given {together} of the {sample_count(x)} samples, and "
            f"{error}; leave batch_size out where the model takes the whole of x alone"
        )
        raise ValueError(msg) from error


def _check_same_outputs(apply: Apply, params: Any, x: Any, together: int, shapes: Outputs) -> None:
    """Refuse a model whose outputs have other shapes for a sample if all samples x go at once.

    ``shapes`` are those of one sample's outputs in a batch of ``together`` samples.
    """
    if together == sample_count(x):
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
    """Refuse a vector x, of a model that does not take one of its entries as a sample.

    Such an x seems to be a single sample without the axis of samples.
    """
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
    """Whether the model takes the first sample alone, with outputs of the same ``shapes``.

    These are the shapes of one sample's outputs in a batch. A graph network with a fixed graph, for
    one, takes no single node.
    """
    if sample_count(x) == 1:
        return True
    try:
        alone = jax.eval_shape(apply, params, take(x, slice(0, 1)))
        return described_outputs(alone, 1) == shapes
    except RAISED:
        return False


@by_shapes
def _facts(net: Network, samples: int) -> tuple[dict[str, Any], float]:
    """Facts read from the equations of the model, traced at its first ``samples`` samples.

    Returns:
      Fields of a :class:`Network`, such as which parameters are in known layers; and the eps of the
      coarsest floating format that the model computes in. A model without derivatives is refused.
    """
    first_samples = take(net.x, slice(0, samples))
    trace = layers.traced_layers(net.outputs, net.leaves, first_samples)
    jaxpr = trace.jaxpr
    facts = stated_by(jaxpr, samples)
    if jaxprs.may_have_no_derivative(jaxpr) or not facts["forward"]:
        outputs = partial(net.outputs, x=first_samples)
        check_differentiable(outputs, list(net.leaves), forward=facts["forward"])
    facts["layered"] = tuple(layer.leaf for layer in trace.layers)
    return facts, max(jaxprs.coarsest_eps(jaxpr), float(jnp.finfo(net.dtype).eps))


def _batch(net: Network, batch_size: int | None) -> int:
    """How many samples go at once, where they are not coupled.

    Without a ``batch_size`` of the caller's the memory of the device decides: it has to hold the
    intermediate values, ``net.written`` numbers for each sample. Batches have one size if possible.
    """
    if batch_size is not None:
        return min(batch_size, net.samples)
    # device().batch is how many numbers of a batch the memory may hold
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
    """Check the outputs, and find out by evaluations whether samples are coupled.

    Samples are coupled if an output of one depends on the others. Outputs and losses are checked at
    the same evaluations, some samples at a time. What the caller declares is compared with the
    answer afterwards, by :func:`_check_coupled`.

    Args:
      net: the network, with its loss.
      together: how many samples are evaluated in one batch to find out.
      coarsest: the eps of the coarsest floating format that the model computes in.
      coupled: what the caller declares; a declared coupling is believed.
      takes_one: whether the model takes a single sample; samples of one that does not are coupled.
      convex: whether a loss that is not convex is refused.
    """
    check = partial(_check_part, net, convex)
    if coupled or not takes_one:
        check(_outputs(replace(net, target=None)), slice(0, net.samples))
        reason = "it is declared" if takes_one else "the model does not take a single sample"
        return Coupling(True, reason)
    without_loss = replace(net, target=None)  # one program for every loss
    return coupling_of(without_loss, together, coarsest, apart=coupled is False, see=check)


def _check_part(net: Network, convex: bool, outputs: jax.Array, part: slice) -> None:
    """Check the outputs (b, k) of the samples ``part``, and the loss at these outputs.

    With ``convex`` a loss is refused that is not convex in the outputs.
    """
    check_outputs(outputs)
    if net.target is None:
        return
    target = take(net.target, part)
    check_values(target, outputs)
    if convex:
        check_convex(target, outputs)


@bounded_jit
def _outputs(net: Network) -> jax.Array:
    """F(x) (n, k) of all samples as one batch."""
    return net.outputs(net.leaves, net.x)


def _check_coupled(coupling: Coupling, coupled: bool | None, batch_size: int | None) -> None:
    """Refuse arguments that the ``coupling`` found by :func:`_checked_coupling` contradicts.

    They are ``coupled=False`` for samples that are coupled, and a ``batch_size`` that would split
    coupled samples, whose outputs depend on the whole batch.
    """
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
