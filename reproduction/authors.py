"""The numbers of paper A's authors beside ours: the page figures/findings/authors.md.

Theirs stand in ``texts/authors.toml``, each with its place in their code or notebooks; ours are in
the published tables of the paper's sizes.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from reproduction.markdown import escaped, table
from reproduction.published import gallery, table_of
from reproduction.readings import title
from reproduction.texts import FOLDER
from sweeps.rows import where
from sweeps.table import read

READ_OFF = 0.05  # how far a number that was read off a picture may be from the one that is drawn
_LEVEL = 0.95


@dataclass(frozen=True)
class Target:
    """One number of theirs, and where ours is; the fields are explained in the file.

    ``listed`` has several numbers as text, where there is none of ours beside any of them.
    """

    figure: str
    quantity: str
    theirs: float
    place: str
    rows: Mapping[str, Any] = field(default_factory=dict)
    of: str = "kappa"
    draws: int = 1
    read_off: bool = False
    why: str = ""
    reason: str = ""
    note: str = ""
    table: str = ""
    listed: str = ""

    def __post_init__(self) -> None:
        if bool(self.rows) == bool(self.reason):
            msg = f"{self.figure}, {self.quantity}: give rows, or the reason why there are none"
            raise ValueError(msg)


@dataclass(frozen=True)
class Compared:
    """Ours beside one number of theirs: an arithmetic mean over our seeds, and their range."""

    target: Target
    values: NDArray[np.float64]  # of our seeds

    @property
    def quotient(self) -> float:
        return float(self.values.mean() / self.target.theirs)

    @property
    def spread(self) -> float:
        """How far apart networks of one distribution are; of one network nobody knows.

        Logarithms are compared: with s their standard deviation over our n seeds, means of n and of
        N draws differ by less than t s sqrt(1/n + 1/N) with 95%.
        """
        logs = np.log(self.values)
        seeds = len(logs)
        if seeds == 1:
            return math.inf
        quantile = scipy.stats.t.ppf((1 + _LEVEL) / 2, seeds - 1)
        return float(quantile * logs.std(ddof=1) * math.sqrt(1 / seeds + 1 / self.target.draws))

    @property
    def known(self) -> float:
        """How well theirs is known: the digits that are printed, and how a picture can be read."""
        off = READ_OFF if self.target.read_off else 0.0
        return half_unit(self.target.theirs) / self.target.theirs + off

    @property
    def differs(self) -> bool:
        """Whether theirs and ours lie further apart than networks of one distribution do."""
        return abs(math.log(self.quotient)) > self.spread + self.known

    def told(self) -> str:
        """What is to be said of the two numbers."""
        return ". ".join(filter(None, (self._judged(), self.target.note)))

    def _judged(self) -> str:
        if self.differs:
            return f"differs. {self.target.why}".removesuffix(". ")
        if self.spread < math.inf:
            return f"agrees (a factor above {math.exp(self.spread + self.known):.3g} would show)"
        if abs(math.log(self.quotient)) <= self.known:
            return "agrees with what theirs is known to"
        return f"one network of each, so not to be told. {self.target.why}".removesuffix(". ")


def half_unit(number: float) -> float:
    """Half a unit of the last digit with which a number is written."""
    digits, _, exponent = f"{number!r}".lower().removesuffix(".0").partition("e")
    decimals = len(digits.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


@cache
def targets() -> tuple[Target, ...]:
    """Every number of theirs, in the order of the file."""
    return read_targets(FOLDER / "authors.toml")


def read_targets(path: Path) -> tuple[Target, ...]:
    """The tables [[target]] of a file; one with ``over`` is a target for each of its values."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{path} is no TOML in UTF-8: {error}"
        raise ValueError(msg) from error
    names = {one.name for one in dataclasses.fields(Target)}
    targets: list[Target] = []
    for index, one in enumerate(found.get("target", []), 1):
        if wrong := sorted(set(one) - names - {"over"}):
            known = ", ".join(sorted(names))
            msg = f"target {index} of {path} has {', '.join(wrong)}; the fields are {known}"
            raise ValueError(msg)
        joined = {name: _line(value) for name, value in one.items()}
        targets += [Target(**each) for each in _expanded(joined)]
    return tuple(targets)


