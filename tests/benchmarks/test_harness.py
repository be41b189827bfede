"""Functions in processes of their own: what they return, whose turn it is, and why they fail."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import pytest

from benchmarks import harness, record

HERE = "tests.benchmarks.test_harness"


def doubled(case: harness.Case, factor: float, name: str) -> dict[str, Any]:
    """A case and settings, back again."""
    arrays = {"a/b": factor * case.x, "c": case.weights["layer1_dense"]}
    return {"arrays": arrays, "name": name, "statistics": len(case.statistics)}


def in_turns(repeats: int) -> dict[str, Any]:
    sys.stdout.write("a line that is no turn\n")
    runs, pid = harness.in_turn(os.getpid, repeats)
    return {"runs": runs, "pid": pid}


def failing(how: str) -> dict[str, Any]:
    if how == "killed":
        os.kill(os.getpid(), 9)
    if how == "silent":
        sys.exit(3)
    if how == "slow":
        time.sleep(60)
    if how == "refused":
        raise harness.NoAnswerError("it does not do this")
    raise MemoryError("no room")


def test_keywords_arrive_and_the_answer_comes_back():
    case = harness.Case({"layer1_dense": np.eye(2)}, np.arange(3.0), np.arange(3))
    given = {"case": vars(case), "factor": 2.0, "name": "some"}
    found = harness.apart(f"{HERE}:doubled", given)
    np.testing.assert_array_equal(found["arrays"]["a/b"], [0, 2, 4])
    np.testing.assert_array_equal(found["arrays"]["c"], np.eye(2))
    assert (found["name"], found["statistics"], found["ours"]) == ("some", 0, [])
    assert 0.01 < found["gigabytes"] < 10


def test_ours_runs_before_each_run_of_the_other():
    calls: list[int] = []
    found = harness.apart(f"{HERE}:in_turns", {"repeats": 3}, ours=lambda: calls.append(1))
    assert len(calls) == len(found["ours"]) == len(found["runs"]) == 3
    assert found["pid"] != os.getpid()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("killed", "killed by signal 9"),
        ("silent", "ended with the status 3"),
        ("slow", "no answer in 2 s"),
        ("refused", "it does not do this"),
        ("memory", "MemoryError: no room"),
    ],
)
def test_a_process_without_an_answer_says_why(how, why):
    patience = 2.0 if how == "slow" else 100.0
    with pytest.raises(harness.NoAnswerError, match=f"^{why}"):
        harness.apart(f"{HERE}:failing", {"how": how}, patience=patience)


def test_options_are_the_keywords_of_a_function(monkeypatch):
    def function(sizes: tuple[int, ...] = (1, 2), share: float = 0.5, small: bool = False) -> None:
        """Only its keywords count."""

    monkeypatch.setattr(sys, "argv", ["name", "--sizes", "3", "4", "--small", "--share=1"])
    found = record.options(function, save=False)
    assert found == {"sizes": [3, 4], "share": 1.0, "small": True, "save": False}
    monkeypatch.setattr(sys, "argv", ["name"])
    assert record.options(function) == {"sizes": (1, 2), "share": 0.5, "small": False}
