"""The one place that knows how this version of JAX switches 64-bit arithmetic on."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager
from functools import cache

import jax
import jax.experimental
import jax.numpy as jnp

# Packages whose frames stand between the line of the caller's that is warned about and the warning.
_LIBRARIES = frozenset(
    ["contextlib", "equinox", "flax", "functools", "gnjax", "haiku", "jax", "jaxlib", "keras"]
)


def enable_x64() -> None:
    """Switch JAX to 64-bit arithmetic for this process. Every command of gnjax does this first.

    >>> gnjax.enable_x64()
    >>> str(jax.numpy.ones(1).dtype)
    'float64'
    """
    jax.config.update("jax_enable_x64", True)


def x64() -> AbstractContextManager[None]:
    """64-bit arithmetic inside a ``with`` block, for this thread only.

    >>> with gnjax.x64():
    ...     str(jax.numpy.ones(1).dtype)
    'float64'
    """
    if hasattr(jax, "enable_x64"):  # jax >= 0.8; before, the name was experimental
        return jax.enable_x64(True)
    return jax.experimental.enable_x64(True)  # type: ignore[attr-defined]


def x64_enabled() -> bool:
    """Whether arrays made now are 64-bit."""
    return jax.dtypes.canonicalize_dtype(float) == jnp.float64


@cache
def _warn_single() -> None:
    """Warn that spectra are computed in float32; the cache makes it the first call alone."""
    msg = (
        "JAX is in 32-bit mode, so this spectrum is computed in float32 and its floor is about "
        "1e-6 of the largest eigenvalue; call gnjax.enable_x64() before making arrays"
    )
    warnings.warn(msg, UserWarning, stacklevel=level_of_callers_line())


def level_of_callers_line() -> int:
    """The ``stacklevel`` with which a warning names the line that called into this library.

    It is for the function that calls this one. A public function reaches that by many ways, some of
    them through JAX, so that frames are counted until one belongs to no library.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    return level


def real_dtype() -> jnp.dtype:
    """float64 in 64-bit mode; otherwise float32, with a warning the first time."""
    if x64_enabled():
        return jnp.dtype(jnp.float64)
    _warn_single()
    return jnp.dtype(jnp.float32)
