"""Every test runs in 64 bit, and a silent change of rank is an error."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import jax
import pytest

from gnjax.cli.compilation import mend
from gnjax.numerics.precision import enable_x64

enable_x64()
if jax.config.jax_compilation_cache_dir:  # as `make test` says
    mend(Path(jax.config.jax_compilation_cache_dir))
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes single examples slow without anything being wrong. Every run has the same
# examples, so that a failure is the change's; HYPOTHESIS_PROFILE=explore looks for new ones.
hypothesis.settings.register_profile("gnjax", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gnjax"))


@pytest.fixture(autouse=True, scope="module")
def _few_compiled_functions():
    """Forget what was compiled before the process has as many mappings of memory as Linux allows.

    Every compiled function keeps some. Past 65,530 of them the compiler fails, or the process dies.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
