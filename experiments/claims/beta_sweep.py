"""The claims of paper A about figures 5, 20, 21 and 22, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    AS_PRINTED,
    BEYOND,
    CERTIFIED,
    SOME,
    Claim,
    Sentence,
    Verdict,
    at_most,
    implied,
    not_testable,
)
from sweeps.comparisons import Bounded, Compare
from sweeps.effects import Effect
from sweeps.rows import geometric_means, where

STRENGTHS = {CERTIFIED: ("1/H", "1/sqrt(H)"), AS_PRINTED: ("1/L", "1/sqrt(L)")}
"""The betas below 1: the published code divides by the hidden layers, the text by the matrices."""
DIVISORS = {CERTIFIED: "H hidden layers", AS_PRINTED: "L matrices"}
NO_TERMS = "no network of L > 1 where Eq 7 applies"
_ONE_DRAW = (
    "From beta = 1/sqrt(H) to 1 nearly every term falls. Below that a skip changes a term by less"
    " than one draw of the weights does, and in either direction: with ten matrices, d = 196,"
    " m = 250 and k = 10, half of the terms of one network rise from beta = 0 to 1/H and from there"
    " to 1/sqrt(H), while their means over 150 networks change by -11% to 2%"
)


def _deep(frame: DataFrame, figure: str, beta: str) -> DataFrame:
    """The rows with L > 1: for L = 1, G is I (x) Sigma whatever beta."""
    rows = where(frame, figure=figure, beta=beta)
    return rows[rows["depth"] > 1]


def _lower(figure: str, better: str, *others: str) -> Callable[[DataFrame], Verdict]:
    """Whether kappa's geometric mean over L > 1 is lower at one beta than at each of the others.

    Depths count at which the two are different numbers: 1/H is 1 where there is one hidden layer.
    """

    def check(frame: DataFrame) -> Verdict:
        found: dict[str, Effect] = {}
        for other in others:
            low, high = _where_they_differ(frame, figure, better, other)
            if low.empty:
                return not_testable(f"no network of L > 1 at which {better} and {other} differ")
            by_depth = effects.compared(low, high, "depth", "L")
            listed = ", ".join(f"{effect.value:.3g} {label}" for label, effect in by_depth.items())
            over_all = effects.ratio(low, high)
            found[f"times that at beta={other} ({listed})"] = over_all
        return effects.decide(found, f"kappa at beta={better} is", below=1.0)

    return check


def _where_they_differ(
    frame: DataFrame, figure: str, first: str, second: str
) -> tuple[DataFrame, DataFrame]:
    """The rows of two betas at the depths L > 1 at which they are different numbers."""
    rows, others = (_deep(frame, figure, beta) for beta in (first, second))
    skips = dict(zip(others["depth"].tolist(), others["skip"].tolist(), strict=True))
    depths = [d for d, s in zip(rows["depth"], rows["skip"], strict=True) if skips.get(d, s) != s]
    return rows[rows["depth"].isin(depths)], others[others["depth"].isin(depths)]


def _every_term_falls(figure: str) -> Compare:
    """Whether every term of Eq 7's sum is smaller than at the next smaller beta, for L > 1.

    Of each network the term counts that falls least, and of all steps the one where it does. Such a
    largest quotient is above 1 where terms change at random, too: it says nothing of their means.
    """
    return Compare(
        lambda network: network["worst_term"].max(),
        {"figure": figure},
        each="depth",
        below=1.0,
        name="largest term of a network over the same term at the next smaller beta",
        prepare=_with_terms,
        missing=NO_TERMS,
        beside=_by_step,
    )


def _by_step(rows: DataFrame) -> str:
    depth = rows["depth"].max()
    deepest = where(rows, depth=depth).sort_values("skip")
    steps = ", ".join(
        f"{np.exp(np.log(one['worst_term']).mean()):.3g} up to beta={beta}"
        for beta, one in deepest.groupby("beta", sort=False)
    )
    return f"; by step, at L={depth}: {steps}"


def _terms_fall_on_average(figure: str) -> Compare:
    """Whether the term that falls least up to beta = 1 falls on average over the networks."""
    return Compare(
        "worst_term",
        {"figure": figure, "beta": "1"},
        each="depth",
        below=1.0,
        name="largest quotient of a term at beta = 1 and at the next smaller beta",
        prepare=_with_terms,
        missing=NO_TERMS,
    )


def _with_terms(rows: DataFrame) -> DataFrame:
    """The networks of L > 1 whose terms are compared with those at the next smaller beta."""
    return rows[np.isfinite(rows["worst_term"]) & (rows["depth"] > 1)]


def _tight(figure: str) -> Callable[[DataFrame], Verdict]:
    """Whether bound / kappa, a geometric mean over seeds, is at most 2 at beta = 1 and each L."""

    def check(frame: DataFrame) -> Verdict:
        bounded = where(frame, figure=figure, beta="1", bound_applicable=True)
        if bounded.empty:
            return not_testable("no network with beta = 1 where Eq 7 applies")
        gaps = bounded.assign(gap=bounded["bound_convex"] / bounded["kappa"])
        worst = float(geometric_means(gaps, "depth", "gap")[1].max())
        return at_most(effects.TIGHT, worst, f"the largest mean of bound / kappa is {worst:.3f}")

    return check


def _bound_lower(figure: str, bound: str) -> Compare:
    """Whether a bound of Eq 7 at beta = 1 lies below that at beta = 0, over the L > 1."""
    return Compare(
        bound,
        {"figure": figure, "beta": "1", "bound_applicable": True},
        over={"beta": "0"},
        at="times that at beta=0",
        below=1.0,
        name="bound at beta=1 is",
        prepare=lambda rows: rows[rows["depth"] > 1],
        missing=NO_TERMS,
    )


_SIZES = ("d/k", "m/d")
_SKIPS_HELP = Sentence(
    "A",
    "Section 4.3, of Figure 5, also Section 7 (c)",
    "adding skip connections improves the conditioning",
    _SIZES,
)
_BOUND_TOO = Sentence(
    "A", "Section 4.3, of Figure 5", "also holds for .. the tight upper bound in Eq. (7)", _SIZES
)
_SECOND_BOUND = Sentence(
    "A",
    "Section 4.3, behind Eq 8",
    "the second upper bound in Eq. (7) for residual networks is smaller than the second upper bound"
    " for linear networks in Lemma 2",
    _SIZES,
)
_TIGHT_TOO = Sentence(
    "A",
    "Section 1, also Section 4.3",
    "tight upper bounds for the condition number .. for linear and residual networks of arbitrary"
    " depth and width",
    _SIZES,
)
_MORE_FOR_LARGER = Sentence(
    "A", "Section 4.3, of Figure 20", "is improved more for larger beta", _SIZES
)
_EACH_TERM = Sentence(
    "A",
    "Appendix I.3, of Eq 8",
    "the condition number for each term in the sum .. improves when beta increases",
    _SIZES,
    SOME,  # of single networks at every step, and of their mean at the step to beta = 1
)
_ONE_IS_LOWEST = Sentence(
    "A",
    "Appendix I.3, of Figures 20 and 22",
    "the condition number is smaller for beta = 1 compared to the other two settings",
    _SIZES,
)


def _both_networks(figure: str, panel: str) -> Claim:
    return Claim(
        figure,
        "residual kappa < linear kappa, averaged over L > 1",
        _SKIPS_HELP,
        _lower(panel, "1", "0"),
        panel=(("figure", panel),),
    )


def _bound(figure: str, panel: str) -> Claim:
    return Claim(
        figure, "kappa <= first bound in every cell", implied("Eq 7"), Bounded({"figure": panel})
    )


def _lower_bounds(panel: str) -> tuple[Claim, ...]:
    """What is said of the bounds of residual networks on one data set."""
    return (
        Claim(
            "5",
            "first bound at beta = 1 < that at beta = 0, averaged over L > 1",
            _BOUND_TOO,
            _bound_lower(panel, "bound_convex"),
        ),
        Claim(
            "5",
            "second bound at beta = 1 < that at beta = 0, averaged over L > 1",
            _SECOND_BOUND,
            _bound_lower(panel, "bound_maximum"),
        ),
        Claim(
            "5",
            "at the figure's depths and widths the first bound at beta = 1 is at most twice kappa",
            _TIGHT_TOO,
            _tight(panel),
        ),
    )


def _figure(figure: str, columns: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims about figure 20 or 22, which have the same curves on two data sets."""
    panel = (("figure", figure),)
    lowest = tuple(
        Claim(
            figure,
            "beta = 1 has the lowest kappa, averaged over the L > 1 at which they differ, others"
            f" by {DIVISORS[column]}",
            _ONE_IS_LOWEST,
            _lower(figure, "1", *STRENGTHS[column]),
            panel=panel,
            column=column,
        )
        for column in columns
    )
    implied_by_eq_8 = tuple(
        Claim(
            figure,
            f"beta = {beta} improves on beta = 0, averaged over L > 1",
            implied("Eq 8"),
            _lower(figure, beta, "0"),
            _SIZES,
            panel,
        )
        for column in columns
        for beta in STRENGTHS[column]
    )
    term = "every term kappa^2(W^{L:l+1}) kappa^2(W^{1:l-1}) falls"
    terms = (
        Claim(
            figure,
            f"in single networks {term} with every step of beta, at every L > 1",
            _EACH_TERM,
            _every_term_falls(figure),
            panel=panel,
            mechanism=_ONE_DRAW,
        ),
        Claim(
            figure,
            f"on average over the networks {term} from the next smaller beta to beta = 1",
            _EACH_TERM,
            _terms_fall_on_average(figure),
            panel=panel,
        ),
    )
    return (*lowest, _bound(figure, figure), *implied_by_eq_8, *terms)


