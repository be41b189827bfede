"""The claims of every experiment that a figure draws, with the figure of each."""

from __future__ import annotations

import re

from figures import catalogue
from sweeps import command_line as cli
from sweeps.claims import Claim


def all_claims() -> list[Claim]:
    """Every claim, in the order of the figures."""
    names = dict.fromkeys(figure.EXPERIMENT for figure in catalogue.from_tables().values())
    found = [c for e in names for c in cli.named(e).claims]
    return sorted(found, key=lambda claim: order(figure_of(claim)))


def figure_of(claim: Claim) -> str:
    """The module that draws what a claim is about: "2b" is of fig02, "B1c" of b1, "T1" of t1."""
    found = re.match(r"([BbCcTt])?(\d+)", claim.figure)
    if found is None:
        msg = f"claim {claim.statement!r} is about figure {claim.figure!r}; name one as 2b or B1"
        raise ValueError(msg)
    return f"{found[1].lower()}{found[2]}" if found[1] else f"fig{int(found[2]):02d}"


def title(figure: str) -> str:
    """The title of a figure: Figure 2 for fig02, Figure B1 for b1."""
    return "Figure " + re.sub(r"^fig0*", "", figure).upper()


def order(figure: str) -> tuple[bool, str]:
    """Paper A's figures before paper B's, and both before those beyond the papers."""
    return not figure.startswith("fig"), figure


def name(claim: Claim) -> str:
    """The name of a claim in the records: its panel and its statement."""
    return f"{claim.figure}: {claim.statement}"
