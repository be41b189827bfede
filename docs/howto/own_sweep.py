"""kappa of a tanh network over its width.

PYTHONPATH=. python docs/howto/own_sweep.py --config=docs/howto/own_sweep.py:small --jobs=2 --plot
"""

import sys

import jax

import gnjax
from figures.shared.own import curves
from sweeps import command_line
from sweeps.claims import BEYOND, Claim
from sweeps.config import ConfigDict
from sweeps.effects import trend
from sweeps.experiment import Experiment


def get_config(profile: str) -> ConfigDict:
    """What --config.FIELD=VALUE changes."""
    widths = {"small": (16, 32), "large": (16, 32, 64, 128, 256)}[profile]
    return ConfigDict({"widths": widths, "seeds": 2, "activation": "tanh"})


def settings(config: ConfigDict):
    """For each row of the table, labels (here none) and the keywords of ``measure``."""
    for width in config.widths:
        for seed in range(config.seeds):
            yield {}, {"width": width, "seed": seed}


def measure(width: int, activation: str, seed: int) -> dict[str, object]:
    """All the computing happens here, in whichever process takes the cell."""
    net, data = jax.random.split(jax.random.key(seed))
    model = gnjax.models.MLP((8, width, 3), activation=activation, key=net)
    x = jax.random.normal(data, (20, 8))
    kappa = gnjax.condition_number(gnjax.gauss_newton(model, x))
    return {"kappa": kappa.value, "resolved": kappa.resolved}


def cost(width: int) -> float:
    return float(width)


CLAIMS = (Claim("own", "wider is better", BEYOND, lambda f: trend(f, "width", "m", rises=False)),)
DRAW = curves("width", "kappa")  # what --plot draws; by="activation" has a curve for each
EXPERIMENT = Experiment("own_sweep", settings, measure, cost, claims=CLAIMS, draw=DRAW)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
