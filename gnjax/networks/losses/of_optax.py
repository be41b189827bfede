"""Losses of optax that equal one of the library's own, up to a factor.

The output Hessian of a named loss is known in closed form, with its rank; so a loss of optax that
is one of these is taken for it. It is compared first: the values of both functions, at one sample,
in the version of optax that is there; and that the targets are such as mean the same to both.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gnjax.networks.losses.sample_losses import loss_terms
from gnjax.networks.output_shapes import Outputs
from gnjax.numerics.validation import is_traced

_ROUNDINGS = 64.0  # in units of eps, by which the values of both functions may differ
_SUM = 4.0  # in units of eps, by which the sum of rounded probabilities may differ from 1


@dataclass(frozen=True)
class Equal:
    """The loss ``name`` of optax is ``factor`` times the library's ``loss``.

    Its targets are of one ``kind``: "real" (any numbers), "bits" (in [0, 1]), "probabilities" or
    "labels".
    """

    name: str
    loss: str
    kind: str
    factor: float = 1.0

    def in_words(self, *, summed: bool) -> str:
        """The loss as operators and reports say it.

        ``summed`` says that it is the sum over the tokens of a sample, and no mean over them.
        """
        times = "" if self.factor == 1 else f"{self.factor:g} x "
        return f"{times}{self.loss} (optax.{self.name}{', summed over tokens' if summed else ''})"


_EQUALS = (
    Equal("l2_loss", "squared_error", "real"),
    Equal("squared_error", "squared_error", "real", factor=2.0),
    Equal("softmax_cross_entropy", "cross_entropy", "probabilities"),
    Equal("safe_softmax_cross_entropy", "cross_entropy", "probabilities"),
    Equal("softmax_cross_entropy_with_integer_labels", "cross_entropy", "labels"),
    Equal("sigmoid_binary_cross_entropy", "binary_cross_entropy", "bits"),
)


def equal_loss(
    loss: Callable[..., Any], y: Any, outputs: Outputs, n: int, dtype: Any
) -> Equal | None:
    """What a loss of optax equals at these targets; None where it, or another loss, equals none.

    Args:
      loss: the function that the caller gave; optax is not imported to know its functions.
      y: the targets of all samples, or None. What traced ones mean is not known, and the loss is
        then a function of the caller's.
      outputs: the shapes of one sample's outputs.
      n: how many samples there are.
      dtype: the working precision.
    """
    optax = sys.modules.get("optax")
    equals = [equal for equal in _EQUALS if getattr(optax, equal.name, None) is loss]
    equal = equals[0] if equals else None
    if equal is None or not hasattr(y, "shape") or not outputs.is_array or outputs.complexes:
        return None
    shape = (n, *outputs.shape)
    _check_size(equal, y.shape, shape)
    if is_traced(y) or not _same_meaning(equal.kind, np.asarray(y), shape, dtype):
        return None
    return equal if _same_values(loss, equal, dtype) else None


def _check_size(equal: Equal, of_y: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse targets, such as labels, that are not one for each of the outputs, of this shape.

    For a single sample optax refuses them as well, or stretches a number to all of its outputs.
    """
    if equal.kind not in ("real", "probabilities") or math.prod(of_y) == math.prod(shape):
        return
    hint = "jax.nn.one_hot(y, classes) makes them of labels"
    if equal.kind == "probabilities":
        hint = "for labels pass optax.softmax_cross_entropy_with_integer_labels"
    msg = (
        f"optax.{equal.name} takes a target for each output, {shape} for all samples, and y has "
        f"shape {of_y}; {hint}"
    )
    raise ValueError(msg)


def _same_meaning(kind: str, y: np.ndarray, shape: tuple[int, ...], dtype: jnp.dtype) -> bool:
    """Whether targets y mean the same to both losses, for outputs of this shape of all samples.

    optax reads a label of -1 as the last class, and does not ask whether probabilities sum to 1, as
    they must here up to the rounding of ``dtype``.
    """
    several_classes = len(shape) > 1 and shape[-1] > 1
    if kind == "labels":
        fits = several_classes and y.shape == shape[:-1] and y.dtype.kind in "iu"
        return fits and bool(y.min() >= 0 and y.max() < shape[-1])
    if kind == "real" or y.shape != shape:
        return y.shape == shape
    in_bounds = bool(y.min() >= 0 and y.max() <= 1)
    if kind == "bits":
        return in_bounds
    distance = float(np.abs(y.sum(axis=-1, dtype=float) - 1).max())
    return several_classes and in_bounds and distance <= _SUM * float(jnp.finfo(dtype).eps)


@cache
def _same_values(loss: Callable[..., Any], equal: Equal, dtype: jnp.dtype) -> bool:
    """Whether both losses have the same values at one sample of three tokens of four classes."""
    rng = np.random.default_rng(0)
    f, real = rng.standard_normal((2, 3, 4))
    y = {
        "real": real,
        "bits": rng.uniform(size=(3, 4)),
        "probabilities": rng.dirichlet(np.ones(4), size=3),
        "labels": np.array([3, 0, 2]),
    }[equal.kind]
    y = y if equal.kind == "labels" else y.astype(dtype)
    with jax.ensure_compile_time_eval():  # also where the caller's function is being traced
        theirs = np.asarray(loss(jnp.asarray(f, dtype), jnp.asarray(y)))
        ours = np.asarray(loss_terms(equal.loss)(jnp.asarray(f, dtype), jnp.asarray(y)))
    expected = equal.factor * ours
    tolerance = _ROUNDINGS * float(jnp.finfo(dtype).eps)
    return theirs.shape == expected.shape and np.allclose(theirs, expected, tolerance, tolerance)
