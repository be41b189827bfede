"""Claims that compare numbers of a saved table with a limit, written as values, and their judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import HOLDS, NotTestableError, Verdict, not_testable, verdict
from sweeps.effects import Effect
from sweeps.rows import where

Prepare = Callable[[DataFrame], DataFrame]
"""What is done to rows before they are compared: some of them are picked, a column is computed."""

AT = {
    "depth": "at L={depth}",
    "width": "at m={width}",
    "pruned": "at rate={pruned:g}",
    "rate": "at rate {rate:g}",
}
"""How the value of a column is told."""


@dataclass(frozen=True, eq=False)
class Compare:
    """A check of a claim: a number lies above a limit, or below it, at every place.

    Say that a LayerNorm lowers kappa of a network at every depth:

        Compare(
            "kappa",
            {"network": "pre"},
            over={"network": "none"},
            each="depth",
            name="kappa of pre over that of none",
            below=1.0,
        )

    The number is a ratio where ``over`` is given, an exponent where ``along`` is given, and a mean
    over the seeds where neither is. The rows are picked by values of their columns, as
    :func:`sweeps.rows.where` picks them. :func:`judged` says what it is in a table.

    Attributes:
      of: the column, or a function from the rows of one seed to a number.
      rows: which rows count, by the values of their columns; all of them without it.
      name: what the number is, as it is told before it.
      over: the ratio is of ``of`` in these rows over ``of`` in the rows that have these values
        instead, paired by seed (:func:`sweeps.effects.ratio`).
      along: the number is e in of ~ along^e, fitted to each seed (:func:`sweeps.effects.exponent`).
        Where this column has a single value there is no number.
      geometric: whether a mean, which neither has, is that of logarithms.
      each: the column of which each value is a place with a number of its own; or columns with the
        values that count: while the table lacks one of them the claim can fail and cannot hold.
      at: how such a place is told: a text with the columns in braces, or a function of them.
        Without it as :data:`AT` tells the column, else as "at share=0.1".
      above: the limit below every number; with ``below``, too, every number lies between them.
      below: the limit above every number.
      from_one_seed: whether one seed can decide (:func:`sweeps.effects.decide`), or a function of
        the rows that says so.
      prepare: what is done to the rows before they are compared, where the values of columns do not
        say it: a function that picks some of them or computes a column.
      missing: why nothing can be said of a table without such rows.
      beside: what else is told behind the numbers, a function of the rows that are compared.
    """

    of: str | Callable[[DataFrame], float]
    rows: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    name: str
    over: Mapping[str, Any] = field(default_factory=dict)
    along: str = ""
    geometric: bool = True
    each: str | Mapping[str, Iterable[Any]] = ""
    at: str | Callable[..., str] | None = None
    above: float | None = None
    below: float | None = None
    from_one_seed: bool | Callable[[DataFrame], bool] = False
    prepare: Prepare | None = None
    missing: str = "no rows to compare"
    beside: Callable[[DataFrame], str] | None = None

    def __post_init__(self) -> None:
        if self.over and self.along:
            msg = f"{self.name!r} is a ratio or an exponent; give one of over and along"
            raise ValueError(msg)
        if self.along and not isinstance(self.of, str):
            msg = f"{self.name!r} is an exponent, which is that of a column; give its name"
            raise ValueError(msg)
        if self.above is None and self.below is None:
            msg = f"{self.name!r} has no limit; give above, below or both"
            raise ValueError(msg)
        if self.above is not None and self.below is not None and self.from_one_seed:
            msg = f"{self.name!r} lies between two limits, which one seed does not decide"
            raise ValueError(msg)

    def __call__(self, frame: DataFrame) -> Verdict:
        return judged(self, frame)


def judged(asked: Compare, frame: DataFrame) -> Verdict:
    """Whether the numbers are on the claimed side in this table, with the numbers in words."""
    shared = {name: value for name, value in asked.rows.items() if name not in asked.over}
    rows = where(frame, **shared)
    try:
        rows = asked.prepare(rows) if asked.prepare else rows
    except NotTestableError as error:
        return not_testable(str(error))
    sides = [(_told(asked, place), *both) for place, *both in _sides(asked, rows)]
    found = {at: _number(asked, *both) for at, *both in sides if _comparable(asked, *both)}
    if not found:
        return not_testable(asked.missing)
    decided = _on_its_side(asked, found, rows)
    if asked.beside is not None:
        decided = replace(decided, text=f"{decided.text}{asked.beside(rows)}")
    lacking = [] if isinstance(asked.each, str) else [at for at, *_ in sides if at not in found]
    if decided.status == HOLDS and lacking:
        return not_testable(f"{asked.missing}: {', '.join(lacking)}; {decided.text}")
    return decided


def _on_its_side(asked: Compare, found: Mapping[str, Effect], rows: DataFrame) -> Verdict:
    name, above, below, alone = asked.name, asked.above, asked.below, asked.from_one_seed
    if above is not None and below is not None:
        return effects.between(found, name, above, below)
    alone = alone(rows) if callable(alone) else alone
    return effects.decide(found, name, above=above, below=below, from_one_seed=alone)


def _sides(
    asked: Compare, rows: DataFrame
) -> Iterator[tuple[dict[str, Any], DataFrame, DataFrame]]:
    """Each place, with its rows and those that they are put over."""
    own = {name: value for name, value in asked.rows.items() if name in asked.over}
    for place in _places(asked, rows):
        if not asked.over or not asked.over.items() <= place.items():
            yield place, where(rows, **{**own, **place}), where(rows, **{**place, **asked.over})


def _comparable(asked: Compare, first: DataFrame, second: DataFrame) -> bool:
    """Whether there is a number: rows, two points of an exponent, a seed of both sides."""
    if asked.along:
        return first[asked.along].nunique() > 1
    return bool(set(first["seed"]) & set(second["seed"]))


def _told(asked: Compare, place: Mapping[str, Any]) -> str:
    at = asked.at
    if at is None:
        at = ", ".join(AT.get(name, f"at {name}={{{name}}}") for name in place)
    return at.format(**place) if isinstance(at, str) else at(**place)


def _places(asked: Compare, rows: DataFrame) -> Iterator[dict[str, Any]]:
    """The values of the columns at each place: those that are listed, or all that there are."""
    if isinstance(asked.each, str):
        names = [asked.each] if asked.each else []
        values: list[Iterable[Any]] = [sorted(rows[name].unique()) for name in names]
    else:
        names, values = list(asked.each), list(asked.each.values())
    for place in product(*values):
        yield dict(zip(names, place, strict=True))


def _number(asked: Compare, first: DataFrame, second: DataFrame) -> Effect:
    of = asked.of
    if not isinstance(of, str):
        first, second = (_of_seeds(rows, of) for rows in (first, second))
        of = "number"
    if asked.along:
        return effects.exponent(first, asked.along, of)
    if asked.over:
        return effects.ratio(first, second, of)
    return effects.average(first, of, geometric=asked.geometric)


def _of_seeds(rows: DataFrame, of: Callable[[DataFrame], float]) -> DataFrame:
    """The number of each seed, one in a row."""
    numbers = [{"seed": seed, "number": float(of(one))} for seed, one in rows.groupby("seed")]
    return DataFrame(numbers)


@dataclass(frozen=True, eq=False)
class Trend:
    """A check of a claim: ``of`` rises, or falls, along a column (:func:`sweeps.effects.trend`).

    Attributes:
      of: the column.
      along: the column along which it does, which is told as ``symbol``.
      symbol: as in "m" for the column "width".
      rises: whether it rises.
      rows: which rows count, by the values of their columns; all of them without it.
      prepare: what is done to these rows first, as of :class:`Compare`.
      from_one_seed: whether one seed can decide (:func:`sweeps.effects.decide`).
      missing: why nothing can be said where the column has fewer than two values.
    """

    of: str
    along: str
    symbol: str
    _: KW_ONLY
    rises: bool
    rows: Mapping[str, Any] = field(default_factory=dict)
    prepare: Prepare | None = None
    from_one_seed: bool = False
    missing: str = ""

    def __call__(self, frame: DataFrame) -> Verdict:
        rows = where(frame, **self.rows)
        rows = self.prepare(rows) if self.prepare else rows
        if self.missing and rows[self.along].nunique() < 2:
            return not_testable(self.missing)
        return effects.trend(
            rows,
            self.along,
            self.symbol,
            rises=self.rises,
            of=self.of,
            from_one_seed=self.from_one_seed,
        )


@dataclass(frozen=True, eq=False)
class Bounded:
    """A check of a claim: kappa_low <= first bound <= next bound in every row that has a bound.

    Attributes:
      rows: which rows count, by the values of their columns; all of them without it.
      bounds: the columns of the bounds, the smallest first.
      theorem: whose bounds they are.
    """

    rows: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    bounds: Sequence[str] = ("bound_convex", "bound_maximum")
    theorem: str = "the bound"

    def __call__(self, frame: DataFrame) -> Verdict:
        rows = where(frame, **self.rows, bound_applicable=True)
        if rows.empty:
            return not_testable(f"no cell where {self.theorem} applies")
        ends = {name: rows[name].to_numpy() for name in (*self.bounds, "kappa_low")}
        unknown = [name for name, end in ends.items() if np.isnan(end).any()]
        if unknown:
            return not_testable(f"a cell without a number for {', '.join(unknown)}")
        ratios = ends[self.bounds[0]] / ends["kappa_low"]
        ordered = all((ends[b] >= ends[a]).all() for a, b in pairwise(self.bounds))
        text = f"smallest bound / kappa {ratios.min():.4f} over {len(ratios)} cells"
        return verdict(bool(ratios.min() >= 1 and ordered), ratios.min(), text)
