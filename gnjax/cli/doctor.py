"""Check a machine: versions, devices, 64-bit arithmetic, threads, data, memory and disk.

Every finding is a line of a report. A finding that prevents a result has a remedy.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import jax

from gnjax import data
from gnjax.cli.compilation import SWITCH, compiled_folder
from gnjax.cli.machine import git_state, usable_cores
from gnjax.data.places import cache_folder
from gnjax.numerics import precision
from gnjax.numerics.limits import LIMITS
from gnjax.numerics.memory.free import free_memory

PACKAGES = ("gnjax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
PAPER_DATA = ("mnist", "cifar10")
_COPIES = 3  # copies of a dense matrix: as it is formed, for LAPACK, and workspace
_LEAST_MEMORY = 2e9  # bytes; two workers of the laptop profile
_PAPER_MEMORY = 24e9  # the widest cells of the paper profile need 20 GB
_PAPER_CORES = 8  # with so many cores, hours on 2 cores become less than one
_LEAST_DISK = 1e9
_NVIDIA = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Finding:
    """One line of the report; a ``remedy`` says that something is wrong and what to do about it."""

    section: str
    name: str
    text: str
    remedy: str = ""


def examine(results: Path = Path()) -> tuple[Finding, ...]:
    """Look at everything; ``results`` is the folder whose disk will take tables and figures."""
    platforms, devices = _devices()
    return (
        *_versions(),
        *devices,
        *_arithmetic(platforms),
        *_threads(os.environ),
        _programs(os.environ),
        *_data(os.environ),
        *_room(results),
        *_what_runs_where(platforms),
    )


def problems(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings that have a remedy, as something is wrong."""
    return tuple(finding for finding in findings if finding.remedy)


def _versions() -> Iterator[Finding]:
    """The versions of Python, of the packages and of the checkout; a remedy for what is missing."""
    section = "versions"
    yield Finding(section, "python", f"{sys.version.split()[0]}, {platform.platform(terse=True)}")
    for name in PACKAGES:
        try:
            yield Finding(section, name, metadata.version(name))
        except metadata.PackageNotFoundError:
            remedy = f"install {name}: pip install {'-e .' if name == 'gnjax' else name}"
            yield Finding(section, name, "not installed", remedy)
    state = git_state(Path(__file__).parent)
    changed = "" if state.get("clean", True) else ", with changes that are not committed"
    yield Finding(section, "git", f"{state['commit'][:10]}{changed}" if state else "no checkout")


def _devices() -> tuple[frozenset[str], list[Finding]]:
    """The platforms of JAX's devices, such as "cpu" and "gpu", and the findings about them.

    There is no platform where JAX cannot start. A GPU that JAX does not use is a problem.
    """
    selected = os.environ.get("JAX_PLATFORMS", "")
    try:
        devices = jax.devices()
    except RuntimeError as error:
        remedy = f"unset JAX_PLATFORMS (it is {selected!r}) or install what drives that device"
        return frozenset(), [Finding("devices", "JAX", str(error).splitlines()[0], remedy)]
    kinds = [f"{device.platform}: {device.device_kind}" for device in devices]
    findings = [
        Finding("devices", kind, f"{count} device{'s' if count > 1 else ''}")
        for kind, count in Counter(kinds).items()
    ]
    platforms = frozenset(device.platform for device in devices)
    if _NVIDIA.exists() and platforms == {"cpu"} and not selected:
        remedy = "install gnjax[cuda], or set JAX_PLATFORMS=cpu if the CPU is what you want"
        findings.append(Finding("devices", "NVIDIA driver", "loaded, but JAX sees no GPU", remedy))
    return platforms, findings


def _arithmetic(platforms: frozenset[str]) -> Iterator[Finding]:
    """Whether JAX computes in 64 bits by default, and whether it can on these platforms."""
    section = "64-bit arithmetic"
    on = "on" if precision.x64_enabled() else "off; the commands that compute switch it on"
    yield Finding(section, "by default", on)
    if not platforms:
        return
    with precision.x64():
        possible = precision.x64_enabled()
    remedy = (
        "" if possible else "unset JAX_ENABLE_X64 and check that this JAX is one gnjax supports"
    )
    yield Finding(section, "can be on", "yes" if possible else "no", remedy)
    if "tpu" in platforms:
        text = "has no float64 of its own; compute spectra on the host, with JAX_PLATFORMS=cpu"
        yield Finding(section, "TPU", text)


