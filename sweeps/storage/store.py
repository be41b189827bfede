"""One immutable file for each finished cell, written atomically and checked when read.

Its name is the key of the cell, and is part of its checksum: a copy under the key of another cell
is damaged (:mod:`sweeps.storage.files`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sweeps.cell import Cell, Measurement, values
from sweeps.storage.files import (
    PARTIAL,
    DamagedError,
    StoreError,
    read_checked,
    set_aside,
    unwritable,
    write_checked,
)

_FORMAT = 3  # of the files; part of every key, so that no version reads the files of another


@dataclass(frozen=True)
class Environment:
    """What decides the numbers of a cell besides the cell (:mod:`sweeps.storage.environment`)."""

    code: str
    versions: Mapping[str, str]
    device: str
    precision: str


@dataclass(frozen=True)
class Finished:
    """A measurement, the seconds that it took, and how it came about."""

    measurement: Measurement
    seconds: float
    provenance: Mapping[str, Any]

    @property
    def own_seconds(self) -> float:
        """The seconds; on a CPU that others used as well, no more than the work of this cell."""
        if not str(self.provenance.get("device", "")).startswith("cpu"):
            return self.seconds
        return min(self.seconds, self.provenance.get("cpu_seconds", self.seconds))


@dataclass(frozen=True)
class Store:
    """A folder of finished cells, and the environment whose cells are wanted."""

    folder: Path
    environment: Environment


@dataclass(frozen=True)
class Claim:
    """Whether the cell is this process's to compute; if not, its result where there is one."""

    mine: bool
    finished: Finished | None = None


def open_store(folder: Path, environment: Environment) -> Store:
    """Make the folder, and clear what a killed run left half written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for partial in folder.glob(f"*.*.*{PARTIAL}"):
            _remove_if_abandoned(partial)
    except OSError as error:
        msg = f"cannot write results to {folder}: {error.strerror}; choose another with --results"
        raise StoreError(msg) from error
    return Store(folder, environment)


def _remove_if_abandoned(partial: Path) -> None:
    """Remove a half-written file of a cell, unless a living process has claimed that cell.

    No time is compared, because the clock of the machine that writes may be another one.
    """
    owner = partial.name.partition(".")[0]
    with ExitStack() as stack:
        if _locked(partial.with_name(f"{owner}.lock"), stack):
            partial.unlink(missing_ok=True)


def key(store: Store, cell: Cell) -> str:
    """The name of a cell's file: a hash of the cell and of everything that decides its numbers."""
    environment = dataclasses.asdict(store.environment)
    identity = [_FORMAT, type(cell).__name__, values(cell), environment]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def load(store: Store, cell: Cell) -> Finished | None:
    """The finished cell, or None where there is none or its file is damaged."""
    try:
        return _read(store, cell)
    except DamagedError:
        return None


def is_damaged(store: Store, cell: Cell) -> bool:
    """Whether the cell has a file that fails its checksum."""
    try:
        _read(store, cell)
    except DamagedError:
        return True
    return False


def save(store: Store, cell: Cell, finished: Finished) -> Finished:
    """Store a cell that this process has claimed, and return what a later ``load`` will return."""
    body = {
        "keywords": values(cell),
        "measurement": dict(finished.measurement),
        "provenance": dict(finished.provenance),
        "seconds": finished.seconds,
    }
    text = json.dumps(body, sort_keys=True)
    write_checked(_path(store, cell), text)
    return _finished(text)


def checkpoint_path(store: Store, cell: Cell) -> Path:
    """The file in which an unfinished cell may keep its state."""
    return _path(store, cell).with_suffix(".state")


def of_earlier_form(store: Store) -> int:
    """How many cells, finished or begun, are from before a cell was the keywords of its measure."""
    begun = len(list(store.folder.glob("*.checkpoint")))
    return begun + sum(_is_of_earlier_form(path) for path in store.folder.glob("*.json"))


def _is_of_earlier_form(path: Path) -> bool:
    with path.open("rb") as file:
        _, _, body = file.read(100).partition(b"\n")
    return body.startswith(b'{"cell"')


@contextmanager
def claim(store: Store, cell: Cell) -> Iterator[Claim]:
    """Claim the cell for this process, for as long as the context lasts, if that is possible.

    It is not where another process has claimed the cell, nor where the cell is finished. The claim
    is a lock (``flock``) on a file, which the system takes back from a process however it dies.
    The lock's file stays, empty, for good: were it removed, a process that had opened it before
    and a process that makes it anew would lock two different files and both own the cell.
    """
    with ExitStack() as stack:
        if not _locked(_path(store, cell).with_suffix(".lock"), stack):
            yield Claim(mine=False)
            return
        try:
            finished = _read(store, cell)
        except DamagedError:
            set_aside(_path(store, cell))  # no other process can have written a good one by now
            finished = None
        yield Claim(finished is None, finished)


def _locked(path: Path, stack: ExitStack) -> bool:
    """Whether this process has the lock now, which it keeps until the stack is closed."""
    try:
        lock = FileLock(path, preserve_lock_file=True)  # never removed, never a mere marker file
        stack.enter_context(lock.acquire(blocking=False))
    except Timeout:  # which is an OSError too
        return False
    except OSError as error:
        raise unwritable(path, error) from error
    return True


def _path(store: Store, cell: Cell) -> Path:
    return store.folder / f"{key(store, cell)}.json"


def _read(store: Store, cell: Cell) -> Finished | None:
    text = read_checked(_path(store, cell))
    return None if text is None else _finished(text)


def _finished(text: str) -> Finished:
    content: dict[str, Any] = json.loads(text)
    return Finished(content["measurement"], content["seconds"], content["provenance"])
