"""A sweep of cheap cells with the command line of every experiment, as a program.

    python -m tests.sweeps.program --config=tests/sweeps/program.py:quick --results=FOLDER

Its texts are what a terminal, a page and a table could take for markup.
"""

import sys

from ml_collections import ConfigDict

from sweeps import command_line
from sweeps.claims import BEYOND, SOME, Claim, Sentence, verdict
from sweeps.experiment import Experiment
from tests import toy

STATEMENT = "kappa[relu] is below kappa[bold] [nan, nan] [/or] :warning: <b>|</b>"
NUMBER = "1.5 [1, 2] [/] [red]4[/red] :x: at [/or]"
WORDS = "kappa[/] improves with [bold]width :x: <i>"
SAID = Sentence("A", "Section [1]", WORDS, rule=SOME)
READINGS = ("one reading", "another reading")


def get_config(profile):
    cells, seconds = {"quick": (3, 0.0), "slow": (2, 60.0)}[profile]
    return ConfigDict({"cells": cells, "seconds": seconds})


def measure(depth: int, seconds: float):
    """The first cell is quick in every profile."""
    if depth == 13:
        msg = "[red]failed[/red] [/or] :x:"
        raise ValueError(msg)
    return toy.measure(depth, seconds if depth > 1 else 0.0)


EXPERIMENT = Experiment(
    "program",
    toy.settings,
    measure,
    lambda depth: 1 / depth,
    claims=[
        Claim("1[a]", STATEMENT, BEYOND, lambda frame: verdict(True, 1.5, NUMBER)),
        Claim("2", READINGS[0], SAID, lambda frame: verdict(False, 0.5, "0.5 for depth")),
        Claim("2", READINGS[1], SAID, lambda frame: verdict(True, 2.0, "2 for depth")),
    ],
    sources=lambda config: ["toys"],
)

if __name__ == "__main__":
    from tests.sweeps import program  # processes look up its functions under this name

    sys.exit(command_line.main(program.EXPERIMENT))
