"""The attributes of every operator: shape, dtype, mv and as_matrix."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp


@runtime_checkable
class Operator(Protocol):
    """The attributes of a symmetric matrix that the spectrum engine needs.

    >>> isinstance(gnjax.dense(np.eye(2)), gnjax.Operator)
    True
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> jnp.dtype: ...

    def mv(self, v: jax.Array) -> jax.Array:
        """The product with a vector (n,) or with a block of columns (n, b)."""
        ...

    def as_matrix(self) -> jax.Array: ...


class Around:
    """A base class with the shape and the dtype of the operator ``op`` that a class wraps."""

    op: Any

    @property
    def shape(self) -> tuple[int, int]:
        return self.op.shape

    @property
    def dtype(self) -> jnp.dtype:
        return self.op.dtype
