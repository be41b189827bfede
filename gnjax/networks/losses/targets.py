"""The loss of a network: its targets, the weights of samples or labels, and how the mean is taken.

The mean loss is sum w (.) / sum w. Without weights the mean is over the samples, and for the
cross-entropy over the labels that count: a label of -1 does not. Weights have the shape (n,), or
the shape of the labels or targets, where there is one for each.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gnjax.networks.arguments.real_form import real_parts
from gnjax.networks.arguments.same_function import compared
from gnjax.networks.arguments.samples import as_arrays, as_floats, check_samples, sample_count
from gnjax.networks.losses.of_optax import equal_loss
from gnjax.networks.losses.sample_losses import (
    UNNAMED,
    Loss,
    check_call,
    is_squared,
    loss_in_words,
    loss_terms,
    sample_arguments,
)
from gnjax.networks.output_shapes import Outputs
from gnjax.numerics.host import on_cpu
from gnjax.numerics.precision import level_of_callers_line
from gnjax.numerics.validation import is_traced

_SUM_OF_TARGETS = 1e-3  # the sum of probabilities in half precision differs from one by about this
NOTHING_COUNTS = (
    "no sample counts: every weight is zero or every label is -1; give labels from 0 on, or "
    "weights above zero, to the samples that do"
)
_ONE_CLASS = (
    "the cross-entropy of a model with one output is zero whatever that output is; give the model "
    'one output for each class, or use loss="binary_cross_entropy" with labels y of 0 and 1'
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Target:
    """The targets and weights of n samples, and the loss that compares outputs with them.

    Attributes:
      y: labels or targets, samples first; None where the loss needs none.
      weights: (n,), or (n, ...) with one weight for each term of a sample's loss; None: all are 1.
      loss: a name, or a function of the caller's.
      outputs: the shapes of one sample's outputs.
      in_words: the loss as operators and reports say it; "" where ``loss`` says it.
    """

    y: Any
    weights: jax.Array | None
    loss: Loss = field(metadata={"static": True})
    outputs: Outputs = field(metadata={"static": True})
    in_words: str = field(default="", metadata={"static": True})

    @property
    def rows(self) -> int:
        """r, the columns of the factor R of a sample's output Hessian."""
        if self.loss != "cross_entropy":
            return self.outputs.k
        *tokens, classes = self.outputs.shape
        return math.prod(tokens) * (classes - 1)

    @property
    def weighs(self) -> bool:
        """Whether the output Hessian B differs from the identity, so that G differs from J^T J."""
        return not is_squared(self.loss) or self.weights is not None


def loss_sum(target: Target, outputs: jax.Array) -> jax.Array:
    """sum_i w_i loss(F(x_i), y_i) for outputs (n, k)."""
    return term_losses(target, outputs).sum(axis=1).sum()


def term_losses(target: Target, outputs: jax.Array) -> jax.Array:
    """The t weighted terms (n, t) of the loss at outputs (n, k), such as one for each token."""
    terms = loss_terms(target.loss)

    def sample(row: jax.Array, y: Any, weights: jax.Array | None) -> jax.Array:
        f = target.outputs.unravel(row)
        if is_squared(target.loss) and not target.outputs.is_array:
            f = row  # the squared error sums over the entries of all outputs
        losses = terms(f) if y is None else terms(f, y)
        return (losses if weights is None else weights * losses).reshape(-1)

    return jax.vmap(sample)(outputs, target.y, target.weights)


def check_has_targets(loss: Loss, y: Any) -> None:
    """Refuse a named loss without targets where more than G is asked for."""
    if y is None and not callable(loss):
        msg = f"gradients and the Hessian of loss={loss!r} depend on the targets; pass them as y"
        raise ValueError(msg)


