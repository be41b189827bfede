"""What a command writes to the terminal, as it is, and the status with which it ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.progress import TextColumn

_FAILED, _INTERRUPTED, _NO_READER = 1, 130, 141  # the last two: 128 + SIGINT and 128 + SIGPIPE


class Terminal(Console):
    """A console that shows texts as they are: brackets and colons in them are no markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def say(self, text: str) -> None:
        """Print a text in one line, however long it is."""
        self.print(text, soft_wrap=True)

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to :func:`exit_status` that the reader has gone."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def column(of: str) -> TextColumn:
    """A column of a bar with a text of its task, as it is: ``description`` or ``fields[name]``."""
    return TextColumn(f"{{task.{of}}}", markup=False)


def exit_status(command: Callable[[], int], interrupted: str = "") -> int:
    """Run a command and return the status that a shell expects.

    Neither Ctrl-C nor output that cannot be written gives a traceback. The status is 130 after
    Ctrl-C, with the message ``interrupted``, or what the interrupt says itself. If the reader of
    the output has stopped reading, as ``head`` does, it is 141; if the output cannot be written, as
    on a full disk, it is 1. Messages that stderr does not take are left out, and change nothing.
    """
    # What the caller has closed of stdin, stdout and stderr is opened to read and write nothing, or
    # the next file that is opened would take its number and receive what libraries write there.
    number = os.open(os.devnull, os.O_RDWR)  # the least number that is free
    while number <= 2:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    output = _Stream(sys.stdout or _nothing(1), needed=True)
    messages = _Stream(sys.stderr or _nothing(2), needed=False)
    try:
        with redirect_stdout(output), redirect_stderr(messages):
            return _status(command, output, interrupted)
    finally:
        output.give_up()
        messages.give_up()


def _status(command: Callable[[], int], output: _Stream, interrupted: str) -> int:
    """The status of a command that writes to ``output``, or the one for what stopped it.

    ``interrupted`` is the message after Ctrl-C.
    """
    status = _FAILED
    try:
        try:
            status = command()
        finally:
            output.flush()
    except KeyboardInterrupt as stopped:
        print(interrupted or str(stopped) or "interrupted", file=sys.stderr)
        return _INTERRUPTED
    except (OSError, SystemExit):
        if output.error is None:  # it does not come from the output
            raise
    if output.error is None:
        return status
    if output.error.errno == errno.EPIPE:
        return _NO_READER
    print(f"the output cannot be written: {output.error.strerror}", file=sys.stderr)
    return _FAILED


class _Stream:
    """Stdout or stderr, which remembers the error with which it refused a text.

    The error is raised if the texts are needed, and ends no command if they are not.
    """

    def __init__(self, stream: TextIO, *, needed: bool) -> None:
        self._stream, self._needed = stream, needed
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def give_up(self) -> None:
        """Throw away text that the stream still holds and cannot write.

        Python would otherwise try to write it at its end, and complain.
        """
        try:
            self._stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def _try(self, write: Callable[[], object]) -> None:
        """Write, and remember why that was not possible; raise it where the output is needed."""
        try:
            write()
        except OSError as error:
            self.error = error
            if self._needed:
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _nothing(number: int) -> TextIO:
    """The stream to a file that was opened in place of stdout or stderr; Python has none."""
    return open(number, "w", closefd=False, encoding="utf-8")
