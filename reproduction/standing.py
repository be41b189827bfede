"""What became of a printed sentence over all profiles, and the ten answers made of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from reproduction import texts
from reproduction.markdown import escaped
from reproduction.readings import figure_of, name
from reproduction.sides import FROM_SCREEN, Links, Side, linked, plain
from sweeps import sentences
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, OTHER, PARTLY, UNDECIDED, Claim, Sentence

YES, NO, DEPENDS, MOSTLY, OPEN = "Yes", "No", "It depends", "Mostly undecided", "Not decided"
_DECIDED = (HOLDS, PARTLY, FAILS)
AT = " @ "  # between a reading and the place in its list of numbers


@dataclass(frozen=True)
class Standing:
    """A sentence at the profile whose verdict counts: the paper's where it can be tested there.

    Attributes:
      sentence: the sentence.
      sides: each profile in which a reading of it was run, the smaller first.
      judged: the sentence in each of these profiles.
    """

    sentence: Sentence
    sides: tuple[Side, ...]
    judged: tuple[sentences.Judged, ...]

    @cached_property
    def _index(self) -> int:
        tested = [i for i, one in enumerate(self.judged) if one.status != NOT_TESTABLE]
        return tested[-1] if tested else len(self.judged) - 1

    @property
    def side(self) -> Side:
        return self.sides[self._index]

    @property
    def one(self) -> sentences.Judged:
        return self.judged[self._index]

    @property
    def status(self) -> str:
        return self.one.status

    def linked(self, links: Links) -> str:
        """The figures that it is about, each a link to its page."""
        about = [claim for claim, _ in self.one.readings if claim.read_as != OTHER]
        claims = about or [claim for claim, _ in self.one.readings]
        figures = dict.fromkeys(map(figure_of, claims))
        return ", ".join(linked(figure, links) for figure in figures)

    @property
    def telling(self) -> list[Claim]:
        """The readings that made the verdict: those with its status, else those that decide."""
        found = [claim for claim, status in self.one.deciding if status == self.status]
        return found or [claim for claim, _ in self.one.deciding]

    def entry(self, claim: Claim) -> Mapping[str, str]:
        return self.side.recorded[name(claim)]

    def effect(self) -> str:
        """The number behind the verdict in words, that of the first reading that made it."""
        return plain(self.entry(self.telling[0])["short"]) if self.telling else ""

    def grounds(self) -> str:
        """The data and the seeds of the readings that made the verdict."""
        return grounds(self.side, self.telling)

    def elsewhere(self) -> str:
        """What another profile says where it says otherwise, as text, else ""."""
        other = [
            f"{one.status} at the {side.profile}'s sizes"
            for side, one in zip(self.sides, self.judged, strict=True)
            if side is not self.side and one.status in _DECIDED and one.status != self.status
        ]
        return "; ".join(other)

    def against(self) -> list[str]:
        """The readings that decide and fail, where others are enough for a sentence to hold."""
        return [claim.statement for claim, status in self.one.deciding if status == FAILS]

    def under(self) -> list[str]:
        """The readings under which a sentence holds that fails, in the figures it is about."""
        about = self.sentence.figures
        held = [
            claim
            for claim, status in self.one.readings
            if status == HOLDS and (not about or claim.figure in about)
        ]
        return [f"{claim.statement} ({claim.said_as})" for claim in held]

    def reasons(self) -> list[str]:
        """Why it was not decided, each reason once: what each reading that is open says."""
        left = [claim for claim, status in self.one.deciding if status not in _DECIDED]
        return list(dict.fromkeys(map(self._reason, left)))

    def _reason(self, claim: Claim) -> str:
        entry = self.entry(claim)
        if entry["status"] == UNDECIDED and entry["seeds"] == "1":
            return f"one start has no interval over the starts: {plain(entry['short'])}"
        if entry["status"] == UNDECIDED and "(" not in entry["value"]:
            return f"too few points to decide it: {plain(entry['short'])}"
        if entry["status"] == UNDECIDED:
            return f"its interval reaches over the value that decides: {plain(entry['short'])}"
        return f"{claim.statement}: {plain(entry['number'].partition('. Here: ')[0])}"

    def takes(self) -> list[str]:
        """What it would take to decide it: what each reading that is open needs, and in which
        figures, where they are not all that are open.
        """
        figures: dict[str, list[str]] = {}
        for claim, status in self.one.deciding:
            if status not in _DECIDED:
                open_still = status == UNDECIDED and claim.needs
                what = open_still or taken(self.entry(claim))
                figures.setdefault(what, []).append(claim.figure)
        if len(figures) == 1:
            return list(figures)
        return [
            f"{what} ({'Figure' if len(set(of)) == 1 and ',' not in of[0] else 'Figures'}"
            f" {', '.join(dict.fromkeys(of))})"
            for what, of in figures.items()
        ]


def taken(entry: Mapping[str, str]) -> str:
    """What would decide a reading that is undecided or not testable."""
    if entry["status"] == UNDECIDED and "(" not in entry["value"]:
        return "more points of the same sweep"
    if entry["status"] == UNDECIDED:
        return f"more seeds than {entry['seeds']}"
    number = entry["number"]
    data = re.search(r"the data are .*?, the paper's ([^.;]*)", number)
    if data:
        return f"the same runs on {plain(data[1])}"
    return "the paper's sizes" if "where the paper has" in number else "a run of these networks"


def grounds(side: Side, claims: Sequence[Claim]) -> str:
    """The data and the seeds of these readings, and whether the sizes are reduced."""
    entries = [side.recorded[name(claim)] for claim in claims]
    images = dict.fromkeys(plain(e["images"]) for e in entries if e.get("images"))
    counts = sorted({int(e["seeds"]) for e in entries if int(e.get("seeds", 0))})
    several = f"{counts[0]} to {counts[-1]}" if len(set(counts)) > 1 else "".join(map(str, counts))
    parts = ["; ".join(images)]
    parts += [f"{several} {'seed' if several == '1' else 'seeds'}"] if counts else []
    parts += [f"the {side.profile}'s sizes"] if side.profile != "paper" else []
    return "; ".join(filter(None, parts))


def standings(sides: Sequence[Side]) -> dict[Sentence, Standing]:
    """Every printed sentence of which a reading was run, in the papers' order."""
    known = [side.judged() for side in sides]
    claims = sides[0].claims if sides else ()
    found = {}
    for one in sentences.judged((claim, "") for claim in claims):
        pairs = [(side, j[one.sentence]) for side, j in zip(sides, known, strict=True)
                 if one.sentence in j]  # fmt: skip
        if pairs:
            found[one.sentence] = Standing(one.sentence, *map(tuple, zip(*pairs, strict=True)))
    return found