def make_target(
    loss: Loss,
    y: Any,
    weights: Any,
    outputs: Outputs,
    n: int,
    dtype: jnp.dtype,
    *,
    idle: bool = False,
) -> tuple[Target, float]:
    """The checked target, and the number by which to divide :func:`loss_sum` for the mean loss.

    Labels of -1, which do not count, become weights that are zero. A loss of optax that is a
    multiple of a named loss becomes that loss, and its factor becomes weights; its mean stays that
    of a function, over the samples. Where the divisor depends on traced arrays, the weights are
    divided by it already, and 1 is returned. The numbers of traced arrays are not checked.

    Args:
      loss: the name of a checked loss, or a function of one sample's outputs and targets.
      y: the targets of all samples, or None.
      weights: the weights (n,) or (n, terms), or None where all are 1.
      outputs: the shapes of one sample's outputs.
      n: how many samples there are.
      dtype: the working precision, which floating targets and weights are converted to.
      idle: it is allowed that no sample counts, as in a batch of padding among others.
    """
    is_entropy = not (callable(loss) or is_squared(loss))
    if is_entropy:
        _check_outputs(loss, outputs)
    targets = None if y is None else checked_targets(loss, y, outputs, n, dtype)
    equal = equal_loss(loss, targets, outputs, n, dtype) if callable(loss) else None
    # the shape of the terms whose sum is one sample's loss, such as one for each token
    if callable(loss):
        terms = check_call(loss, outputs, targets, dtype)
    elif loss == "cross_entropy":
        terms = outputs.shape[:-1]
    else:
        terms = outputs.shape if outputs.is_array else (outputs.k,)
    weights_array = None if weights is None else _checked_weights(weights, n, terms, dtype)
    counts = _labels_that_count(loss, targets, y) if is_entropy and y is not None else None
    divisor = _sum_of_weights(loss, n, terms, weights_array, counts)
    known = not is_traced((divisor, counts))
    if known and not (divisor > 0 or idle):
        raise ValueError(NOTHING_COUNTS)
    if counts is not None and not (known and counts.all()):
        mask = jnp.asarray(counts, dtype)
        weights_array = (
            mask if weights_array is None else mask * _with_axes(weights_array, mask.ndim)
        )
    if loss == "binary_cross_entropy" and targets is not None:
        targets = jnp.maximum(targets, 0)  # labels of -1 have the weight zero, and stay finite
    in_words = ""
    if equal is not None:
        # the sum that a function is, unless each token has a weight in the mean
        over_tokens = equal.loss == "cross_entropy" and math.prod(terms) > 1
        per_token = weights_array is not None and weights_array.ndim > 1
        in_words = equal.in_words(summed=over_tokens and not per_token)
        loss = equal.loss
        targets = checked_targets(loss, targets, outputs, n, dtype)
        if equal.factor != 1:
            ones = jnp.ones(n, dtype)
            weights_array = equal.factor * (ones if weights_array is None else weights_array)
    if callable(loss):
        in_words = loss_in_words(loss)
        loss = compared(loss, *sample_arguments(outputs, targets, dtype))
    if not known:
        weights_array, divisor = weights_array / divisor, 1.0
    return Target(targets, weights_array, loss, outputs, in_words), divisor


def _check_outputs(loss: Loss, outputs: Outputs) -> None:
    """Refuse outputs that a cross-entropy cannot take: complex ones, several arrays, one class."""
    if outputs.complexes:
        msg = (
            f"loss={loss!r} takes real outputs, and the model returns complex ones; return what "
            "the loss needs, such as the modulus"
        )
        raise ValueError(msg)
    if not outputs.is_array:
        msg = (
            f"loss={loss!r} takes a model with one array as output, and this one returns "
            f"{len(outputs.shapes)}; pass a function loss(f, y) that takes them, such as "
            "lambda f, y: optax.softmax_cross_entropy_with_integer_labels(f['logits'], y)"
        )
        raise ValueError(msg)
    if loss == "cross_entropy" and (not outputs.shape or outputs.shape[-1] == 1):
        raise ValueError(_ONE_CLASS)


def check_targets(loss: Loss, y: ArrayLike, outputs: jax.ShapeDtypeStruct | jax.Array) -> Any:
    """Targets of a model that returns one array, checked; see :func:`checked_targets`."""
    described = Outputs(jax.tree.structure(0), (tuple(outputs.shape[1:]),))
    return checked_targets(loss, y, described, outputs.shape[0], outputs.dtype)


def checked_targets(loss: Loss, y: Any, outputs: Outputs, n: int, dtype: jnp.dtype) -> Any:
    """Targets of n samples in the shape that the loss takes, in the precision ``dtype``.

    A loss of the caller's gets them unchanged. The cross-entropy takes integer labels
    (n, ...) or probabilities (n, ..., classes); a squared error takes targets in the shape of the
    outputs, or labels of two classes or more, which become one-hot. Complex targets of the shape of
    complex outputs become their real and imaginary parts, as the outputs do. Other targets are
    refused. ``outputs`` are the shapes of one sample's outputs.
    """
    y = as_arrays("y", y)
    parts = real_parts(y)
    if outputs.complexes and _shapes(parts) == outputs.shapes:
        y = parts
    _check_kind(y)
    targets = check_samples("y", y)
    if sample_count(targets) != n:
        shapes = ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(targets))
        msg = f"y has shape {shapes}, but x has {n} samples: one target a sample is needed"
        raise ValueError(msg)
    if callable(loss):
        return targets
    if not outputs.is_array:
        return _several_targets(outputs, targets, n, dtype)
    array: jax.Array = jax.tree.leaves(targets)[0]
    if loss == "binary_cross_entropy":
        return _binary_targets(array, (n, *outputs.shape), dtype)
    several_classes = outputs.shape and outputs.shape[-1] > 1 and not outputs.complexes
    label_shape = (n, *outputs.shape[:-1]) if several_classes else None
    if array.shape == label_shape and not jnp.issubdtype(array.dtype, jnp.floating):
        return _labels(loss, array, outputs.shape[-1], dtype)
    if array.shape != (n, *outputs.shape):
        hint = f"integer labels {label_shape} or " if label_shape else ""
        msg = (
            f"y has shape {array.shape} and dtype {array.dtype}; {hint}targets "
            f"{(n, *outputs.shape)} are needed, as the outputs have"
        )
        if label_shape and array.size == math.prod(label_shape):  # floats, or a column of labels
            shaped = "" if array.shape == label_shape else f".reshape({label_shape})"
            whole = ".astype(int)" if jnp.issubdtype(array.dtype, jnp.floating) else ""
            msg += f"; if they are labels, pass y{shaped}{whole}"
        raise ValueError(msg)
    if loss == "cross_entropy" and not is_traced(array):
        _check_probabilities(array)
    return as_floats("y", array, dtype)


