"""Answers of the library beside the truth: one row each, and what they say together."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import flint
import numpy as np
import scipy.stats

from tests.held_out.many_digits import FACTOR_DIGITS, Truth

ANSWER, REFUSED, FAILED = "answer", "refused", "failed"
ASSUMED = ("gap", "floor")  # sources of a rank that an unresolved answer may be stated for
_UNDERFLOW = 1e-300  # below it a product of floats may be zero


@dataclass(frozen=True)
class Row:
    """One answer beside the truth.

    Attributes:
      campaign: "matrices", "networks" or "chances".
      case_class: what kind of matrix or network it is.
      draw: the seed and the number of the case, from which it is drawn again.
      what: the quantity, and ``method`` how it was asked for.
      outcome: "answer", "refused" (a ValueError) or "failed" (any other exception).
      inside: whether the interval holds the truth; None where the reference cannot tell.
      kind: of the certificate; where there is none, "probable" for a confidence below 1.
      failure: the stated probability that the interval misses.
      relative_width: of the interval over the value; over the norm for a spectrum.
    """

    campaign: str
    case_class: str
    draw: str
    what: str
    method: str
    outcome: str = ANSWER
    lower: float = math.nan
    upper: float = math.nan
    truth: str = ""
    inside: bool | None = None
    kind: str = ""
    failure: float = 0.0
    resolved: bool | None = None
    relative_width: float = math.nan
    rank: int = -1
    true_rank: int = -1
    source: str = ""
    used: str = ""  # the method that the library took
    note: str = ""

    @property
    def missed(self) -> bool:
        return self.outcome == FAILED or self.inside is False


Judge = Callable[[Row, Any], Row]


def asked(row: Row, question: Callable[[], Any], judge: Judge) -> Row:
    """Ask, and judge the answer; refusals and failures are rows too."""
    try:
        answer = question()
    except ValueError as refusal:
        return replace(row, outcome=REFUSED, note=str(refusal)[:160])
    except Exception as failure:  # noqa: BLE001  whatever comes is what the campaign looks for
        return replace(row, outcome=FAILED, note=f"{type(failure).__name__}: {failure}"[:160])
    return judge(row, answer)


def spectrum_judge(truth: list[flint.arb], which: str = "all", slack: float = _UNDERFLOW) -> Judge:
    """Every true eigenvalue, in order, lies within the stated error of its value, but for slack."""

    def judge(row: Row, answer: Any) -> Row:
        values, errors = np.asarray(answer.values, float), np.asarray(answer.errors, float)
        if which == "all" and len(values) != len(truth):
            return replace(row, inside=False, note=f"{len(values)} values of {len(truth)}")
        wanted = truth[: len(values)] if which != "smallest" else truth[len(truth) - len(values) :]
        if np.isnan(values).any() or np.isnan(errors).any():
            return replace(row, inside=False, note="nan")
        inside, worst, excess = _all_inside(values, errors, wanted, slack)
        norm = max(float(abs(v)) for v in truth)
        kind, failure = _evidence(answer)
        return replace(
            row,
            lower=float(values[worst] - errors[worst]),
            upper=float(values[worst] + errors[worst]),
            truth=wanted[worst].str(25, radius=False),
            inside=inside,
            kind=kind,
            failure=failure,
            resolved=bool(np.isfinite(errors).all()),
            relative_width=2 * float(np.median(errors)) / norm if norm > 0 else math.nan,
            used=answer.method,
            note=f"error / bound {excess:.3g}" if not inside else "",
        )

    return judge


def _all_inside(
    values: np.ndarray, errors: np.ndarray, truth: list[flint.arb], slack: float
) -> tuple[bool, int, float]:
    """Whether all are inside, the worst of them, and its error over its bound."""
    inside, worst, excess = True, 0, -math.inf
    with flint.ctx.workdps(FACTOR_DIGITS):
        for i, true in enumerate(truth):
            apart = abs(flint.arb(float(values[i])) - true)
            allowed = flint.arb(float(errors[i])) + slack
            inside = inside and bool(apart <= allowed)
            share = float(apart / allowed) if allowed > 0 else math.inf * bool(apart > 0)
            if share > excess:
                worst, excess = i, share
    return inside, worst, excess


Parts = Callable[[Any], tuple[np.ndarray, np.ndarray]]


def within_judge(exact: np.ndarray | None, parts: Parts, stated: float = 0.0) -> Judge:
    """Every exact number lies within the stated error of its value; so does a column as a whole.

    ``parts`` takes the values and their errors from an answer; values (n, b) have an error for each
    column, in the 2-norm. ``stated`` is the chance at which the answer may lie beside the truth. No
    answer is right where ``exact`` is None.
    """

    def judge(row: Row, answer: Any) -> Row:
        kind, failure = _evidence(answer)
        row = replace(row, kind=kind, failure=failure + stated)
        if exact is None:
            return replace(row, inside=False, note="an answer where there is none")
        values, errors = (np.asarray(part, float) for part in parts(answer))
        if np.isnan(values).any() or np.isnan(errors).any() or values.shape != exact.shape:
            return replace(row, inside=False, note=f"nan, or shape {values.shape}")
        far = _distances(values, exact)
        with flint.ctx.workdps(FACTOR_DIGITS):
            shares = [
                float(apart / (flint.arb(float(error)) + _UNDERFLOW))
                for apart, error in zip(far, errors, strict=True)
            ]
        worst = int(np.argmax(shares))
        sizes = np.linalg.norm(values, axis=0) if values.ndim == 2 else np.abs(values)
        known = bool(np.isfinite(errors).all())
        width = 2 * float(np.median(errors / sizes)) if sizes.all() and known else math.nan
        return replace(
            row,
            lower=-float(errors[worst]),
            upper=float(errors[worst]),
            truth=far[worst].str(10, radius=False),  # the distance of the value from the exact one
            inside=max(shares) <= 1,
            resolved=known,
            relative_width=width,
            used=getattr(answer, "method", ""),
            note="" if max(shares) <= 1 else f"error / bound {max(shares):.3g}",
        )

    return judge


def _distances(values: np.ndarray, exact: np.ndarray) -> list[flint.arb]:
    """|v - v*| of all numbers, or the 2-norm of it for each column."""
    with flint.ctx.workdps(FACTOR_DIGITS):
        apart = np.empty(values.shape, dtype=object)
        for place in np.ndindex(values.shape):
            apart[place] = (flint.arb(float(values[place])) - exact[place]).mid()
        if values.ndim == 1:
            return [abs(each) for each in apart]
        return [sum((e * e for e in column), flint.arb(0)).sqrt().mid() for column in apart.T]


def kappa_judge(truth: Truth, given: int | None = None) -> Judge:
    """The interval holds lambda_max / lambda_rank at the exact rank, or at the rank given.

    An answer that is not resolved and stands for an assumed rank may hold kappa at that rank
    instead. Where the reference cannot exclude hidden eigenvalues its kappa is a lower bound.
    """

    def judge(row: Row, answer: Any) -> Row:
        low, high = answer.interval
        kind, failure = _evidence(answer)
        true = truth.kappa(given)
        row = replace(
            row,
            lower=float(low),
            upper=float(high),
            truth="" if true is None else true.str(25, radius=False),
            kind=kind,
            failure=failure,
            resolved=bool(answer.resolved),
            relative_width=(high - low) / answer.value if answer.resolved else math.nan,
            rank=int(answer.rank),
            true_rank=truth.rank,
            source=answer.rank_source,
            used=answer.method,
        )
        return replace(row, inside=_kappa_inside(answer, truth, true))

    return judge


def _kappa_inside(answer: Any, truth: Truth, true: flint.arb | None) -> bool | None:
    low, high = answer.interval
    if true is None:  # the zero matrix, which has no condition number
        return not answer.resolved
    if math.isnan(low) or math.isnan(high):  # nothing could be told from zero, and nothing is said
        return not answer.resolved
    if answer.resolved and not low <= answer.value <= high:
        return False
    if not answer.resolved and answer.rank_source in ASSUMED and 1 <= answer.rank < truth.rank:
        stated = truth.kappa(answer.rank)
        if stated is not None and _between(low, stated, high):
            return True
    if truth.hidden and true > high:
        return False
    if truth.hidden and math.isfinite(high):
        return None
    return _between(low, true, high)


def _between(low: float, true: flint.arb, high: float) -> bool:
    above = math.isinf(high) or bool(true <= flint.arb(high))
    return above and (not true.is_finite() or bool(flint.arb(low) <= true))


def _evidence(answer: Any) -> tuple[str, float]:
    """The kind of the certificate and its chance of failure, of a new answer or of an old one."""
    certificate = getattr(answer, "certificate", None)
    kind = getattr(certificate, "kind", None)
    if kind is not None:
        return kind, float(certificate.failure)
    confidence = getattr(answer, "confidence", 1.0)
    return ("probable", 1.0 - confidence) if confidence < 1 else ("proved", 0.0)


@dataclass(frozen=True)
class Count:
    """What the rows of one class say together."""

    campaign: str
    case_class: str
    what: str
    answers: int
    violations: int
    failed: int
    refused: int
    undecided: int
    resolved: int
    median_width: float


def summary(rows: Iterable[Row], key: Callable[[Row], str] = lambda row: row.what) -> list[Count]:
    """Counts by class and quantity (or what ``key`` says of a row)."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.campaign, row.case_class, key(row)].append(row)
    return [Count(*names, *_counts(group)) for names, group in sorted(groups.items())]


