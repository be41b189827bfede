"""One immutable file for each finished cell, written atomically and checked when read."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gnjax
from sweeps.grid import Cell, Measurement

_NOT_NUMBERS = ("cli", "__main__.py")  # parts of the library that cannot change a number
_ABANDONED = 3600.0  # seconds after which a half-written file belongs to no living process


class StoreError(RuntimeError):
    """Results cannot be written where they were asked to go."""


@dataclass(frozen=True)
class Finished:
    """A measurement, and the seconds that it took."""

    measurement: Measurement
    seconds: float


@dataclass(frozen=True)
class Store:
    """A folder of finished cells, and what besides the cell decides their numbers."""

    folder: Path
    code: str
    precision: str


def open_store(folder: Path, code: Iterable[Path], precision: str) -> Store:
    """Make the folder, clear what a killed run left half written, and fingerprint the code."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for partial in folder.glob("*.partial"):
            if time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot write results to {folder}: {error.strerror}; choose another with --results"
        raise StoreError(msg) from error
    return Store(folder, fingerprint(code), precision)


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of the library's source and of the given files."""
    library = Path(gnjax.__file__).parent
    source = [
        path
        for path in sorted(library.rglob("*.py"))
        if path.relative_to(library).parts[0] not in _NOT_NUMBERS
    ]
    digest = hashlib.sha256()
    for path in (*source, *files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(store: Store, cell: Cell) -> str:
    """The name of a cell's file: config, code and precision."""
    identity = [dataclasses.asdict(cell), type(cell).__name__, store.code, store.precision]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def load(store: Store, cell: Cell) -> Finished | None:
    """The finished cell, or None; a file that fails its checksum is set aside as ``.corrupt``."""
    path = _path(store, cell)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        text = ""
    finished = _parsed(text)
    if finished is None:
        path.replace(path.with_suffix(".corrupt"))
    return finished


def pace(store: Store) -> float | None:
    """Seconds a unit of cost, over all cells of the folder, of whatever config and code."""
    spent = work = 0.0
    for path in store.folder.glob("*.json"):
        body = _checked(path.read_text(errors="replace"))
        content = {} if body is None else json.loads(body)
        if content.get("cost"):
            spent, work = spent + content["seconds"], work + content["cost"]
    return spent / work if work else None


def was_corrupt(store: Store, cell: Cell) -> bool:
    """Whether a damaged file of this cell was set aside."""
    return _path(store, cell).with_suffix(".corrupt").exists()


def save(store: Store, cell: Cell, finished: Finished, cost: float) -> Finished:
    """Store a finished cell, and return it as reading it back will."""
    body = {
        "cell": dataclasses.asdict(cell),
        "cost": cost,
        "measurement": dict(finished.measurement),
        "seconds": finished.seconds,
    }
    text = json.dumps(body, sort_keys=True)
    write_atomically(_path(store, cell), f"{checksum(text)}\n{text}\n")
    return _finished(text)


def checkpoint_path(store: Store, cell: Cell) -> Path:
    """Where an unfinished cell may keep its state."""
    return store.folder / f"{key(store, cell)}.checkpoint"


@contextmanager
def claim(store: Store, cell: Cell) -> Iterator[bool]:
    """Whether this process is the one to compute the cell, while the context lasts.

    The claim is a lock on a file, which the system takes back from a process however it dies.
    """
    path = store.folder / f"{key(store, cell)}.lock"
    try:
        file = path.open("a")
    except OSError as error:
        raise _unwritable(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """All of the text or none of it, even when the machine stops in between."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "w") as file:
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


def checksum(text: str) -> str:
    """Of a file's body, kept in its first line."""
    return hashlib.sha256(text.encode()).hexdigest()


def _parsed(text: str) -> Finished | None:
    body = _checked(text)
    return None if body is None else _finished(body)


def _checked(text: str) -> str | None:
    """A file's body, if it is what its first line promises."""
    promised, _, body = text.partition("\n")
    body = body.rstrip("\n")
    return body if body and checksum(body) == promised else None


def _finished(body: str) -> Finished:
    content: dict[str, Any] = json.loads(body)
    return Finished(content["measurement"], content["seconds"])