def _threads(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The number of cores, and the numbers of threads in the environment, at most as many."""
    section, cores = "threads", usable_cores()
    yield Finding(section, "cores", str(cores))
    for name in THREADS:
        text = environment.get(name)
        if text is None:
            yield Finding(section, name, "not set: as many as cores")
        elif not text.isdecimal() or int(text) < 1:
            yield Finding(section, name, text, f"set {name} to a number from 1 to {cores}")
        elif int(text) > cores:
            remedy = f"set {name}={cores}: more threads than cores wait for each other"
            yield Finding(section, name, text, remedy)
        else:
            yield Finding(section, name, text)


def _programs(environment: Mapping[str, str]) -> Finding:
    """Where commands keep what they compile; a remedy for a switch that is neither on nor off."""
    section, name = "compiled programs", "kept in"
    try:
        folder = compiled_folder(environment)
    except ValueError as error:
        return Finding(section, name, str(error), f"set {SWITCH} to on or off, or unset it")
    folder_of_jax = environment.get("JAX_COMPILATION_CACHE_DIR")
    return Finding(section, name, str(folder or folder_of_jax or f"nothing ({SWITCH}=off)"))


def _data(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Where data sets are looked for and where they would be kept, and which are there."""
    section = "data"
    root = environment.get("GNJAX_DATA")
    if root is not None:
        is_folder = Path(root).expanduser().is_dir()
        remedy = "" if is_folder else "point GNJAX_DATA at a folder that is there, or unset it"
        yield Finding(section, "GNJAX_DATA", root if is_folder else f"{root} is no folder", remedy)
    cache = cache_folder("").resolve()
    parent = _existing(cache)
    text = str(cache) if cache == parent else f"{cache}, made when something is fetched"
    remedy = "" if os.access(parent, os.W_OK) else f"make {parent} writable, or set XDG_CACHE_HOME"
    yield Finding(section, "cache", text if not remedy else f"{text}, not writable", remedy)
    for name in data.names():
        state = data.state(name)
        fetch = f"; python -m gnjax data fetch {name}" if state == "not here" else ""
        yield Finding(section, name, state + fetch)


def _existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _room(results: Path) -> Iterator[Finding]:
    """How much memory and disk is free, and a remedy where that is little."""
    section = "room"
    memory, source = free_memory()
    if memory is None:
        yield Finding(section, "memory", source)
    else:
        little = memory < _LEAST_MEMORY
        remedy = "close other programs, or run one cell at a time with --jobs=1" if little else ""
        yield Finding(section, "memory", f"{_gigabytes(memory)} {source}", remedy)
    for name, folder in (("results", results.resolve()), ("cache", cache_folder("").resolve())):
        free_space = shutil.disk_usage(_existing(folder)).free
        little = free_space < _LEAST_DISK
        remedy = f"free {_gigabytes(_LEAST_DISK)} on the disk of {folder}" if little else ""
        yield Finding(section, f"disk for {name}", f"{_gigabytes(free_space)} free", remedy)


def _what_runs_where(platforms: frozenset[str]) -> Iterator[Finding]:
    """Which device serves which work, and up to which size."""
    section = "what would run where"
    accelerators = sorted(platforms - {"cpu"})
    products = ", ".join(accelerators).upper() or "CPU"
    yield Finding(section, "training, products", products)
    device = "CPU, by LAPACK" if platforms != {"tpu"} else "CPU, with JAX_PLATFORMS=cpu"
    yield Finding(section, "dense eigenvalues", device)
    memory, _ = free_memory()
    if memory is not None:
        size = largest_dense(memory)
        text = f"up to {size:,} x {size:,}; beyond that by products with a structured operator"
        yield Finding(section, "dense kappa", text)
    yield Finding(section, "profile", _profile(memory, bool(accelerators)))


def largest_dense(memory: float) -> int:
    """The most rows of a float64 matrix whose copies fit in four fifths of the memory."""
    return min(LIMITS.matrix_rows, math.isqrt(int(0.8 * memory / (8 * _COPIES))))


def _profile(memory: float | None, accelerated: bool) -> str:
    """The largest of the profiles smoke, laptop and paper that this machine can run.

    Behind it is what the next larger one lacks. ``memory`` is what is free, in bytes.
    """
    if memory is not None and memory < _LEAST_MEMORY:
        return f"smoke; laptop wants {_gigabytes(_LEAST_MEMORY)} of memory"
    lacking = [f"the data set {name}" for name in PAPER_DATA if data.state(name) == "not here"]
    if memory is not None and memory < _PAPER_MEMORY:
        lacking.append(f"{_gigabytes(_PAPER_MEMORY)} of memory")
    if not accelerated and usable_cores() < _PAPER_CORES:
        lacking.append(f"{_PAPER_CORES} cores or a GPU")
    return f"laptop; paper wants {', '.join(lacking)}" if lacking else "paper"


def _gigabytes(size: float) -> str:
    """A number of bytes in GB."""
    return f"{size / 1e9:.3g} GB"