def _line(value: Any) -> Any:
    """A text with its lines joined; anything else as it is."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _expanded(one: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The target, or one for each value of the column in ``over``, which its words name, too.

    Where there is none of ours, one target lists them all.
    """
    if "over" not in one:
        return [one]
    series = {name: value for name, value in one.items() if name != "over"}
    ((column, values),) = one["over"].items()
    if not isinstance(one["theirs"], list) or len(values) != len(one["theirs"]):
        msg = f"{one['figure']}, {one['quantity']}: give as many of theirs as of {column}"
        raise ValueError(msg)
    if "rows" not in one:
        listed = ", ".join(f"{theirs:.7g}" for theirs in one["theirs"])
        named = _named(one["quantity"], values)
        return [{**series, "quantity": named, "theirs": math.nan, "listed": listed}]
    return [
        {
            **series,
            "quantity": _named(one["quantity"], [value]),
            "theirs": theirs,
            "rows": {**one["rows"], column: value},
        }
        for value, theirs in zip(values, one["theirs"], strict=True)
    ]


def _named(quantity: str, values: Sequence[float]) -> str:
    """The words with the values in place of their one field, as "{:g} epochs" or "{:.0%}"."""

    def listed(field: re.Match[str]) -> str:
        return ", ".join(format(value, field[1]) for value in values)

    return re.sub(r"\{:(.*?)\}", listed, quantity)


def compared(target: Target, folder: Path) -> Compared | None:
    """Ours from the published table; None where the figure was not run, or has no such rows."""
    tables = gallery("paper", folder / "gallery")
    path = tables / f"{target.table}.csv" if target.table else table_of(target.figure, tables)
    if not target.rows or not path.is_file():
        return None
    frame = _read(path, path.stat().st_mtime_ns)
    missing = [name for name in (*target.rows, target.of) if name not in frame]
    if missing:
        return None
    rows = where(frame, **target.rows)
    known = rows[np.isfinite(rows[target.of].astype(float))]
    by_network = known.groupby("seed")[target.of].mean() if "seed" in known else known[target.of]
    values = np.asarray(by_network, float)
    return Compared(target, values) if len(values) else None


@cache
def _read(path: Path, changed: int) -> Any:
    del changed  # a table that was written again is read again
    return read(path)


def page(folder: Path) -> str:
    """The page, from the tables below ``folder``."""
    parts = [
        "# The authors' numbers beside ours",
        "[All findings](../FINDINGS.md)",
        "The numbers that stand in the notebooks of paper A's authors, or can be read off their"
        " pictures, with the mean of ours at the paper's sizes and the range of our seeds."
        " Plotted means drawn in a picture that such a notebook holds; whether the printed picture"
        " is of the same run is not known."
        ' "Differs" means by more than networks of one distribution do: 95% of the differences'
        " between a mean of our seeds and one of their draws are smaller, the digits that are"
        f" printed and {READ_OFF:.0%} for what was read off a picture added. A row that agrees says"
        " how large a difference our seeds could have shown: theirs and ours would have to be"
        " further apart than that factor. Each row is judged by itself: where several rows agree,"
        " all of theirs may still lie to one side of ours. Of one network here nobody knows how far"
        " another one would be, and the quotient is all that can be said. No verdict rests on these"
        " numbers.",
        *_sections(folder),
    ]
    return "\n\n".join(parts) + "\n"


def _sections(folder: Path) -> Iterator[str]:
    for figure in dict.fromkeys(target.figure for target in targets()):
        of_figure = [target for target in targets() if target.figure == figure]
        yield f"## [{title(figure)}]({figure}.md)"
        heads = ("quantity", "theirs", "ours", "ours / theirs", "", "where theirs stands")
        yield table(heads, [_row(target, folder) for target in of_figure])


def _row(target: Target, folder: Path) -> tuple[str, ...]:
    theirs = target.listed or f"{target.theirs:.7g}"
    theirs += f" (mean of {target.draws})" if target.draws > 1 else ""
    theirs += ", read off" if target.read_off else ""
    found = compared(target, folder)
    if found is None:
        ours, quotient, told = "", "", target.reason or "not computed"
    else:
        ours, quotient = _ours(found.values), f"{found.quotient:.3g}"
        told = found.told()
    return tuple(map(escaped, (target.quantity, theirs, ours, quotient, told, target.place)))


def _ours(values: NDArray[np.float64]) -> str:
    mean = f"{values.mean():.4g}"
    if len(values) == 1 or values.min() == values.max():
        return mean
    return f"{mean} ({values.min():.4g} to {values.max():.4g}, {len(values)} seeds)"
