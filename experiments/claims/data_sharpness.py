"""The claims on figure C5: two sentences of paper B about other data sets, and what we found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sweeps import effects
from sweeps.claims import SOME, Claim, Sentence, Verdict, not_testable, verdict
from sweeps.rows import kept, length, where
from sweeps.table import Columns

CLOSE = 1e-3  # of trained networks to Eq 14, as in Figure B1
FITTED = "fitted"  # the name of random data whose labels are fitted


def over_samples(table: Columns, *, fit: bool) -> Columns:
    """Panel a: the networks on data that fit their labels, or those on images."""
    rows = where(table, panel="a")
    return kept(rows, np.char.startswith(rows["data"].astype(str), FITTED) == fit)


def _independent(*, fit: bool) -> Callable[[Columns], Verdict]:
    """Whether each proportion has one sharpness, whatever n is."""

    def check(table: Columns) -> Verdict:
        rows = over_samples(table, fit=fit)
        counts = np.unique(rows["samples"])
        if len(counts) < 2:
            return not_testable("fewer than 2 numbers of samples")
        found = {
            float(share): [
                geometric_mean(where(rows, share=share, samples=n)["measured"]) for n in counts
            ]
            for share in np.unique(rows["share"])
        }
        spreads = [max(means) / min(means) - 1 for means in found.values()]
        listed = ", ".join(
            f"{means[0]:.4g} to {means[-1]:.4g} at alpha {share:.2g}"
            for share, means in found.items()
        )
        text = f"sharpness at n = {counts[0]:g} to {counts[-1]:g}: {listed}"
        text += f"; largest over smallest at most 1 + {max(spreads):.1e}"
        return verdict(max(spreads) <= CLOSE, max(spreads), text)

    return check


def geometric_mean(values: NDArray) -> float:
    return float(np.exp(np.mean(np.log(values))))


def peaks(table: Columns, initializer: str) -> Columns:
    """Of every run in panel b the row with its largest sharpness."""
    rows = where(table, panel="b", initializer=initializer)
    order = np.argsort(-rows["measured"], kind="stable")
    runs = np.stack([rows["share"][order], rows["seed"][order]])
    first = np.unique(runs, axis=1, return_index=True)[1]
    return {name: column[order][first] for name, column in rows.items()}


def _peak_grows(initializer: str) -> Callable[[Columns], Verdict]:
    """Whether the largest sharpness along training has a positive exponent over alpha_max."""

    def check(table: Columns) -> Verdict:
        rows = peaks(table, initializer)
        if len(np.unique(rows["share"])) < 2:
            return not_testable("fewer than 2 proportions")
        last = where(table, panel="b")["epoch"].max()
        at_end = f"{np.count_nonzero(rows['epoch'] == last)} of {length(rows)} peaks at the end"
        found = {at_end: effects.exponent(rows, "share", "measured")}
        return effects.decide(
            found, "largest sharpness goes like alpha_max to the power", above=0.0
        )

    return check


_SIZE = Sentence(
    "B", "Section 4, behind Eq 14",
    "the sharpness at a balanced solution is independent of the dataset size n",
    rule=SOME,
)  # fmt: skip
_SIMPLER = Sentence(
    "B", "Section 4, of the intuition behind Figure 1c",
    "in disagreement with .. lower peak-sharpness on simpler datasets",
    ("n/d",),
)  # fmt: skip

CLAIMS = (
    Claim(
        "C5a",
        "trained from a balanced start on inputs that fit the labels: the same for every n",
        _SIZE,
        _independent(fit=True),
    ),
    Claim(
        "C5a",
        "trained from a balanced start on images: the same for every n",
        _SIZE,
        _independent(fit=False),
        mechanism="Eq 14 needs fitted labels, and a linear map of images fits fewer of them the"
        " more there are: every run ends at lambda_*, Eq 14 of the labels' projection onto the"
        " inputs",
    ),
    *(
        Claim(
            "C5b",
            f"{start} start: the largest sharpness along training grows with alpha_max",
            _SIMPLER,
            _peak_grows(initializer),
            panel=(("panel", "b"), ("initializer", initializer)),
        )
        for initializer, start in (("balanced", "balanced"), ("pytorch_default", "PyTorch's"))
    ),
)
