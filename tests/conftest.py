"""Every test runs in 64 bit, and a silent change of rank is an error."""

from __future__ import annotations

import hypothesis
import jax

from gnjax.precision import enable_x64

enable_x64()
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes single examples slow without anything being wrong.
hypothesis.settings.register_profile("gnjax", deadline=None)
hypothesis.settings.load_profile("gnjax")
