"""The claims of paper A about figures 2 and 3, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    AS_PRINTED,
    FAILS,
    HOLDS,
    OTHER,
    SOME,
    UNDECIDED,
    Claim,
    NotTestableError,
    Sentence,
    Verdict,
    at_most,
    implied,
    not_testable,
)
from sweeps.claims import verdict as decided
from sweeps.comparisons import Bounded, Compare
from sweeps.rows import (
    exponential_fit,
    geometric_means,
    points,
    polynomial_fit,
    r_squared,
)

VACUOUS = 10.0  # an order of magnitude, on the figure's logarithmic axis
R_SQUARED, SHARE = 0.98, 0.5  # of a quadratic trend: its fit, and its square part of the growth
LOW, HIGH = 1.5, 2.5  # an exponent nearer to 2 than to 1 and to 3


def _of(frame: DataFrame, figure: str) -> DataFrame:
    return frame[frame["figure"] == figure]


def _bounded(frame: DataFrame, figure: str) -> DataFrame:
    """The rows of a figure to which Lemma 2 applies, with bound / kappa of both bounds."""
    rows = _of(frame, figure)
    rows = rows[rows["bound_applicable"]]
    gaps = {"gap": rows["bound_convex"] / rows["kappa"]}
    return rows.assign(**gaps, maximum_gap=rows["bound_maximum"] / rows["kappa"])


def _tight(figure: str) -> Callable[[DataFrame], Verdict]:
    """Whether bound / kappa, a geometric mean over seeds, is at most 2 at each depth and width."""

    def check(frame: DataFrame) -> Verdict:
        bounded = _bounded(frame, figure)
        if bounded.empty:
            return not_testable("no cell where Lemma 2 applies")
        largest = {
            width: float(geometric_means(rows, "depth", "gap")[1].max())
            for width, rows in bounded.groupby("width")
        }
        width = max(largest, key=lambda width: largest[width])
        worst = largest[width]
        text = f"the largest mean of bound / kappa is {worst:.3f}"
        if len(largest) > 1:
            others = ", ".join(f"{gap:.3f} at m={m}" for m, gap in largest.items())
            text = f"{text}, at m={width}; the largest over the depths: {others}"
        return at_most(effects.TIGHT, worst, text)

    return check


def _quadratic(frame: DataFrame) -> Verdict:
    """Whether kappa's means over the seeds have a quadratic trend at every width.

    A quadratic has to fit, to fit better than an exponential, and to be none that is nearly a
    straight line: its square part makes up more than half of the growth.
    """
    found = []
    for width, rows in _of(frame, "2a").groupby("width"):
        depths, kappa = geometric_means(rows, "depth", "kappa")
        if len(depths) < 4:
            return not_testable(f"{len(depths)} depths; a quadratic needs at least 4")
        fits = [r_squared(kappa, polynomial_fit(depths, kappa, degree)) for degree in (2, 1)]
        exponential = r_squared(kappa, exponential_fit(depths, kappa))
        found.append((*fits, exponential, width, _square_share(depths, kappa)))
    if not found:
        return not_testable("no rows of figure 2a")
    quadratic, line, exponential, width, _ = min(found)
    holds = all(q >= R_SQUARED and q > e and share > SHARE for q, _, e, _, share in found)
    fitted = (
        f"a quadratic fits with R^2 {quadratic:.4f} (line {line:.4f}, exponential"
        f" {exponential:.4f}) at the worst width, m={width}"
    )
    shares = points("m", *zip(*((m, share) for *_, m, share in found), strict=True))
    text = f"{fitted}; its square part makes up of the growth a share of {shares}"
    return replace(decided(holds, quadratic, text), short=fitted)


def _square_share(depths: NDArray, kappa: NDArray) -> float:
    """How much of the growth of the fitted quadratic, from first to last, its square part makes."""
    square, linear, _ = np.polyfit(depths, kappa, 2)
    grown, straight = depths[-1] ** 2 - depths[0] ** 2, depths[-1] - depths[0]
    return float(square * grown / (square * grown + linear * straight))


def _power_of_two(of: str, figure: str) -> Compare:
    """Whether the exponent of kappa over L, or over L - 1 hidden layers, is near 2 at each width.

    Near means nearer to 2 than to 1 and to 3: between 1.5 and 2.5.
    """
    return Compare(
        "kappa",
        {"figure": figure},
        along=of,
        each="width",
        above=LOW,
        below=HIGH,
        name=f"kappa goes like {_AXES[of]} to the power",
        prepare=_with_hidden_layers,
    )


def _with_hidden_layers(rows: DataFrame) -> DataFrame:
    if rows["depth"].nunique() < 3:
        msg = "fewer than 3 depths"
        raise NotTestableError(msg)
    rows = rows.assign(hidden=rows["depth"] - 1)
    return rows[rows["hidden"] > 0]


_AXES = {"depth": "the number of matrices L", "hidden": "the number of hidden layers L - 1"}


def _follows_the_trend(frame: DataFrame) -> Verdict:
    """Whether the bound rises wherever kappa does, and falls wherever it falls, over the depths."""
    agree, steps = 0, 0
    for _, rows in _bounded(frame, "2a").groupby("width"):
        kappa, bound = (
            np.diff(np.log(geometric_means(rows, "depth", of)[1]))
            for of in ("kappa", "bound_convex")
        )
        agree, steps = agree + int((np.sign(kappa) == np.sign(bound)).sum()), steps + len(kappa)
    if not steps:
        return not_testable("fewer than 2 depths where Lemma 2 applies")
    text = f"from depth to depth the bound rises or falls as kappa does in {agree} of {steps} steps"
    return decided(agree == steps, agree / steps, text)


def _wider_is_better(frame: DataFrame) -> Verdict:
    by_width = list(_of(frame, "2a").groupby("width"))
    found = {
        f"from m={narrow} to {wide}": effects.ratio(second, first)
        for (narrow, first), (wide, second) in pairwise(by_width)
    }
    return effects.decide(found, "kappa(wider) / kappa(narrower)", below=1.0)


def _slower_growth(frame: DataFrame) -> Verdict:
    """Whether kappa(deepest) / kappa(shallowest) is smaller at m = c L than at fixed m.

    Networks count that Lemma 2 speaks of, with m > max(d, k) at every depth: where m grows past d
    on the way, kappa has a peak there, as a random matrix has where it becomes square.
    """
    left, fixed = _of(frame, "2b-left"), _of(frame, "2b-fixed")
    narrow = left[left["width"] <= left[["inputs", "outputs"]].max(axis=1)]
    left = left[~left["multiplier"].isin(narrow["multiplier"])]
    depths = sorted(set(left["depth"]) & set(fixed["depth"]))
    if len(depths) < 2:
        return not_testable("fewer than 2 depths")
    ends = depths[0], depths[-1]
    reference = _end_to_end(fixed, *ends)
    by_multiplier = left.groupby("multiplier")
    found = {f"at c={int(c)}": _end_to_end(rows, *ends) for c, rows in by_multiplier}
    steepest = max(effect.high for effect in found.values())
    status = HOLDS if steepest < reference.low else UNDECIDED
    if min(effect.low for effect in found.values()) > reference.high:
        status = FAILS
    worst = max(found.values(), key=lambda effect: effect.value)
    listed = ", ".join(f"{effect} {label}" for label, effect in found.items())
    text = (
        f"kappa(L={ends[1]}) / kappa(L={ends[0]}) {listed},"
        f" against {reference} at m={fixed['width'].iloc[0]}"
    )
    if not narrow.empty:
        others = [
            f"{_end_to_end(rows, *ends)} at c={int(c)}"
            for c, rows in _of(frame, "2b-left").groupby("multiplier")
            if c in set(narrow["multiplier"])
        ]
        text = f"{text}; not counted, as m passes max(d, k) on the way: {', '.join(others)}"
    return Verdict(status, worst.value, text, worst.low, worst.high, seeds=worst.seeds)


def _end_to_end(rows: DataFrame, first: int, last: int) -> effects.Effect:
    """kappa of the deepest network over that of the shallowest."""
    deep, shallow = rows[rows["depth"] == last], rows[rows["depth"] == first]
    return effects.ratio(deep, shallow)


def _improves_with_depth(frame: DataFrame) -> Verdict:
    """Whether at some c the deepest network has a lower kappa than the shallowest."""
    right = _of(frame, "2b-right")
    first, last = right["depth"].min(), right["depth"].max()
    if right["depth"].nunique() < 2:
        return not_testable("fewer than 2 depths")
    by_multiplier = right.groupby("multiplier")
    found, curves = {}, []
    for c, rows in by_multiplier:
        found[f"at c={int(c)}"] = _end_to_end(rows, first, last)
        curves.append(f"c={int(c)}: {points('L', *geometric_means(rows, 'depth', 'kappa'))}")
    name = f"kappa(L={last}) / kappa(L={first})"
    judged = effects.decide(effects.extreme(found, largest=False), name, below=1.0)
    listed = ", ".join(f"{effect} {at_c}" for at_c, effect in found.items())
    return replace(judged, text=f"{name}: {listed}; kappa at {'; '.join(curves)}")


def _maximum_loosens(frame: DataFrame) -> Verdict:
    """Whether maximum / kappa grows with every layer that is added."""
    by_depth = list(_bounded(frame, "3").groupby("depth"))
    if len(by_depth) < 2:
        return not_testable("fewer than 2 depths where Lemma 2 applies")
    found = {
        f"at L={depth}": effects.ratio(more, fewer, "maximum_gap")
        for (_, fewer), (depth, more) in pairwise(by_depth)
    }
    name = "maximum / kappa, over that at the next smaller depth,"
    return effects.decide(found, name, above=1.0)


def _apart(rows: DataFrame) -> DataFrame:
    """The networks with hidden layers, with maximum / convex bound."""
    rows = rows.assign(apart=rows["bound_maximum"] / rows["bound_convex"])
    return rows[rows["depth"] > 1]


def _vacuous(frame: DataFrame) -> Verdict:
    """Whether maximum / kappa, a geometric mean, exceeds 10 from L = 3 on."""
    bounded = _bounded(frame, "3").query("depth > 2")
    if bounded.empty:
        return not_testable("no L > 2 where Lemma 2 applies")
    depths, means = geometric_means(bounded, "depth", "maximum_gap")
    text = f"maximum / kappa {points('L', depths, means)}"
    return decided(bool(means.min() > VACUOUS), means.min(), text)


_SIZES = ("d/k", "m/d")
_FIXED = (("figure", "2a"),)
_WIDTHS = {"2a": "", "2-narrow": ", at the widths below d that the published notebooks have"}
_MANY = (("figure", "3"),)
_QUADRATICALLY = Sentence(
    "A",
    "Section 7 (b)",
    "the condition number grows quadratically with depth for fixed hidden width",
    ("d/k",),
    # Of matrices, as the text counts depth, or of hidden layers, as the published code does.
    SOME,
)

CLAIMS = (
    Claim(
        "2a", "kappa <= convex bound in every cell", implied("Lemma 2"), Bounded({"figure": "2a"})
    ),
    Claim(
        "2a",
        "the bound is tight: at most twice kappa",
        Sentence("A", "Section 4.2", "the derived bound seems to be tight", _SIZES),
        _tight("2a"),
        panel=_FIXED,
    ),
    Claim(
        "2a",
        "the bound rises and falls with kappa over the depths",
        Sentence("A", "Section 4.2", "and predictive of the trend of the condition number", _SIZES),
        _follows_the_trend,
        panel=_FIXED,
    ),
    Claim(
        "2a",
        "at fixed m kappa grows with a quadratic trend in L",
        Sentence("A", "Section 4.2", "grows with a quadratic trend", _SIZES),
        _quadratic,
        panel=_FIXED,
    ),
    *(
        Claim(
            "2a",
            f"at fixed m kappa goes like {_AXES[of]} to a power of {LOW:g} to {HIGH:g}, at every"
            f" width{words}",
            _QUADRATICALLY,
            _power_of_two(of, figure),
            ratios=("m/d",) if figure == "2a" else (),
            panel=(("figure", figure),),
            # below d kappa is that of a smaller rank, of which Lemma 2 does not speak
            column=AS_PRINTED if figure == "2a" else OTHER,
        )
        for figure, words in _WIDTHS.items()
        for of in _AXES
    ),
    Claim(
        "2a",
        "wider is better",
        Sentence("A", "Section 7 (b)", "widening hidden layers improves conditioning", _SIZES),
        _wider_is_better,
        panel=_FIXED,
    ),
    Claim(
        "2b",
        "m = c L, small c with m > max(d, k): slower growth than at fixed m",
        Sentence(
            "A",
            "caption of Figure 2",
            "leads to slower growth of the condition number (left)",
            ("d/k",),
        ),
        _slower_growth,
        panel=(("figure", "2b-left"),),
    ),
    Claim(
        "2b",
        "m = c L, c sufficiently large: kappa improves with depth",
        Sentence(
            "A",
            "caption of Figure 2, also Sections 4.2 and 7 (b)",
            "or improves the condition number with depth if the scaling factor is chosen "
            "sufficiently large (right)",
            ("d/k",),
        ),
        _improves_with_depth,
        panel=(("figure", "2b-right"),),
    ),
    Claim("3", "kappa <= convex <= maximum", implied("Lemma 2"), Bounded({"figure": "3"})),
    Claim(
        "3",
        "with one hidden layer the maximum bound exceeds twice kappa, so that it is not tight",
        Sentence(
            "A",
            "Section 4.1, behind Eq 6",
            "a more naive bound where we take the maximum of both terms is instead too loose",
            _SIZES,
        ),
        Compare(
            "maximum_gap",
            {"depth": 2},
            above=effects.TIGHT,
            at="at L=2",
            name="maximum / kappa",
            prepare=lambda rows: _bounded(rows, "3"),
            missing="no L = 2 where Lemma 2 applies",
        ),
        panel=_MANY,
    ),
    Claim(
        "3",
        "with more layers the maximum bound exceeds the convex one by more than with one hidden",
        Sentence(
            "A",
            "Section 4.1, of the general case with L layers",
            "the significance of the convex combination becomes even more pronounced",
            _SIZES,
        ),
        Compare(
            "apart",
            {"figure": "3", "bound_applicable": True},
            over={"depth": 2},
            each="depth",
            above=1.0,
            name="maximum / convex bound, over that at L=2,",
            prepare=_apart,
            missing="no networks of one and of more hidden layers",
        ),
        panel=_MANY,
    ),
    Claim(
        "3",
        "maximum / kappa exceeds 10 from L = 3 on",
        Sentence("A", "Section 4.2", "simply taking the maximum makes the bound vacuous", _SIZES),
        _vacuous,
        panel=_MANY,
    ),
    Claim(
        "3",
        "the maximum bound becomes vacuous: maximum / kappa grows with every layer",
        Sentence(
            "A",
            "Section 4.2",
            "making the overall condition number grow slower than the maximum bound would predict",
            _SIZES,
        ),
        _maximum_loosens,
        panel=_MANY,
    ),
    Claim(
        "3",
        "the convex bound stays below twice kappa",
        Sentence(
            "A",
            "Appendix I.3",
            "the upper bound as a linear combination .. is crucial to get a tight bound",
            _SIZES,
        ),
        _tight("3"),
        panel=_MANY,
    ),
)
