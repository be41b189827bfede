"""One verdict for each printed sentence, from the verdicts of its readings, and the tallies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sweeps.claims import (
    AS_COMPUTED,
    AS_PRINTED,
    CERTIFIED,
    COLUMNS,
    FAILS,
    HOLDS,
    NOT_TESTABLE,
    OTHER,
    PARTLY,
    SOME,
    STATUSES,
    UNDECIDED,
    Claim,
    Sentence,
    Source,
)

TALLIES = ("printed by paper A", "printed by paper B", "implied by a printed equation", "beyond")
"""What is counted each on its own. The numbers are never added up: they count different things."""

_SAID = {HOLDS: HOLDS, PARTLY: PARTLY, FAILS: FAILS, UNDECIDED: "is undecided"}


@dataclass(frozen=True)
class Judged:
    """A sentence, and each of its readings with the status of that.

    Its verdict is that of its certified readings: the networks, data and steps of the published
    code with its slips mended. A figure that has none is judged as printed, which is where the
    published code adds nothing to the text or does not exist. Readings as computed, or of other
    data or settings, never decide.
    """

    sentence: Sentence
    readings: tuple[tuple[Claim, str], ...]

    @property
    def status(self) -> str:
        return of_readings(self.sentence.rule, [status for _, status in self.deciding])

    @property
    def deciding(self) -> list[tuple[Claim, str]]:
        """The readings that its verdict is made of."""
        return self._deciding({claim.figure for claim, _ in self.readings})

    def _deciding(self, figures: Collection[str]) -> list[tuple[Claim, str]]:
        certified = {claim.figure for claim, _ in self._of(CERTIFIED)}
        return [
            (claim, status)
            for claim, status in (*self._of(CERTIFIED), *self._of(AS_PRINTED))
            if claim.figure in figures
            and (claim.read_as == CERTIFIED or claim.figure not in certified)
        ]

    def _of(self, column: str) -> list[tuple[Claim, str]]:
        return [pair for pair in self.readings if pair[0].read_as == column]

    @property
    def columns(self) -> dict[str, str]:
        """The verdict that the readings of each column give, where there are any."""
        found = {column: [status for _, status in self._of(column)] for column in COLUMNS}
        return {
            c: of_readings(self.sentence.rule, statuses)
            for c, statuses in found.items()
            if statuses
        }

    @property
    def difference(self) -> str:
        """Where the published code's procedure gives another verdict, that as one line, else ""."""
        slips = self._of(AS_COMPUTED)
        computed = of_readings(self.sentence.rule, [status for _, status in slips])
        beside = self._deciding({claim.figure for claim, _ in slips})
        mended = of_readings(self.sentence.rule, [status for _, status in beside])
        if NOT_TESTABLE in (computed, mended) or computed == mended:
            return ""
        how = dict.fromkeys(claim.mended for claim, status in slips if status == computed)
        told = f"{_SAID[computed]} as computed in the published code"
        return f"{told}, {_SAID[mended]} once {' and '.join(how)}"

    @property
    def figures(self) -> str:
        """The panels that the sentence is about, as in "11, 12"."""
        about = [claim.figure for claim, _ in self.readings if claim.read_as != OTHER]
        return ", ".join(dict.fromkeys(about or [claim.figure for claim, _ in self.readings]))

    @property
    def summary(self) -> str:
        """How many of the readings that decide hold, and what becomes of the others.

        Behind it stands the verdict of each of the three columns, where several have readings, and
        why that of the published code's procedure is another.
        """
        columns = [f"{c}: {status}" for c, status in self.columns.items() if c != OTHER]
        listed = ", ".join(columns) if len(columns) > 1 else ""
        return "; ".join(filter(None, (self._counted(), listed, self.difference)))

    def _counted(self) -> str:
        found = [status for _, status in self.deciding]
        if len(found) < 2:
            return "" if found else "no reading has the paper's data and settings"
        named = {
            HOLDS: "hold",
            PARTLY: "hold in part",
            FAILS: "fail",
            UNDECIDED: "undecided",
            NOT_TESTABLE: "not testable",
        }
        held = found.count(HOLDS)
        start = {len(found): "all", 0: "none"}.get(held, f"{held}")
        rest = [f"{found.count(s)} {named[s]}" for s in STATUSES[1:] if s in found]
        return ", ".join([f"{start} of {len(found)} readings hold", *rest])


def judged(readings: Iterable[tuple[Claim, str]]) -> list[Judged]:
    """The sentences that the claims are about, in the order of their first readings.

    Args:
      readings: claims with their statuses; those that are about no sentence are left out.
    """
    by_sentence: dict[Sentence, list[tuple[Claim, str]]] = {}
    for claim, status in readings:
        if isinstance(claim.source, Sentence):
            by_sentence.setdefault(claim.source, []).append((claim, status))
    return [Judged(sentence, tuple(found)) for sentence, found in by_sentence.items()]


def of_readings(rule: str, statuses: Sequence[str]) -> str:
    """The verdict of a sentence.

    Where the rule is ``ALL`` it fails with one reading that fails, and holds if every other does;
    where it is ``SOME`` it holds with one reading that holds, and fails if every other does. A
    reading that cannot be tested decides nothing: with it not all of them hold, nor do all fail.
    """
    if all(status == NOT_TESTABLE for status in statuses):
        return NOT_TESTABLE
    order = (HOLDS, PARTLY) if rule == SOME else (FAILS,)
    for enough in order:
        if enough in statuses:
            return enough
    if UNDECIDED in statuses or NOT_TESTABLE in statuses:
        return UNDECIDED
    return PARTLY if PARTLY in statuses else statuses[0]


def tally_of(source: Source | Sentence) -> str:
    """The tally in which a sentence, or a claim about none, is counted."""
    if isinstance(source, Sentence):
        return f"printed by paper {source.paper}"
    return TALLIES[2] if source.kind == "implied" else TALLIES[3]


def tallies(readings: Sequence[tuple[Claim, str]]) -> dict[str, list[str]]:
    """The statuses in each tally: of sentences where they are printed, else of claims."""
    found: dict[str, list[str]] = {name: [] for name in TALLIES}
    for one in judged(readings):
        found[tally_of(one.sentence)].append(one.status)
    for claim, status in readings:
        if not isinstance(claim.source, Sentence):
            found[tally_of(claim.source)].append(status)
    return found
