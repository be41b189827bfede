"""The claims of paper A about figures 6 and 23, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    AS_COMPUTED,
    BEYOND,
    CERTIFIED,
    OTHER,
    Check,
    Claim,
    NotTestableError,
    Sentence,
    Verdict,
    implied,
    not_testable,
)
from sweeps.comparisons import Bounded, Compare, Trend
from sweeps.effects import crossovers
from sweeps.rows import geometric_means, points

TRUE, COMPUTED = "alpha", "-alpha"  # the entries of Lambda where a unit is off
ONE, TWO, COLOURS, DRAWN = "one", "two", "colours", "drawn"
RELU, LINEAR = 0.0, 1.0
SLOPE = 0.01  # of figure 6

Rows = Callable[[DataFrame], DataFrame]


def rows_of(panel: str, sign: str = TRUE) -> Rows:
    return lambda frame: frame[(frame["panel"] == panel) & (frame["sign"] == sign)]


def _at_slope(rows: Rows) -> Rows:
    """Figure 6's slope alone."""
    return lambda frame: rows(frame)[rows(frame)["slope"] == SLOPE]


def _wide(rows: Rows, times: int = 1) -> Rows:
    """The rows with m >= n, or m >= ``times`` n.

    For m < n Gamma of Lemma 4 is singular, and of the bound alpha^2 alone is left.
    """
    return lambda frame: rows(frame)[rows(frame)["width"] >= times * rows(frame)["samples"]]


def _rises(rows: Rows) -> Check:
    """Whether kappa rises with m from m = n on; the text has kappa at smaller widths, too."""

    def check(frame: DataFrame) -> Verdict:
        found = effects.trend(_wide(rows)(frame), "width", "m", rises=True)
        below = rows(frame)[rows(frame)["width"] < rows(frame)["samples"]]
        if below.empty:
            return found
        listed = points("m", *geometric_means(below, "width", "kappa"))
        short = f"{found.short}, and below m = n {listed}"
        return replace(found, text=f"{found.text}; below m = n: {listed}", short=short)

    return check


def _valley(frame: DataFrame) -> Verdict:
    """Whether some wider network with m <= n has a lower kappa than the narrowest one."""
    rows = _at_slope(rows_of(ONE))(frame)
    rows = rows[rows["width"] <= rows["samples"]]
    widths = np.unique(rows["width"])
    if len(widths) < 3:
        return not_testable("fewer than 3 widths of at most n")
    narrowest = rows[rows["width"] == widths[0]]
    found = {
        f"m={widths[0]} over m={m}": effects.ratio(narrowest, rows[rows["width"] == m])
        for m in widths[1:]
    }
    return effects.decide(effects.extreme(found, largest=True), "kappa ratio", above=1.0)


def _bounded(rows: Rows) -> Rows:
    """The rows to which Lemma 4 applies, with bound / kappa."""

    def bounded(frame: DataFrame) -> DataFrame:
        found = rows(frame)
        found = found[found["bound_applicable"]]
        return found.assign(**{"bound/kappa": found["bound"] / found["kappa"]})

    return bounded


def _bound_tightens(rows: Rows) -> Trend:
    return Trend(
        "bound/kappa",
        "width",
        "m",
        rises=False,
        prepare=_wide(_bounded(rows)),
        missing="fewer than 2 widths of at least n where Lemma 4 applies",
    )


def _tight(rows: Rows) -> Compare:
    """Whether bound / kappa, a geometric mean over the seeds, is at most 2 at every m >= n."""
    return Compare(
        "bound/kappa",
        each="width",
        below=effects.TIGHT,
        name="bound / kappa",
        prepare=_wide(_bounded(rows)),
        missing="no width of at least n where Lemma 4 applies",
    )


def _more_predictive(rows: Rows) -> Check:
    """Whether the slope of the bound over m comes nearer to that of kappa: last pair over first.

    The slopes are those of the logarithms between neighbouring widths with m >= n.
    """

    def check(frame: DataFrame) -> Verdict:
        bounded = _wide(_bounded(rows))(frame)
        pairs = list(pairwise(np.unique(bounded["width"])))
        if len(pairs) < 2:
            return not_testable("fewer than 3 widths of at least n where Lemma 4 applies")
        of_seeds = [one for _, one in bounded.groupby("seed")]
        off = {pair: np.abs([_slope_of_the_gap(one, *pair) for one in of_seeds]) for pair in pairs}
        nearer = effects.geometric_mean(off[pairs[-1]] / off[pairs[0]])
        listed = ", ".join(f"{off[a, b].mean():.2g} from m={a} to {b}" for a, b in pairs)
        name = f"|slope of bound / kappa over m| {listed}; last over first"
        return effects.decide({"": nearer}, name, below=1.0)

    return check


