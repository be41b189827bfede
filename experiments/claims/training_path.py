"""The claims of paper A about figure 10, judged for every reading of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps.claims import (
    AS_PRINTED,
    OTHER,
    SOME,
    Check,
    Claim,
    Sentence,
    Verdict,
    every,
    implied,
    not_testable,
    verdict,
)
from sweeps.effects import TIGHT, between, decide, geometric_mean, mean
from sweeps.rows import where

TITLES = {
    "published": "X^T X = I, Xavier, colours less their means",
    "published_raw": "X^T X = I, Xavier, values in [0, 1]",
    "sigma_xavier": "Sigma = I, Xavier",
    "sigma_kaiming": "Sigma = I, Kaiming of PyTorch",
}
READ = ("published", "published_raw")  # which values the pixels have is open; the rest is published
PAPER_RANGE = (6.0, 12.0)
UNIT = 1.0  # in which they are printed
FACTOR = 2.0  # as 6 to 12 is
PAPER_CHANGE, NEAREST, FARTHEST = 0.5, 0.25, 0.75  # nearer to a half than to none and to all
RATIOS = ("d/k", "m/d", "n/d", "batch/n", "epochs x rate")

_SHRINKS = (
    "With X^T X = n I the product W_3 W_2 W_1 has to shrink to Y X^T / n, whose singular values"
    " are 0.17 to 0.31; with X^T X = I it has to grow. A step moves n times as far, too, and the"
    " smallest eigenvalue of G shrinks most"
)
_RAW = (
    "The published code does not say which values the pixels have. With values in [0, 1] the"
    " first singular direction is the brightness that all images share, and one singular value of"
    " Y X^T is far above the others"
)
MECHANISMS = {"published_raw": _RAW, "sigma_xavier": _SHRINKS, "sigma_kaiming": _SHRINKS}


def _paths(frame: DataFrame, reading: str) -> list[DataFrame]:
    """The rows of each seed at the epochs where kappa was measured."""
    rows = where(frame, reading=reading, measured=True)
    return [path for _, path in rows.groupby("seed")]


def _of_resolved(reading: str, judged: Callable[[list[DataFrame]], Verdict]) -> Check:
    def check(frame: DataFrame) -> Verdict:
        paths = _paths(frame, reading)
        if not paths:
            return not_testable(f"the table has no epoch at which kappa of {reading} was measured")
        if not all(path["resolved"].all() for path in paths):
            return not_testable("a kappa that is not resolved")
        return judged(paths)

    return check


def _stays_near(paths: list[DataFrame]) -> Verdict:
    kappas = [path["kappa"].to_numpy() for path in paths]
    spreads = [float(kappa.max() / kappa.min()) for kappa in kappas]
    found = decide({"": geometric_mean(spreads)}, "largest / smallest kappa", below=FACTOR)
    changes = [np.abs(kappa / kappa[0] - 1).max() for kappa in kappas]
    start, largest, end = (
        _mean([float(pick(kappa)) for kappa in kappas])
        for pick in (lambda k: k[0], np.max, lambda k: k[-1])
    )
    tops, bottoms = (
        _mean([float(values[-1] / values[0]) for values in (p[name].to_numpy() for p in paths)])
        for name in ("lambda_max", "lambda_min")
    )
    text = (
        f"{found.text}; kappa {start} at the start, {largest} at its largest, {end} at the end; "
        f"largest change {np.mean(changes):.0%} of the start; over training lambda_max changes "
        f"{tops} times, lambda_min {bottoms} times"
    )
    return replace(found, text=text)


def _changes(paths: list[DataFrame]) -> Verdict:
    """Whether the largest change is nearer to half of kappa at the start than to none and all."""
    kappas = [path["kappa"].to_numpy() for path in paths]
    changes = [np.abs(kappa / kappa[0] - 1) for kappa in kappas]
    largest = np.array([change.max() for change in changes])
    epochs = [
        int(path["epoch"].iloc[change.argmax()])
        for path, change in zip(paths, changes, strict=True)
    ]
    name = "largest change over kappa at the start"
    found = between({"": mean(largest)}, name, NEAREST, FARTHEST)
    return replace(found, text=f"{found.text}, at epochs {', '.join(map(str, epochs))}")


def _mean(values: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(values))):.3g}"


def _in_range(paths: list[DataFrame]) -> Verdict:
    """Whether the smallest and the largest kappa of a start, averaged over them, are in the range.

    The ends are read to the unit in which they are printed: 6 to 12 is from 5.5 to 12.5. Each start
    gives one number for each end, so that no epoch is picked among many.
    """
    low, high = PAPER_RANGE
    kappas = [path["kappa"].to_numpy() for path in paths]
    smallest, largest = (mean(np.array([end(k) for k in kappas])) for end in (np.min, np.max))
    above = decide({"": smallest}, "smallest kappa of a start", above=low - UNIT / 2)
    below = decide({"": largest}, "largest kappa of a start", below=high + UNIT / 2)
    found = every(lambda _: above, lambda _: below)(DataFrame())
    beyond = sum(kappa.max() > high for kappa in kappas)
    everything = np.concatenate(kappas)
    inside = np.mean((everything >= low) & (everything <= high))
    short = (
        f"a start's smallest kappa is {smallest} and its largest {largest}, above {high:g} in"
        f" {beyond} of {len(paths)}"
    )
    text = (
        f"{short}; single starts go from {everything.min():.3g} to {everything.max():.3g},"
        f" {inside:.0%} of all stops between {low:g} and {high:g}"
    )
    return replace(found, text=text, short=short)


def _stays_tight(paths: list[DataFrame]) -> Verdict:
    ratios = [(path["bound_convex"] / path["kappa"]).to_numpy() for path in paths]
    if not all(np.isfinite(ratio).all() for ratio in ratios):
        return not_testable("an epoch where Lemma 2 does not apply")
    effect = geometric_mean([float(ratio.max()) for ratio in ratios])
    found = decide({"": effect}, "largest bound / kappa", below=TIGHT)
    smallest = min(float(ratio.min()) for ratio in ratios)
    return replace(found, text=f"{found.text}, smallest {smallest:.3g}")


def _stays_below(reading: str) -> Check:
    """Whether kappa <= first bound at every epoch where Lemma 2 applies."""

    def check(frame: DataFrame) -> Verdict:
        rows = where(frame, reading=reading, measured=True)
        rows = rows[np.isfinite(rows["bound_convex"])]
        if rows.empty:
            return not_testable("no epoch where Lemma 2 applies")
        ratios = (rows["bound_convex"] / rows["kappa_low"]).to_numpy()
        text = f"smallest bound / kappa {ratios.min():.4f} over {len(ratios)} epochs of all seeds"
        return verdict(bool(ratios.min() >= 1), ratios.min(), text)

    return check


_PLACE = "Appendix D, observation 1"
_DATA = ("cifar10_part", "cifar10")
_VALUES = Sentence(
    "A", _PLACE, "takes values in the range of 6 to 12 throughout training", RATIOS, SOME, _DATA
)
_CHANGE = Sentence(
    "A",
    _PLACE,
    "a maximal change of around 50% of the condition number at initialization",
    RATIOS,
    SOME,
    _DATA,
)
_INDICATIVE = Sentence(
    "A",
    _PLACE,
    "the condition number at initialization can be indicative of how the conditioning is along the"
    " optimization trajectory",
    RATIOS,
    SOME,
    _DATA,
)
_REMAINS_TIGHT = Sentence(
    "A",
    "Appendix D, observation 2",
    "The upper bound remains tight throughout training",
    RATIOS,
    SOME,
)


def _claims(reading: str) -> tuple[Claim, ...]:
    title, panel = TITLES[reading], (("reading", reading),)
    column = AS_PRINTED if reading in READ else OTHER
    low, high = PAPER_RANGE
    statements = (
        (
            f"the smallest and the largest kappa of a start, each a mean over the starts, lie from"
            f" {low:g} to {high:g}",
            _VALUES,
            _in_range,
        ),
        (
            f"the largest change of kappa is {NEAREST:.0%} to {FARTHEST:.0%} of its start",
            _CHANGE,
            _changes,
        ),
        (
            f"kappa changes within a factor of two over training, as {low:g} to {high:g} does",
            _INDICATIVE,
            _stays_near,
        ),
        (
            f"the bound remains tight throughout training (at most {TIGHT:g} kappa)",
            _REMAINS_TIGHT,
            _stays_tight,
        ),
    )
    read = tuple(
        Claim(
            "10",
            f"{title}: {statement}",
            sentence,
            _of_resolved(reading, judged),
            panel=panel,
            mechanism=MECHANISMS.get(reading, "") if sentence is not _REMAINS_TIGHT else "",
            column=column,
        )
        for statement, sentence, judged in statements
    )
    bound = Claim(
        "10",
        f"{title}: kappa <= first bound at every epoch",
        implied("Lemma 2"),
        _stays_below(reading),
        panel=panel,
    )
    return (*read, bound)


CLAIMS = tuple(claim for reading in TITLES for claim in _claims(reading))
