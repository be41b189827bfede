"""The claims of paper A about figures 2 and 3, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from sweeps import effects
from sweeps.claims import FAILS, HOLDS, UNDECIDED, Claim, Verdict, implied, not_testable, printed
from sweeps.claims import verdict as decided
from sweeps.effects import bound_holds
from sweeps.rows import (
    exponential_fit,
    geometric_means,
    length,
    points,
    polynomial_fit,
    r_squared,
    where,
)
from sweeps.table import Columns

_TIGHT = 2.0  # what "tight" is taken to mean: the bound is at most twice kappa
_R_SQUARED = 0.98  # a quadratic is said to fit from this R^2 on


def _by_width(table: Columns, figure: str) -> dict[int, Columns]:
    rows = where(table, figure=figure)
    return {int(m): where(rows, width=m) for m in np.unique(rows["width"])}


def _tight(figure: str) -> Callable[[Columns], Verdict]:
    """Whether bound / kappa, a geometric mean over seeds, is at most 2 at each depth and width."""

    def check(table: Columns) -> Verdict:
        bounded = where(table, figure=figure, bound_applicable=True)
        if not length(bounded):
            return not_testable("no cell where Lemma 2 applies")
        gaps = {**bounded, "gap": bounded["bound_convex"] / bounded["kappa"]}
        worst = max(
            float(geometric_means(where(gaps, width=m), "depth", "gap")[1].max())
            for m in np.unique(gaps["width"])
        )
        return decided(worst <= _TIGHT, worst, f"largest mean of bound / kappa {worst:.3f}")

    return check


def _quadratic(table: Columns) -> Verdict:
    """Whether a quadratic fits the means over seeds, and fits better than an exponential."""
    found = []
    for width, rows in _by_width(table, "2a").items():
        depths, kappa = geometric_means(rows, "depth", "kappa")
        if len(depths) < 4:
            return not_testable(f"{len(depths)} depths; a quadratic needs at least 4")
        quadratic = r_squared(kappa, polynomial_fit(depths, kappa, 2))
        exponential = r_squared(kappa, exponential_fit(depths, kappa))
        found.append((quadratic, exponential, width))
    if not found:
        return not_testable("no rows of figure 2a")
    quadratic, exponential, width = min(found)
    holds = all(q >= _R_SQUARED and q > e for q, e, _ in found)
    text = f"R^2 {quadratic:.4f} (exponential {exponential:.4f}) at the worst width, m={width}"
    return decided(holds, quadratic, text)


def _wider_is_better(table: Columns) -> Verdict:
    by_width = _by_width(table, "2a")
    found = {
        f"from m={narrow} to {wide}": effects.ratio(
            by_width[wide], by_width[narrow], together=len(by_width) - 1
        )
        for narrow, wide in pairwise(sorted(by_width))
    }
    return effects.decide(found, "kappa(wider) / kappa(narrower)", below=1.0)


def _slower_growth(table: Columns) -> Verdict:
    """Whether e in kappa ~ L^e is smaller at m = c L than at fixed m, on the same data."""
    left, fixed = where(table, figure="2b-left"), where(table, figure="2b-fixed")
    if any(len(np.unique(rows["depth"])) < 3 for rows in (left, fixed)):
        return not_testable("fewer than 3 depths")
    reference = effects.exponent(fixed, "depth")
    multipliers = np.unique(left["multiplier"])
    found = {
        f"at c={int(c)}": effects.exponent(
            where(left, multiplier=c), "depth", together=len(multipliers)
        )
        for c in multipliers
    }
    steepest = max(effect.high for effect in found.values())
    status = HOLDS if steepest < reference.low else UNDECIDED
    if min(effect.low for effect in found.values()) > reference.high:
        status = FAILS
    worst = max(found.values(), key=lambda effect: effect.value)
    listed = ", ".join(f"{effect} {label}" for label, effect in found.items())
    text = f"kappa ~ L^e, e = {listed}; {reference} at m={int(fixed['width'][0])}"
    return Verdict(status, worst.value, text, worst.low, worst.high)


def _improves_with_depth(table: Columns) -> Verdict:
    """Whether at some c the deepest network has a lower kappa than the shallowest."""
    right = where(table, figure="2b-right")
    depths, multipliers = np.unique(right["depth"]), np.unique(right["multiplier"])
    if len(depths) < 2:
        return not_testable("fewer than 2 depths")
    found, curves = {}, []
    for c in multipliers:
        rows = where(right, multiplier=c)
        deep, shallow = (where(rows, depth=depth) for depth in (depths[-1], depths[0]))
        found[int(c)] = effects.ratio(deep, shallow, together=len(multipliers))
        curves.append(f"c={int(c)}: {points('L', *geometric_means(rows, 'depth', 'kappa'))}")
    least = min(found.values(), key=lambda effect: effect.high)
    status = HOLDS if least.high < 1 else UNDECIDED
    if found[max(found)].low > 1:
        status = FAILS
    listed = ", ".join(f"{effect} at c={c}" for c, effect in found.items())
    text = f"kappa(L={depths[-1]}) / kappa(L={depths[0]}) {listed}; kappa at {'; '.join(curves)}"
    return Verdict(status, least.value, text, least.low, least.high)


def _maximum_loosens(table: Columns) -> Verdict:
    bounded = where(table, figure="3", bound_applicable=True)
    if length(bounded) == 0 or len(np.unique(bounded["depth"])) < 2:
        return not_testable("fewer than 2 depths where Lemma 2 applies")
    ratio = {**bounded, "maximum/kappa": bounded["bound_maximum"] / bounded["kappa"]}
    return effects.trend(ratio, "depth", "L", rises=True, of="maximum/kappa")


_SIZES = ("d/k", "m/d")

CLAIMS = (
    Claim(
        "2a", "kappa <= convex bound in every cell", implied("Lemma 2"), bound_holds(figure="2a")
    ),
    Claim(
        "2a",
        "the bound is tight: at most twice kappa",
        printed('Section 4.2, "the derived bound seems to be tight"; 2 is our reading of it'),
        _tight("2a"),
        _SIZES,
        (("figure", "2a"),),
    ),
    Claim(
        "2a",
        "at fixed m kappa grows with a quadratic trend in L",
        printed('Section 4.2, "grows with a quadratic trend"'),
        _quadratic,
        _SIZES,
        (("figure", "2a"),),
    ),
    Claim(
        "2a",
        "wider is better",
        printed('Section 7, "widening hidden layers improves conditioning"'),
        _wider_is_better,
        _SIZES,
        (("figure", "2a"),),
    ),
    Claim(
        "2b",
        "m = c L, small c: slower growth than at fixed m",
        printed("caption of Figure 2"),
        _slower_growth,
        ("d/k",),
        (("figure", "2b-left"),),
    ),
    Claim(
        "2b",
        "m = c L, c sufficiently large: kappa improves with depth",
        printed("caption of Figure 2"),
        _improves_with_depth,
        ("d/k",),
        (("figure", "2b-right"),),
    ),
    Claim("3", "kappa <= convex <= maximum", implied("Lemma 2"), bound_holds(figure="3")),
    Claim(
        "3",
        "the maximum bound becomes vacuous: maximum / kappa grows with L",
        printed('Section 4.2, "simply taking the maximum makes the bound vacuous"'),
        _maximum_loosens,
        _SIZES,
        (("figure", "3"),),
    ),
    Claim(
        "3",
        "the convex bound stays below twice kappa",
        printed('Section 4.2, "the overall condition number"; 2 is our reading of it'),
        _tight("3"),
        _SIZES,
        (("figure", "3"),),
    ),
)
