"""How much is done to know the error of an answer, as the caller of a question chooses.

A question takes it from ``gnjax.Limits(evidence=..)``, and everything that it calls reads it here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

USUAL, THOROUGH, NONE = "usual", "thorough", "none"
KINDS_OF_EVIDENCE = (USUAL, THOROUGH, NONE)

NOT_ASKED = "the rounding of the network was not measured, as evidence='none' asks"

_evidence: ContextVar[str] = ContextVar("evidence", default=USUAL)


def evidence() -> str:
    """The evidence that is asked for now: "usual", "thorough" or "none"."""
    return _evidence.get()


@contextmanager
def gathering(kind: str) -> Iterator[None]:
    """Within the block this kind of evidence is asked for."""
    token = _evidence.set(kind)
    try:
        yield
    finally:
        _evidence.reset(token)
