"""One immutable file for each finished cell, written atomically and checked when read.

A file that was read and fails its checksum is damaged; nothing else is. Reading that fails
(``OSError``) says nothing about the file, so it ends the sweep and changes nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sweeps.grid import Cell, Measurement

_FORMAT = 2  # of the files; part of every key, so that no version reads the files of another
_ABANDONED = 3600.0  # seconds after which a half-written file belongs to no living process


class StoreError(RuntimeError):
    """Results cannot be read or written where they were asked to be."""


class DamagedError(ValueError):
    """A file that was read to its end and fails its checksum."""


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
        for partial in folder.glob("*.partial"):
            with suppress(FileNotFoundError):  # its process has finished writing it meanwhile
                if time.time() - partial.stat().st_mtime > _ABANDONED:
                    partial.unlink()
    except OSError as error:
        msg = f"cannot write results to {folder}: {error.strerror}; choose another with --results"
        raise StoreError(msg) from error
    return Store(folder, environment)


def key(store: Store, cell: Cell) -> str:
    """The name of a cell's file: a hash of the cell and of everything that decides its numbers."""
    environment = dataclasses.asdict(store.environment)
    identity = [_FORMAT, type(cell).__name__, dataclasses.asdict(cell), environment]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def load(store: Store, cell: Cell) -> Finished | None:
    """The finished cell, or None where there is none or its file is damaged."""
    try:
        return _stored(store, cell)
    except DamagedError:
        return None


def is_damaged(store: Store, cell: Cell) -> bool:
    """Whether the cell has a file that fails its checksum."""
    try:
        _stored(store, cell)
    except DamagedError:
        return True
    return False


def save(store: Store, cell: Cell, finished: Finished) -> Finished:
    """Store a cell that this process has claimed, and return what a later ``load`` will return."""
    body = {
        "cell": dataclasses.asdict(cell),
        "measurement": dict(finished.measurement),
        "provenance": dict(finished.provenance),
        "seconds": finished.seconds,
    }
    text = json.dumps(body, sort_keys=True)
    write_checked(_path(store, cell), text)
    return _finished(text)


def checkpoint_path(store: Store, cell: Cell) -> Path:
    """The file in which an unfinished cell may keep its state."""
    return _path(store, cell).with_suffix(".checkpoint")


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
            finished = _stored(store, cell)
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
        raise _unwritable(path, error) from error
    return True


def write_checked(path: Path, text: str) -> None:
    """A text under a line with its checksum, which :func:`read_checked` verifies."""
    write_atomically(path, f"{_checksum(text.encode())}\n{text}\n")


def read_checked(path: Path) -> str | None:
    """The text of a file, None where there is no file; an error if its checksum fails."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; it is kept, so run the same command again"
        raise StoreError(msg) from error
    promised, _, body = content.partition(b"\n")
    body = body.removesuffix(b"\n")
    if not body or _checksum(body).encode() != promised:
        msg = f"{path} fails its checksum"
        raise DamagedError(msg)
    return body.decode()


def set_aside(path: Path) -> None:
    """Rename a damaged file to ``.corrupt``; only for the owner of its claim."""
    try:
        path.replace(path.with_suffix(".corrupt"))
    except OSError as error:
        raise _unwritable(path, error) from error


def write_atomically(path: Path, text: str) -> None:
    """Write all of the text or none of it, even when the machine stops in between."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror}; finished cells are kept, so free space or "
        "choose another folder with --results and run the same command again"
    )


def _path(store: Store, cell: Cell) -> Path:
    return store.folder / f"{key(store, cell)}.json"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stored(store: Store, cell: Cell) -> Finished | None:
    text = read_checked(_path(store, cell))
    return None if text is None else _finished(text)


def _finished(text: str) -> Finished:
    content: dict[str, Any] = json.loads(text)
    return Finished(content["measurement"], content["seconds"], content["provenance"])