def answers(sides: Sequence[Side], links: Links = FROM_SCREEN, *, numbers: bool) -> list[str]:
    """The answers as lines of Markdown, with or without the numbers behind them."""
    by_words = {sentence.words: found for sentence, found in standings(sides).items()}
    lines = []
    for row in texts.answers():
        found = [by_words[words] for words in row.sentences if words in by_words]
        told = _told(row, found, sides) if found and numbers else ""
        line = _answer(row, found, links) + _apart(found)
        line += f", {escaped(row.but)}" if row.but and found else ""
        lines.append(line + (f": {told}" if told else "."))
    return lines


def _apart(found: Sequence[Standing]) -> str:
    """How many sentences of an answer hold, fail and so on, where they do not do the same."""
    counts = Counter(one.status for one in found)
    told = ", ".join(f"{status} {number}" for status, number in counts.items())
    return f" (of its {len(found)} printed sentences: {told})" if len(counts) > 1 else ""


def _answer(row: texts.Answer, found: Sequence[Standing], links: Links) -> str:
    """The claim, the pages of its figures, and the answer in a word or two."""
    figures = ", ".join(linked(figure, links) for figure in row.figures)
    word = said([one.status for one in found]) if found else "Not run"
    return f"{escaped(row.claimed.removesuffix('.'))} ({figures}). **{word}**"


def _differences(found: Sequence[Standing]) -> str:
    """What the published code's procedure gives otherwise, of which sentence if not of all."""
    told = {one.one.difference: one.sentence.words for one in found if one.one.difference}
    if len(told) == 1 and all(one.one.difference for one in found):
        return "".join(f"It {difference}." for difference in told)
    return " ".join(f'"{words}" {difference}.' for difference, words in told.items())


