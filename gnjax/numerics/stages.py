"""Stages of long work by their names, wherever the work is done, and who hears of them.

What may take long says what it is about to do, and how many seconds that may take:

    with stage("ranks modulo a prime", seconds=75):
        ...

A call that shows its progress listens (:mod:`gnjax.spectra.watch`). Elsewhere a stage is its block
and nothing else. Ctrl-C does not end one call of XLA, as to compile a program, before it is done.
So a stage that begins with a long one is named after it, "compiling ..".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol


class Listener(Protocol):
    """Who hears of the stages of a call."""

    def begins(self, name: str, seconds: float | None, optional: bool) -> None:
        """A stage begins, which may take so many seconds; None where nobody can tell."""

    def ends(self, name: str, optional: bool, stopped: bool) -> None:
        """The stage that began last ends; ``stopped`` where Ctrl-C ended it."""

    def beside(self, done: int, expected: int, unit: str) -> None:
        """So many of the expected units are done that are not those of the answer."""


@dataclass
class Stage:
    """What a block knows of itself: whether Ctrl-C ended it."""

    skipped: bool = False


FIRST_PRODUCT = "first product, with its compilation"
"""The stage of the product that compiles: whoever listens takes its time for a first forecast."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def stage(name: str, seconds: float | None = None, *, optional: bool = False) -> Iterator[Stage]:
    """A block of work with a name, such as "evidence: rounding", which is shown while it runs.

    Args:
      name: what the block does.
      seconds: how long it may take; None where nobody can tell.
      optional: whether there is an answer without it. Ctrl-C then ends the block and nothing else,
        and ``skipped`` of what the block gets is True. Otherwise it goes on to the caller.

    >>> with stage("evidence", optional=True) as evidence:
    ...     raise KeyboardInterrupt
    >>> evidence.skipped
    True
    """
    this, listener, stopped = Stage(), _LISTENER.get(), False
    if listener is not None:
        listener.begins(name, seconds, optional)
    try:
        yield this
    except KeyboardInterrupt:
        stopped = True
        if not optional:
            raise
        this.skipped = True
    finally:
        if listener is not None:
            listener.ends(name, optional, stopped)


def beside(done: int, expected: int, unit: str) -> None:
    """Tell whoever listens of units that the answer does not count, as products for the norm."""
    listener = _LISTENER.get()
    if listener is not None:
        listener.beside(done, expected, unit)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[Listener | None]:
    """Let ``listener`` hear of the stages within the block, and of no others.

    Yields who would have heard of them; None if nobody.
    """
    before = _LISTENER.get()
    token = _LISTENER.set(listener)
    try:
        yield before
    finally:
        _LISTENER.reset(token)


def in_words(seconds: float) -> str:
    """A time in words: "0.3 s", "12 s", "3 min", "1.5 h", "2.5 days".

    >>> in_words(0.26), in_words(75), in_words(240), in_words(5400), in_words(216000)
    ('0.3 s', '75 s', '4 min', '1.5 h', '2.5 days')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"
