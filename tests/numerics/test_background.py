"""Ctrl-C is heard within a second, also inside of LAPACK; and work has an end.

The class: a call into a library that holds Python's lock, or into a server, for as long as it
likes. Every decomposition whose time grows with the cube of the rows is interrupted here.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from gnjax.numerics.decompositions.background import interruptible

_CHILD = """
import os, signal, sys, threading, time
import numpy as np
import gnjax
gnjax.enable_x64()
matrix = np.random.default_rng(0).standard_normal((2600, 2600))
gram = matrix @ matrix.T
tall = np.concatenate([matrix] * 3)
calls = {
    "eigenvalues": lambda: gnjax.eigenvalues(gram),
    "eigenvectors": lambda: gnjax.eigenvalues(gram, vectors=True),
    "kappa": lambda: gnjax.condition_number(gram, method="dense"),
    "factor": lambda: gnjax.eigenvalues(gnjax.factored(matrix)),
    "long factor": lambda: gnjax.eigenvalues(gnjax.factored(tall.T)),
    "singular vectors": lambda: gnjax.eigenvalues(gnjax.factored(matrix), vectors=True),
}
def interrupt():
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have Ctrl-C ignored
threading.Timer(0.5, interrupt).start()
try:
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    print(time.monotonic() - sent)
"""


@pytest.mark.parametrize(
    "call",
    [
        "eigenvalues",
        pytest.param("eigenvectors", marks=pytest.mark.slow),
        pytest.param("kappa", marks=pytest.mark.slow),
        pytest.param("factor", marks=pytest.mark.slow),
        pytest.param("long factor", marks=pytest.mark.slow),
        pytest.param("singular vectors", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_is_heard_inside_of_a_large_decomposition(call: str) -> None:
    """And the process ends as usual, once LAPACK has ended in it."""
    command = [sys.executable, "-c", _CHILD, call]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5  # a second, on a busy machine


def test_the_value_and_the_error_of_the_work_are_those_of_a_call() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        interruptible(_interrupted)


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_the_work_has_the_callers_surroundings() -> None:
    """NumPy's treatment of errors, and warnings that are errors."""
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        interruptible(lambda: np.float64(1e300) * np.float64(1e300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            interruptible(lambda: np.zeros(1) / np.zeros(1))


def test_other_threads_do_their_work_themselves() -> None:
    threads: list[threading.Thread] = []
    mine = threading.Thread(
        target=lambda: interruptible(lambda: threads.append(threading.current_thread()))
    )
    mine.start()
    mine.join()
    assert threads == [mine]
