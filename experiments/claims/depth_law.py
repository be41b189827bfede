"""The law of depth: which power of L kappa grows like, how the power grows, and its limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps.claims import BEYOND, Claim, Verdict, not_testable
from sweeps.effects import Effect, between, decide, exponent, mean, ratio
from sweeps.rows import where

SHALLOW, DEEP = 10, 40  # depths up to the one, which the paper has, and from the other on
POLYNOMIAL = 3.0  # a power that deep networks with one output stay below
SLOWER = 1.5  # a power that wide networks stay below up to ten layers
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
    """Whether kappa stays a power of L where the limit is 0, at every width."""
    found = {
        name: power(rows, DEEP, np.inf)
        for name, rows in families(frame, rate=False)
        if rows["depth"][rows["depth"] >= DEEP].nunique() > 1
    }
    told = f"kappa with one output goes like L, from L = {DEEP} on, to the power"
    return decide(found, told, below=POLYNOMIAL)


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


def local_powers(rows: DataFrame) -> DataFrame:
    """The power of L that kappa grows like between depths two apart, one row for each start.

    ``depth`` is the geometric mean of the two. Depths count at which every start is resolved.
    """
    starts = rows.groupby("depth")["seed"].transform("nunique")
    known = rows[starts == rows["seed"].nunique()]
    found = []
    for seed, one in known.groupby("seed"):
        curve = one.sort_values("depth")
        depths, logs = np.log(curve["depth"].to_numpy(float)), np.log(curve["kappa"].to_numpy())
        powers = (logs[2:] - logs[:-2]) / (depths[2:] - depths[:-2])
        middles = np.exp((depths[2:] + depths[:-2]) / 2)
        found += [
            {"seed": seed, "depth": depth, "power": value}
            for depth, value in zip(middles, powers, strict=True)
        ]
    return DataFrame(found, columns=["seed", "depth", "power"])


def passing(rows: DataFrame) -> float:
    """The depth at which the mean local power of kappa passes 2 for good; nan if nowhere."""
    mean_powers = local_powers(rows).groupby("depth")["power"].mean()
    middles, slopes = np.log(mean_powers.index.to_numpy(float)), mean_powers.to_numpy()
    below = np.flatnonzero(slopes < QUADRATIC)
    if not below.size:
        return float(np.exp(middles[0])) if slopes.size else float("nan")
    last = below[-1]
    if last + 1 >= len(slopes):
        return float("nan")
    share = (QUADRATIC - slopes[last]) / (slopes[last + 1] - slopes[last])
    return float(np.exp(middles[last] + share * (middles[last + 1] - middles[last])))


def _passes_two(frame: DataFrame) -> Verdict:
    """Whether kappa is far from quadratic in wide networks of the paper's depths."""
    found, told = {}, []
    for name, rows in families(frame, rate=True):
        place = passing(rows)
        share = rows["width"].iloc[0] / rows["inputs"].iloc[0]
        text = f"{place:.3g}" if np.isfinite(place) else f"beyond {rows['depth'].max()}"
        if place == local_powers(rows)["depth"].min():  # it is above 2 from there on
            text = f"at most {text}"
        told.append(f"{text} {name}")
        if share >= SHALLOW:
            found[name] = power(rows, 0, SHALLOW)
    verdict = decide(
        found,
        f"kappa at m >= {SHALLOW} d goes like L, up to L = {SHALLOW}, to the power",
        below=SLOWER,
    )
    return replace(
        verdict, text=f"{verdict.text}; the local power passes 2 at L = {', '.join(told)}"
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
    Claim("T8", "with one output kappa stays a power of L", BEYOND, _one_output),
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