def _counts(group: list[Row]) -> tuple[int, int, int, int, int, int, float]:
    widths = [row.relative_width for row in group if row.resolved and row.relative_width >= 0]
    return (
        sum(row.outcome == ANSWER for row in group),
        sum(row.inside is False for row in group),
        sum(row.outcome == FAILED for row in group),
        sum(row.outcome == REFUSED for row in group),
        sum(row.outcome == ANSWER and row.inside is None for row in group),
        sum(bool(row.resolved) for row in group),
        float(np.median(widths)) if widths else math.nan,
    )


def broken(rows: Iterable[Row]) -> list[Row]:
    """Answers that the rules forbid, whatever the class.

    Nothing may fail, and no answer that states no chance may lie beside the truth, be it proved,
    measured or unknown. Answers that state one may, as often as they state: all of them come back
    where those of a campaign about one quantity do so more often than the stated chances allow but
    once in a million times.
    """
    certain, random = [], defaultdict(list)
    for row in rows:
        if row.inside is not None and row.failure > 0:
            random[row.campaign, row.what].append(row)
        elif row.missed:
            certain.append(row)
    return certain + [row for group in random.values() for row in _too_often(group)]


def _too_often(rows: list[Row]) -> list[Row]:
    """The rows that lie beside the truth, where these are more than the stated chances allow."""
    misses = [row for row in rows if row.inside is False]
    allowed = scipy.stats.poisson.ppf(1 - 1e-6, sum(row.failure for row in rows))
    return misses if len(misses) > allowed else []


def write(rows: Iterable[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def compared_widths(before: Path, after: Path) -> dict[str, tuple[int, float]]:
    """Width after over width before of the same question: (pairs, median) by class and quantity.

    Only answers that are resolved, and inside, in both tables are compared.
    """
    old, new = _widths(before), _widths(after)
    ratios = defaultdict(list)
    for question in old.keys() & new.keys():
        campaign, case_class, _, what, method = question
        if old[question] > 0:
            ratio = new[question] / old[question]
            for name in (f"{campaign} / {case_class} / {what}", f"all / {what} / {method}"):
                ratios[name].append(ratio)
    return {name: (len(each), float(np.median(each))) for name, each in sorted(ratios.items())}


def _widths(path: Path) -> dict[tuple[str, ...], float]:
    names = ("campaign", "case_class", "draw", "what", "method")
    with path.open(newline="") as file:
        return {
            tuple(row[name] for name in names): float(row["relative_width"])
            for row in csv.DictReader(file)
            if row["resolved"] == row["inside"] == "True"
        }
