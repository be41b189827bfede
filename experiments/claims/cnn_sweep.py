"""The claims of paper A about figure 8, judged for each reading of it, and where trends hold.

Figure 8 is in one dimension, as in Appendix B and in the published code; networks in two dimensions
are Figure C3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pandas import DataFrame

from sweeps.claims import (
    AS_COMPUTED,
    AS_PRINTED,
    BEYOND,
    CERTIFIED,
    OTHER,
    Check,
    Claim,
    Sentence,
    Verdict,
    every,
    implied,
    not_testable,
)
from sweeps.comparisons import Bounded
from sweeps.effects import Effect, decide, mean
from sweeps.rows import growth_exponent

EXACT, HALF, WHITENED = "raw", "raw, Sigma/2 for the root", "whitened"
"""How figure 8 treats its images: as they are, with Sigma^(1/2) or with Sigma/2; and whitened."""

TRENDS = Sentence(
    "A",
    "caption of Figure 8, also Appendix B",
    "the number of filters increases the condition number .. and the kernel size improves "
    "conditioning",
    ("d",),
)
TITLES = {
    "8-convolutions": "Toeplitz entries, last layer a convolution with one output channel",
    "8-channels": "Toeplitz entries, last layer a convolution with F output channels",
    "8-dense": "Toeplitz entries, dense last layer",
    "8-shared": "shared weights, dense last layer",
}
SYMBOLS = {"filters": "F", "kernel": "K"}
NAMES = {"filters": "the number of filters F", "kernel": "the kernel size K"}
LEAST = 2  # points of a curve

_MANY_FILTERS = (
    "With many filters T_1^T T_1 / F and S S^T come near their means, and kappa (at F = 32 within "
    "a factor of 1.8) near (1 + F) / (1 + F / K^2) for kernels up to half the side, because a "
    "corner pixel lies under one position of the kernel and a pixel in the centre under K^2 "
    "(test_the_mean_of_the_grams). This grows with F and with K. "
)
_ONE_FILTER = (
    "With one small kernel the smallest eigenvalue of T_2 T_2^T is near 0, and every further "
    "filter lifts it: kappa falls from 300 to 15 along F at K = 3 of 28. "
)
_PEAK = (
    "kappa has a peak where J has as many independent columns as its k d rows, as a random matrix "
    "has, and falls beyond: at 14 x 14 and K = 11 it is 3e2, 1e4 and 2e2 at p / (k d) = 0.57, 1.1 "
    "and 2.3. "
)
MECHANISMS = {
    "8-convolutions": _ONE_FILTER + _MANY_FILTERS,
    "8-channels": _ONE_FILTER + _MANY_FILTERS,
    "8-dense": "Kernels much larger than half the side see all pixels from a few positions alone; "
    "more filters then only raise the rank of T_1 and of H. " + _MANY_FILTERS,
    "8-shared": _PEAK + "A larger kernel leaves the head fewer positions and so fewer parameters: "
    "with many filters it moves the network towards the peak.",
}


_GROWS = (
    "T_1 and T_2 are the Toeplitz matrices of the two layers. Of the two terms of Lemma 2 T_1^T T_1"
    " grows with F, and the smallest eigenvalue of T_2 T_2^T falls. Where both terms are of one"
    " size T_1^T T_1 carries kappa down."
)
_ROOT = (
    " In the direction in which Sigma has its smallest eigenvalue s the term of T_1 counts with s,"
    " and with Sigma/2 for the root with s^2 / 4, which is s / 4 or 1e-4 times as much: then"
    " T_2 T_2^T alone is left there"
)


@dataclass(frozen=True)
class Curve:
    """kappa over the filters at one kernel size, or over the kernel size at one number of filters.

    ``slopes`` maps each seed to the slope of log kappa against log ``over``.
    """

    label: str
    over: str
    slopes: dict[int, float]


def _of(frame: DataFrame, figure: str) -> DataFrame:
    return frame[frame["figure"] == figure]


def _curves(rows: DataFrame, over: str, only: Iterable[int] = (), suffix: str = "") -> list[Curve]:
    """The curves of kappa over ``over``, one for each value of the other size, or of ``only``.

    A curve needs two points. A seed counts if its kappa is resolved at every point of the curve.
    """
    (by,) = set(SYMBOLS) - {over}
    found = []
    for value in only or np.unique(rows[by]):
        curve = rows[rows[by] == value]
        if curve[over].nunique() >= LEAST:
            slopes = {
                int(seed): growth_exponent(each[over].to_numpy(), each["kappa"].to_numpy())
                for seed, each in curve.groupby("seed")
                if each["resolved"].to_numpy().all()
            }
            found.append(Curve(f"{SYMBOLS[by]}={value}{suffix}", over, slopes))
    return found


def _shared_seeds(curves: Sequence[Curve]) -> list[int]:
    """The seeds whose kappa is resolved on every curve."""
    return sorted(set.intersection(*(set(curve.slopes) for curve in curves))) if curves else []


def _average(curves: Sequence[Curve]) -> Effect:
    """The mean over the seeds of the mean slope of the curves."""
    slopes = [[curve.slopes[seed] for curve in curves] for seed in _shared_seeds(curves)]
    return mean(np.mean(slopes, axis=1))


def _listed(curves: Sequence[Curve]) -> str:
    """The curves on which kappa rises and falls: those whose intervals exclude "no effect"."""
    resolved = [curve for curve in curves if curve.slopes]
    effects = {curve.label: _average([curve]).among(len(resolved)) for curve in resolved}
    rises = ", ".join(label for label, effect in effects.items() if effect.low > 0)
    falls = ", ".join(label for label, effect in effects.items() if effect.high < 0)
    return f"rises at {rises or 'none'}, falls at {falls or 'none'}, for sure"


def _decided(curves: Sequence[Curve], *, rises: bool) -> Verdict:
    """The verdict on the mean slope of the curves, and the curves that surely rise or fall."""
    if not curves:
        return not_testable(f"no curve with {LEAST} points")
    if not _shared_seeds(curves):
        return not_testable("no seed whose kappa is resolved on every curve")
    side: dict[str, Any] = {"above": 0.0} if rises else {"below": 0.0}
    what = NAMES[curves[0].over]
    found = decide({"on average": _average(curves)}, f"kappa goes like {what} to the power", **side)
    return replace(found, text=f"{found.text}; {_listed(curves)}")


Rows = Callable[[DataFrame], DataFrame]


def _trend(rows: Rows, over: str, *, rises: bool) -> Check:
    """The trend of one panel."""
    return lambda frame: _decided(_curves(rows(frame), over), rises=rises)


def _both(rows: Rows) -> Check:
    """Both trends: over the filters and over the kernel size."""
    return every(_trend(rows, "filters", rises=True), _trend(rows, "kernel", rises=False))


def _on_a_line(protocol: str, title: str, column: str, mechanism: str = "") -> tuple[Claim, Claim]:
    """The two trends in one dimension, each a reading; the mechanism is of the filters."""

    def rows(frame: DataFrame) -> DataFrame:
        line = _of(frame, "8-line")
        return line[line["protocol"] == protocol]

    filters, kernels = (
        Claim(
            "8",
            f"{title}: kappa {words}",
            TRENDS,
            _trend(rows, over, rises=rises),
            panel=(("figure", "8-line"), ("protocol", protocol)),
            mechanism=mechanism if rises else "",
            column=column,
            mended="Sigma^(1/2) is the root and not Sigma/2" if column == AS_COMPUTED else "",
        )
        for words, over, rises in (
            ("increases with the number of filters", "filters", True),
            ("decreases with the kernel size", "kernel", False),
        )
    )
    return filters, kernels


def _in_two_dimensions(figure: str) -> Claim:
    """Both trends in one reading of the network, which the published code contradicts."""
    return Claim(
        "C3",
        f"{TITLES[figure]}: kappa increases with the filters and decreases with the kernel size",
        TRENDS,
        _both(lambda frame: _of(frame, figure)),
        panel=(("figure", figure),),
        mechanism=MECHANISMS[figure].strip(),
        column=OTHER,
    )


def _at_both_sides(frame: DataFrame) -> dict[str, DataFrame]:
    """The rows with a convolutional last layer at each side, by the suffix of their labels."""
    shown = [_of(frame, name) for name in ("8-convolutions", "8-convolutions_half")]
    return {f" of {rows['side'].iloc[0]}": rows for rows in shown if not rows.empty}


def _large_kernels(frame: DataFrame) -> Verdict:
    """Whether kappa rises with the filters at the largest kernel, which just fits twice."""
    curves = [
        curve
        for suffix, rows in _at_both_sides(frame).items()
        for curve in _curves(rows, "filters", [int(rows["kernel"].max())], suffix)
    ]
    return _decided(curves, rises=True)


def _few_filters(frame: DataFrame) -> Verdict:
    """Whether kappa falls with the kernel size for one, two and four filters."""
    curves = [
        curve
        for suffix, rows in _at_both_sides(frame).items()
        for curve in _curves(rows, "kernel", (1, 2, 4), suffix)
    ]
    return _decided(curves, rises=False)


def _half_the_side(over: str, *, below: bool, rises: bool) -> Check:
    """The trend with a dense last layer, for kernels up to half the side or for larger ones."""

    def check(frame: DataFrame) -> Verdict:
        rows = _of(frame, "8-dense")
        small = 2 * rows["kernel"] <= rows["side"]
        return _decided(_curves(rows[small == below], over), rises=rises)

    return check


def _by_rank(figure: str, *, full: bool) -> Check:
    """Both trends with shared weights, where G has full rank or where it has not.

    The exponent of K is taken with the opposite sign, so that the paper's claim is that both
    exponents are positive.
    """

    def check(frame: DataFrame) -> Verdict:
        rows = _of(frame, figure)
        part = rows[(rows["rank"] == rows["size"]) == full]
        curves = {over: _curves(part, over) for over in SYMBOLS}
        for over, drawn in curves.items():
            if not drawn:
                return not_testable(f"no curve over {SYMBOLS[over]} with {LEAST} points")
            if not _shared_seeds(drawn):
                return not_testable(
                    f"no seed whose kappa is resolved on every curve over {SYMBOLS[over]}"
                )
        over_filters, over_kernel = (_average(found) for found in curves.values())
        effects = {
            "over the number of filters F": over_filters,
            "over the kernel size K, with the opposite sign": _negative(over_kernel),
        }
        side: dict[str, Any] = {"below": 0.0} if full else {"above": 0.0}
        found = decide(effects, "exponents of kappa, on average over the curves", **side)
        text = "; ".join(f"over {SYMBOLS[over]} {_listed(c)}" for over, c in curves.items())
        return replace(found, text=f"{found.text}; {text}")

    return check


def _negative(effect: Effect) -> Effect:
    low, high = effect.own
    return replace(
        effect, value=-effect.value, low=-effect.high, high=-effect.low, own=(-high, -low)
    )


def _framed(frame: DataFrame) -> Verdict:
    panels = {"8-framed_convolutions": " (convolution)", "8-framed_dense": " (dense)"}
    curves = [
        curve
        for figure, suffix in panels.items()
        for curve in _curves(_of(frame, figure), "filters", suffix=suffix)
    ]
    return _decided(curves, rises=False)


def _bounded(frame: DataFrame) -> Verdict:
    """Lemma 2's bound, where the root is the right one."""
    rows = _of(frame, "8-line")
    rows = rows[(rows["protocol"] != HALF) & np.isfinite(rows["bound"])]
    return Bounded(bounds=("bound",), theorem="Lemma 2")(rows.assign(bound_applicable=True))


