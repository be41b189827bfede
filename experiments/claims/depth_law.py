"""The law of depth: which power of L kappa grows like, how the power grows, and its limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pandas import DataFrame

from sweeps.claims import BEYOND, Claim, Verdict, not_testable
from sweeps.effects import Effect, between, decide, exponent, mean, ratio
from sweeps.rows import where

SHALLOW, DEEP = 10, 40  # depths up to the one, which the paper has, and from the other on
NEAR = 0.75, 1.5  # the growth of log(kappa) by a layer, over its limit
STEEP = 4.0  # where the limit multiplies kappa by more than this, over the deep networks
EQUAL = 0.8, 1.25  # kappas at one L d / m
QUADRATIC = 2.0


def families(frame: DataFrame, *, rate: bool) -> Iterator[tuple[str, DataFrame]]:
    """The rows of each width, of networks whose limit is positive, or of those where it is 0."""
    rows = where(frame, resolved=True)
    rows = rows[(rows["rate"] > 0) == rate]
    for (inputs, outputs, width), found in rows.groupby(["inputs", "outputs", "width"]):
        yield f"at d={inputs}, k={outputs}, m={width}", found.reset_index(drop=True)


def power(rows: DataFrame, least: float, most: float) -> Effect:
    """The power of L that kappa grows like between two depths."""
    return exponent(rows[(rows["depth"] >= least) & (rows["depth"] <= most)], "depth")


def _power_grows(frame: DataFrame) -> Verdict:
    """Whether the power in deep networks is above the one in the shallow ones."""
    found = {}
    for name, rows in families(frame, rate=True):
        shallow, deep = rows[rows["depth"] <= SHALLOW], rows[rows["depth"] >= DEEP]
        if min(shallow["depth"].nunique(), deep["depth"].nunique()) < 2:
            continue
        gaps = [
            power(deep[deep["seed"] == seed], 0, np.inf).value
            - power(shallow[shallow["seed"] == seed], 0, np.inf).value
            for seed in sorted(set(shallow["seed"]) & set(deep["seed"]))
        ]
        found[name] = mean(np.array(gaps))
    told = f"power of L from L = {DEEP} on less that up to L = {SHALLOW}"
    return decide(found, told, above=0.0)


def growth(rows: DataFrame, unit: float = 1.0) -> Effect:
    """What log(kappa) grows by with every layer in deep networks, in a unit."""
    deep = rows[rows["depth"] >= DEEP]
    slopes = [
        np.polyfit(one["depth"], np.log(one["kappa"]), 1)[0] / unit
        for _, one in deep.groupby("seed")
        if one["depth"].nunique() > 1
    ]
    return mean(np.array(slopes))


def _limit(frame: DataFrame) -> Verdict:
    """Whether log(kappa) grows by about its limit with every layer, where this is steep."""
    found = {}
    for name, rows in families(frame, rate=True):
        limit = rows["rate"].iloc[0]
        depths = rows["depth"][rows["depth"] >= DEEP]
        if depths.nunique() < 2 or np.exp(limit * (depths.max() - DEEP)) < STEEP:
            continue
        found[name] = growth(rows, limit)
    return between(
        found, "growth of log(kappa) by a layer over psi(m/2) - psi((m - r + 1)/2):", *NEAR
    )


def _one_output(frame: DataFrame) -> Verdict:
    """Whether kappa grows less than quadratically where the limit is 0, on average over widths."""
    rows = where(frame, resolved=True)
    deep = rows[(rows["rate"] == 0) & (rows["depth"] >= DEEP)]
    if deep["depth"].nunique() < 2:
        return not_testable(f"fewer than 2 depths from {DEEP} on with one output")
    slopes = [
        np.mean([power(one, DEEP, np.inf).value for _, one in of_seed.groupby("width")])
        for _, of_seed in deep.groupby("seed")
    ]
    told = f"kappa with one output goes like L, from L = {DEEP} on and on average over the widths,"
    return decide({"": mean(np.array(slopes))}, f"{told} to the power", below=QUADRATIC)


def _one_scale(frame: DataFrame) -> Verdict:
    """Whether kappa with one output is equal at ten times the depth and ten times the width."""
    rows = where(frame, outputs=1, resolved=True)
    found = {}
    for width in sorted(set(rows["width"])):
        for depth in (3, 4, 5, 7, 10):
            one = where(rows, width=width, depth=depth)
            other = where(rows, width=10 * width, depth=10 * depth)
            if len(one) and len(other) and width > one["inputs"].iloc[0]:
                found[f"at L={depth}, m={width}"] = ratio(one, other)
    if not found:
        return not_testable("no two widths, one ten times the other, at such depths")
    return between(found, "kappa over that at ten times the depth and the width", *EQUAL)


def passing(rows: DataFrame) -> float:
    """The depth at which the local power of the mean kappa passes 2 for good; nan if nowhere.

    A local power is between depths two apart.
    """
    logs = np.log(rows["kappa"]).groupby(rows["depth"]).mean()
    depths = np.log(logs.index.to_numpy(float))
    values = logs.to_numpy()
    slopes = (values[2:] - values[:-2]) / (depths[2:] - depths[:-2])
    middles = (depths[2:] + depths[:-2]) / 2
    below = np.flatnonzero(slopes < QUADRATIC)
    if not below.size:
        return float(np.exp(middles[0]))
    last = below[-1]
    if last + 1 >= len(slopes):
        return float("nan")
    share = (QUADRATIC - slopes[last]) / (slopes[last + 1] - slopes[last])
    return float(np.exp(middles[last] + share * (middles[last + 1] - middles[last])))


def _passes_two(frame: DataFrame) -> Verdict:
    """Whether kappa is less than quadratic in wide networks of the paper's depths."""
    found, told = {}, []
    for name, rows in families(frame, rate=True):
        place = passing(rows)
        share = rows["width"].iloc[0] / rows["inputs"].iloc[0]
        text = f"{place:.3g}" if np.isfinite(place) else f"beyond {rows['depth'].max()}"
        told.append(f"{text} {name}")
        if share >= SHALLOW:
            found[name] = power(rows, 0, SHALLOW)
    verdict = decide(
        found,
        f"kappa at m >= {SHALLOW} d goes like L, up to L = {SHALLOW}, to the power",
        below=QUADRATIC,
    )
    listed = f"{verdict.text}; the local power passes 2 at L = {', '.join(told)}"
    return Verdict(
        verdict.status,
        verdict.number,
        listed,
        verdict.low,
        verdict.high,
        verdict.short,
        verdict.seeds,
    )


CLAIMS = (
    Claim(
        "T8",
        "the power of L that kappa grows like grows with L, at every width",
        BEYOND,
        _power_grows,
    ),
    Claim(
        "T8",
        "in deep networks log(kappa) grows by psi(m/2) - psi((m - r + 1)/2) with every layer, r ="
        " min(d, k)",
        BEYOND,
        _limit,
    ),
    Claim(
        "T8",
        "with one output kappa stays below a quadratic growth in deep networks",
        BEYOND,
        _one_output,
    ),
    Claim(
        "T8",
        "with one output kappa depends on L d / m alone in networks wider than their inputs",
        BEYOND,
        _one_scale,
    ),
    Claim(
        "T8",
        "up to ten layers kappa of networks ten times wider than their inputs grows less than"
        " quadratically",
        BEYOND,
        _passes_two,
    ),
)
