"""The class: a program of this project that Ctrl-C ends with a traceback.

Every module that ``python -m`` starts says one sentence and ends with the status 130.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("gnjax", "figures", "experiments", "reproduction", "sweeps")
STARTED = 'if __name__ == "__main__":'

# Each program sends itself the signal of Ctrl-C where it starts to read its arguments.
CHILD = """
import argparse, contextlib, io, json, os, runpy, signal, sys

def interrupted(*args, **named):
    os.kill(os.getpid(), signal.SIGINT)
    signal.sigtimedwait([], 10)

signal.signal(signal.SIGINT, signal.default_int_handler)
argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = interrupted
endings = {}
for module in sys.argv[1:]:
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BaseException as error:
        ending = error.code if isinstance(error, SystemExit) else repr(error)
        endings[module] = [ending, written.getvalue().strip()]
print(json.dumps(endings))
"""


def entries() -> list[str]:
    modules = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if STARTED in path.read_text():
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                modules.append(name.removesuffix(".__main__"))
    return modules


def test_every_program_ends_with_one_sentence_on_ctrl_c() -> None:
    modules = entries()
    assert {"gnjax", "figures", "experiments.reproduce", "experiments.depth_sweep"} < set(modules)
    command = [sys.executable, "-W", "ignore", "-c", CHILD, *modules]
    child = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
    )
    endings = json.loads(child.stdout.splitlines()[-1])
    assert list(endings) == modules
    for module, (status, text) in endings.items():
        assert (module, status) == (module, 130)
        assert len(text.splitlines()) == 1
        assert "Traceback" not in text
