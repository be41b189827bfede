"""Checks of the outputs of a model, and of the values of the caller's loss there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.equations.beside import compare_by_steps
from gnjax.networks.losses.output_hessian import check_convex
from gnjax.networks.losses.sample_losses import checked_terms
from gnjax.networks.losses.targets import Target, term_losses
from gnjax.numerics.bounded_jit import bounded_jit
from gnjax.numerics.host import all_finite, on_cpu

_SUM_OF_PROBABILITIES = 1e-3  # a softmax in half precision sums to one to about this


def check_values(target: Target, outputs: jax.Array, *, convex: bool) -> None:
    """Refuse outputs (n, k) and targets at which the loss does not mean what the caller expects.

    Outputs with NaN or Inf are refused, and by the cross-entropy those that are probabilities and
    no logits. A loss of the caller's own is refused where it is NaN or infinite, where it reads the
    label -1 as the last class, where it changes when its maxima are replaced by choices between
    compared numbers, as they are when the library differentiates it, and with ``convex`` where it
    is not convex in the outputs.
    """
    if not all_finite(outputs):
        msg = (
            "the model's outputs contain NaN or Inf at these parameters and inputs; look for token "
            "numbers past the vocabulary, for masks that leave a sample nothing, and for numbers "
            "that overflow"
        )
        raise ValueError(msg)
    if target.loss == "cross_entropy":
        _check_logits(target, outputs)
    if not callable(target.loss):
        return
    # Weights are left out: 0 times infinity is NaN, but a term of weight 0 may be infinite.
    unweighted = replace(target, weights=None)
    terms = _terms(unweighted, outputs)
    if not bool(_finite_where_they_count(terms, target.weights)):
        msg = (
            "the loss is NaN or infinite for some sample at these outputs and targets; look for "
            "labels that name no output, and for a log or a division by zero"
        )
        raise ValueError(msg)
    _check_negative_labels(unweighted, outputs, terms)
    # One sample shows the operations of the loss. A loss without targets takes outputs alone.
    first_target = [] if target.y is None else [jax.tree.map(lambda array: array[0], target.y)]
    terms_of_first = partial(checked_terms, target.loss)
    compare_by_steps("the loss", terms_of_first, target.outputs.unravel(outputs[0]), *first_target)
    if convex:
        check_convex(target, outputs)


_terms = bounded_jit(term_losses)


@jax.jit
def _finite_where_they_count(terms: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Whether every term (n, t) of the losses of n samples is finite, if its weight is not zero.

    ``weights`` are (n,) or (n, ...). Where there is not one for each term, all terms of a sample
    must be finite if any of its weights is not zero.
    """
    finite = jnp.isfinite(terms)
    if weights is None:
        return finite.all()
    nonzero = weights.reshape(len(terms), -1) != 0
    counts = nonzero if nonzero.shape == terms.shape else nonzero.any(axis=1, keepdims=True)
    return (finite | ~counts).all()


def _check_logits(target: Target, outputs: jax.Array) -> None:
    """Refuse outputs (n, ...) whose rows are probabilities: the cross-entropy takes the softmax."""
    host_outputs = np.asarray(outputs) if on_cpu(outputs) else outputs  # NumPy compiles nothing
    rows = host_outputs.reshape(-1, target.outputs.shape[-1])
    distance = abs(rows.sum(axis=-1) - 1).max()
    if float(rows.min()) >= 0 and float(distance) <= _SUM_OF_PROBABILITIES:
        msg = (
            "the outputs are probabilities, and loss='cross_entropy' takes logits, of which it "
            "makes the softmax itself; leave the softmax out of the model, or take the log of its "
            "outputs"
        )
        raise ValueError(msg)


def _check_negative_labels(target: Target, outputs: jax.Array, terms: jax.Array) -> None:
    """Refuse a loss of the caller's that takes the label -1 for the last class, as an index.

    ``terms`` (n, t) are the terms of each sample's loss at ``outputs`` (n, k). They are computed
    again with the number of classes added to every negative label. If none of them changes where a
    label is negative, the loss itself has counted from the end.
    """
    y, shape = target.y, target.outputs.shapes[0]
    may_be_labels = target.outputs.is_array and shape and hasattr(y, "shape")
    if not may_be_labels or y.shape[1:] != shape[:-1] or not jnp.issubdtype(y.dtype, jnp.integer):
        return
    negative = (y < 0).reshape(len(outputs), -1)
    if not bool(negative.any()):
        return
    from_end = replace(target, y=jnp.where(y < 0, y + shape[-1], y))
    unchanged = _terms(from_end, outputs) == terms
    # the terms with a negative label; where labels are not one for each term, all of the sample
    affected = negative if negative.shape == terms.shape else negative.any(axis=1, keepdims=True)
    if bool(jnp.where(affected, unchanged, True).all()):
        msg = (
            "the loss takes a label of -1 for the last class; pass loss='cross_entropy', for which "
            "such labels do not count, or labels from 0 on with weights that are zero"
        )
        raise ValueError(msg)
