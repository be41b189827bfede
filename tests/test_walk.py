"""What the first example of README enters: `python -m tests.test_walk` counts the functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import jax
import pytest

import gnjax
from gnjax.networks.jacobians import row_by_row

_ROOT = os.path.dirname(gnjax.__file__)


@contextmanager
def entered() -> Iterator[set[tuple[str, str]]]:
    """The named functions of gnjax that are called, each with its file."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        named = event == "call" and not code.co_name.startswith("<")
        if named and code.co_filename.startswith(_ROOT):
            seen.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def first_example() -> Callable[[], gnjax.answers.ConditionNumber]:
    """The first example of README."""
    model = gnjax.models.MLP((8, 16, 3), activation="tanh", key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (20, 8))
    return lambda: gnjax.condition_number(gnjax.gauss_newton(model, x))


@pytest.fixture
def ask() -> Callable[[], gnjax.answers.ConditionNumber]:
    return first_example()


def test_asking_again_does_not_call_the_model(ask: Callable[[], Any]) -> None:
    ask()
    with entered() as functions:
        ask()
    assert not [name for file, name in functions if file.endswith("models/mlp.py")]


def test_a_jacobian_is_formed_once(ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    times, formed = [], row_by_row.row_blocks
    monkeypatch.setattr(row_by_row, "row_blocks", lambda net: times.append(1) or formed(net))
    ask()
    assert len(times) == 1


if __name__ == "__main__":
    gnjax.enable_x64()
    asked = first_example()
    asked()
    with entered() as functions:
        asked()
    sys.stdout.write(f"{len(functions)} {len({file for file, _ in functions})}")
