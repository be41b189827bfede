"""How much is done to know the error of an answer, as the caller of a question chooses.

A question takes it from ``gnjax.Limits(evidence=..)``, and everything that it calls reads it here.
What it is evidence of, and its kinds, are explained in ``docs/reference/evidence.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gnjax.numerics.certificate import Error, unknown
from gnjax.numerics.stages import stage

USUAL, THOROUGH, NONE = "usual", "thorough", "none"
KINDS_OF_EVIDENCE = (USUAL, THOROUGH, NONE)

_evidence: ContextVar[str] = ContextVar("evidence", default=USUAL)


def evidence() -> str:
    """The evidence that is asked for now: "usual", "thorough" or "none"."""
    return _evidence.get()


_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_evidence(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The same function, within which the evidence of its keyword ``limits`` is asked for.

    Where it is called without ``limits``, that of the call around it is.
    """

    @wraps(function)
    def asking(*args: _P.args, **options: _P.kwargs) -> _R:
        kind: Any = getattr(options.get("limits"), "evidence", evidence())
        with gathering(kind):
            return function(*args, **options)

    return asking


def in_a_stage(measure: Callable[[], Error]) -> Error:
    """The error that ``measure()`` returns, in a stage of its own; unknown where Ctrl-C ends it.

    It is unknown, too, where no evidence is asked for.
    """
    if evidence() == NONE:
        return unknown("the rounding of the network was not measured, as evidence='none' asks")
    with stage("evidence: rounding", optional=True):
        return measure()
    return unknown("Ctrl-C ended the measurement of the rounding of the network")


@contextmanager
def gathering(kind: str) -> Iterator[None]:
    """Within the block this kind of evidence is asked for."""
    token = _evidence.set(kind)
    try:
        yield
    finally:
        _evidence.reset(token)
