"""A file of rows, one line of JSON for each checkpoint, from which a stopped series goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gnjax.cli.factories import MistakeError
from gnjax.diagnosis.monitor_row import MonitorRow

_VERSION = 1
_BEGINNING = b'{"gnjax series":'
_LONGEST = 2**16  # bytes of the first line that are read of any file


class Rows:
    """The rows in a file that was begun with these settings, or a new file.

    A last line without its end, as a process leaves it that was killed while it wrote, is dropped.
    A file that this command did not begin is refused before anything in it is changed.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        """Read the rows of the file at ``path``, or begin the file with a header of settings."""
        self._path = path
        self._rows: dict[str, MonitorRow] = {}  # by the digest of their checkpoints
        header = json.dumps({"gnjax series": _VERSION, **settings}, allow_nan=False)
        content = self._content()
        end = content.rfind(b"\n") + 1
        whole_lines, line_without_end = content[:end], content[end:]
        if not whole_lines:
            is_own_header = line_without_end.startswith(_BEGINNING) and header.encode().startswith(
                line_without_end
            )
            if line_without_end and not is_own_header:
                raise self._foreign("it does not begin with a header")
            if line_without_end:
                os.truncate(self._path, 0)
            self._write(header)
            return
        self._read(whole_lines, json.loads(header))
        if line_without_end:
            os.truncate(self._path, len(whole_lines))

    def _read(self, whole_lines: bytes, header: dict[str, Any]) -> None:
        """Take the rows of a file; refuse one of another command or with another header."""
        try:
            first, *entries = [json.loads(line) for line in whole_lines.decode().splitlines()]
            if first.get("gnjax series") != _VERSION:
                raise self._foreign("its first line is no header")
            self._rows = {
                entry["content"]: MonitorRow.from_json(json.dumps(entry["row"]))
                for entry in entries
            }
        except MistakeError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._foreign(str(error)) from error
        if first != header:
            differing = sorted(
                name for name in {*first, *header} if first.get(name) != header.get(name)
            )
            msg = (
                f"{self._path} was begun with other settings ({', '.join(differing)}); name "
                "another file by --rows, or remove it"
            )
            raise MistakeError(msg)

    def of(self, content: str) -> MonitorRow | None:
        """The row of a checkpoint with this digest, if it was computed before."""
        return self._rows.get(content)

    def add(self, checkpoint: str, content: str, row: MonitorRow) -> None:
        """Write a computed row to the file, with the digest ``content`` of its checkpoint."""
        self._rows[content] = row
        entry = {"checkpoint": checkpoint, "content": content, "row": json.loads(row.to_json())}
        self._write(json.dumps(entry, allow_nan=False))

    def _content(self) -> bytes:
        """The bytes of the file; none where there is no file yet.

        Of a file that another program wrote, the first line at most is read.
        """
        try:
            if not self._path.is_file():
                if self._path.exists():
                    msg = f"{self._path} is no file of rows but a folder, a pipe or a device"
                    raise MistakeError(msg)
                return b""
            with self._path.open("rb") as file:
                first_line = file.readline(_LONGEST)
                is_own_file = first_line.startswith(_BEGINNING)
                return first_line + (file.read() if is_own_file else b"")
        except OSError as error:
            msg = f"{self._path} cannot be read: {error}"
            raise MistakeError(msg) from error

    def _foreign(self, reason: str) -> MistakeError:
        """The error for a file that this command did not write."""
        msg = f"`gnjax series` did not write {self._path} ({reason}); name another file by --rows"
        return MistakeError(msg)

    def _write(self, line: str) -> None:
        """Write a line to the end of the file, and wait until it is on the disk."""
        try:
            with self._path.open("a") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            msg = f"{self._path} cannot be written: {error}"
            raise MistakeError(msg) from error
