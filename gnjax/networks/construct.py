"""Make a :class:`Network` of a model and its inputs, and check both before any work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks import jaxprs, layers
from gnjax.networks.arguments.derivatives import checked_mode
from gnjax.networks.arguments.refusals import RAISED
from gnjax.networks.arguments.same_function import is_current
from gnjax.networks.arguments.samples import check_samples, same_size, sample_count, take, windows
from gnjax.networks.coupling import coupling_of, evaluated_apart
from gnjax.networks.equations.beside import compare_maxima
from gnjax.networks.equations.rewritten import rewritten_alike
from gnjax.networks.losses.output_checks import check_values
from gnjax.networks.losses.sample_losses import UNNAMED, Loss, check_loss
from gnjax.networks.losses.targets import make_target
from gnjax.networks.model import (
    Apply,
    apply_and_outputs,
    apply_and_params,
    check_order,
)
from gnjax.networks.network import Network, compare_rules, stated_by
from gnjax.networks.output_shapes import Outputs, described_outputs
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

    If an argument is a tracer of JAX, whose numbers are not known, only shapes are checked, and all
    samples are treated as coupled, in one batch: this is right for every model, and only slower for
    one that does not couple its samples.

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
    check_order(model, x)
    inputs = check_samples("x", x)
    n = sample_count(inputs)
    together = _samples_together(n, coupled, batch_size)
    apply, params = apply_and_params(model, take(inputs, slice(0, together)), has_aux=has_aux)
    # 2. The shapes of the outputs, and the targets, which have to fit them.
    apply, shapes = _apply_and_outputs(apply, params, inputs, together)
    try:
        target, total = make_target(loss, y, weights, shapes, n, real_dtype(), idle=idle)
    except ValueError:
        # targets do not fit these shapes; say so first if outputs depend on the size of the batch
        _check_same_outputs(apply, params, inputs, together, shapes)
        raise
    # 3. The parameters that are differentiated, and how many entries of each chosen leaf. There is
    # no target before step 6, so that what is compiled and cached before serves every loss.
    leaves, structure = jax.tree.flatten(params)
    leaf_indices, entry_indices = choose(params, mask, only)
    counts = tuple(
        leaves[leaf].size if indices is None else len(indices)
        for leaf, indices in zip(leaf_indices, entry_indices, strict=True)
    )
    net = Network(
        leaves=tuple(leaves),
        entry_indices=entry_indices,
        x=inputs,
        target=None,
        total=np.float64(total),
        apply=apply,
        structure=structure,
        leaf_indices=leaf_indices,
        counts=counts,
        shapes=shapes,
        batch=together,
        narrowest=real_dtype(),
    )
    if is_traced((net, target)):
        if batch_size is not None:
            what = "a batch_size, before which a test looks for coupled samples,"
            check_known(what, (net, target))
        facts, _ = _facts(net, n)
        return replace(net, target=target, coupled=True, **facts)
    # 4. The facts from the equations, and ``coarsest``, the largest eps of a floating format in
    # them, for step 6: a difference of this size may be rounding. The equations are those for one
    # sample, or for ``together`` samples where the model takes no single one, as a graph network
    # with a fixed graph.
    takes_one = _takes_one(apply, params, inputs, shapes)
    if not (takes_one or coupled):
        _check_not_one_sample(inputs)
    samples_traced = 1 if takes_one else together
    facts, coarsest = _facts(net, samples_traced)
    # Compiled derivatives of JAX's maxima may be wrong. Where step 2 put other maxima into the
    # model for that reason, this compares the model with and without them.
    first_samples = take(inputs, slice(0, samples_traced))
    compare_maxima("the model", apply, params, first_samples)
    # So does a function without its reverse rule, whose derivative the rule may mean to change.
    if facts["forward"] == "of the equations":
        compare_rules(replace(net, x=first_samples, **facts), math.sqrt(coarsest))
    # 5. How many samples go at once, by the numbers that their intermediate values take. Batches
    # have one size if possible.
    room = device().written(sum(leaf.size for leaf in leaves))
    largest = int(np.clip(room / facts["written"], 1, min(n, device().samples)))
    batch = same_size(n, largest) if batch_size is None else min(batch_size, n)
    net = replace(net, batch=batch, **facts)
    # 6. The outputs, the loss and the coupling by evaluations.
    is_coupled = _is_coupled(
        net,
        together,
        coarsest,
        takes_one,
        coupled,
        batch_size,
        lambda outputs, part: check_values(take(target, part), outputs, convex=convex),
        checks_all=callable(target.loss),
    )
    # of coupled samples the batch is one function
    return replace(net, target=target, coupled=is_coupled, batch=n if is_coupled else batch)


def at_parameters_of(
    net: Network,
    model: Any,
    *,
    has_aux: bool = False,
    coupled: bool | None = None,
    batch_size: int | None = None,
) -> Network | None:
    """``net`` with the parameters of ``model``.

    None if the model or its loss computes something else now, or if samples are coupled in one of
    both networks and not in the other. The options are those with which :func:`network` made
    ``net``.
    """
    if net.target is not None and not is_current(net.target.loss):
        return None
    together = _samples_together(net.samples, coupled, batch_size)
    first_samples = take(net.x, slice(0, together))
    apply, params = apply_and_params(model, first_samples, has_aux=has_aux)
    apply = rewritten_alike(apply, net.apply)
    leaves, structure = jax.tree.flatten(params)
    structures = (structure, jax.tree.structure(apply), [leaf.shape for leaf in leaves])
    of_net = (net.structure, jax.tree.structure(net.apply), [leaf.shape for leaf in net.leaves])
    if structures != of_net:
        return None
    renewed = replace(net, leaves=tuple(leaves), apply=apply)
    if is_traced(renewed):
        return renewed
    takes_one = _takes_one(apply, params, net.x, net.shapes)
    without_loss = replace(renewed, target=None)
    _, coarsest = _facts(without_loss, 1 if takes_one else together)
    unchecked = lambda outputs, part: None  # noqa: E731
    is_coupled = _is_coupled(
        without_loss, together, coarsest, takes_one, coupled, batch_size, unchecked
    )
    return renewed if is_coupled == net.coupled else None


def _samples_together(n: int, coupled: bool | None, batch_size: int | None) -> int:
    """How many of n samples are traced and checked in one batch.

    Refused are a ``coupled`` that is no bool or None, and a ``batch_size`` below one.
    """
    if not (coupled is None or isinstance(coupled, bool)):
        msg = f"coupled={coupled!r} is neither True nor False, nor None to find out"
        raise ValueError(msg)
    if batch_size is None:
        return n
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = f"batch_size={batch_size!r} is not a positive integer"
        raise ValueError(msg)
    return min(n, max(batch_size, 2))


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
    """Refuse a vector x, of a model that does not take one of its entries as a sample."""
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

    A graph network with a fixed graph, for one, takes no single node.
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
    if jaxprs.may_have_no_derivative(jaxpr) or facts["forward"] != "own":
        outputs = partial(net.outputs, x=first_samples)
        facts["forward"] = checked_mode(outputs, list(net.leaves), facts["forward"])
    facts["layered"] = tuple(layer.leaf for layer in trace.layers)
    return facts, max(jaxprs.coarsest_eps(jaxpr), float(jnp.finfo(net.dtype).eps))


@bounded_jit
def _outputs(net: Network, x: Any) -> jax.Array:
    """F(x) (n, k) of samples x as one batch."""
    return net.outputs(net.leaves, x)


def _is_coupled(
    net: Network,
    together: int,
    coarsest: float,
    takes_one: bool,
    coupled: bool | None,
    batch_size: int | None,
    check: Callable[[jax.Array, slice], None],
    *,
    checks_all: bool = False,
) -> bool:
    """Check the outputs, and find out from equations or evaluations whether samples are coupled.

    Samples are coupled if an output of one depends on the others. Refused are ``coupled=False`` for
    samples that are coupled, and a ``batch_size``, which would split them.

    Args:
      net: the network without its loss.
      together: how many samples are evaluated in one batch to find out.
      coarsest: the eps of the coarsest floating format that the model computes in.
      takes_one: whether the model takes a single sample; samples of one that does not are coupled.
      coupled: what the caller declares; a declared coupling is believed.
      batch_size: how many samples the caller wants to go at once, or None.
      check: a function that is given the outputs of every batch, and which samples these are.
        Where equations show that no samples are coupled, it is given those of the first ones.
      checks_all: whether ``check`` needs the outputs of all samples.
    """
    if coupled or not takes_one:
        check(_outputs(net, net.x), slice(0, net.samples))
        reason = "it is declared" if takes_one else "the model does not take a single sample"
    elif evaluated := evaluated_apart(net, together, coarsest, check):
        reason = ""
        if checks_all and evaluated < net.samples:
            start = 0
            for x, seen_before in windows(net.x, together):
                outputs = _outputs(net, x)[seen_before:]
                check(outputs, slice(start, start + len(outputs)))
                start += len(outputs)
    else:
        reason = coupling_of(net, together, coarsest, check, apart=coupled is False)
    if reason and coupled is False:
        msg = f"coupled=False, but the samples are coupled: {reason}"
        raise ValueError(msg)
    if reason and batch_size is not None:
        msg = (
            f"batch_size={batch_size} splits the samples, but this model's outputs depend on the "
            f"whole batch (BatchNorm or dropout in training mode?): {reason}. Call model.eval() "
            "for per-sample derivatives, or leave batch_size out to differentiate the batch as one "
            "function"
        )
        raise ValueError(msg)
    return bool(reason)
