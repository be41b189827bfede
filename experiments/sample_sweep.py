"""kappa of the NTK of one network over the number of samples that it is measured on: figure C1.

python -m experiments.sample_sweep --config=configs/sample_sweep.py:laptop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import jax
from ml_collections import ConfigDict
from pandas import DataFrame

import gnjax
from experiments.shared.certificate import CERTIFICATE, certificate
from sweeps import command_line, effects
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, verdict
from sweeps.experiment import Experiment


def settings(config: ConfigDict) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """n samples are the first n of the largest count, and the most come first."""
    for samples in sorted(config.samples, reverse=True):
        for seed in range(config.first_seed, config.first_seed + config.seeds):
            yield {}, {"samples": samples, "most": max(config.samples), "seed": seed}


def measure(
    data: str,
    data_seed: int,
    side: int,
    width: int,
    depth: int,
    activation: str,
    most: int,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """The eigenvalues of the NTK of a network with one output, on ``side`` by ``side`` pixels."""
    dataset = gnjax.data.load(data, samples=most, seed=data_seed)
    images = gnjax.data.downsample(dataset.inputs, dataset.shape, (side, side))
    widths = (images.shape[1], *[width] * (depth - 1), 1)
    model = gnjax.models.MLP(widths, activation=activation, key=jax.random.key(seed))
    kappa = gnjax.condition_number(gnjax.ntk(model, images[:samples]), seed=seed)
    return {"inputs": images.shape[1], "outputs": 1, **certificate(kappa)}


def cost(samples: int, width: int, depth: int) -> float:
    """Multiplications: the kernel of the hidden layers, and its singular values."""
    return float(samples**2 * width * depth + samples**3)


def sources(config: ConfigDict) -> list[str]:
    dataset = gnjax.data.load(config.data, samples=max(config.samples), seed=config.data_seed)
    return [f"{dataset.source}, downsampled to {config.side} x {config.side}"]


def _lacks(frame: DataFrame) -> str:
    """What keeps the table from being judged, as text, or ""."""
    if frame["samples"].nunique() < 2:
        return "fewer than 2 counts of samples"
    return "" if frame["resolved"].all() else "a kappa that is not resolved"


def _interlaces(frame: DataFrame) -> Verdict:
    """Whether lambda_max grows and lambda_min falls with n.

    Cauchy's interlacing says so: the NTK of fewer samples is a principal submatrix.
    """
    if lacks := _lacks(frame):
        return not_testable(lacks)
    steps = []
    for _, one in frame.sort_values("samples").groupby("seed"):
        largest, least = (one[name].to_numpy() for name in ("lambda_max", "lambda_min"))
        steps += [*(largest[1:] / largest[:-1]), *(least[:-1] / least[1:])]
    text = (
        f"from one n to the next either end moves outwards by a factor of {min(steps):.4g} or more"
    )
    return verdict(min(steps) >= 1, min(steps), text)


def _grows_faster_than_samples(frame: DataFrame) -> Verdict:
    if lacks := _lacks(frame):
        return not_testable(lacks)
    found = {"": effects.exponent(frame, "samples")}
    return effects.decide(found, "kappa goes like n to the power", above=1.0)


CLAIMS = (
    Claim("C1", "the ends of the spectrum only move outwards", BEYOND, _interlaces),
    Claim("C1", "kappa grows faster than n", BEYOND, _grows_faster_than_samples),
)

EXPERIMENT = Experiment(
    "sample_sweep",
    settings,
    measure,
    cost,
    columns=(
        *("data", "samples", "inputs", "outputs", "depth", "width", "activation", "seed"),
        *(name for name in CERTIFICATE if name != "method"),
    ),
    claims=CLAIMS,
    sources=sources,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXPERIMENT))
