"""Compiled programs on disk, so that the second run of a command does not compile them again.

Commands keep them in the user's cache; importing the library does not. ``GNJAX_CACHE=off`` keeps
none. Where the user has told JAX about a cache (``JAX_COMPILATION_CACHE_DIR`` and what belongs to
it), that stands.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import jax
from filelock import FileLock, Timeout

from gnjax.data.places import cache_folder

SWITCH = "GNJAX_CACHE"
_SETTINGS_OF_JAX = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
_MOST = 1_000_000_000  # bytes; with a limit JAX takes a lock, so that processes can share a folder
_UNLIMITED = -1  # JAX's value for "no limit"
_WORTH = 0.1  # seconds: a program that compiles faster is compiled as soon as it is read
_LOCK, _PATIENCE = ".lockfile", 5.0  # the lock of JAX, and seconds to wait for it
_CPUINFO = Path("/proc/cpuinfo")


def keep_compiled(environment: Mapping[str, str] = os.environ) -> None:
    """Let JAX keep on disk what this process and those that it starts compile.

    ``environment`` has the user's settings. Those of JAX stand, and ``GNJAX_CACHE=off`` keeps
    nothing.
    """
    folder = compiled_folder(environment)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: everything works, and takes longer
        return
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_compilation_cache_max_size": _MOST,
        "jax_persistent_cache_min_compile_time_secs": _WORTH,
    }
    for name, value in settings.items():
        if environment.get(name.upper()):  # the user's own, which JAX has read
            continue
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for processes that are started from here
    mend(folder)


def mend(folder: Path) -> None:
    """Remove programs from the cache that lack the time of their last use.

    A process leaves such a program if it is killed before it writes the time. JAX then writes
    nothing any more to the folder, and warns at each program that it compiles. The lock of JAX is
    taken for this; if another process holds it for long, nothing is done. In a cache without a
    limit on its size JAX writes no times, and no program is removed.
    """
    if getattr(jax.config, "jax_compilation_cache_max_size", _UNLIMITED) == _UNLIMITED:
        return
    try:
        with FileLock(folder / _LOCK, timeout=_PATIENCE):
            for program in folder.glob("*-cache"):
                if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
                    program.unlink(missing_ok=True)
    except (Timeout, OSError):  # a cache is no reason to stop
        return


def compiled_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where compiled programs are kept for this kind of machine; None where gnjax keeps none.

    It keeps none if it is switched off, or if the user's own settings of JAX say where.
    """
    switch = environment.get(SWITCH, "on")
    if switch not in ("on", "off"):
        msg = f"{SWITCH}={switch!r} is neither on nor off; unset it, or say {SWITCH}=off"
        raise ValueError(msg)
    if switch == "off" or any(environment.get(name) for name in _SETTINGS_OF_JAX):
        return None
    # A program compiled for one CPU may not run on another, a home folder on a network drive is
    # shared by several machines, and JAX's own name of a program may leave the instructions out.
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.is_file() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))][:1]
    text = "\n".join([platform.machine(), platform.processor(), *flags])
    instructions = hashlib.sha256(text.encode()).hexdigest()[:8]
    return cache_folder("compiled") / f"{platform.machine()}-{instructions}"
