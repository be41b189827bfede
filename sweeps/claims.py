"""What a paper says of a figure, as functions of the saved table: the records and the judging."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from sweeps import regimes
from sweeps.table import Columns

HOLDS, FAILS = "holds", "fails"
UNDECIDED = "undecided"  # the interval over the seeds contains "no effect"
NOT_TESTABLE = "not testable"  # a size that decides is not the paper's
STATUSES = (HOLDS, FAILS, UNDECIDED, NOT_TESTABLE)


@dataclass(frozen=True)
class Source:
    """Where a claim comes from.

    Attributes:
      kind: "printed", "implied" by a printed equation, or "beyond the papers".
      place: the sentence or the equation, as in "Section 4.2, caption of Figure 5".
    """

    kind: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}" if self.place else self.kind


def printed(place: str) -> Source:
    """The source of a claim that the paper states in words, at this place."""
    return Source("printed", place)


def implied(place: str) -> Source:
    """The source of a claim that follows from an equation or a number printed at this place."""
    return Source("implied", place)


BEYOND = Source("beyond the papers")


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in a table, and the number that says so.

    ``low`` and ``high`` enclose the number with 95% over the seeds; they are nan where the number
    is no average over seeds, or comes from one seed alone.
    """

    status: str
    number: float
    text: str
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Claim:
    """A statement about one figure and its test.

    Attributes:
      figure: the panel, as in "2b".
      statement: what is claimed, no stronger than it is printed.
      source: who says so and where.
      check: a function from the saved table to the verdict.
      ratios: the names of the sizes that decide (:data:`sweeps.regimes.RATIOS`). Where one of them
        is not the paper's, which the config states, the claim cannot be tested. A theorem that
        holds at any size needs none.
      panel: the columns and values that pick the rows whose ratios count; all rows without it.
      mechanism: why it fails where it fails, in a sentence with a number or the name of a test.
    """

    figure: str
    statement: str
    source: Source
    check: Callable[[Columns], Verdict]
    ratios: tuple[str, ...] = ()
    panel: tuple[tuple[str, object], ...] = ()
    mechanism: str = ""


def verdict(holds: bool, number: float, text: str) -> Verdict:
    """The verdict on a statement about every row, which needs no average over the seeds."""
    return Verdict(HOLDS if holds else FAILS, float(number), text)


def not_testable(why: str) -> Verdict:
    return Verdict(NOT_TESTABLE, math.nan, why)


def judge(claim: Claim, table: Columns, paper: regimes.Rows) -> Verdict:
    """The verdict of a claim's check, if the table's decisive ratios are the paper's."""
    found = claim.check(table)
    if found.status == NOT_TESTABLE or not claim.ratios:
        return found
    why = regimes.outside(table, claim.figure, claim.ratios, claim.panel, paper)
    return replace(found, status=NOT_TESTABLE, text=f"{why}. Here: {found.text}") if why else found