def _check_kind(y: Any) -> None:
    """Refuse arrays of targets without an axis for samples, or with other than real numbers."""
    for array in jax.tree.leaves(y):
        if array.ndim == 0:
            msg = f"y has shape {array.shape}: one target a sample is needed"
            raise ValueError(msg)
        real = jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.floating)
        if not real and array.dtype != bool:
            msg = (
                f"y must hold labels or real targets, got dtype {array.dtype}; "
                "np.unique(y, return_inverse=True)[1] are labels for names of classes"
            )
            raise ValueError(msg)


def _shapes(y: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of one sample's targets, without the first axis, which runs over the samples."""
    return tuple(np.shape(leaf)[1:] for leaf in jax.tree.leaves(y))


def _several_targets(outputs: Outputs, y: Any, n: int, dtype: jnp.dtype) -> jax.Array:
    """The targets (n, k) of a squared error, for a model that returns several arrays.

    ``y`` has arrays (n, ...) in the structure and the shapes of the outputs, or is refused.
    """
    shapes = _shapes(y)
    if jax.tree.structure(y) != outputs.structure or shapes != outputs.shapes:
        msg = (
            f"y has arrays of shape {shapes} for each sample, and the outputs have "
            f"{outputs.shapes}; give y in the structure of the outputs"
        )
        raise ValueError(msg)
    return outputs.ravel(jax.tree.map(lambda leaf: as_floats("y", leaf, dtype), y), dtype)


def _labels(loss: Loss, labels: jax.Array, classes: int, dtype: jnp.dtype) -> jax.Array:
    """Checked integer labels (n, ...), one-hot (n, ..., classes) unless the loss is cross-entropy.

    Labels lie between 0 and ``classes`` - 1; for the cross-entropy -1 is allowed, too.
    """
    if not is_traced(labels):
        host_labels = np.asarray(labels) if on_cpu(labels) else labels  # NumPy compiles nothing
        lowest, highest = int(host_labels.min()), int(host_labels.max())
        least_allowed = -1 if loss == "cross_entropy" else 0
        if lowest < least_allowed or highest >= classes:
            hint = f"loss={loss!r} makes them one-hot; loss='cross_entropy' leaves out those of -1"
            if loss == "cross_entropy":
                hint = "-1 says that a label does not count"
            msg = (
                f"labels run from {lowest} to {highest}, but the model has {classes} outputs; "
                f"labels go from 0 to {classes - 1}, and {hint}"
            )
            raise ValueError(msg)
    if loss is UNNAMED:
        _warn_one_hot()
    labels = labels.astype(int)
    return labels if loss == "cross_entropy" else jax.nn.one_hot(labels, classes, dtype=dtype)


@cache
def _warn_one_hot() -> None:
    """Warn that labels become one-hot targets; the cache makes it the first call alone."""
    msg = (
        "y holds class labels and no loss is named, so the squared error of one-hot targets is "
        'taken; the usual loss for class labels is loss="cross_entropy", and '
        'loss="squared_error" says that this one is meant'
    )
    warnings.warn(msg, UserWarning, stacklevel=level_of_callers_line())


def _binary_targets(y: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Checked targets of the binary cross-entropy, in ``shape``, that of the outputs (n, ...).

    ``y`` may have more or fewer axes of length one, which changes the order of no label. Labels
    outside of [0, 1] are refused, except for the integer -1, which leaves a label out; so are
    labels that are all -1 or 1, which seem to be two classes.
    """
    if [length for length in y.shape if length != 1] == [length for length in shape if length != 1]:
        y = y.reshape(shape)
    if y.shape != shape:
        msg = f"y has shape {y.shape}; one label between 0 and 1 for each output {shape} is needed"
        raise ValueError(msg)
    if is_traced(y):
        return y.astype(dtype)
    least_allowed = 0 if jnp.issubdtype(y.dtype, jnp.floating) else -1
    lowest, highest = float(y.min()), float(y.max())
    if lowest < least_allowed or highest > 1:
        msg = (
            "labels of the binary cross-entropy lie between 0 and 1, or are the integer -1 where "
            f"they do not count; got labels from {lowest:.3g} to {highest:.3g}"
        )
        raise ValueError(msg)
    if (lowest, highest) == (-1, 1) and not bool((y == 0).any()):
        msg = (
            "the labels of the binary cross-entropy are -1 and 1, of which -1 would not count; "
            "give labels of 0 and 1, as (y + 1) // 2"
        )
        raise ValueError(msg)
    return y.astype(dtype)


def _check_probabilities(targets: jax.Array) -> None:
    """Refuse targets (n, ..., classes) whose rows are not probabilities of the classes."""
    sums = targets.sum(axis=-1)
    if float(jnp.abs(sums - 1).max()) > _SUM_OF_TARGETS or float(targets.min()) < 0:
        msg = (
            "targets of the cross-entropy are probabilities, rows that are not negative and sum "
            f"to one; got sums from {float(sums.min()):.3g} to {float(sums.max()):.3g} and a "
            f"smallest entry {float(targets.min()):.3g}"
        )
        raise ValueError(msg)


def _checked_weights(weights: Any, n: int, terms: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """The weights as an array (n,) or (n, *terms), or a refusal; none of them is negative.

    ``terms`` is the shape of the terms of one sample's loss.
    """
    if not (hasattr(weights, "__array__") or isinstance(weights, list)):
        kind = type(weights).__name__
        msg = f"weights must be one array, with a number for each sample or label, got {kind}"
        raise ValueError(msg)
    array: jax.Array = check_samples("weights", weights)
    if array.shape not in ((n,), (n, *terms)):
        shapes = f"({n},)" if not terms else f"({n},) or {(n, *terms)}"
        msg = f"weights have shape {array.shape}; one for each sample or label is needed, {shapes}"
        raise ValueError(msg)
    if not is_traced(array) and float(array.min()) < 0:
        msg = f"weights must not be negative, got {float(array.min()):.3g}"
        raise ValueError(msg)
    return as_floats("weights", array, dtype)


def _labels_that_count(loss: Loss, targets: Any, y: Any) -> np.ndarray | jax.Array | None:
    """A mask of the labels of a cross-entropy that are not -1, and so count; None where all do.

    Only among integer labels is there a label -1. ``y`` are the targets as the caller gave them,
    and ``targets`` the checked ones.
    """
    if jnp.issubdtype(jnp.asarray(jax.tree.leaves(y)[0]).dtype, jnp.floating):
        return None
    binary = loss == "binary_cross_entropy"
    return None if not (binary or targets.dtype.kind == "i") else _on_host(targets) >= 0


def _sum_of_weights(
    loss: Loss,
    n: int,
    terms: tuple[int, ...],
    weights: jax.Array | None,
    counts: np.ndarray | jax.Array | None,
) -> Any:
    """The number by which the sum over all weighted terms is divided for the mean loss.

    The mean is over the samples that have a label that counts. For the cross-entropy, and where
    each term has a weight of its own, it is over the terms that count. ``terms`` is the shape of
    the terms of one sample's loss, the ``weights`` are (n,) or (n, *terms), and ``counts`` is a
    mask of the labels that count, (n, *terms). With traced weights or labels the number is traced.
    """
    # one weight for each sample (n,), or one for each term (n, *terms)
    factors = np.ones(n) if weights is None else _on_host(weights).astype(float)
    if loss != "cross_entropy" and factors.ndim == 1:
        sample_counts = np.ones(n) if counts is None else counts.reshape(n, -1).any(axis=1)
        total = (factors * sample_counts).sum()
    elif counts is None:
        total = factors.sum() * (math.prod(terms) if factors.ndim == 1 else 1)
    else:
        total = (_with_axes(factors, counts.ndim) * counts).sum()
    return total if is_traced(total) else float(total)


def _on_host(array: jax.Array) -> Any:
    """The array in host memory; itself, where it is traced."""
    return array if is_traced(array) else np.asarray(array)


def _with_axes(array: Any, dims: int) -> Any:
    """The array with axes of length one added at the end, so that it has ``dims`` axes."""
    return array.reshape(array.shape + (1,) * (dims - array.ndim))
