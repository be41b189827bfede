"""Effects with intervals over the seeds, and the verdicts that they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray
from pandas import DataFrame

from sweeps.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    NotTestableError,
    Verdict,
    not_testable,
)
from sweeps.rows import geometric_means, growth_exponent, points, where

LEVEL = 0.95
TIGHT = 2.0  # what "tight" is taken to mean of every bound: it is at most twice kappa
ONE_SEED_MARGIN = 0.1  # from one seed nothing is decided nearer to a limit, as a share of it
_LARGEST_LOG = 709.0  # the exponential of a larger number is above the range of float64


@dataclass(frozen=True)
class Effect:
    """A ratio or a slope, and the interval that holds it with 95%; no interval from one seed.

    Attributes:
      value: the mean over the seeds.
      low: the lower end of the interval over the seeds.
      high: its upper end.
      seeds: how many seeds it is from; 0 if it is no mean over seeds.
      own: the interval that encloses the value for these seeds, whatever others would give. It is
        a point where each seed's number is exact, and as wide as the certificates where not.
      geometric: whether this is a geometric mean, whose logarithm has the interval of Student.
    """

    value: float
    low: float
    high: float
    seeds: int = 0
    own: tuple[float, float] = (-math.inf, math.inf)
    geometric: bool = False

    def __str__(self) -> str:
        if self.seeds == 1:
            return f"{self._of_one_seed()} (one seed)"
        if self.low in (-math.inf, 0.0) and self.high == math.inf:
            return f"{self.value:.3g} (no interval)"
        return f"{self.value:.3g} ({self.low:.3g}, {self.high:.3g})"

    def _of_one_seed(self) -> str:
        """The value, or the bound on it that is certified where the other side is open."""
        low, high = self.own
        if math.isfinite(low) and low > 0 and high == math.inf:
            return f"at least {low:.3g}"
        if math.isfinite(high) and low in (-math.inf, 0.0):
            return f"at most {high:.3g}"
        return f"{self.value:.3g}"

    def exponential(self) -> Effect:
        """exp of this effect: a geometric mean or a ratio, where this is a mean of logarithms."""
        value, low, high, *own = map(_exponential, (self.value, self.low, self.high, *self.own))
        return Effect(value, low, high, self.seeds, (own[0], own[1]), geometric=True)

    def among(self, count: int) -> Effect:
        """This effect as one of ``count``, with an interval so wide that all hold with 95%.

        This is Bonferroni's correction. It is needed where one effect of several is picked for what
        its interval says, as "some network is better" does.
        """
        if self.seeds < 2:
            return self
        if self.geometric:
            return self._logarithm().among(count).exponential()
        wider = _quantile(self.seeds, count) / _quantile(self.seeds, 1)
        low, high = (
            end if math.isinf(end) else own + wider * (end - own)
            for own, end in zip(self.own, (self.low, self.high), strict=True)
        )
        return replace(self, low=low, high=high)

    def _logarithm(self) -> Effect:
        """The mean of logarithms of which this is the exponential."""
        numbers = np.array([self.value, self.low, self.high, *self.own])
        with np.errstate(divide="ignore"):
            value, low, high, *own = np.log(numbers).tolist()
        return Effect(value, low, high, self.seeds, (own[0], own[1]))


def _exponential(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < _LARGEST_LOG else math.inf


def mean(values: NDArray, *, lows: NDArray | None = None, highs: NDArray | None = None) -> Effect:
    """The mean over seeds with Student's t interval.

    Args:
      values: one for each seed.
      lows: a lower bound on each value, where values are known only up to an interval.
      highs: an upper bound on each value.
    """
    values = np.asarray(values)
    lows = values if lows is None else np.asarray(lows)
    highs = values if highs is None else np.asarray(highs)
    return Effect(
        float(np.mean(values)),
        _end(lows, -1.0),
        _end(highs, 1.0),
        len(values),
        (float(np.mean(lows)), float(np.mean(highs))),
    )


def geometric_mean(values: ArrayLike) -> Effect:
    """The geometric mean over seeds: exp of the mean logarithm, and of its Student's t interval."""
    return mean(np.log(values)).exponential()


def _end(values: NDArray, sign: float) -> float:
    """An end of the interval; where a value is infinite (a logarithm of 0) there is none."""
    if len(values) < 2 or not np.isfinite(values).all():
        return sign * math.inf
    half_width = _quantile(len(values), 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) + sign * half_width)


def _quantile(seeds: int, count: int) -> float:
    """How many standard errors an interval reaches to either side, so that ``count`` hold."""
    return float(scipy.stats.t.ppf(1 - (1 - LEVEL) / (2 * count), seeds - 1))


def ratio(first: DataFrame, second: DataFrame, of: str = "kappa") -> Effect:
    """Geometric mean of ``of`` in the first rows over that in the second, paired by seed.

    A seed with several rows (epochs, depths) counts with their geometric mean. Where the table has
    certified ends, ``kappa_low`` and ``kappa_high``, the interval counts with them: an unresolved
    kappa opens it.
    """
    seeds = np.intersect1d(first["seed"], second["seed"])
    above, below = (_by_seed(rows, seeds, of, np.log) for rows in (first, second))
    logs = mean(
        above[0] - below[0],
        lows=above[1] - below[2],
        highs=above[2] - below[1],
    )
    return logs.exponential()