CLAIMS = (
    *_on_a_line(EXACT, "one dimension, not whitened", CERTIFIED, _GROWS + _ROOT),
    *_on_a_line(HALF, "one dimension, not whitened, Sigma/2", AS_COMPUTED),
    *_on_a_line(WHITENED, "one dimension, whitened as the caption has it", AS_PRINTED, _GROWS),
    Claim(
        "8",
        "kappa <= bound in every cell",
        implied("Lemma 2"),
        _bounded,
    ),
    *(_in_two_dimensions(figure) for figure in TITLES),
    Claim(
        "C3",
        "Toeplitz entries, convolution: kappa increases with the filters for the largest kernel "
        "that fits twice, almost half the side",
        BEYOND,
        _large_kernels,
    ),
    Claim(
        "C3",
        "Toeplitz entries, convolution: kappa decreases with the kernel for up to 4 filters",
        BEYOND,
        _few_filters,
    ),
    Claim(
        "C3",
        "Toeplitz entries, dense: kappa increases with the filters for kernels up to half the side",
        BEYOND,
        _half_the_side("filters", below=True, rises=True),
    ),
    Claim(
        "C3",
        "Toeplitz entries, dense: kappa decreases with the kernel above half the side",
        BEYOND,
        _half_the_side("kernel", below=False, rises=False),
    ),
    *(
        Claim(
            "C3",
            f"shared weights{name}: both trends {said}",
            BEYOND,
            _by_rank(figure, full=full),
        )
        for figure, name in (("8-shared", ""), ("8-shared_other", ", another side"))
        for full, said in (
            (False, "hold while G has not full rank k d (too few parameters)"),
            (True, "reverse where G has full rank k d"),
        )
    ),
    Claim(
        "C3",
        "Toeplitz entries: with a frame of zero pixels, which MNIST has, kappa decreases with the "
        "number of filters",
        BEYOND,
        _framed,
    ),
)