def _slope_of_the_gap(rows: DataFrame, narrow: int, wide: int) -> float:
    ends = [np.log(rows[rows["width"] == m]["bound/kappa"].to_numpy()) for m in (narrow, wide)]
    return float((ends[1].mean() - ends[0].mean()) / np.log(wide / narrow))


def _slopes_help(rows: Rows) -> Compare:
    """Whether kappa falls at every width with every step to a smaller slope.

    For each seed and width the step counts that helps least: the smallest quotient of kappa at one
    slope and at the next smaller one.
    """
    return Compare(
        _least_step,
        each="width",
        above=1.0,
        name="kappa over kappa at the next smaller slope, for the step that helps least",
        prepare=lambda frame: _resolved_slopes(rows(frame)),
        beside=_over_slopes,
    )


def _resolved_slopes(rows: DataFrame) -> DataFrame:
    if rows["slope"].nunique() < 2:
        msg = "fewer than 2 slopes"
        raise NotTestableError(msg)
    if not rows["resolved"].all():
        msg = "a kappa that is not resolved"
        raise NotTestableError(msg)
    return rows


def _least_step(network: DataFrame) -> float:
    """The smallest quotient of kappa at a slope and at the next smaller one."""
    logs = np.log(network.sort_values("slope")["kappa"].to_numpy())
    return float(np.exp(np.diff(logs).min()))


def _over_slopes(rows: DataFrame) -> str:
    """The geometric means over the seeds at each slope of the largest width."""
    rows = rows[rows["width"] == rows["width"].max()]
    means = [(a, np.exp(np.log(r["kappa"].to_numpy()).mean())) for a, r in rows.groupby("slope")]
    listed = ", ".join(f"{mean:.4g} at {slope:g}" for slope, mean in means)
    return f"; kappa over the slopes at m={rows['width'].iloc[0]}: {listed}"


def _relu_helps(rows: Rows) -> Compare:
    return Compare(
        "kappa",
        {"slope": RELU},
        over={"slope": LINEAR},
        each="width",
        below=1.0,
        name="kappa(ReLU) / kappa(linear)",
        prepare=rows,
        missing="slopes 0 and 1 are not both in the table",
        beside=lambda both: f"; {_crossing(both)}",
    )


def _crossing(rows: DataFrame) -> str:
    relu, linear = (rows[rows["slope"] == slope] for slope in (RELU, LINEAR))
    found = crossovers(relu, linear, "width", "kappa")
    if not np.isfinite(found).all():
        never = np.isnan(found).sum()
        return f"the two curves do not cross at the widths here for {never} of {len(found)} seeds"
    at = effects.geometric_mean(found)
    return f"from m={at} on ReLU is worse than the linear network"


_SIZES = ("d/k", "n/d")
_INCREASES = Sentence(
    "A",
    "Section 5, of Figure 6",
    "contrary to the linear setting the condition number increases with width",
    _SIZES,
)
_TIGHTNESS = Sentence(
    "A",
    "Section 5, of Figure 6",
    "We further empirically validate the tightness of the upper bounds",
    _SIZES,
)
_TIGHTENS = Sentence(
    "A",
    "Section 5, of Figure 6",
    "The upper bound also becomes tighter and more predictive with increasing width",
    _SIZES,
)
_REDUCING = Sentence(
    "A",
    "Section 5, of Figure 23",
    "reducing the value of alpha seems to consistently improve the conditioning",
    _SIZES,
)
_RELU = Sentence(
    "A",
    "Appendix I.3, also Section 7 (d)",
    "ReLU activation improves the conditioning in the one-hidden layer setting",
    _SIZES,
)