def said(statuses: Sequence[str]) -> str:
    """A word for several sentences: yes or no where all agree, open where none is decided.

    Where more than half of them are open it says so, as "it depends" would sound decided.
    """
    decided = {status for status in statuses if status in _DECIDED}
    if not decided:
        return OPEN
    if 2 * sum(status not in _DECIDED for status in statuses) > len(statuses):
        return MOSTLY
    if len(decided) > 1 or decided == {PARTLY} or UNDECIDED in statuses or NOT_TESTABLE in statuses:
        return DEPENDS
    return YES if decided == {HOLDS} else NO


def _told(row: texts.Answer, found: Sequence[Standing], sides: Sequence[Side]) -> str:
    """What stands behind an answer, and what the published code gives where that differs."""
    differences = _differences(found)
    end = f" {escaped(differences)}" if differences else ""
    return _numbers(row, found, sides) + end


def _numbers(row: texts.Answer, found: Sequence[Standing], sides: Sequence[Side]) -> str:
    """The numbers in words, and of which data and seeds they are; or why there is none."""
    if row.number and (side := _ran_at(row.readings, sides)):
        return escaped(f"{filled(row.number, row.readings, side)}.")
    if said([one.status for one in found]) == OPEN:
        reasons, takes = (
            "; ".join(dict.fromkeys(text for one in found for text in getattr(one, told)()))
            for told in ("reasons", "takes")
        )
        return escaped(f"{reasons}. It would take {takes}.")
    side = found[-1].side
    several = len({one.status for one in found}) > 1
    parts = (one.effect() + (f" ({one.status})" if several else "") for one in found)
    telling = [claim for one in found for claim in one.telling if one.side is side]
    return escaped(f"{'; '.join(parts)} ({grounds(side, telling)}).")


def _ran_at(readings: Sequence[str], sides: Sequence[Side]) -> Side | None:
    """The profile that has the numbers of all these readings, the paper's before the laptop's."""
    names = {reading.partition(AT)[0] for reading in readings}
    ran = (side for side in reversed(sides) if names <= side.recorded.keys())
    known = (side for side in ran if all(_listed(side.recorded, each) for each in readings))
    return next(known, None)


def filled(text: str, readings: Sequence[str], side: Side) -> str:
    """The text with the number of the first reading for {1} and so on, its data and seeds behind.

    A reading is named as in the records. "NAME @ rate=0.8" is of the numbers that its text lists
    that at rate=0.8.
    """
    claims = {name(claim): claim for claim in side.claims}
    values = (_number(side.recorded, reading) for reading in readings)
    names = dict.fromkeys(reading.partition(AT)[0] for reading in readings)
    of = [claims[each] for each in names if each in claims]
    return f"{text.format('', *values)} ({grounds(side, of)})"


def _number(recorded: Mapping[str, Mapping[str, str]], reading: str) -> str:
    """The number of a reading with its interval, or the one that its text lists at a place."""
    found = _listed(recorded, reading)
    if not found:
        name, _, place = reading.partition(AT)
        msg = f"the record of {name!r} lists no number at {place!r}: {recorded[name]['number']}"
        raise ValueError(msg)
    return found


def _listed(recorded: Mapping[str, Mapping[str, str]], reading: str) -> str:
    """The number of a reading as text, "" where it has none, or none at its place."""
    name, _, place = reading.partition(AT)
    entry = recorded[name]
    if entry["value"] == "nan" or not place:
        return entry["value"].removeprefix("nan")
    number = r"(?:at least |at most )?[-+.\de]+(?: \([^()]*\))?"
    found = re.findall(rf"({number}) (?:at|in) {re.escape(place)}(?![.\d])", entry["number"])
    return found[-1] if found else ""


def explained(sides: Sequence[Side]) -> Iterator[str]:
    """What stands behind the ten answers, each with its picture, where its readings were run."""
    for row in texts.explained():
        side = _ran_at(row.readings, sides)
        if side:
            yield f"## {escaped(row.title)}"
            text = filled("\n".join(row.found), row.readings, side).replace(" (one seed)", "")
            yield "\n\n".join(map(escaped, f"{text}.".split("\n")))
            yield escaped(row.refuted)
            yield f"![{escaped(row.title)}]({row.picture})"


def chosen(known: Mapping[Sentence, Standing], *statuses: str) -> Iterator[Standing]:
    return (found for found in known.values() if found.status in statuses)
