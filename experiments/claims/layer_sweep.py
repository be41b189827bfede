"""The claims of paper A about figures 11 and 12, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from sweeps.claims import AS_PRINTED, FAILS, Check, Claim, Sentence, Verdict, every, not_testable
from sweeps.claims import OTHER as OTHER_SETTINGS
from sweeps.comparisons import Compare
from sweeps.effects import Effect, decide, mean
from sweeps.rows import means, polynomial_fit, r_squared, where

PRINTED, OTHER = "printed", "other"  # whose d, k and m: those of the figures, or others
FEWEST_LAYERS = 4  # that a straight line is fitted through
_SHAPE = ("inputs", "outputs", "width")
STRAIGHT = 0.95  # R^2 from which a logarithm counts as straight


def _deepest(frame: DataFrame, gain: float) -> DataFrame:
    shown = where(frame, gain=gain, sizes=PRINTED)
    return where(shown, depth=shown["depth"].max()) if len(shown) else shown


def _at_other_sizes(*checks: Check) -> Check:
    """What the checks say of every network of other d, k and m, as if they were the printed ones.

    It holds where all of them hold.
    """

    def check(frame: DataFrame) -> Verdict:
        others = where(frame, sizes=OTHER)
        shapes = sorted(
            {tuple(map(int, s)) for s in zip(*(others[n] for n in _SHAPE), strict=True)}
        )
        if not shapes:
            return not_testable("no network of other sizes")
        return every(*(_of_shape(shape, every(*checks)) for shape in shapes))(others)

    return check


def _of_shape(shape: tuple[int, ...], check: Check) -> Check:
    wanted = dict(zip(_SHAPE, shape, strict=True))

    def of_shape(frame: DataFrame) -> Verdict:
        rows = where(frame, **wanted)
        found = check(rows.assign(sizes=PRINTED))
        d, k, m = shape
        return replace(found, text=f"d={d}, k={k}, m={m}: {found.text}")

    return of_shape


def _exponential(gain: float, column: str, *, growing: bool) -> Check:
    """Whether a column changes exponentially with the layer, by a factor above 1 or below it.

    At the deepest L a straight line is fitted to the logarithms of the column: for each seed to
    find the factor, and to the mean over the seeds to find R^2. The layer with no matrix before it
    (or behind it) is left out, since its product is the identity.
    """

    def check(frame: DataFrame) -> Verdict:
        deepest = _products(_deepest(frame, gain), column)
        if deepest.empty or len(np.unique(deepest["layer"])) < FEWEST_LAYERS:
            return not_testable(f"fewer than {FEWEST_LAYERS} layers")
        layers, logs = means(deepest.assign(log=np.log(deepest[column])), "layer", "log")
        fit = r_squared(logs, polynomial_fit(layers, logs, 1))
        factor = _factor(deepest, column)
        side: dict[str, Any] = {"above": 1.0} if growing else {"below": 1.0}
        found = decide(
            {f"times a layer at L={deepest['depth'].iloc[0]}": factor}, "changes by", **side
        )
        status = FAILS if fit < STRAIGHT else found.status
        return replace(found, status=status, text=f"{found.text}, R^2 {fit:.4f}")

    return check


def _products(rows: DataFrame, column: str) -> DataFrame:
    """The rows whose product W^{L:l+1} (or W^{1:l-1}) has at least one factor."""
    last = rows["depth"] if column.startswith("left") else 1
    return rows[rows["layer"] != last]


def _factor(rows: DataFrame, column: str) -> Effect:
    """exp of the mean over the seeds of the slope of log ``column`` over the layer."""
    of_seeds = [one for _, one in rows.groupby("seed")]
    slopes = [np.polyfit(one["layer"], np.log(one[column]), 1)[0] for one in of_seeds]
    return mean(np.array(slopes)).exponential()


def _deepest_of_first_gain(frame: DataFrame) -> DataFrame:
    return _deepest(frame, frame["gain"].min())


def _spread(values: Series) -> float:
    """The largest over the smallest value."""
    return values.max() / values.min()


def _spreads(rows: DataFrame) -> str:
    plain, weighted = (
        np.exp(np.mean([np.log(_spread(one)) for _, one in terms.groupby(rows["seed"])]))
        for terms in (rows["term"], rows["term"] * rows["weight"])
    )
    return (
        f"; max/min over l {plain:.1f} without gamma and {weighted:.1f} with it, at"
        f" L={rows['depth'].iloc[0]}"
    )


def _dominates(gain: float) -> Compare:
    """Whether kappa^2(W^{1:l-1}) exceeds kappa^2(W^{L:l+1}), averaged over the l that have both."""
    return Compare(
        "quotient",
        each="depth",
        above=1.0,
        name=f"kappa^2({RIGHT}) / kappa^2({LEFT})",
        prepare=lambda frame: _inner(_deepest(frame, gain)),
        missing="no layer with products on both sides",
    )


def _inner(rows: DataFrame) -> DataFrame:
    rows = rows.assign(quotient=rows["right_kappa2"] / rows["left_kappa2"])
    return rows[(rows["layer"] > 1) & (rows["layer"] < rows["depth"])]


LEFT, RIGHT = "W^{L:l+1}", "W^{1:l-1}"
_SIZES = ("d/k", "m/d")
# Appendix G and the published code have gain 1; PyTorch's own, which Appendix I.3 names, is 2.
_GROWS = Sentence(
    "A", "Appendix E, first row of Figure 11", "follows an exponential growth rule in l", _SIZES
)
_DOMINATES = Sentence(
    "A", "Appendix E, first row of Figure 11", "dominates the product of each term in Lemma 2",
    _SIZES,
)  # fmt: skip
_DECREASES = Sentence(
    "A",
    "Appendix E, second row of Figure 11",
    "the smallest singular value .. is decreasing exponentially",
    _SIZES,
)
_MIRROR = Sentence(
    "A",
    "Appendix E, of the second column of Figure 11",
    "The same observation also holds for W^{L:l+1}, but .. this leads to a mirrored plot",
    _SIZES,
)
_CONSISTENT = Sentence(
    "A",
    "Appendix E",
    "this behavior is also consistent for different widths m, input dimension d, and output "
    "dimension k",
)
_BALANCES = Sentence(
    "A", "caption of Figure 12", "which highlights the 'self-balancing' effect", _SIZES
)
_DRIVEN = Sentence(
    "A",
    "Section 4.2",
    "the difference in magnitude between each condition number is largely driven by their "
    "smallest eigenvalue",
    _SIZES,
)


def _of_gain(gain: float, mechanisms: Mapping[str, str]) -> tuple[Claim, ...]:
    """The panels of figure 11."""
    name = "Appendix G's variance" if gain == 1 else "PyTorch's gain"
    mirrored = every(
        _exponential(gain, "left_kappa2", growing=False),
        _exponential(gain, "left_smallest2", growing=True),
    )
    statements = (
        (
            f"kappa^2({RIGHT}) grows exponentially with l",
            _GROWS,
            _exponential(gain, "right_kappa2", growing=True),
        ),
        (f"kappa^2({RIGHT}) exceeds kappa^2({LEFT})", _DOMINATES, _dominates(gain)),
        (
            f"sigma_min^2({RIGHT}) decreases exponentially with l",
            _DECREASES,
            _exponential(gain, "right_smallest2", growing=False),
        ),
        (
            f"kappa^2({LEFT}) decreases and sigma_min^2({LEFT}) grows with l, exponentially",
            _MIRROR,
            mirrored,
        ),
        (
            "all four at another m, d and k",
            _CONSISTENT,
            _at_other_sizes(
                _exponential(gain, "right_kappa2", growing=True),
                _dominates(gain),
                _exponential(gain, "right_smallest2", growing=False),
                mirrored,
            ),
        ),
    )
    return tuple(
        Claim(
            "11",
            f"gain {gain:g} ({name}): {statement}",
            source,
            check,
            panel=(("gain", gain), ("sizes", PRINTED)),
            mechanism=mechanisms.get(source.words, ""),
            column=AS_PRINTED if gain == 1 else OTHER_SETTINGS,
        )
        for statement, source, check in statements
    )


_GAIN_2 = {
    _MIRROR.words: "A gain of 2 multiplies sigma_min^2 by 2 for every matrix, and the layers after "
    "l become fewer with l: the factor 1.11 a layer of gain 1 becomes 1.11 / 2 = 0.56.",
    _CONSISTENT.words: "A gain of 2 multiplies sigma_min^2 by 2 for every matrix: the factors 0.57 "
    "a layer of gain 1 at m=600 and at d=100 become 1.13 and 1.14.",
}

CLAIMS = (
    *_of_gain(1.0, {}),
    *_of_gain(2.0, _GAIN_2),
    Claim(
        "12",
        "the weights gamma_l balance the terms: their spread over the layers is smaller with them",
        _BALANCES,
        Compare(
            lambda one: _spread(one["term"]) / _spread(one["term"] * one["weight"]),
            above=1.0,
            name="spread of the terms over l without gamma, over that with it",
            prepare=_deepest_of_first_gain,
            missing="no rows",
            beside=_spreads,
        ),
        panel=(("sizes", PRINTED),),
    ),
    Claim(
        "12",
        f"sigma_min^2({RIGHT}) varies more over l than sigma_max^2({RIGHT})",
        _DRIVEN,
        Compare(
            lambda one: (
                _spread(one["right_smallest2"])
                / _spread(one["right_smallest2"] * one["right_kappa2"])
            ),
            each="depth",
            above=1.0,
            name="largest / smallest sigma_min^2 over l, over the same of sigma_max^2",
            prepare=lambda frame: _products(_deepest_of_first_gain(frame), "right_kappa2"),
            missing="no rows",
        ),
        panel=(("sizes", PRINTED),),
    ),
)