_GRAM = (
    "of the two terms of G (Eq 10) the linear network has the whole, and ReLU loses about half of"
    " each. But the hidden units of ReLU have a mean, which makes one eigenvalue large: at n = 500,"
    " d = 784, k = 10 and m = 4000 lambda_max is 39 times that of the linear network, and"
    " lambda_min 0.39 times. With -alpha the negative side is mirrored: at alpha = 1 a unit is the"
    " absolute value, whose mean is the largest"
)
_COUNTED = (
    "Eq 11 counts the first term of G with alpha^2, here 1e-4, as if every unit were on its"
    " negative side for every sample. About half of them are, and the term's own smallest"
    " eigenvalue is over a thousand times as large (n = m = 60). At m = n Gamma is nearly singular"
    " and does not make up for it; the wider the network, the more of the bound is Gamma's smallest"
    " eigenvalue"
)
_IMAGES = (
    "where all images are whitened before n of them are drawn, the images count: on MNIST at m ="
    " 4000 kappa is nearly the same from alpha = 0 to 0.3, and the linear network's is 36 times as"
    " large. That is, to 12%, kappa of the samples' Gram matrix (1e5 to 3e5), which is I in the"
    " published code"
)
_MENDED = "Lambda has the derivative alpha and not -alpha"
_READINGS = (
    (CERTIFIED, "", rows_of(ONE), (("panel", ONE), ("sign", TRUE)), _GRAM),
    (
        AS_COMPUTED,
        "with -alpha in Lambda, ",
        rows_of(ONE, COMPUTED),
        (("panel", ONE), ("sign", COMPUTED)),
        "",
    ),
)
"""Of the samples whitened themselves: column, start of the statement, rows, panel, mechanism."""
_ELSEWHERE = (
    (
        OTHER,
        "at the d of CIFAR-10, ",
        rows_of(COLOURS),
        (("panel", COLOURS), ("sign", TRUE)),
        _GRAM,
    ),
    (OTHER, "whitened before drawing, ", rows_of(DRAWN), (("panel", DRAWN),), _IMAGES),
)


def _readings(
    figure: str,
    sentence: Sentence,
    statement: str,
    check: Callable[[Rows], Check],
    *,
    elsewhere: bool,
    why: str | None = None,
) -> tuple[Claim, ...]:
    """One claim for each reading; ``why`` is said in place of what orders the slopes."""
    return tuple(
        Claim(
            figure,
            f"{start}{statement}",
            sentence,
            check(rows),
            panel=panel,
            mechanism=mechanism if why is None else why,
            column=column,
            mended=_MENDED if column == AS_COMPUTED else "",
        )
        for column, start, rows, panel, mechanism in (
            *_READINGS,
            *(_ELSEWHERE if elsewhere else ()),
        )
    )


def _of_slopes(
    sentence: Sentence, statement: str, check: Callable[[Rows], Check]
) -> tuple[Claim, ...]:
    """The readings of figure 23 at the widths of 1000 to 5000 for n = 500, and from m = n on."""
    published = _readings(
        "23",
        sentence,
        f"{statement} m >= 2 n, where the widths of the published CIFAR-10 results are",
        lambda rows: check(_wide(rows, 2)),
        elsewhere=True,
    )
    from_n = (
        Claim(
            "23",
            f"{start}{statement} m >= n",
            sentence,
            check(_wide(rows)),
            panel=panel,
            mechanism=mechanism,
            column=OTHER,
        )
        for _, start, rows, panel, mechanism in _READINGS
    )
    return (*published, *from_n)


def _of_slope(check: Callable[[Rows], Check]) -> Callable[[Rows], Check]:
    return lambda rows: check(_at_slope(rows))


CLAIMS = (
    Claim(
        "6",
        "kappa <= bound of Eq 11 in every cell, for either sign of alpha in Lambda",
        implied("Lemma 4"),
        Bounded({"panel": ONE}, bounds=("bound",), theorem="Lemma 4"),
    ),
    *_readings(
        "6", _INCREASES, "kappa increases with m, for m >= n", _of_slope(_rises), elsewhere=False
    ),
    Claim("6", "below m = n kappa first falls with m", BEYOND, _valley),
    *_readings(
        "6",
        _TIGHTNESS,
        "the bound is at most twice kappa at every m >= n",
        _of_slope(_tight),
        elsewhere=False,
        why=_COUNTED,
    ),
    *_readings(
        "6",
        _TIGHTENS,
        "the bound becomes tighter with m, for m >= n",
        _of_slope(_bound_tightens),
        elsewhere=False,
    ),
    *_readings(
        "6",
        _TIGHTENS,
        "the bound becomes more predictive: over m its slope comes nearer to that of kappa",
        _of_slope(_more_predictive),
        elsewhere=False,
    ),
    Claim(
        "6",
        "two hidden layers: kappa increases with m, for m >= n",
        BEYOND,
        _rises(_at_slope(rows_of(TWO))),
    ),
    *_of_slopes(_REDUCING, "every smaller alpha has a lower kappa, at every", _slopes_help),
    *_of_slopes(_RELU, "ReLU improves on the linear network at every", _relu_helps),
)
