"""JAX in 32-bit mode, for tests of what single precision rounds."""

import jax


def single_precision():
    """32-bit mode inside a ``with`` block; the name was experimental before JAX 0.8."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(False)
    return jax.experimental.disable_x64()
