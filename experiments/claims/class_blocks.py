"""What arXiv 2402.19449 says of classes and their frequencies, asked of this text: figure T4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Verdict, elsewhere, not_testable
from sweeps.comparisons import Compare
from sweeps.effects import Effect
from sweeps.rows import growth_exponent, where

PAPER = "arXiv 2402.19449"
DESCENT, ADAM, START = "gradient descent", "Adam", "start"


def _rows(frame: DataFrame, network: str, stage: str) -> DataFrame:
    return where(frame, network=network, stage=stage, part="class")


def _exponents(rows: DataFrame, of: str) -> np.ndarray:
    """The exponent e in ``of`` ~ frequency^e, fitted over the classes for each seed."""
    curves = [each[["frequency", of]].to_numpy() for _, each in rows.groupby("seed")]
    return np.array([growth_exponent(curve[:, 0], curve[:, 1]) for curve in curves])


def _grows(stage: str, network: str, part: str = "class") -> Compare:
    return Compare(
        "trace",
        {"network": network, "stage": stage, "part": part},
        along="frequency",
        each="network",
        at="({network})",
        above=0.0,
        name="trace goes like frequency to the power",
        missing="fewer than 2 blocks",
    )


def _more_than_at_the_start(frame: DataFrame) -> Verdict:
    found: dict[str, Effect] = {}
    networks = np.unique(frame["network"])
    for network in networks:
        after, start = (_rows(frame, network, stage) for stage in (DESCENT, START))
        if after.empty or len(np.unique(after["rank"])) < 2:
            return not_testable("fewer than 2 classes")
        gained = _exponents(after, "trace") - _exponents(start, "trace")
        found[f"({network})"] = effects.mean(gained)
    return effects.decide(found, "the exponent of the trace rises by", above=0.0)


def _adam(frame: DataFrame) -> Verdict:
    """Whether rare classes lag less after Adam: e in loss ~ frequency^e is above descent's.

    This does not say that the loss depends less on the frequency. After these steps of Adam rare
    classes can even have the lower loss.
    """
    after, other = (_rows(frame, "gpt", stage) for stage in (ADAM, DESCENT))
    if after.empty or len(np.unique(after["rank"])) < 2:
        return not_testable("fewer than 2 classes")
    adam, descent = (_exponents(rows, "loss") for rows in (after, other))
    found = effects.decide({"": effects.mean(adam - descent)}, "the exponent rises by", above=0.0)
    power = effects.mean(adam)
    text = f"{found.text}; after Adam the loss of a class goes like frequency to the power {power}"
    return replace(found, text=text)


CLAIMS = (
    Claim(
        "T4",
        "along gradient descent the block of a class grows with its frequency in a linear model",
        elsewhere(f"{PAPER}, abstract and Section 3, of a linear model with cross-entropy"),
        _grows(DESCENT, "linear"),
    ),
    Claim(
        "T4",
        "so it does in the output layer of a GPT",
        BEYOND,
        _grows(DESCENT, "gpt"),
    ),
    Claim(
        "T4",
        "training makes it so: the blocks depend less on the frequency at the start",
        elsewhere(f"{PAPER}, Section 3: p_k (1 - p_k), with p = 1/k at the start"),
        _more_than_at_the_start,
    ),
    Claim(
        "T4",
        "the row of a character in the table of embeddings has a block that grows with its"
        " frequency, at the start already",
        BEYOND,
        _grows(START, "gpt", "token"),
    ),
    Claim(
        "T4",
        "after gradient descent rare classes have the larger loss",
        elsewhere(f'{PAPER}, abstract, "the loss of infrequent words decreases more slowly"'),
        Compare(
            "loss",
            {"network": "gpt", "stage": DESCENT, "part": "class"},
            along="frequency",
            below=0.0,
            name="loss of a class goes like frequency to the power",
            missing="fewer than 2 classes",
        ),
    ),
    Claim(
        "T4",
        "after as many steps of Adam rare classes lag less behind frequent ones",
        elsewhere(f'{PAPER}, abstract, "Adam and sign-based methods are less sensitive"'),
        _adam,
    ),
)
