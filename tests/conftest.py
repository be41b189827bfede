"""Every test runs in 64 bit, and a silent change of rank is an error."""

from __future__ import annotations

import gc
import inspect
import math
import os
from pathlib import Path

import hypothesis
import jax
import pytest

import gnjax
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


def pytest_collection_finish() -> None:
    """Look for garbage less often, and not among what was imported: a tenth of the time goes there.

    JAX traces with many objects that live briefly and are no garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True, scope="session")
def _time_for_diagnoses():
    """A diagnosis takes all the time that it needs, however busy the machine is."""
    usual = inspect.unwrap(gnjax.diagnose).__kwdefaults__
    usual["seconds"], before = math.inf, usual["seconds"]
    yield
    usual["seconds"] = before


_MAPPINGS, _BYTES = 30_000, 3 * 2**30


@pytest.fixture(autouse=True, scope="module")
def _few_compiled_functions():
    """Forget what was compiled before it takes all mappings of memory, or all memory.

    Every compiled function keeps some. Past 65,530 mappings, as many as Linux allows, the compiler
    fails, or the process dies.
    """
    yield
    process = Path("/proc/self")
    if not process.exists():
        return
    mappings = (process / "maps").read_bytes().count(b"\n")
    held = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if mappings > _MAPPINGS or held > _BYTES:
        jax.clear_caches()
