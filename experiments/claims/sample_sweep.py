"""What we say of figure C1, which no paper has, as functions of the saved table."""

from __future__ import annotations

import numpy as np

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Verdict, not_testable, verdict
from sweeps.rows import where
from sweeps.table import Columns


def _interlaces(table: Columns) -> Verdict:
    """Cauchy: the NTK of fewer samples is a principal submatrix, so its ends lie inside."""
    if len(np.unique(table["samples"])) < 2 or not table["resolved"].all():
        return not_testable("fewer than 2 counts of samples, or a kappa that is not resolved")
    steps = []
    for seed in np.unique(table["seed"]):
        one = where(table, seed=seed)
        order = np.argsort(one["samples"])
        largest, least = (one[name][order] for name in ("lambda_max", "lambda_min"))
        steps += [*(largest[1:] / largest[:-1]), *(least[:-1] / least[1:])]
    text = (
        f"from one n to the next either end moves outwards by a factor of {min(steps):.4g} or more"
    )
    return verdict(min(steps) >= 1, min(steps), text)


def _grows_faster_than_samples(table: Columns) -> Verdict:
    if len(np.unique(table["samples"])) < 2 or not table["resolved"].all():
        return not_testable("fewer than 2 counts of samples, or a kappa that is not resolved")
    found = {"": effects.exponent(table, "samples")}
    return effects.decide(found, "kappa ~ n^e, e =", above=1.0)


CLAIMS = (
    Claim("C1", "the ends of the spectrum only move outwards", BEYOND, _interlaces),
    Claim("C1", "kappa grows faster than n", BEYOND, _grows_faster_than_samples),
)
