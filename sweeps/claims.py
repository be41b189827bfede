"""What a paper says of a figure, as functions of the saved table: the records and the judging."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pandas import DataFrame

from sweeps import regimes
from sweeps.rows import where

HOLDS, FAILS = "holds", "fails"
PARTLY = "holds in part"  # it says two things, of which one holds and the other fails
UNDECIDED = "undecided"  # the interval over the seeds contains "no effect"
NOT_TESTABLE = "not testable"  # a size that decides is not the paper's
STATUSES = (HOLDS, PARTLY, FAILS, UNDECIDED, NOT_TESTABLE)


@dataclass(frozen=True)
class Source:
    """Where a claim comes from.

    Attributes:
      kind: "implied" by an equation that paper A or B prints, "another paper", or "beyond the
        papers".
      place: the sentence or the equation, as in "Section 4.2, caption of Figure 5".
    """

    kind: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}" if self.place else self.kind


def elsewhere(place: str) -> Source:
    """The source of a claim that another paper than A and B states, at this place."""
    return Source("another paper", place)


def implied(place: str) -> Source:
    """The source of a claim that follows from an equation or a number printed at this place."""
    return Source("implied", place)


BEYOND = Source("beyond the papers")
ALL, SOME = "all", "some"

AS_PRINTED, AS_COMPUTED, CERTIFIED = "as printed", "as computed", "certified"
OTHER = "other data or settings"
COLUMNS = (AS_PRINTED, AS_COMPUTED, CERTIFIED, OTHER)
"""What a reading of a printed sentence takes a figure to be.

AS_PRINTED: the settings that the text states; what it leaves open is filled from the published
code, and only where that is silent too it is a choice of ours.
AS_COMPUTED: the procedure of the published code with one of its slips.
CERTIFIED: the same networks, data and steps with that slip mended, and every kappa an interval.
OTHER: other data than the paper's, or a setting that the published code contradicts. Such a
reading is shown and speaks for itself alone; no verdict of a sentence counts it.
"""


@dataclass(frozen=True)
class Sentence:
    """A sentence that a paper prints about a figure or a number. Claims about it are its readings.

    It has one verdict, which :func:`sweeps.sentences.judged` makes of those of its readings.

    Attributes:
      paper: "A" or "B".
      place: the section, appendix, remark or caption in which it stands.
      words: the words that claim something, in short, as printed.
      ratios: the names of the sizes that decide it (:data:`sweeps.regimes.RATIOS`).
      rule: ``ALL`` where the words are about every reading; ``SOME`` where the text leaves open
        which of them is meant, so that one is enough.
      data: the data sets that it is about, where the images decide; else empty.
      figures: the figures that it is about, as its claims name them, where it is about fewer than
        are read beside it; else empty. Readings in other figures are OTHER.
    """

    paper: str
    place: str
    words: str
    ratios: tuple[str, ...] = ()
    rule: str = ALL
    data: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    kind = "printed"

    def __str__(self) -> str:
        return f'{self.kind}: {self.place}, "{self.words}"'


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in a table, and the number that says so.

    ``low`` and ``high`` enclose the number with 95% over the seeds; they are nan where the number
    is no average over seeds. ``short`` says the number in words, where ``text`` has all of them.
    ``seeds`` is from how many seeds it is, the fewest if it has several parts, and ``data`` names
    the data; :func:`judge` fills in what is missing from the table.

    Where one number decides, ``limit`` is that number and ``side`` says on which side of it the
    claim puts the effects, "above" or "below". Above: with any limit below ``holds_to`` the claim
    would hold, with any above ``fails_from`` it would fail. Below: with any limit above
    ``holds_to`` it would hold, with any below ``fails_from`` it would fail.
    """

    status: str
    number: float
    text: str
    low: float = math.nan
    high: float = math.nan
    short: str = ""
    seeds: int = 0
    data: str = ""
    limit: float = math.nan
    side: str = ""
    holds_to: float = math.nan
    fails_from: float = math.nan


Check = Callable[[DataFrame], Verdict]
"""What judges a claim by the saved table."""


