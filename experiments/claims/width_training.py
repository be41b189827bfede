"""The claims of paper A about figures 9 and 18, as functions of the saved table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    AS_PRINTED,
    BEYOND,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    SOME,
    UNDECIDED,
    Check,
    Claim,
    Sentence,
    Verdict,
    halves,
    not_testable,
)
from sweeps.rows import geometric_means, growth_exponent

FEWEST_EPOCHS = 50  # the paper trains for 100
SETTLED = 10  # the epoch from which on the spread of kappa counts
FEWER = 0.9  # a wrong rank may be as low as this share of the chosen one
ROBUST = 10.0  # an order of magnitude, on the figure's logarithmic axis
FAR_MORE = 2.0
_FEWER = f"{1 - FEWER:.0%} fewer ranks"
NARROW = 50  # from here on the spread no longer falls

RULES: Mapping[str, str] = {
    "float64": "at matrix_rank's rank in double precision",
    "absolute": "at the rank above 1e-7",
    "absolute over rows": "at the rank above 1e-7 / (k n)",
    "float32": "at matrix_rank's rank in single precision",
}


def _paths(frame: DataFrame, reading: str) -> DataFrame:
    return frame[(frame["figure"] == "18") & (frame["reading"] == reading)]


def _falls(reading: str, quantity: Callable[[DataFrame], float], name: str) -> Check:
    """Whether a quantity of the runs falls with the width: its log-log slope is negative."""

    def check(frame: DataFrame) -> Verdict:
        paths = _paths(frame, reading)
        last = paths["epoch"].max() if len(paths) else 0
        if paths["width"].nunique() < 2 or last < FEWEST_EPOCHS:
            number = paths["width"].nunique()
            found = f"{number} widths and {last} epochs of this reading"
            return not_testable(f"{found}; the paper has 6 and 100")
        every = DataFrame(
            {"width": width, "seed": seed, name: quantity(path)}
            for (width, seed), path in paths.groupby(["width", "seed"])
        )
        known = every[np.isfinite(every[name].to_numpy())]
        unknown = sorted(set(every["width"]) - set(known["width"]))
        if unknown:
            return not_testable(f"no resolved kappa at m={', '.join(map(str, unknown))}")
        trend = effects.trend(known, "width", "m", rises=False, of=name, from_one_seed=True)
        missing = len(every) - len(known)
        text = f"; {missing} of {len(every)} networks have no resolved kappa"
        return replace(trend, text=trend.text + text) if missing else trend

    return check


def _falls_then_flat(reading: str) -> Check:
    """Whether the spread of log kappa falls with the width; and whether it does from m = 50 on."""
    check = _falls(reading, _variation, "spread of log kappa")

    def both(frame: DataFrame) -> Verdict:
        verdict, wide = check(frame), frame[frame["width"] >= NARROW]
        every, wider = (_paths(rows, reading)["width"].nunique() for rows in (frame, wide))
        if verdict.status == NOT_TESTABLE or not 1 < wider < every:
            return verdict
        return replace(verdict, text=f"{verdict.text}; from m={NARROW} on {check(wide).text}")

    return both


def _variation(path: DataFrame) -> float:
    """The standard deviation of log kappa over the epochs, once training has settled.

    It is kappa at the rank that matrix_rank counts in float64; nan where one is not known.
    """
    later = path[path["measured"] & (path["epoch"] >= SETTLED)]
    kappa, high = (later[name].to_numpy() for name in ("kappa_numerical", "kappa_numerical_high"))
    known = np.isfinite(kappa) & np.isfinite(high)
    return float(np.log(kappa).std(ddof=1)) if known.sum() > 1 and known.all() else float("nan")


def _mean_kappa(path: DataFrame) -> float:
    """The geometric mean over the epochs of certified kappa, by lower bounds where it is open."""
    shown = path[path["measured"]]
    kappa = np.where(shown["resolved"], shown["kappa"], shown["kappa_low"])
    return float(np.exp(np.log(kappa).mean()))


def _kappa_falls(reading: str) -> Check:
    """Whether the mean of log kappa over the epochs falls with the width.

    A kappa that is not resolved counts with its lower bound. Larger values at widths below the
    average width make the slope smaller. So where only such widths have unresolved kappas, the
    slope of each seed is at most that of the bounds. How far the slopes of the seeds lie apart is
    then unknown: the mean has no interval, and it holds only if every seed's slope is negative.
    """

    def check(frame: DataFrame) -> Verdict:
        verdict = _falls(reading, _mean_kappa, "mean kappa")(frame)
        paths = _paths(frame, reading)
        shown = paths[paths["measured"]]
        bounded = np.unique(shown["width"][~shown["resolved"]])
        if not len(bounded) or verdict.status == NOT_TESTABLE:
            return verdict
        runs = paths.groupby(["width", "seed"])
        kappas = DataFrame([(*run, _mean_kappa(path)) for run, path in runs], columns=_NAMES)
        seeds = [seed for _, seed in kappas.groupby("seed") if seed["width"].nunique() > 1]
        slopes = [_largest_slope(seed, bounded) for seed in seeds]
        if not slopes:
            return not_testable("fewer than 2 widths")
        if not max(slopes) < 0:
            listed = ", ".join(f"{width:g}" for width in bounded)
            text = f"the slope is open, as kappa has only lower bounds at m={listed}"
            return Verdict(UNDECIDED, math.nan, text, seeds=len(slopes))
        short = f"mean kappa goes like m to the power at most {np.mean(slopes):.3g}"
        listed = ", ".join(
            f"{'at least ' if width in bounded else ''}{kappa:.3g} at m={width:g}"
            for width, kappa in zip(*geometric_means(kappas, "width", "kappa"), strict=True)
        )
        text = f"{short}, negative in each seed ({len(slopes)}): {listed}"
        return Verdict(HOLDS, float(np.mean(slopes)), text, short=short, seeds=len(slopes))

    return check


_NAMES = ["width", "seed", "kappa"]


def _largest_slope(seed: DataFrame, bounded: NDArray) -> float:
    """The largest slope of log kappa over log m that one seed can have, or infinity.

    At the widths in ``bounded`` the kappas are lower bounds. A larger kappa at a width below the
    average of log m makes the slope smaller, and one above it makes it larger, without a limit.
    """
    widths = np.log(seed["width"].to_numpy(float))
    open_ = seed["width"].isin(bounded).to_numpy()
    if (widths[open_] >= widths.mean()).any():
        return np.inf
    return growth_exponent(seed["width"].to_numpy(), seed["kappa"].to_numpy())


def _mean_loss(path: DataFrame) -> float:
    losses = path[path["epoch"] > 0]["loss"].to_numpy()
    return float(losses.mean())


def _spectra(frame: DataFrame, reading: str) -> dict[int, DataFrame]:
    shown = frame[(frame["figure"] == "9") & (frame["reading"] == reading)]
    return {int(epoch): rows for epoch, rows in shown.groupby("epoch")}


def _robust_then_sensitive(reading: str, rule: str) -> Check:
    """The halves of the sentence: before training a factor of at most ten; after it a factor of
    more, which is also more than twice that before."""
    return halves(_robust_before(reading, rule), _sensitive_after(reading, rule))


def _robust_before(reading: str, rule: str) -> Check:
    def check(frame: DataFrame) -> Verdict:
        ends = _before_and_after(frame, reading, rule)
        if ends is None:
            return _NO_ENDS
        found = {"": effects.geometric_mean(ends[0]["factor"].to_numpy())}
        name = f"before training kappa over that at {_FEWER} is"
        return effects.decide(found, name, below=ROBUST, from_one_seed=True)

    return check


def _sensitive_after(reading: str, rule: str) -> Check:
    def check(frame: DataFrame) -> Verdict:
        ends = _before_and_after(frame, reading, rule)
        if ends is None:
            return _NO_ENDS
        before, after = (end["factor"].to_numpy() for end in ends)
        found = {
            f"times {ROBUST:g}": effects.geometric_mean(after / ROBUST),
            f"times {FAR_MORE:g} times that before": effects.geometric_mean(
                after / before / FAR_MORE
            ),
        }
        name = f"{_told(*ends)}; after training it is"
        return effects.decide(found, name, above=1.0, from_one_seed=True)

    return check


def _more_sensitive_after(reading: str, rule: str) -> Check:
    def check(frame: DataFrame) -> Verdict:
        ends = _before_and_after(frame, reading, rule)
        if ends is None:
            return _NO_ENDS
        text = f"{_told(*ends)}; the second over the first"
        found = {"": effects.ratio(ends[1], ends[0], "factor")}
        return effects.decide(found, text, above=FAR_MORE, from_one_seed=True)

    return check


_NO_ENDS = not_testable(f"no spectra before training and {FEWEST_EPOCHS} epochs later")


def _before_and_after(
    frame: DataFrame, reading: str, rule: str
) -> tuple[DataFrame, DataFrame] | None:
    """The factors before training and after it; None where the table has not both."""
    spectra = _spectra(frame, reading)
    if len(spectra) < 2 or max(spectra) < FEWEST_EPOCHS:
        return None
    return _factors(spectra[min(spectra)], rule), _factors(spectra[max(spectra)], rule)


def _told(first: DataFrame, last: DataFrame) -> str:
    before, after = (f"{np.exp(np.log(x['factor']).mean()):.3g}" for x in (first, last))
    return (
        f"kappa over that at {_FEWER} is {before} before training, at rank"
        f" {_ranks(first)}, and {after} after it, at rank {_ranks(last)}"
    )


def _factors(spectra: DataFrame, rule: str) -> DataFrame:
    """For each seed the rank r by the rule, and the factor kappa(r) / kappa(FEWER r)."""
    rows = []
    for seed, spectrum in spectra.groupby("seed"):
        rules = spectrum["rule"].fillna("").str.split(", ")
        rank = int(spectrum["assumed_rank"][[rule in named for named in rules]].iloc[0])
        kappa = spectrum.set_index("assumed_rank")["kappa"]
        rows.append((seed, rank, kappa[rank] / kappa[max(int(FEWER * rank), 1)]))
    return DataFrame(rows, columns=["seed", "rank", "factor"])


def _ranks(factors: DataFrame) -> str:
    low, high = int(factors["rank"].min()), int(factors["rank"].max())
    return f"{low}" if low == high else f"{low} to {high} (by the seed)"


_SIZES = ("p/(k n)", "n/d", "batch/n", "epochs x rate")
_CONTRAST = Sentence(
    "A",
    "Appendix C",
    "can be quite robust (Epoch=0), but also very sensitive (Epoch=100) to the numerical matrix"
    " rank",
    ("p/(k n)", "n/d", "batch/n"),
    SOME,  # of the rules for the rank, which neither text nor code tells
)
_IMPROVES = Sentence(
    "A",
    "Appendix I.2",
    "a larger width improves both the conditioning and the convergence speed",
    _SIZES,
)
_STABLE = Sentence("A", "Appendix I.2", "more stable throughout training for larger widths", _SIZES)
_FLOAT32 = (
    "this rule cuts the spectrum where kappa is 1 / (k n eps), about 840 for 10,000 eigenvalues,"
    " before training and after, whatever the network. The eigenvalues that spread over many"
    " decades lie below the cut"
)
_NO_GAP = (
    "the spectrum has no gap: its smaller eigenvalues fall over many decades into rounding, before"
    " training as well as after it, and this rule cuts in the middle of that fall"
)


def _of_rank(reading: str, rule: str, column: str, words: str = "") -> tuple[Claim, Claim]:
    """The claims of figure 9 for one rule of the numerical rank: the sentence, and the contrast."""
    panel = (("figure", "9"), ("reading", reading))
    where = RULES[rule] + words
    return (
        Claim(
            "9",
            f"kappa {where} is within a factor of ten of that at a tenth fewer ranks before"
            " training; after it beyond, and by more than twice the factor before",
            _CONTRAST,
            _robust_then_sensitive(reading, rule),
            panel=panel,
            column=column,
            mechanism=_FLOAT32 if rule == "float32" else _NO_GAP,
        ),
        Claim(
            "9",
            f"after training kappa {where} varies more than twice as much with the rank as before",
            BEYOND,
            _more_sensitive_after(reading, rule),
            ("p/(k n)", "n/d"),
            panel,
            mechanism=_FLOAT32 if rule == "float32" else "",
        ),
    )


def _of_width(reading: str, column: str, words: str = "") -> tuple[Claim, Claim, Claim]:
    """The three claims of figure 18."""
    panel = (("figure", "18"), ("reading", reading))
    return (
        Claim(
            "18",
            f"larger width: lower kappa, averaged over epochs{words}",
            _IMPROVES,
            _kappa_falls(reading),
            panel=panel,
            column=column,
        ),
        Claim(
            "18",
            f"larger width: the loss decreases faster{words}",
            _IMPROVES,
            _falls(reading, _mean_loss, "mean loss"),
            panel=panel,
            column=column,
        ),
        Claim(
            "18",
            "larger width: kappa at matrix_rank's rank in double precision is more stable"
            f" throughout training{words}",
            _STABLE,
            _falls_then_flat(reading),
            panel=panel,
            column=column,
        ),
    )


_CROSS, _BIASED = ", trained on the cross-entropy", ", with biases among the parameters"
_SHUFFLED = ", on drawn images and batches, trained on the cross-entropy"

CLAIMS = (
    *_of_rank("published", "float64", AS_PRINTED),
    *_of_rank("published", "absolute", AS_PRINTED),
    *_of_rank("published", "absolute over rows", AS_PRINTED),
    *_of_rank("published", "float32", AS_PRINTED),
    _of_rank("cross_entropy", "float64", AS_PRINTED, _CROSS)[0],  # before training it is the first
    *_of_rank("biases", "float64", OTHER, _BIASED),
    *_of_rank("shuffled", "float32", OTHER, _SHUFFLED),
    *_of_width("published", AS_PRINTED),
    *_of_width("cross_entropy", AS_PRINTED, _CROSS),
    *_of_width("biases", OTHER, _BIASED),
    *_of_width("shuffled", OTHER, _SHUFFLED),
)