def average(rows: DataFrame, of: str, *, geometric: bool = True) -> Effect:
    """The mean over seeds of ``of``, geometric or not, with certified ends as :func:`ratio`."""
    seeds = np.unique(rows["seed"])
    value, low, high = _by_seed(rows, seeds, of, np.log if geometric else np.asarray)
    found = mean(value, lows=low, highs=high)
    return found.exponential() if geometric else found


def _by_seed(
    rows: DataFrame, seeds: NDArray, of: str, scale: Callable[[NDArray], NDArray]
) -> tuple[NDArray, NDArray, NDArray]:
    """The mean on a scale of the value, of its lower and of its upper end, for each seed."""
    ends = (of, f"{of}_low", f"{of}_high")
    names = ends if all(name in rows for name in ends) else (of, of, of)
    of_seeds = [where(rows, seed=seed) for seed in seeds]
    with np.errstate(divide="ignore"):
        value, low, high = (
            np.array([scale(each[name].to_numpy()).mean() for each in of_seeds]) for name in names
        )
    return value, low, high


def exponent(rows: DataFrame, over: str, of: str = "kappa") -> Effect:
    """The exponent e in ``of`` ~ over^e: the slope of the logarithms, fitted to each seed.

    Of a sweep of which a part is computed, the seeds count that have more than half of the points,
    two at least.

    Raises:
      NotTestableError: a value of either column has no logarithm, which the text names, or no
        seed has two points.
    """
    _refuse_what_has_no_logarithm(rows, over, of)
    seeds = [each for _, each in rows.groupby("seed")]
    counts = [each[over].nunique() for each in seeds]
    enough = max(2, max(counts, default=0) // 2 + 1)
    fitted = [each for each, count in zip(seeds, counts, strict=True) if count >= enough]
    if not fitted:
        msg = f"no seed has two values of {over}"
        raise NotTestableError(msg)
    slopes = [growth_exponent(each[over].to_numpy(), each[of].to_numpy()) for each in fitted]
    return mean(np.array(slopes))


def _refuse_what_has_no_logarithm(rows: DataFrame, *names: str) -> None:
    """An error that names the first value of these columns that is not positive and finite."""
    for name in names:
        for value in rows[name].to_numpy(float):
            if not 0 < value < math.inf:
                msg = (
                    f"the column {name} has the value {value:g}, and a slope of logarithms needs"
                    " positive, finite values; leave its rows out of the trend"
                )
                raise NotTestableError(msg)


def decide(
    effects: Mapping[str, Effect],
    name: str,
    *,
    above: float | None = None,
    below: float | None = None,
    from_one_seed: bool = False,
    judged: int | None = None,
) -> Verdict:
    """The verdict whether every effect lies above (or below) a number, judged by the intervals.

    It holds where every interval lies on the claimed side. For this each needs 95% of its own: that
    all of them lie there by chance is no more probable than that one does. It fails where one lies
    wholly on the other side; this one is picked among all effects, so that the intervals must hold
    at once (:meth:`Effect.among`, as one of ``judged``, which is the number of effects if nothing
    else is said). Else it is undecided. The number of the verdict is the effect that is worst for
    the claim.

    One seed has no interval over the seeds and decides nothing. With ``from_one_seed``, for a
    sentence that the paper has from one seed, an effect of one seed is judged by what that seed
    gives, ``own``, and the text says so. As another seed would give another number, a ratio that is
    nearer to its limit than a tenth of it is undecided.
    """
    if (above is None) == (below is None):
        msg = "decide needs one of above and below"
        raise ValueError(msg)
    if not effects:
        return not_testable("no rows to compare")
    limit, sign = (above, 1.0) if above is not None else (below, -1.0)
    assert limit is not None
    margin = ONE_SEED_MARGIN * abs(limit) if from_one_seed else None
    count = judged or len(effects)
    narrow, wider = effects, {label: effect.among(count) for label, effect in effects.items()}
    if all(_mirrored(effect, sign, margin)[0] > sign * limit for effect in effects.values()):
        status = HOLDS
    elif any(_mirrored(effect, sign, margin)[1] < sign * limit for effect in wider.values()):
        status, effects = FAILS, wider
    else:
        status, effects = UNDECIDED, wider
    told = {label: f"{effect} {label}".rstrip() for label, effect in effects.items()}
    lead = _lead(name)
    label, worst = min(effects.items(), key=lambda item: sign * item[1].value)
    return Verdict(
        status,
        worst.value,
        f"{lead} {', '.join(told.values())}",
        worst.low,
        worst.high,
        f"{lead} {told[label]}",
        min(effect.seeds for effect in effects.values()),
        limit=limit,
        side="above" if above is not None else "below",
        holds_to=sign * min(_mirrored(effect, sign, margin)[0] for effect in narrow.values()),
        fails_from=sign * min(_mirrored(effect, sign, margin)[1] for effect in wider.values()),
    )


def _lead(name: str) -> str:
    """The name before a number: with a colon, unless the number goes on with its sentence."""
    runs_on = (":", " power", " by", " is")
    return name if name.endswith(runs_on) else f"{name.removesuffix(',')}:"


def _mirrored(effect: Effect, sign: float, margin: float | None) -> tuple[float, float]:
    """The interval that decides, or its mirror image where smaller is better.

    With a ``margin`` one seed decides by what it gives, so much to either side.
    """
    low, high = effect.low, effect.high
    if margin is not None and effect.seeds == 1:
        low, high = effect.own[0] - margin, effect.own[1] + margin
    return (low, high) if sign > 0 else (-high, -low)


def compared(
    first: DataFrame,
    second: DataFrame,
    over: str,
    symbol: str,
    *,
    of: str = "kappa",
) -> dict[str, Effect]:
    """``of`` in the first rows over ``of`` in the second, at each value of ``over`` in both."""
    places = np.intersect1d(first[over], second[over])
    return {
        f"at {symbol}={place}": ratio(
            where(first, **{over: place}), where(second, **{over: place}), of
        )
        for place in places
    }


def trend(
    rows: DataFrame,
    over: str,
    symbol: str,
    *,
    rises: bool,
    of: str = "kappa",
    from_one_seed: bool = False,
) -> Verdict:
    """Whether ``of`` rises, or falls, with ``over``: the sign of the slope of the logarithms.

    The slope is one number for all points. Where a curve is no power of ``over`` it bends, so the
    text has the range of points and the slopes between neighbours, too. What ``from_one_seed`` does
    stands at :func:`decide`. Both columns must be positive, as at :func:`exponent`.
    """
    if rows[over].nunique() < 2:
        return not_testable(f"fewer than 2 values of {symbol}")
    if "resolved" in rows and not rows["resolved"].all():
        return not_testable("a kappa that is not resolved")
    effect = exponent(rows, over, of)
    found = decide(
        {"": effect},
        f"{of} goes like {symbol} to the power",
        above=0.0 if rises else None,
        below=None if rises else 0.0,
        from_one_seed=from_one_seed,
    )
    x, y = geometric_means(rows, over, of)
    local = _local_slopes(symbol, x, y)
    text, short = (f"{told}{local}" for told in (found.text, found.short))
    return replace(found, text=f"{text}: {points(symbol, x, y)}", short=short)


def _local_slopes(symbol: str, x: NDArray, y: NDArray) -> str:
    """From where to where a slope is fitted, and the slopes between neighbouring points."""
    told = f" from {symbol}={x[0]:g} to {x[-1]:g}"
    if len(x) < 3:
        return told
    slopes = np.diff(np.log(y)) / np.diff(np.log(x))
    return f"{told}, {slopes.min():.3g} to {slopes.max():.3g} between neighbours"


def between(effects: Mapping[str, Effect], name: str, low: float, high: float) -> Verdict:
    """The verdict whether every effect lies between two numbers; it is told by the worse side."""
    above, below = decide(effects, name, above=low), decide(effects, name, below=high)
    return above if above.status == FAILS or below.status == HOLDS else below


def extreme(effects: Mapping[str, Effect], *, largest: bool) -> dict[str, Effect]:
    """The effect that is most surely the largest (or smallest), and the interval of the largest.

    Whichever effect is the largest in truth, it is at least the largest lower end and at most the
    largest upper end of intervals that hold at once. So "some effect is larger than 1" is decided
    by it.
    """
    wider = {label: effect.among(len(effects)) for label, effect in effects.items()}
    pick = max if largest else min
    lows, highs = ([getattr(e, end) for e in wider.values()] for end in ("low", "high"))
    surest = "low" if largest else "high"
    label, effect = pick(wider.items(), key=lambda item: getattr(item[1], surest))
    return {label: replace(effect, low=pick(lows), high=pick(highs))}


def crossovers(first: DataFrame, second: DataFrame, over: str, of: str) -> NDArray:
    """The value of ``over`` at which ``of`` in the first rows rises above that in the second.

    There is one value for each seed: nan if the curves do not cross so, the first place if they do
    more than once. Between the points curves are straight lines on log-log axes.
    """
    seeds = np.intersect1d(first["seed"], second["seed"])
    return np.array(
        [_crossover(where(first, seed=s), where(second, seed=s), over, of) for s in seeds]
    )


def _crossover(first: DataFrame, second: DataFrame, over: str, of: str) -> float:
    x, y = geometric_means(first, over, of)
    _, other = geometric_means(second, over, of)
    gap, x = np.log(y / other), np.log(x)
    rises = np.flatnonzero((gap[:-1] <= 0) & (gap[1:] > 0))
    if not rises.size:
        return float("nan")
    i = rises[0]
    share = gap[i] / (gap[i] - gap[i + 1])
    return float(np.exp(x[i] + share * (x[i + 1] - x[i])))
