"""Packages that not everybody needs: imported when they are used, named where one is missing."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from typing import Any

_EXTRAS = {  # by module: the name of the package, and the extra of gnjax that installs it
    "matplotlib": ("matplotlib", "plot"),
    "orbax": ("orbax-checkpoint", "checkpoints"),
    "pandas": ("pandas", "tables"),
    "pooch": ("pooch", "data"),
    "safetensors": ("safetensors", "checkpoints"),
    "sklearn": ("scikit-learn", "data"),
    "torch": ("torch", "torch"),
}


@cache
def own_version() -> str:
    """The version of gnjax; "unknown" where it is imported from a folder that nobody installed."""
    try:
        return metadata.version("gnjax")
    except metadata.PackageNotFoundError:
        return "unknown"


class MissingExtraError(ModuleNotFoundError):
    """A package is not installed that comes with an extra of gnjax."""


def optional(module: str, task: str) -> Any:
    """Import a module that an extra of gnjax installs, and return it.

    If it is missing, the error says what to install for the ``task``, such as "a picture".
    """
    top = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != top:  # something that the package itself needs
            raise
        package, extra = _EXTRAS[top]
        msg = (
            f"{task} needs {package}, which is not installed: pip install {package} "
            f"(it is in gnjax[{extra}])"
        )
        raise MissingExtraError(msg, name=top) from error