def _more_for_larger(column: str) -> tuple[Claim, ...]:
    """Both steps of beta in figure 20."""
    small, middle = STRENGTHS[column]
    return tuple(
        Claim(
            "20",
            f"beta = {better} improves on {worse}, averaged over the L > 1 at which they differ",
            _MORE_FOR_LARGER,
            _lower("20", better, worse),
            panel=(("figure", "20"),),
            column=column,
        )
        for better, worse in (("1", middle), (middle, small))
    )


def _of_figure_5(side: str) -> tuple[Claim, ...]:
    """The claims about one side of figure 5; each verdict says the data of that side."""
    panel = f"5-{side}"
    claims = (_both_networks("5", panel), *_lower_bounds(panel), _bound("5", panel))
    return tuple(
        replace(
            claim,
            statement=f"{side}: {claim.statement}",
            check=_with_data(panel, claim.check),
            panel=(("figure", panel),),
        )
        for claim in claims
    )


def _with_data(panel: str, check: Callable[[DataFrame], Verdict]) -> Callable[[DataFrame], Verdict]:
    def checked(frame: DataFrame) -> Verdict:
        found = check(frame)
        data = "; ".join(where(frame, figure=panel)["data"].unique())
        return replace(found, text=f"{data}: {found.text}", short=found.short or found.text)

    return checked


CLAIMS = (
    *_of_figure_5("left"),
    *_of_figure_5("right"),
    *_more_for_larger(CERTIFIED),
    *_more_for_larger(AS_PRINTED),
    *_figure("20", (CERTIFIED, AS_PRINTED)),
    Claim(
        "20",
        "beta = 2 improves on beta = 1, averaged over L > 1",
        BEYOND,
        _lower("20", "2", "1"),
    ),
    _both_networks("21", "21"),
    *_figure("22", (CERTIFIED,)),
)
