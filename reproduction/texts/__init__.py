"""The texts that no run writes: the files beside this one, which a person edits.

Each TOML file has tables of one kind, and each table the fields of one class below, where stands
what they mean. After an edit ``python -m reproduction.findings`` writes the pages again.
"""

from __future__ import annotations

import dataclasses
import importlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

FOLDER = Path(__file__).parent

HOLDS, WRONG, CONDITION, ASSUMED = (
    "holds",
    "wrong as printed",
    "needs a condition",
    "a definition or an assumption",
)
STATUSES = (HOLDS, WRONG, CONDITION, ASSUMED)

KINDS: Mapping[str, str] = {
    WRONG: "Wrong as printed",
    CONDITION: "Needs a condition that the paper does not state",
    "stronger": "Can be strengthened, or has been shown elsewhere",
    "misprint": "Misprints and names, which change no result",
    "contradiction": "Places of a paper that contradict each other",
}
"""The heading of each kind of correction."""


def numbers_in(what: str) -> Iterator[tuple[str, int]]:
    """Each number that a text names, as ("Eq", 6) or ("Lemma", 1) of "Lemma 1, Eqs 6, 7"."""
    kind = ""
    for word in what.replace(",", " ").split():
        if word.isdecimal():
            yield kind, int(word)
        else:
            kind = word.removesuffix("s")


@dataclass(frozen=True)
class Statement:
    """One numbered statement, or several that one test is about.

    Attributes:
      paper: "A" or "B".
      what: its numbers, as in "Lemma 1, Eq 6" or "Eqs 23, 24".
      says: what it states, in a few words.
      status: whether it holds, one of :data:`STATUSES`.
      code: the public name that computes it, below ``gnjax``; a module where several do.
      test: the test by another road, as file::test.
    """

    paper: str
    what: str
    says: str
    status: str
    code: str
    test: str


@dataclass(frozen=True)
class Proof:
    """A statement of our own that the pages rest on, with its proof.

    Attributes:
      title: its name.
      statement: what holds, and under which conditions.
      proof: why, in about ten lines.
      test: the test that measures it, as file::test.
    """

    title: str
    statement: str
    proof: str
    test: str


@dataclass(frozen=True)
class Correction:
    """A printed statement, what holds instead, and the test that shows it.

    Attributes:
      kind: one of :data:`KINDS`.
      paper: "A" or "B".
      where: where it is printed.
      about: the numbered statements whose status it decides, as in "Eqs 3, 28"; "" for none.
      printed: what is printed, in short.
      corrected: what holds instead.
      test: the test that shows it, as file::test; "" where two places contradict each other.
    """

    kind: str
    paper: str
    where: str
    about: str
    printed: str
    corrected: str
    test: str


@dataclass(frozen=True)
class Setting:
    """One setting of a figure.

    Attributes:
      figure: the modules of the figures, separated by blanks, as in "fig02 b1".
      setting: what is set.
      printed: what the paper prints; "" where it says nothing.
      code: what the code that the authors of paper A published has; "" where it says nothing, and
        for paper B, of which no code is at hand.
      ours: what the laptop's profile uses, and the paper's profile where it differs.
      why: the reason of a difference, or of a choice where paper and code say nothing.
    """

    figure: str
    setting: str
    printed: str
    code: str
    ours: str
    why: str


@dataclass(frozen=True)
class Picture:
    """A picture in a notebook of paper A's authors, looked at beside ours.

    Attributes:
      figure: the modules of the figures, separated by blanks.
      notebook: which notebook and cells have it.
      theirs: what it shows.
      differs: in what ours differs, and why.
    """

    figure: str
    notebook: str
    theirs: str
    differs: str


@dataclass(frozen=True)
class Limit:
    """What words that name no number are taken to mean.

    Attributes:
      words: the words, as printed.
      figure: the modules of the figures that they are about, separated by blanks.
      limit: where their claim holds, with {} for each number.
      constants: where these numbers stand in the code that judges, as module.NAME.
    """

    words: str
    figure: str
    limit: str
    constants: tuple[str, ...]

    def told(self) -> str:
        """The limit with the numbers by which claims are judged."""
        parts = (name.rpartition(".") for name in self.constants)
        values = (getattr(importlib.import_module(module), name) for module, _, name in parts)
        return self.limit.format(*(f"{value:g}" for value in values))


@dataclass(frozen=True)
class RankRule:
    """One way to say which eigenvalue is the smallest that is not zero.

    Attributes:
      rule: its name.
      definition: which eigenvalues it counts.
      code: where the published code uses it; "" where it does not.
      ours: where it is used here.
      gives: what comes of it.
    """

    rule: str
    definition: str
    code: str
    ours: str
    gives: str


@dataclass(frozen=True)
class WithoutClaim:
    """A printed sentence of which no table can decide, and why.

    ``figure`` names the modules of figures on whose pages it stands, too; empty for none.
    """

    paper: str
    where: str
    printed: str
    why: str
    figure: str = ""


