"""Every test runs in 64 bit, and a silent change of rank is an error."""

from __future__ import annotations

import os

import hypothesis
import jax

from gnjax.numerics.precision import enable_x64

enable_x64()
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes single examples slow without anything being wrong. Every run has the same
# examples, so that a failure is the change's; HYPOTHESIS_PROFILE=explore looks for new ones.
hypothesis.settings.register_profile("gnjax", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gnjax"))
