"""A sweep of two processes that is killed, and whose files are spoiled, again and again.

    python -m tests.sweeps.ordeal FOLDER ROUNDS SEED

In every round the toy sweep is started with two processes, and a process of it is killed at a
random moment: the first, or one that computes. Then bits of some of the stored files are flipped,
and some files take the place of others. In the end the sweep runs once without disturbance; its
table must be that of a sweep that was never disturbed. ``tests.sweeps.race`` has more kills in less
time, without the launcher and the table.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from subprocess import DEVNULL

from tests.sweeps.processes import GROUP, workers_of

CELLS, PAUSE = 12, 0.15  # seconds that a cell takes
STARTED = 60.0  # seconds until a round must have computed something


def main(folder, rounds, seed):
    chance, counts = random.Random(int(seed)), Counter()
    whole, stormy = Path(folder) / "whole", Path(folder) / "stormy"
    _sweep(whole).wait()
    for _ in range(int(rounds)):
        counts += _kill(stormy, chance)
        counts += _spoil(stormy / "cells", chance)
    status = _sweep(stormy).wait()
    wanted, found = ((run / "table.csv").read_bytes() for run in (whole, stormy))
    told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    same = status == 0 and wanted == found
    sys.stdout.write(f"{rounds} rounds: {told}; the table is {'' if same else 'not '}the same\n")
    return 0 if same else 1


def _sweep(folder):
    """The toy sweep in a group of processes of its own."""
    command = [sys.executable, "-m", "tests.toy", str(folder), str(PAUSE), str(CELLS), "2"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=DEVNULL
    )  # Python warns of semaphores that a kill leaves


def _kill(folder, chance):
    """Start the sweep, and kill processes of it some time after it computed a cell."""
    before, killed = _computed(folder), Counter()
    sweep = _sweep(folder)
    deadline = time.monotonic() + STARTED
    while sweep.poll() is None and _computed(folder) == before and time.monotonic() < deadline:
        time.sleep(0.002)
    if chance.random() < 0.4:  # a process that computes is replaced, and the sweep goes on
        time.sleep(chance.uniform(0, PAUSE))
        for worker in chance.sample(workers := workers_of(sweep.pid, GROUP), min(1, len(workers))):
            killed["workers killed"] += _killed(worker)
    time.sleep(chance.uniform(0, 2 * PAUSE))
    if sweep.poll() is None:
        killed["sweeps killed"] += _killed(sweep.pid)
    sweep.wait()
    while workers_of(sweep.pid, GROUP):  # they end with the first process
        time.sleep(0.01)
    return killed


def _killed(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:  # it has ended by itself
        return 0
    return 1


def _computed(folder):
    """How many cells were computed so far, those that were computed again included."""
    log = folder / "cells" / "computed.log"
    return len(log.read_text().split()) if log.exists() else 0


def _spoil(cells, chance):
    """Flip bits of a third of the stored files, and put some others in the place of others."""
    files, done = sorted(cells.glob("*.json")), Counter()
    for path in chance.sample(files, len(files) // 3):
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        done["flips"] += 1
    for _ in range(chance.randrange(3) if len(files) > 1 else 0):
        first, second = chance.sample(files, 2)
        contents = first.read_bytes(), second.read_bytes()
        second.write_bytes(contents[0])
        if chance.random() < 0.5:
            first.write_bytes(contents[1])
        done["swaps"] += 1
    return done


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
