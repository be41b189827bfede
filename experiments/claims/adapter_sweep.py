"""Whether p / (k n) is what kappa of pruned networks and of adapters follows: figure T6."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import BEYOND, FAILS, HOLDS, UNDECIDED, Claim, Source, Verdict, not_testable
from sweeps.regimes import FACTOR
from sweeps.rows import where

PAPER = "paper A (arXiv 2411.02139)"
NETWORKS = {"mlp": "MLP", "gpt": "GPT"}
LEAST = 1.25  # smallest p / (k n) used: at 1 the spectrum of a random matrix J J^T reaches zero


def _family(frame: DataFrame, network: str, family: str) -> DataFrame:
    shown = where(frame, network=network, family=family)
    return shown[shown["share"] >= LEAST]


def _falls(families: tuple[str, ...]) -> Callable[[DataFrame], Verdict]:
    def check(frame: DataFrame) -> Verdict:
        found = {}
        for network, title in NETWORKS.items():
            for family in families:
                rows = _family(frame, network, family)
                if rows.empty or rows.groupby("seed")["share"].nunique().min() < 2:
                    continue
                found[f"({title}, {family})"] = effects.exponent(rows, "share")
        return effects.decide(found, "kappa goes like (p / (k n)) to the power", below=0.0)

    return check


def _as_pruned(family: str) -> Callable[[DataFrame], Verdict]:
    """Whether kappa of a family is within FACTOR of the pruned networks' at equal p / (k n).

    They are compared in the middle of the range of p / (k n) that both families cover.
    """

    def check(frame: DataFrame) -> Verdict:
        found = {}
        for network, title in NETWORKS.items():
            one, other = (_family(frame, network, name) for name in (family, "pruned"))
            gaps = [_gap(where(one, seed=s), where(other, seed=s)) for s in np.unique(one["seed"])]
            if not gaps or not np.isfinite(gaps).all():
                return not_testable("no p / (k n) that both families reach")
            logs = effects.mean(np.array(gaps))
            found[f"({title})"] = logs.exponential()
        listed = ", ".join(f"{effect} {label}" for label, effect in found.items())
        text = f"kappa over that of pruned networks at equal p / (k n): {listed}"
        worst = max(found.values(), key=lambda effect: abs(np.log(effect.value)))
        picked = [effect.among(len(found)) for effect in found.values()]
        if all(e.low > 1 / FACTOR and e.high < FACTOR for e in found.values()):
            status = HOLDS
        elif any(e.high < 1 / FACTOR or e.low > FACTOR for e in picked):
            status = FAILS
        else:
            status = UNDECIDED
        return Verdict(status, worst.value, text, worst.low, worst.high)

    return check


def _gap(one: DataFrame, other: DataFrame) -> float:
    """log kappa(one) - log kappa(other), at the p / (k n) in the middle of their common range."""
    if min(len(one), len(other)) < 1:
        return float("nan")
    low = max(one["share"].min(), other["share"].min())
    high = min(one["share"].max(), other["share"].max())
    if low > high:
        return float("nan")
    place = (np.log(low) + np.log(high)) / 2
    first, second = (_at(rows, float(place)) for rows in (one, other))
    return first - second


def _at(rows: DataFrame, place: float) -> float:
    curve = np.log(rows.sort_values("share")[["share", "kappa"]].to_numpy())
    return float(np.interp(place, curve[:, 0], curve[:, 1]))


_LAW = f"at equal p / (k n) their kappa is that of pruned networks, within a factor of {FACTOR:g}"

CLAIMS = (
    Claim(
        "T6",
        "kappa grows as more weights are pruned",
        Source("carried over", f"{PAPER}, Section 1 at Figure 1, and Section 7"),
        _falls(("pruned",)),
    ),
    Claim(
        "T6",
        "kappa falls with p / (k n) in every family that has two sizes from 1.25 k n on",
        BEYOND,
        _falls(("pruned", "narrow", "adapters", "adapters, trained")),
    ),
    Claim(
        "T6",
        f"adapters with B = 0: {_LAW}",
        BEYOND,
        _as_pruned("adapters"),
        mechanism=(
            "it is lower: their parameters reach every output through dense matrices, while pruning"
            " nine tenths of the MLP leaves units without inputs, two of four matrices without full"
            " rank and kappa at 1e8 (p = 1.36 k n)"
        ),
    ),
    Claim(
        "T6",
        f"trained adapters: {_LAW}",
        BEYOND,
        _as_pruned("adapters, trained"),
        mechanism=(
            "training raises the largest eigenvalue of the MLP's adapters of rank 8 from 1.4e3 to"
            " 1.8e4, four times that of pruned networks with as many parameters"
        ),
    ),
    Claim(
        "T6",
        f"narrow networks: {_LAW}",
        BEYOND,
        _as_pruned("narrow"),
        mechanism=(
            "a narrow layer limits the rank whatever p is: with 8 units for 10 outputs the GPT's"
            " J J^T has rank 302 of 400 at p = 5 k n, and the MLP of width 12 about 340 at 2.7 k n;"
            " the smallest eigenvalues vanish towards it"
        ),
    ),
)
