"""Drawing without a process of its own, for tests of what a run does before and after."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from reproduction import drawing


def draw_in_a_thread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(drawing, "ProcessPoolExecutor", lambda count, *_, **__: ThreadPoolExecutor(count))
