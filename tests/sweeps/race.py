"""Processes that compute cells of one store and are killed while they do, as a program.

    python -m tests.sweeps.race FOLDER ROUNDS SEED

In every round several processes want the same few cells. Each looks every cell up, claims it,
"computes" it (a short sleep with a checkpoint in it, and now and then a failure) and stores it,
while the program kills them at random moments, starts others in their place, and damages what is
stored: files are cut, bits are flipped, and files of other cells take their place.
Everybody writes what it does into one log, a line at a time, a kill before it happens. The log is
then held against the rules: who begins a cell finds it neither stored nor in another's hands, and
goes on from no checkpoint but its own. This program imports no JAX, so that a process is a fork,
and a round takes a few hundredths of a second.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from sweeps.cell import Cell
from sweeps.storage import files
from sweeps.storage import store as stores
from sweeps.storage.store import Environment, Finished

CELLS, PROCESSES = 4, 4
LONGEST = 0.004  # seconds that a cell takes
FAILING = 0.3  # the share of attempts at a cell that fail
DAMAGES, SWAPPED, CUT = 5, 0.4, 0.2  # the most after a wave of kills, and the shares of two kinds
ENVIRONMENT = Environment("code", {"jax": "0"}, "cpu: cpu", "float64")


def cell_of(number):
    return Cell((("number", number),))


def value(cell):
    """Several pages of it, so that a process can be killed in the middle of writing them."""
    return {"kappa": cell.keywords["number"] / 7, "padding": "x" * 20000}


def work(folder, seed):
    """What a process of a sweep does until every cell is stored."""
    chance, log = random.Random(seed), _log(folder)
    store = stores.open_store(folder, ENVIRONMENT)
    left = [cell_of(number) for number in range(CELLS)]
    chance.shuffle(left)
    while left:
        left = [cell for cell in left if stores.load(store, cell) is None]
        for cell in left:
            with stores.claim(store, cell) as claim:
                if not claim.mine:
                    continue
                _tell(log, "begins", cell.keywords["number"])
                _resume(store, cell, log)
                time.sleep(chance.uniform(0, LONGEST))
                if chance.random() < FAILING:
                    _tell(log, "fails", cell.keywords["number"])
                    continue
                stores.save(store, cell, Finished(value(cell), 1.0, {}))
                _tell(log, "stores", cell.keywords["number"])
        time.sleep(0.0005)


def _resume(store, cell, log):
    """Read the cell's checkpoint, and write it anew."""
    path = stores.checkpoint_path(store, cell)
    try:
        text = files.read_checked(path)
    except files.DamagedError:
        files.set_aside(path)
        text = None
    if text is not None and json.loads(text) != value(cell):
        _tell(log, "mixes", cell.keywords["number"])
    files.write_checked(path, json.dumps(value(cell)))


def round_of(folder, seed):
    """Processes at work and kills among them, until every cell is stored.

    Returns the processes that were killed and those that went wrong by themselves.
    """
    chance, log = random.Random(seed), _log(folder)
    started, killed = [], set()
    for wave in range(chance.randrange(1, 5)):
        running = [_fork(folder, chance.random()) for _ in range(PROCESSES)]
        started += running
        for process in running[: PROCESSES if wave == 0 else chance.randrange(PROCESSES + 1)]:
            time.sleep(chance.uniform(0, 2 * LONGEST))
            _tell(log, "kills", process)
            os.kill(process, signal.SIGKILL)
            killed.add(process)
        for _ in range(chance.randrange(DAMAGES + 1)):
            _damage(folder, chance, log)
        # Those not killed go on; the next wave takes over from the dead meanwhile.
    started.append(_fork(folder, chance.random()))
    ends = {process: os.waitpid(process, 0)[1] for process in started}
    return killed, {process for process in ends if ends[process] and process not in killed}


def violations(folder):
    """Where the log breaks a rule, in words, and how often each thing happened."""
    broken, dead = [], set()
    owner, stored, counts = {}, set(), Counter()
    for line in (folder / "log").read_text().splitlines():
        process, verb, what = line.split()
        counts[verb] += 1
        if verb == "kills":
            dead.add(what)
        elif verb == "mixes":
            broken.append(f"cell {what} went on from the checkpoint of another")
        elif verb == "damages":
            stored.discard(what)
            owner.pop(what, None)
        elif verb == "begins":
            if what in stored:
                broken.append(f"cell {what} was computed again after it was stored")
            if what in owner and owner[what] not in dead:
                broken.append(f"cell {what} was begun while another process had it")
            owner[what] = process
        else:
            if owner.pop(what, None) != process:
                broken.append(f"a process ended cell {what}, which was another's")
            if verb == "stores":
                stored.add(what)
    store = stores.open_store(folder, ENVIRONMENT)
    for number in range(CELLS):
        found = stores.load(store, cell_of(number))
        if found is None or found.measurement != value(cell_of(number)):
            broken.append(f"cell {number} was lost")
    return broken, counts


def _damage(folder, chance, log):
    """Spoil the file of one stored cell, in a moment in which nobody has claimed it.

    Another cell's file or checkpoint that takes its place is whole, and nevertheless no answer.
    """
    store = stores.open_store(folder, ENVIRONMENT)
    cell, other = (cell_of(number) for number in chance.sample(range(CELLS), 2))
    path = folder / f"{stores.key(store, cell)}.json"
    foreign = [folder / f"{stores.key(store, other)}.json", stores.checkpoint_path(store, other)]
    with stores.claim(store, cell) as claim:
        if claim.finished is None:
            return
        spoiled = bytearray(path.read_bytes())
        for source in chance.sample(foreign, 2):
            if chance.random() < SWAPPED and source.exists():
                spoiled = source.read_bytes()
                break
        else:
            place = chance.randrange(len(spoiled))
            if chance.random() < CUT:
                del spoiled[place:]
            else:
                spoiled[place] ^= 1 << chance.randrange(8)
        _tell(log, "damages", cell.keywords["number"])
        path.write_bytes(spoiled)
        shutil.copy(path, stores.checkpoint_path(store, cell))


def _log(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _tell(log, verb, what):
    os.write(log, f"{os.getpid()} {verb} {what}\n".encode())


def _fork(folder, seed):
    process = os.fork()
    if process:
        return process
    try:
        work(folder, seed)
        os._exit(0)
    finally:  # reached by an error alone: a child must not go on as if it were the program
        traceback.print_exc()
        os._exit(1)


def main(folder, rounds, seed):
    broken, counts = [], Counter()
    for number in range(int(rounds)):
        place = Path(folder) / f"round{number}"
        _, wrong = round_of(place, int(seed) + number)
        found, happened = violations(place)
        found += [f"process {process} ended in an error" for process in wrong]
        counts += happened
        broken += [f"round {number}: {each}" for each in found]
    told = ", ".join(f"{counts[verb]} {verb}" for verb in ("kills", "damages", "begins", "stores"))
    summary = f"{rounds} rounds: {told}, {len(broken)} violations"
    sys.stdout.write("\n".join([*broken, summary, ""]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
