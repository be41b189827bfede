"""The records of one profile beside all claims, and how a verdict looks in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reproduction.markdown import escaped
from reproduction.published import GALLERY, gallery
from reproduction.readings import name, title
from reproduction.records import PROFILES, Records, counts
from sweeps import sentences
from sweeps.claims import FAILS, Claim, Sentence

NOT_RUN = "not run"

Links = Callable[[str], str]
"""Where a link leads to the page of a figure, by the name of its module."""

FROM_SCREEN: Links = "findings/{}.md".format
"""From FINDINGS.md to the page of a figure."""


@dataclass(frozen=True)
class Side:
    """The records of one profile beside all claims, and the folder of its pictures."""

    profile: str
    recorded: Mapping[str, Mapping[str, str]]
    claims: Sequence[Claim]
    pictures: Path

    def readings(self) -> list[tuple[Claim, str]]:
        """Every claim that was run, with its status."""
        return [(c, self.recorded[name(c)]["status"]) for c in self.claims if self.ran(c)]

    def ran(self, claim: Claim) -> bool:
        return name(claim) in self.recorded

    def tallies(self) -> Iterator[str]:
        for statuses in sentences.tallies(self.readings()).values():
            yield counts(statuses)

    def judged(self) -> dict[Sentence, sentences.Judged]:
        return {one.sentence: one for one in sentences.judged(self.readings())}

    def data(self, figure: str) -> str:
        """The data behind a figure; empty where it was not run."""
        known = (e["data"] for e in self.recorded.values() if e["figure"] == figure)
        return next(known, "")

    def cell(self, claim: Claim) -> str:
        """The verdict of a claim with its number, and why it fails where it fails, as Markdown."""
        if not self.ran(claim):
            return NOT_RUN
        entry = self.recorded[name(claim)]
        why = claim.mechanism if entry["status"] == FAILS else ""
        alone = entry.get("seeds") == "1" and "one seed" not in entry["number"]
        told = entry["number"] + (" (one seed)" if alone else "") + (f" Why: {why}" if why else "")
        return f"**{entry['status']}**. {escaped(plain(told))}"


def of_records(records: Records, claims: Sequence[Claim], folder: Path = GALLERY) -> list[Side]:
    """The sides of those profiles of which something is recorded; the gallery is in ``folder``."""
    return [Side(p, records[p], claims, gallery(p, folder)) for p in PROFILES if records.get(p)]


DATA = {
    "fashion_mnist_5000": "Fashion-MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "mnist": "MNIST",
    "cifar10_part": "CIFAR-10 (part)",
    "cifar10": "CIFAR-10",
    "photo_patches": "photograph patches",
}
"""The names of data in a text, by those in a table."""


def plain(text: str) -> str:
    """The text with the names of data as a reader knows them."""
    return re.sub(r"\b(" + "|".join(DATA) + r")\b", lambda found: DATA[found[1]], text)


def verdict(judged: Mapping[Sentence, sentences.Judged], sentence: Sentence) -> str:
    """The verdict of a sentence with what its readings do."""
    if sentence not in judged:
        return NOT_RUN
    one = judged[sentence]
    return f"**{one.status}**" + (f" ({one.summary})" if one.summary else "")


def words(sentence: Sentence) -> str:
    """The words of a sentence and where they stand."""
    return escaped(f'"{sentence.words}" ({sentence.paper}, {sentence.place})')


def linked(figure: str, links: Links = FROM_SCREEN) -> str:
    """A link to the page of a figure, by its number."""
    return f"[{title(figure).removeprefix('Figure ')}]({links(figure)})"
