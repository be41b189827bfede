"""How much memory a computation can still have."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_SMALL = 2.0**30  # bytes that are taken without a look at what is free


def check_room(name: str, size: float, remedy: str) -> None:
    """Refuse a computation that needs ``size`` bytes if this process can no longer have so many.

    Less than 1 GiB is granted unasked. ``name`` is what the error calls the computation, and
    ``remedy`` what it tells the caller to do.
    """
    if size < _SMALL:
        return
    room, meaning = free_memory()
    if room is not None and size > room:
        msg = (
            f"{name} needs {1e-9 * size:,.1f} GB of memory, and this machine has "
            f"{1e-9 * room:,.1f} GB {meaning}; {remedy}"
        )
        raise ValueError(msg)


def check_matrix_room(name: str, rows: int, columns: int, itemsize: int) -> None:
    """Refuse a matrix for which this machine has no room, with a copy of it for its symmetric part.

    ``name`` is what the error calls it, and ``itemsize`` the bytes of a number.
    """
    check_room(
        f"{name}, {rows:,} x {columns:,} with a copy,",
        2.0 * rows * columns * itemsize,
        "take fewer parameters by only=, fewer samples, or what multiplies with the operator and "
        "forms nothing, as gnjax.eigenvalues(op, k=..), gnjax.solve and gnjax.trace do",
    )


def free_memory() -> tuple[float | None, str]:
    """The bytes that a process can still have, None if unknown, and a word for what they are.

    On Linux they are the available memory, or what the limit of a container (a control group of
    version 2) leaves if that is less: "free". On a system that states only its total memory
    (macOS), they are the total: "in all".
    """
    rooms = []
    if _MEMINFO.is_file():
        lines = _MEMINFO.read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        amount = fields.get("MemAvailable", "").split()  # ["123", "kB"]
        rooms += [1024.0 * int(amount[0])] if amount else []
    limit, current = _CGROUP / "memory.max", _CGROUP / "memory.current"
    if limit.is_file() and current.is_file() and limit.read_text().strip() != "max":
        rooms.append(max(float(limit.read_text()) - float(current.read_text()), 0.0))
    if rooms:
        return min(rooms), "free"
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), "in all"
    return None, "this system does not say"
