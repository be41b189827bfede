"""The claims on figure C5: two sentences of paper B about other data sets, and what we found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import SOME, Claim, Sentence, Verdict, halves, not_testable, verdict
from sweeps.rows import geometric_means, points, where

TENTH = 0.1  # of the loss above its floor: what is left where a run counts as learned
CLOSE = 1e-3  # of trained networks to Eq 14, as in Figure B1
FITTED = "fitted"  # the name of random data whose labels are fitted


def over_samples(frame: DataFrame, *, fit: bool) -> DataFrame:
    """Panel a: the networks on data that fit their labels, or those on images."""
    rows = where(frame, panel="a")
    return rows[rows["data"].str.startswith(FITTED) == fit]


def _independent(*, fit: bool) -> Callable[[DataFrame], Verdict]:
    """Whether each proportion has one sharpness, whatever n is."""

    def check(frame: DataFrame) -> Verdict:
        rows = over_samples(frame, fit=fit)
        counts = np.unique(rows["samples"])
        if len(counts) < 2:
            return not_testable("fewer than 2 numbers of samples")
        found = {
            float(share): [
                geometric_mean(where(rows, share=share, samples=n)["measured"].to_numpy())
                for n in counts
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


def peaks(frame: DataFrame, initializer: str) -> DataFrame:
    """Of every run in panel b the row with its largest sharpness."""
    rows = where(frame, panel="b", initializer=initializer)
    ordered = rows.sort_values("measured", ascending=False, kind="stable")
    return ordered.drop_duplicates(["share", "seed"]).sort_values(["share", "seed"])


def _peak_grows(initializer: str) -> Callable[[DataFrame], Verdict]:
    """Whether the largest sharpness along training has a positive exponent over alpha_max."""

    def check(frame: DataFrame) -> Verdict:
        rows = peaks(frame, initializer)
        if len(np.unique(rows["share"])) < 2:
            return not_testable("fewer than 2 proportions")
        last = where(frame, panel="b")["epoch"].max()
        at_end = f"{np.count_nonzero(rows['epoch'] == last)} of {len(rows)} peaks at the end"
        found = {at_end: effects.exponent(rows, "share", "measured")}
        return effects.decide(
            found, "largest sharpness goes like alpha_max to the power", above=0.0
        )

    return check


def _learned(frame: DataFrame, initializer: str) -> DataFrame | None:
    """Of every run in panel b when it is learned; None where a run never is.

    ``until`` is the epoch at which a tenth of the loss above its floor is left, on a line in the
    logarithms between two stops, and ``left`` which share of it is left at the last stop.
    """
    rows = where(frame, panel="b", initializer=initializer)
    shares, seeds, until, left = [], [], [], []
    for share in np.unique(rows["share"]):
        for seed, run in where(rows, share=share).groupby("seed"):
            ordered = run.sort_values("epoch", kind="stable")
            epochs = ordered["epoch"].to_numpy(float)
            above = (ordered["loss"] - ordered["floor"]).to_numpy()
            over = above / above[0] if above[0] > 0 else np.ones(1)
            reached = np.flatnonzero(over <= TENTH)
            if not reached.size or reached[0] < 2:
                return None
            between = slice(reached[0] - 1, reached[0] + 1)
            logs = np.log(epochs[between]), np.log(over[between])
            until.append(np.exp(np.interp(-np.log(TENTH), -logs[1], logs[0])))
            shares.append(share)
            seeds.append(seed)
            left.append(over[-1])
    return DataFrame({"share": shares, "seed": seeds, "until": until, "left": left})


def _is_learned(initializer: str, of: str, name: str) -> Callable[[DataFrame], Verdict]:
    """Whether ``of`` is smaller at the largest alpha_max than at the smallest.

    The paper's example has all inputs in one class on one side, uniform labels on the other.
    """

    def check(frame: DataFrame) -> Verdict:
        rows = _learned(frame, initializer)
        if rows is None or len(np.unique(rows["share"])) < 2:
            return not_testable("a run that is not learned, or fewer than 2 proportions")
        shares, means = geometric_means(rows, "share", of)
        least, largest = (where(rows, share=share) for share in (shares[0], shares[-1]))
        found = {f"at alpha={shares[-1]} over {shares[0]}": effects.ratio(largest, least, of)}
        verdict = effects.decide(found, f"{name}, ratio", below=1.0)
        return replace(verdict, text=f"{verdict.text}: {points('alpha', shares, means)}")

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
_EASIER = Sentence(  # of what makes learning simple the text says nothing: soon, and in the end
    "B", "Section 4, of the intuition behind Figure 1c",
    "Such datasets are, intuitively, simpler to learn",
    ("n/d",),
)  # fmt: skip
_STARTS = (("balanced", "balanced"), ("pytorch_default", "PyTorch's"))

CLAIMS = (
    Claim(
        "C5a",
        "trained from a balanced start on inputs that fit the labels: the same for every n",
        _SIZE,
        _independent(fit=True),
        panel=(("panel", "a"), ("data", "fitted, orthogonalised")),
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
        for initializer, start in _STARTS
    ),
    *(
        Claim(
            "C5b",
            f"{start} start: of the loss above its floor a tenth is left sooner, and less in the"
            " end, at the largest alpha_max than at the smallest, which is 0.1 where labels are"
            " uniform",
            _EASIER,
            halves(
                _is_learned(
                    initializer, "until", "epochs until a tenth of the loss above its floor is left"
                ),
                _is_learned(initializer, "left", "what is left of it in the end"),
            ),
            panel=(("panel", "b"), ("initializer", initializer)),
            mechanism="the large class is learned soon, and the few labels of the other classes"
            " take long",
        )
        for initializer, start in _STARTS
    ),
)
