"""Files that are written whole or not at all, and checked when they are read.

A file that was read and fails its checksum is damaged; nothing else is. Reading that fails
(``OSError``) says nothing about the file, so it ends the sweep and changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"


class StoreError(RuntimeError):
    """Results cannot be read or written where they were asked to be."""


class DamagedError(ValueError):
    """A file that was read to its end and fails its checksum."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` that takes its place if the block ends well, and vanishes if not.

    What the block has written is on the disk before the file takes its place, even if the machine
    stops in between. The umask decides who may read it, as for any other new file. Its name begins
    with that of ``path``, so that the file of a killed process can be told from another's.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.touch(exist_ok=False)
            yield partial
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_atomically(path: Path, text: str) -> None:
    """Write all of the text or none of it, even when the machine stops in between."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_checked(path: Path, text: str) -> None:
    """A text under a line with its checksum, which :func:`read_checked` verifies."""
    write_atomically(path, f"{_checksum(path, text.encode())}\n{text}\n")


def read_checked(path: Path) -> str | None:
    """The text of a file, None where there is no file; an error if its checksum fails.

    It fails for a copy of a file under another name too: the name of a file says which cell it
    belongs to.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; it is kept, so run the same command again"
        raise StoreError(msg) from error
    promised, _, body = content.partition(b"\n")
    body = body.removesuffix(b"\n")
    if not body or _checksum(path, body).encode() != promised:
        msg = f"{path} fails its checksum"
        raise DamagedError(msg)
    return body.decode()


def set_aside(path: Path) -> None:
    """Rename a damaged file to ``.corrupt``; only for the owner of its claim."""
    try:
        path.replace(path.with_suffix(".corrupt"))
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror}; finished cells are kept, so free space or "
        "choose another folder with --results and run the same command again"
    )


def _checksum(path: Path, content: bytes) -> str:
    """A hash of the content together with the name under which it was written."""
    return hashlib.sha256(path.name.encode() + b"\n" + content).hexdigest()