@dataclass(frozen=True)
class Answer:
    """One of the ten answers on the first screen.

    Attributes:
      claimed: what the paper claims, in a sentence of our own.
      figures: the modules of its figures.
      sentences: the words of the printed sentences that it is made of. The answer is yes where all
        of them hold, no where all fail.
      number: the numbers in words, {1} and so on standing for that of each reading; "" where the
        readings that made the verdicts tell it.
      but: the condition that decides it, as it goes on after the word and a comma; "" for none.
      readings: the names of these readings, as in the records; "NAME @ rate=0.8" is the number
        that a reading's text lists at rate=0.8.
    """

    claimed: str
    figures: tuple[str, ...]
    sentences: tuple[str, ...]
    number: str
    but: str
    readings: tuple[str, ...]


@dataclass(frozen=True)
class Explained:
    """What stands behind the ten answers: why a figure looks as it does.

    Attributes:
      title: the heading.
      found: what was found, first in two sentences, then in paragraphs, with {1} and so on for the
        number of each reading.
      readings: the readings, as those of an answer.
      refuted: which observation would refute it, each with its sign.
      picture: the picture, from FINDINGS.md.
    """

    title: str
    found: tuple[str, ...]
    readings: tuple[str, ...]
    refuted: str
    picture: str


Row = TypeVar("Row")


def theory() -> tuple[Statement, ...]:
    """Every lemma and numbered equation of both papers."""
    return _rows("theory", Statement)


def proofs() -> tuple[Proof, ...]:
    """Statements of our own, with their proofs."""
    return _rows("proofs", Proof)


def corrections() -> tuple[Correction, ...]:
    """What does not hold as printed or says less than is true."""
    return _rows("corrections", Correction)


def settings() -> tuple[Setting, ...]:
    """What is set in each figure: printed, in the published code, and here."""
    return _rows("settings", Setting)


def pictures() -> tuple[Picture, ...]:
    """The pictures in the authors' notebooks beside ours."""
    return _rows("pictures", Picture)


def rank_rules() -> tuple[RankRule, ...]:
    """The rules by which a numerical rank, and with it kappa, is told."""
    return _rows("rank_rules", RankRule)


def limits() -> tuple[Limit, ...]:
    """What words without a number are taken to mean."""
    return _rows("limits", Limit)


def without_claim() -> tuple[WithoutClaim, ...]:
    """Sentences that speak of a figure or a number and have no reading."""
    return _rows("without_claim", WithoutClaim)


def answers() -> tuple[Answer, ...]:
    """The ten answers on the first screen."""
    return _rows("answers", Answer)


def explained() -> tuple[Explained, ...]:
    """What stands behind the ten answers."""
    return _rows("explained", Explained)


@cache
def summary() -> str:
    """The summary in the form of the ML Reproducibility Challenge, a ``string.Template``."""
    return (FOLDER / "summary.md").read_text(encoding="utf-8")


@cache
def report() -> str:
    """The page of a report: its style and its script, a ``string.Template``."""
    return (FOLDER / "report.html").read_text(encoding="utf-8")


@cache
def questioned() -> str:
    """The page of all sentences: its style and its script, a ``string.Template``."""
    return (FOLDER / "questioned.html").read_text(encoding="utf-8")


@cache
def _rows(name: str, kind: type[Row]) -> tuple[Row, ...]:
    return read(FOLDER / f"{name}.toml", kind)


def read(path: Path, kind: type[Row]) -> tuple[Row, ...]:
    """The tables of a file as rows of one kind; of a text the lines are joined."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{path} is no TOML in UTF-8: {error}"
        raise ValueError(msg) from error
    if list(tables) != ["row"]:
        msg = f"{path} has {', '.join(tables) or 'nothing'}; give each row as a table [[row]]"
        raise ValueError(msg)
    return tuple(kind(**_fields(path, i, row, kind)) for i, row in enumerate(tables["row"], 1))


def _fields(path: Path, index: int, row: Mapping[str, Any], kind: type) -> dict[str, Any]:
    lists = {field.name: field.type != "str" for field in dataclasses.fields(kind)}
    needed = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    wrong = [f"no {name}" for name in needed if name not in row]
    wrong += [f"{name}, which no row has" for name in row if name not in lists]
    wrong += [
        f"{name} = {value!r}, no {'list of texts' if lists[name] else 'text'}"
        for name, value in row.items()
        if name in lists and not _is_text(value, lists[name])
    ]
    if wrong:
        msg = f"row {index} of {path} has {'; '.join(wrong)}; its fields are {', '.join(lists)}"
        raise ValueError(msg)
    return {n: tuple(map(_line, t)) if lists[n] else _line(t) for n, t in row.items()}


def _is_text(value: object, many: bool) -> bool:
    texts = value if many and isinstance(value, list) else [value]
    return isinstance(value, list) == many and all(isinstance(text, str) for text in texts)


def _line(text: str) -> str:
    return " ".join(text.split())
