"""What this process may use of the machine, and the state of the code it runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def usable_cores() -> int:
    """The cores that this process may run on, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def git_state(folder: Path) -> Mapping[str, Any]:
    """The "commit" of a folder, and whether it is "clean": no file differs from the commit.

    Empty where there is no git checkout.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    return (
        {}
        if commit is None
        else {
            "commit": commit,
            "clean": _git(folder, "status", "--porcelain", "--untracked-files=no") == "",
        }
    )


def _git(folder: Path, *arguments: str) -> str | None:
    """What a git command prints in a folder; None where it fails or git is not there."""
    try:
        process = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
