"""How many programs are compiled on the way to an answer."""

from collections.abc import Callable
from typing import Any

import jax

_SEEN: list[float] = []


def _note(event: str, seconds: float, **rest: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _SEEN.append(seconds)


jax.monitoring.register_event_duration_secs_listener(_note)


def compiled(ask: Callable[[Any], Any], given: Any) -> int:
    """The number of programs that ``ask(given)`` compiles."""
    before = len(_SEEN)
    ask(given)
    return len(_SEEN) - before
