"""What decides the numbers of a cell besides the cell: code, versions, device and precision."""

from __future__ import annotations

import functools
import inspect
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

import gnjax
from gnjax.cli.machine import git_state
from sweeps.storage import closure
from sweeps.storage.store import Environment

_ALWAYS = ("jax", "jaxlib", "numpy", "scipy")
_WHERE_IMPORTED = {"flax": "flax", "optax": "optax", "sklearn": "scikit-learn"}
_PLAIN = ("device", "precision")


def environment(measure: Callable[..., Any], device: str | None = None) -> Environment:
    """The environment of ``measure`` in this process, or in one like it that has ``device``."""
    code, imported = _code(_source(measure))
    packages = (*_ALWAYS, *(_WHERE_IMPORTED[name] for name in sorted(imported)))
    return Environment(
        code,
        {name: metadata.version(name) for name in packages},
        device_kind() if device is None else device,
        precision_name(),
    )


@functools.cache
def _code(source: Path) -> tuple[str, frozenset[str]]:
    """The fingerprint and the packages of a file, found once: every cell of a sweep asks."""
    found = closure.closure(source)
    return closure.fingerprint(found), found.packages & _WHERE_IMPORTED.keys()


def device_kind() -> str:
    """The kind of device that JAX computes on in this process; this starts JAX."""
    device = jax.devices()[0]
    return f"{device.platform}: {device.device_kind}"


def precision_name() -> str:
    """The precision of arrays that this process makes."""
    return str(jax.dtypes.canonicalize_dtype(float))


def differences(wanted: Environment, found: Environment) -> str:
    """How the environment of a process differs from that of its store, in words."""
    pairs = [(name, getattr(wanted, name), getattr(found, name)) for name in _PLAIN]
    packages = sorted(wanted.versions.keys() | found.versions.keys())
    pairs += [(name, wanted.versions.get(name), found.versions.get(name)) for name in packages]
    said = [f"{name} {this}, not {asked}" for name, asked, this in pairs if asked != this]
    return "; ".join([*said, *(["other code"] if wanted.code != found.code else [])])


def provenance(found: Environment) -> dict[str, Any]:
    """The provenance of a number that this process computes now; it is kept in its cell."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": found.device,
        "git": _git(),
        "machine": f"{platform.system()} {platform.machine()}",
        "precision": found.precision,
        "python": sys.version.split()[0],
        "versions": {"gnjax": gnjax.__version__, **found.versions},
    }


@functools.cache
def _git() -> dict[str, Any]:
    """The state of the checkout when this process first asks: the state of the code it runs."""
    return dict(git_state(Path(__file__).parent))


def _source(measure: Callable[..., Any]) -> Path:
    while hasattr(measure, "func"):  # a partial, or the measure of an experiment
        measure = measure.func
    file = inspect.getsourcefile(measure)
    if file is None or not Path(file).is_file():
        msg = f"{measure} is not defined in a file; cells are kept by the code that made them"
        raise ValueError(msg)
    return Path(file).resolve()
