"""What paper A says of linear and one-hidden-layer networks, asked of a GPT: figure T1."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Source, Verdict, not_testable
from sweeps.comparisons import Compare, Prepare, Trend
from sweeps.rows import where

PAPER = "paper A (arXiv 2411.02139)"


def carried(place: str) -> Source:
    """The source of a claim that paper A makes about other networks, at this place."""
    return Source("carried over", f"{PAPER}, {place}")


def _from_two_blocks(frame: DataFrame, kind: str) -> DataFrame:
    rows = where(frame, panel="kappa", network=kind)
    return rows[rows["depth"] > 1]


def _deepest(rows: DataFrame) -> DataFrame:
    return rows[rows["depth"] == rows["depth"].max()]


def _below(first: str, second: str, prepare: Prepare | None = None) -> Compare:
    """Whether kappa of one kind lies below that of another at every depth."""
    return Compare(
        "kappa",
        {"panel": "kappa", "network": first},
        over={"network": second},
        each="depth",
        name=f"kappa of {first} over that of {second}",
        below=1.0,
        prepare=prepare,
        missing="no network of one of the kinds",
    )


def _lowest(frame: DataFrame) -> Verdict:
    """Whether the full skip has the lowest kappa of all skips at every depth from 2 on."""
    full = _from_two_blocks(frame, "none")
    others = [kind for kind in np.unique(frame["network"]) if kind.startswith("none, ")]
    if full.empty or not others:
        return not_testable("fewer than 2 blocks, or no other skip")
    found = {
        f"{label} of {kind}": effect
        for kind in others
        for label, effect in effects.compared(
            full, _from_two_blocks(frame, kind), "depth", "L"
        ).items()
    }
    return effects.decide(found, "kappa of the full skip over others'", below=1.0)


def _trend(kind: str, *, rises: bool) -> Trend:
    rows = {"panel": "kappa", "network": kind}
    return Trend("kappa", "depth", "L", rises=rises, rows=rows)


CLAIMS = (
    Claim(
        "T1",
        "without LayerNorm, skips lower kappa at every depth",
        carried("Section 4.3 and Figure 5, of linear networks"),
        _below("none", "none, no skip"),
    ),
    Claim(
        "T1",
        "without LayerNorm, skip 1 has a lower kappa than 1/sqrt(L), 1/L and no skip for L > 1",
        carried("Appendix I.2 and Figure 20, of linear networks"),
        _lowest,
    ),
    Claim(
        "T1",
        "a LayerNorm before the branches lowers kappa at every depth",
        carried("Section 6 and Figure 7, of BatchNorm in a linear network"),
        _below("pre", "none"),
        mechanism=(
            "with 2 blocks the sums of branches and skips have not grown yet, and LayerNorm's"
            " projection costs more than it gives; it pays with depth, where largest eigenvalues"
            " without it grow from 1e5 at L=2 to 1e10 and more at L=6"
        ),
    ),
    Claim(
        "T1",
        "with neither skips nor LayerNorm kappa grows with depth",
        carried("Section 4.2 and Figure 2, of linear networks"),
        _trend("none, no skip", rises=True),
    ),
    Claim(
        "T1",
        "with a LayerNorm before the branches kappa falls with depth",
        BEYOND,
        _trend("pre", rises=False),
    ),
    Claim(
        "T1",
        "at the largest depth kappa is lower with a LayerNorm before the branches than behind",
        BEYOND,
        _below("pre", "post", _deepest),
    ),
)
