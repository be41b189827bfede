"""The claims of paper A about figures 11 and 12, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from sweeps.claims import FAILS, Claim, Verdict, not_testable, printed
from sweeps.effects import Effect, decide, mean
from sweeps.rows import by_seed, kept, length, means, polynomial_fit, r_squared, where
from sweeps.table import Columns

Check = Callable[[Columns], Verdict]

FEWEST_LAYERS = 4  # that a straight line is fitted through
STRAIGHT = 0.95  # R^2 from which a logarithm counts as straight


def _deepest(table: Columns, gain: float) -> Columns:
    shown = where(table, gain=gain)
    return where(shown, depth=shown["depth"].max()) if length(shown) else shown


def _exponential(gain: float, column: str, *, growing: bool) -> Check:
    """Whether a column changes exponentially with the layer, by a factor above 1 or below it.

    At the deepest L a straight line is fitted to the logarithms of the column: for each seed to
    find the factor, and to the mean over the seeds to find R^2. The layer with no matrix before it
    (or behind it) is left out, since its product is the identity.
    """

    def check(table: Columns) -> Verdict:
        deepest = _products(_deepest(table, gain), column)
        if not length(deepest) or len(np.unique(deepest["layer"])) < FEWEST_LAYERS:
            return not_testable(f"fewer than {FEWEST_LAYERS} layers")
        layers, logs = means({**deepest, "log": np.log(deepest[column])}, "layer", "log")
        fit = r_squared(logs, polynomial_fit(layers, logs, 1))
        factor = _factor(deepest, column)
        side = {"above": 1.0} if growing else {"below": 1.0}
        found = decide({f"a layer at L={deepest['depth'][0]}": factor}, "factor", **side)
        status = FAILS if fit < STRAIGHT else found.status
        return replace(found, status=status, text=f"{found.text}, R^2 {fit:.4f}")

    return check


def _products(rows: Columns, column: str) -> Columns:
    """The rows whose product W^{L:l+1} (or W^{1:l-1}) has at least one factor."""
    last = rows["depth"] if column.startswith("left") else 1
    return kept(rows, rows["layer"] != last)


def _factor(rows: Columns, column: str) -> Effect:
    """exp of the mean over the seeds of the slope of log ``column`` over the layer."""
    slopes = [np.polyfit(one["layer"], np.log(one[column]), 1)[0] for one in by_seed(rows)]
    return mean(np.array(slopes)).exponential()


def _self_balancing(table: Columns) -> Verdict:
    """Whether max / min over l of Lemma 2's terms is larger without gamma_l than with it."""
    gains = np.unique(table["gain"])
    deepest = _deepest(table, gains[0]) if len(gains) else table
    if not length(deepest):
        return not_testable("no rows")
    plain, weighted = [], []
    for one in by_seed(deepest):
        plain.append(np.ptp(np.log(one["term"])))
        weighted.append(np.ptp(np.log(one["term"] * one["weight"])))
    effect = mean(np.array(plain) - np.array(weighted)).exponential()
    found = decide({"": effect}, "spread without gamma over spread with it", above=1.0)
    text = (
        f"{found.text}; max/min over l {np.exp(np.mean(plain)):.1f} without gamma and "
        f"{np.exp(np.mean(weighted)):.1f} with it, at L={deepest['depth'][0]}"
    )
    return replace(found, text=text)


LEFT, RIGHT = "W^{L:l+1}", "W^{1:l-1}"
_MIRROR = printed("Appendix E, the sentence on the mirrored plot, and Figure 11, right column")


def _of_gain(gain: float, mechanisms: Mapping[str, str]) -> tuple[Claim, ...]:
    """The four panels of figure 11."""
    name = "Appendix G's variance" if gain == 1 else "PyTorch's gain"
    statements = (
        (
            "right_kappa2",
            f"kappa^2({RIGHT}) grows exponentially with l",
            printed("Appendix E, first row of Figure 11"),
            True,
        ),
        (
            "right_smallest2",
            f"sigma_min^2({RIGHT}) decreases exponentially with l",
            printed("Appendix E, second row of Figure 11"),
            False,
        ),
        ("left_kappa2", f"kappa^2({LEFT}) mirrors it and decreases with l", _MIRROR, False),
        ("left_smallest2", f"sigma_min^2({LEFT}) mirrors it and grows with l", _MIRROR, True),
    )
    return tuple(
        Claim(
            "11",
            f"gain {gain:g} ({name}): {statement}",
            source,
            _exponential(gain, column, growing=growing),
            ("d/k", "m/d"),
            (("gain", gain),),
            mechanisms.get(column, ""),
        )
        for column, statement, source, growing in statements
    )


_GAIN_2 = {
    "left_smallest2": "A gain of 2 multiplies sigma_min^2 by 2 for every matrix, and the layers "
    "after l become fewer with l: the factor 1.11 a layer of gain 1 becomes 1.11 / 2 = 0.56.",
}

CLAIMS = (
    *_of_gain(1.0, {}),
    *_of_gain(2.0, _GAIN_2),
    Claim(
        "12",
        "the weights gamma_l balance the terms: their spread over the layers is smaller with them",
        printed("Appendix E, caption of Figure 12"),
        _self_balancing,
        ("d/k", "m/d"),
    ),
)
