"""The switch to 64 bit, whatever this version of JAX calls it."""

import subprocess
import sys

_SCRIPT = """
import jax.numpy as jnp
from gnjax.numerics import precision
assert not precision.x64_enabled()
with precision.x64():
    assert precision.x64_enabled() and jnp.ones(1).dtype == jnp.float64
assert not precision.x64_enabled()
precision.enable_x64()
assert jnp.ones(1).dtype == jnp.float64 and precision.real_dtype() == jnp.float64
"""


def test_scoped_and_global_switch():
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
