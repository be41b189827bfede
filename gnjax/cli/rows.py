"""A file of rows, one line of JSON for each checkpoint, from which a stopped series goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gnjax.cli.factories import MistakeError
from gnjax.diagnosis.monitor_row import MonitorRow

_VERSION = 1


class Rows:
    """The rows in a file that was begun with these settings, or a new file.

    A line is written at once and flushed to the disk. A last line without its end, as a process
    leaves it that was killed while it wrote, is dropped.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._rows: dict[str, MonitorRow] = {}
        header = {"gnjax series": _VERSION, **settings}
        lines = self._whole_lines()
        if not lines:
            self._write(header)
            return
        try:
            first, *entries = [json.loads(line) for line in lines]
            self._rows = {
                entry["content"]: MonitorRow.from_json(json.dumps(entry["row"]))
                for entry in entries
            }
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path} is not what `gnjax series` wrote ({error}); name another file by --rows"
            raise MistakeError(msg) from error
        if first != header:
            differing = sorted(
                name for name in {*first, *header} if first.get(name) != header.get(name)
            )
            msg = (
                f"{path} was begun with other settings ({', '.join(differing)}); name another file "
                "by --rows, or remove it"
            )
            raise MistakeError(msg)

    def of(self, content: str) -> MonitorRow | None:
        """The row of a checkpoint with this digest, if it was computed before."""
        return self._rows.get(content)

    def add(self, checkpoint: str, content: str, row: MonitorRow) -> None:
        """Keep a row that was computed."""
        self._rows[content] = row
        entry = {"checkpoint": checkpoint, "content": content, "row": json.loads(row.to_json())}
        self._write(entry)

    def _whole_lines(self) -> list[str]:
        """The lines of the file; what stands behind the last end of a line is cut off."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            os.truncate(self._path, len(whole))
        try:
            return whole.decode().splitlines()
        except UnicodeDecodeError as error:
            msg = f"{self._path} is no text, and `gnjax series` did not write it"
            raise MistakeError(msg) from error

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(entry, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            msg = f"{self._path} cannot be written: {error}"
            raise MistakeError(msg) from error
