"""The claims of paper A about figures 2 and 3, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from sweeps import effects
from sweeps.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Sentence,
    Verdict,
    implied,
    not_testable,
)
from sweeps.claims import verdict as decided
from sweeps.effects import bound_holds
from sweeps.rows import (
    exponential_fit,
    geometric_means,
    kept,
    length,
    points,
    polynomial_fit,
    r_squared,
    where,
)
from sweeps.table import Columns

_VACUOUS = 10.0  # an order of magnitude, on the figure's logarithmic axis
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
    return decided(holds, quadratic, f"{text}; kappa ~ L^e, e = {_exponents(table)}")


def _exponents(table: Columns) -> str:
    """The exponents of kappa over depth at every width; a quadratic has 2 where L is large."""
    by_width = _by_width(table, "2a")
    found = {m: effects.exponent(rows, "depth") for m, rows in by_width.items()}
    return ", ".join(f"{effect} at m={m}" for m, effect in found.items())


def _follows_the_trend(table: Columns) -> Verdict:
    """Whether the bound rises wherever kappa does, and falls wherever it falls, over the depths."""
    bounded = where(table, figure="2a", bound_applicable=True)
    agree, steps = 0, 0
    for width in np.unique(bounded["width"]):
        rows = where(bounded, width=width)
        kappa, bound = (
            np.diff(np.log(geometric_means(rows, "depth", of)[1]))
            for of in ("kappa", "bound_convex")
        )
        agree, steps = agree + int((np.sign(kappa) == np.sign(bound)).sum()), steps + len(kappa)
    if not steps:
        return not_testable("fewer than 2 depths where Lemma 2 applies")
    text = f"the bound goes the way of kappa in {agree} of {steps} steps over the depths"
    return decided(agree == steps, agree / steps, text)


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
    """Whether e in kappa ~ L^e is smaller at m = c L than at fixed m, on the same data.

    Networks count that Lemma 2 speaks of, with m > max(d, k) at every depth: where m grows past d
    on the way, kappa has a peak there, as a random matrix has where it becomes square.
    """
    left, fixed = _wide(where(table, figure="2b-left")), where(table, figure="2b-fixed")
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


def _wide(rows: Columns) -> Columns:
    """The rows of the factors c with which m = c L exceeds max(d, k) from the first depth on."""
    narrow = rows["width"] <= np.maximum(rows["inputs"], rows["outputs"])
    return kept(rows, ~np.isin(rows["multiplier"], rows["multiplier"][narrow]))


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


def _vacuous(table: Columns) -> Verdict:
    """Whether maximum / kappa, a geometric mean, exceeds 10 from L = 3 on."""
    bounded = where(table, figure="3", bound_applicable=True)
    bounded = kept(bounded, bounded["depth"] > 2)
    if not length(bounded):
        return not_testable("no L > 2 where Lemma 2 applies")
    gaps = {**bounded, "gap": bounded["bound_maximum"] / bounded["kappa"]}
    depths, means = geometric_means(gaps, "depth", "gap")
    text = f"maximum / kappa {points('L', depths, means)}"
    return decided(bool(means.min() > _VACUOUS), means.min(), text)


def _loose(table: Columns) -> Verdict:
    """Whether at L = 2 the maximum bound is on average above what counts as tight."""
    bounded = where(table, figure="3", depth=2, bound_applicable=True)
    if not length(bounded):
        return not_testable("no L = 2 where Lemma 2 applies")
    gaps = np.log(bounded["bound_maximum"] / bounded["kappa"])
    found = {"at L=2": effects.mean(gaps).exponential()}
    return effects.decide(found, "maximum / kappa", above=_TIGHT)


_SIZES = ("d/k", "m/d")
_TIGHT_BOUND = Sentence("A", "Section 4.2", "the derived bound seems to be tight", _SIZES)
_PREDICTIVE = Sentence(
    "A", "Section 4.2", "and predictive of the trend of the condition number", _SIZES
)
_QUADRATIC = Sentence(
    "A", "Section 4.2, also Section 7 (b)", "grows with a quadratic trend", _SIZES
)
_WIDENING = Sentence("A", "Section 7 (b)", "widening hidden layers improves conditioning", _SIZES)
_SLOWER = Sentence(
    "A", "caption of Figure 2", "leads to slower growth of the condition number (left)", ("d/k",)
)
_IMPROVES = Sentence(
    "A",
    "caption of Figure 2, also Sections 4.2 and 7 (b)",
    "or improves the condition number with depth if the scaling factor is chosen sufficiently "
    "large (right)",
    ("d/k",),
)
_TOO_LOOSE = Sentence(
    "A",
    "Section 4.1, behind Eq 6",
    "a more naive bound where we take the maximum of both terms is instead too loose",
    _SIZES,
)
_VACUOUS_MAXIMUM = Sentence(
    "A", "Section 4.2", "simply taking the maximum makes the bound vacuous", _SIZES
)
_CRUCIAL = Sentence(
    "A",
    "Appendix I.3",
    "the upper bound as a linear combination .. is crucial to get a tight bound",
    _SIZES,
)
_GROWS_SLOWER = Sentence(
    "A",
    "Section 4.2",
    "making the overall condition number grow slower than the maximum bound would predict",
    _SIZES,
)

CLAIMS = (
    Claim(
        "2a", "kappa <= convex bound in every cell", implied("Lemma 2"), bound_holds(figure="2a")
    ),
    Claim(
        "2a",
        "the bound is tight: at most twice kappa",
        _TIGHT_BOUND,
        _tight("2a"),
        panel=(("figure", "2a"),),
    ),
    Claim(
        "2a",
        "the bound rises and falls with kappa over the depths",
        _PREDICTIVE,
        _follows_the_trend,
        panel=(("figure", "2a"),),
    ),
    Claim(
        "2a",
        "at fixed m kappa grows with a quadratic trend in L",
        _QUADRATIC,
        _quadratic,
        panel=(("figure", "2a"),),
    ),
    Claim("2a", "wider is better", _WIDENING, _wider_is_better, panel=(("figure", "2a"),)),
    Claim(
        "2b",
        "m = c L, small c with m > max(d, k): slower growth than at fixed m",
        _SLOWER,
        _slower_growth,
        panel=(("figure", "2b-left"),),
    ),
    Claim(
        "2b",
        "m = c L, c sufficiently large: kappa improves with depth",
        _IMPROVES,
        _improves_with_depth,
        panel=(("figure", "2b-right"),),
    ),
    Claim("3", "kappa <= convex <= maximum", implied("Lemma 2"), bound_holds(figure="3")),
    Claim(
        "3",
        "with one hidden layer the maximum bound exceeds twice kappa, so that it is not tight",
        _TOO_LOOSE,
        _loose,
        panel=(("figure", "3"),),
    ),
    Claim(
        "3",
        "maximum / kappa exceeds 10 from L = 3 on",
        _VACUOUS_MAXIMUM,
        _vacuous,
        panel=(("figure", "3"),),
    ),
    Claim(
        "3",
        "the maximum bound becomes vacuous: maximum / kappa grows with L",
        _GROWS_SLOWER,
        _maximum_loosens,
        panel=(("figure", "3"),),
    ),
    Claim(
        "3",
        "the convex bound stays below twice kappa",
        _CRUCIAL,
        _tight("3"),
        panel=(("figure", "3"),),
    ),
)