@dataclass(frozen=True)
class Claim:
    """A statement about one figure and its test.

    Attributes:
      figure: the panel, as in "2b".
      statement: what is claimed, no stronger than it is printed.
      source: who says so and where; a :class:`Sentence` where a paper prints it in words.
      check: a function from the saved table to the verdict.
      ratios: the names of the sizes that decide, besides those of its sentence. Where one of them
        is not the paper's, which the config states, the claim cannot be tested. A theorem that
        holds at any size needs none.
      panel: the columns and values that pick the rows whose ratios count; all rows without it.
      mechanism: why it fails where it fails, in a sentence with a number or the name of a test.
      column: what the figure is taken to be, one of :data:`COLUMNS`.
      mended: of a reading AS_COMPUTED, how the slip is mended, so that "once {mended}" can be
        read: "Sigma^(1/2) is the root".
      needs: what would decide it where more seeds or points of the sweep would not.
    """

    figure: str
    statement: str
    source: Source | Sentence
    check: Check
    ratios: tuple[str, ...] = ()
    panel: tuple[tuple[str, object], ...] = ()
    mechanism: str = ""
    column: str = AS_PRINTED
    mended: str = ""
    needs: str = ""

    def __post_init__(self) -> None:
        if self.column not in COLUMNS:
            msg = f"claim {self.statement!r} is read {self.column!r}; give one of {COLUMNS}"
            raise ValueError(msg)
        if (self.column == AS_COMPUTED) != bool(self.mended):
            msg = (
                f"claim {self.statement!r} is read {self.column!r} and mended={self.mended!r};"
                " a reading as computed says how its slip is mended, and no other does"
            )
            raise ValueError(msg)

    @property
    def read_as(self) -> str:
        """Its column; OTHER in a figure that its sentence is not about."""
        about = self.source.figures if isinstance(self.source, Sentence) else ()
        return OTHER if about and self.figure not in about else self.column

    @property
    def said_as(self) -> str:
        """Its column in words: in a figure that its sentence is not about, that of this figure."""
        same = self.read_as == self.column
        return self.column if same else f"{self.column}, of another figure"

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of all sizes that decide: those of the sentence, and those of this reading.

        A reading of other data or settings has none: it speaks for itself alone.
        """
        if self.read_as == OTHER:
            return ()
        said = self.source.ratios if isinstance(self.source, Sentence) else ()
        return (*said, *self.ratios)


def verdict(holds: bool, number: float, text: str) -> Verdict:
    """The verdict on a statement about every row, which needs no average over the seeds."""
    return Verdict(HOLDS if holds else FAILS, float(number), text)


def at_most(limit: float, number: float, text: str) -> Verdict:
    """The verdict on a number that has to be at most a limit, and has no interval over seeds."""
    found = verdict(number <= limit, number, text)
    end = found.number
    return replace(found, limit=limit, side="below", holds_to=end, fails_from=end)


def not_testable(why: str) -> Verdict:
    return Verdict(NOT_TESTABLE, math.nan, why)


class NotTestableError(ValueError):
    """A table in which a check cannot be made, with the reason; :func:`judge` gives the verdict."""


def every(*checks: Callable[[DataFrame], Verdict]) -> Callable[[DataFrame], Verdict]:
    """The check of a statement with several parts, which holds where each of them does."""
    return lambda frame: _worst([part(frame) for part in checks])


def halves(*checks: Callable[[DataFrame], Verdict]) -> Callable[[DataFrame], Verdict]:
    """The check of a statement that says two things: it holds in part where one of them fails."""

    def check(frame: DataFrame) -> Verdict:
        parts = [part(frame) for part in checks]
        found = {part.status for part in parts}
        worst = _worst(parts)
        if not {HOLDS, FAILS} <= found:
            return worst
        text = "; ".join(f"{part.status}: {part.text}" for part in parts)
        firsts = [(part.short or part.text).partition("; ")[0] for part in parts]
        both = zip(parts, firsts, strict=True)
        short = "; ".join(f"{part.status}: {first}" for part, first in both)
        return replace(worst, status=PARTLY, text=text, short=short)

    return check


def _worst(parts: Sequence[Verdict]) -> Verdict:
    """The verdict of the part that is worst for a claim, with the texts of all."""
    worst_first = (FAILS, NOT_TESTABLE, UNDECIDED, PARTLY, HOLDS)
    worst = min(parts, key=lambda part: worst_first.index(part.status))
    seeds = min(part.seeds for part in parts)
    return replace(worst, text="; ".join(part.text for part in parts), seeds=seeds)


def judge(claim: Claim, frame: DataFrame, paper: regimes.Rows) -> Verdict:
    """The verdict of a claim's check, if the table's decisive ratios and data are the paper's.

    A reading of other data or settings is judged by its own numbers. Without a row there is nothing
    to judge, and a check that raises :class:`NotTestableError` has not judged.
    """
    shown = _shown(claim, frame)
    if shown.empty:
        return not_testable(regimes.no_row(claim.panel))
    try:
        found = claim.check(frame)
    except NotTestableError as error:
        return not_testable(str(error))
    if "seed" in shown:
        found = replace(found, seeds=found.seeds or shown["seed"].nunique())
    if "data" in shown:
        found = replace(found, data=found.data or "; ".join(_distinct(shown["data"])))
    if found.status == NOT_TESTABLE or claim.read_as == OTHER:
        return found
    reasons = [_other_data(claim, frame)]
    if claim.gates:
        reasons.append(regimes.outside(frame, claim.figure, claim.gates, claim.panel, paper))
    why = "; ".join(filter(None, reasons))
    return replace(found, status=NOT_TESTABLE, text=f"{why}. Here: {found.text}") if why else found


def _shown(claim: Claim, frame: DataFrame) -> DataFrame:
    """The rows that a claim is about: those of its panel, or of the figure that it names."""
    if claim.panel or "figure" not in frame:
        return where(frame, **dict(claim.panel))
    of_figure = frame[frame["figure"] == claim.figure.removeprefix("B")]
    return frame if of_figure.empty else of_figure


def _distinct(values: Iterable[object]) -> list[str]:
    """The values as texts in their order, each once."""
    return list(dict.fromkeys(map(str, values)))


def _other_data(claim: Claim, frame: DataFrame) -> str:
    """Which data the table has where its sentence is about others, as text, or ""."""
    asked = claim.source.data if isinstance(claim.source, Sentence) else ()
    if not asked:
        return ""
    shown = where(frame, **dict(claim.panel))
    names = _distinct(str(name).partition(",")[0] for name in shown["data"])
    other = [name for name in names if name not in asked]
    return f"the data are {', '.join(other)}, the paper's {' or '.join(asked)}" if other else ""
