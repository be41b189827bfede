"""What a model returns, as k numbers for each sample.

A model may return an array (n, ...), also (n,), or a dict or a tuple of such arrays. Complex ones
(...) count as their real and imaginary parts, (..., 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gnjax.networks.arguments.real_form import is_complex, real_parts


@dataclass(frozen=True)
class Outputs:
    """The shapes of the outputs of one sample, in the order of the leaves of a pytree.

    Attributes:
      structure: the pytree.
      shapes: those of real arrays, with a last axis of length 2 where the model returns a complex.
      complexes: how many of the arrays are complex.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    complexes: int = 0

    @property
    def k(self) -> int:
        """How many numbers the outputs of one sample are."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def is_array(self) -> bool:
        """Whether the model returns one array, and not a dict or a tuple of several."""
        return bool(jax.tree_util.treedef_is_leaf(self.structure))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample's output of a model that returns one array."""
        return self.shapes[0]

    def ravel(self, outputs: Any, dtype: jnp.dtype) -> jax.Array:
        """The outputs of n samples, a pytree of arrays (n, ...), as one array (n, k)."""
        parts = real_parts(outputs) if self.complexes else outputs
        leaves = [leaf.astype(dtype) for leaf in jax.tree.leaves(parts)]
        flat = [leaf.reshape(len(leaf), -1) for leaf in leaves]
        return flat[0] if len(flat) == 1 else jnp.concatenate(flat, axis=1)

    def unravel(self, row: jax.Array) -> Any:
        """The numbers (k,) of one sample as the arrays that the model returns for it.

        A complex array has its real and imaginary parts along a last axis of length 2.
        """
        leaves, start = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            leaves.append(row[start : start + size].reshape(shape))
            start += size
        return jax.tree.unflatten(self.structure, leaves)


def flat_outputs(k: int) -> Outputs:
    """The outputs of a model that returns an array (n, k)."""
    return Outputs(jax.tree.structure(0), ((k,),))


def described_outputs(outputs: Any, samples: int) -> Outputs:
    """The shapes of one sample's outputs, from the outputs of a model for ``samples`` samples.

    ``outputs`` is a pytree of arrays (samples, ...), or of their shapes and dtypes. Other shapes
    and integers are refused. A complex array counts as a real one with a last axis of length 2.
    """
    leaves = jax.tree.leaves(outputs)
    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in leaves]
    if not leaves or any(shape[:1] != (samples,) or 0 in shape for shape in shapes):
        shapes_text = ", ".join(str(shape) for shape in shapes) or type(outputs).__name__
        msg = (
            f"the model must map {samples} samples to outputs ({samples}, ...), or to a dict or a "
            f"tuple of them, got {shapes_text}; let it return one entry for each sample, and pass "
            "has_aux=True if it returns (outputs, extras)"
        )
        raise ValueError(msg)
    wrong = [leaf.dtype for leaf in leaves if not jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if wrong:
        msg = (
            f"the model must return floating point numbers, got dtype {wrong[0]}; return what the "
            "loss needs alone, or (outputs, extras) with has_aux=True"
        )
        raise ValueError(msg)
    complexes = [is_complex(leaf) for leaf in leaves]
    pairs = zip(shapes, complexes, strict=True)
    real_shapes = tuple(shape[1:] + (2,) * has_parts for shape, has_parts in pairs)
    return Outputs(jax.tree.structure(outputs), real_shapes, sum(complexes))
