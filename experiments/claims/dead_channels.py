"""What the mechanism behind Figure 1's lambda_max and its loss predicts, and what refutes it.

A channel is idle if it has a scale and its variance is 0, because no weight is left that reads a
channel which differs between images. A pruned weight of it has a column of J whose length is that
of its centred inputs over the root of BatchNorm's epsilon (proposition on the page of theory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from pandas import DataFrame

from sweeps.claims import BEYOND, Check, Claim, Verdict, not_testable, verdict
from sweeps.effects import Effect, between, decide, mean, ratio
from sweeps.rows import where

EVERY, KERNELS = "every tensor", "kernels"
SCATTERED = "every tensor, ties at random"
PUBLISHED = 1e-5  # the epsilon of the published networks
LARGER = 1e-3
GROWTH = 10.0  # lambda_max that is so many times larger has blown up
STEADY = 3.0  # lambda_max that changes less does not follow epsilon, of which it has 100 times
SAME = 2.0  # losses of one size, as a factor
NAMES = {EVERY: "of every tensor", KERNELS: "of the kernels", SCATTERED: "with ties at random"}


def largest(frame: DataFrame, columns: str = "all", epoch: int = 0) -> DataFrame:
    """lambda_max, one row for each network and epsilon."""
    return where(frame, what="largest", columns=columns, tensor="all", epoch=epoch)


def ended(frame: DataFrame) -> DataFrame:
    """The losses after the last epoch."""
    rows = where(frame, what="losses")
    return where(rows, epoch=rows["epoch"].max()) if len(rows) else rows


def arms(rows: DataFrame) -> Iterator[tuple[str, DataFrame]]:
    """The rows of each pruned arm, with its name."""
    for tensors, name in NAMES.items():
        for rate in sorted(set(rows["pruned"][rows["tensors"] == tensors])):
            if rate:
                yield f"with {rate:.0%} {name}", where(rows, tensors=tensors, pruned=rate)


def _over_epsilon(*, idle: bool) -> Check:
    """Whether lambda_max follows epsilon where channels are idle, and does not where none is."""

    def check(frame: DataFrame) -> Verdict:
        rows = largest(frame)
        rows = rows[(rows["idle"] > 0) == idle].reset_index(drop=True)
        found = {}
        for name, arm in arms(rows):
            small, large = (where(arm, epsilon=epsilon) for epsilon in (PUBLISHED, LARGER))
            if np.intersect1d(small["seed"], large["seed"]).size:
                found[name] = ratio(small, large, "lambda_max")
        told = f"lambda_max at epsilon {PUBLISHED:g} over that at {LARGER:g}:"
        above, below = (GROWTH, None) if idle else (None, STEADY)
        return decide(found, told, above=above, below=below, from_one_seed=True)

    return check


def _where_it_lives(frame: DataFrame) -> Verdict:
    """Whether more than half of lambda_max's right vector is in columns of idle channels."""
    rows = where(largest(frame), epsilon=PUBLISHED)
    rows = rows[rows["idle"] > 0]
    found = {name: mean(arm["share_idle"].to_numpy(float)) for name, arm in arms(rows) if len(arm)}
    return decide(
        found,
        "share of the squared length of lambda_max's right vector in pruned weights of idle"
        " channels:",
        above=0.5,
        from_one_seed=True,
    )


def _over_unpruned(*, idle: bool) -> Check:
    """Whether lambda_max before training lies far above the unpruned one's exactly if any idles."""

    def check(frame: DataFrame) -> Verdict:
        rows = where(largest(frame), epsilon=PUBLISHED)
        whole = where(rows, pruned=0.0)
        chosen = rows[(rows["idle"] > 0) == idle].reset_index(drop=True)
        found = {
            name: ratio(arm, whole, "lambda_max")
            for name, arm in arms(chosen)
            if np.intersect1d(arm["seed"], whole["seed"]).size
        }
        above, below = (GROWTH, None) if idle else (None, GROWTH)
        told = "lambda_max / lambda_max unpruned"
        return decide(found, told, above=above, below=below, from_one_seed=True)

    return check


def groups(frame: DataFrame) -> dict[str, DataFrame]:
    """With kernels alone pruned, starts with a wholly pruned filter in a shortcut, and others.

    ``growth`` is lambda_max of every column over that of the columns left.
    """
    every, left = (
        where(largest(frame, columns), tensors=KERNELS, epsilon=PUBLISHED)
        for columns in ("all", "left")
    )
    both = every.merge(left[["seed", "pruned", "lambda_max"]], on=["seed", "pruned"])
    both = both.assign(growth=both["lambda_max_x"] / both["lambda_max_y"])
    return {"with": both[both["empty"] > 0], "without": both[both["empty"] == 0]}


def _two_groups(frame: DataFrame) -> Verdict:
    """Whether every start with a wholly pruned filter lies above every start without one."""
    found = groups(frame)
    if found["with"].empty or found["without"].empty:
        return not_testable("no start with a wholly pruned filter beside one without")
    with_one, none = (found[name]["growth"] for name in ("with", "without"))
    told = {
        name: ", ".join(
            f"{growth:.3g} (start {seed})"
            for growth, seed in sorted(zip(rows["growth"], rows["seed"], strict=True))
        )
        for name, rows in found.items()
    }
    text = (
        "lambda_max of every column over that of the columns left: with a wholly pruned filter"
        f" {told['with']}; without one {told['without']}"
    )
    return verdict(bool(with_one.min() > none.max()), with_one.min() / none.max(), text)


def dense(frame: DataFrame) -> DataFrame:
    """The losses of unpruned networks of fewer filters."""
    return where(ended(frame), pruned=0.0, shrunk=False)


def _as_dense(tensors: str) -> Check:
    """Whether a pruned network ends as high as a dense one of as many weights as it has live.

    Between the dense networks of one start the logarithm of the loss is interpolated over that of
    the number of weights.
    """

    def check(frame: DataFrame) -> Verdict:
        rows = ended(frame)
        whole, pruned = dense(frame), where(rows, shrunk=True, tensors=tensors)
        found: dict[str, Effect] = {}
        for rate in sorted(set(pruned["pruned"])):
            arm = where(pruned, pruned=rate)
            logs = [
                np.log(one["loss"]) - _log_loss(where(whole, seed=one["seed"]), one["live"])
                for _, one in arm.iterrows()
            ]
            known = np.array([value for value in logs if np.isfinite(value)], float)
            if known.size:
                live = int(arm["live"].iloc[0])
                found[f"at {rate:.0%} ({live:,} live)"] = mean(known).exponential()
        return between(
            found, "loss over that of a dense network of as many live weights", 1 / SAME, SAME
        )

    return check


def _log_loss(rows: DataFrame, live: float) -> float:
    """The logarithm of a dense network's loss at a size; nan outside of what was trained."""
    curve = rows.sort_values("live")
    sizes = curve["live"].to_numpy(float)
    if len(curve) < 2 or not sizes[0] <= live <= sizes[-1]:
        return float("nan")
    return float(np.interp(np.log(live), np.log(sizes), np.log(curve["loss"].to_numpy(float))))


_CUT = (
    "of the starts with ties at random one was looked into, at the paper's sizes: its idle channel"
    " has no shift left, and the other branch of its sum no scale, so that the sum is 0 for every"
    " image, and with it ReLU's derivative and the columns. With ties in order scale, shift and"
    " both branches are left in the same channels"
)


def _claim(statement: str, check: Callable[[DataFrame], Verdict], mechanism: str = "") -> Claim:
    return Claim("C6", statement, BEYOND, check, mechanism=mechanism)


CLAIMS = (
    _claim(
        "before training lambda_max of every column is more than ten times the unpruned one where a"
        " shortcut has an idle channel",
        _over_unpruned(idle=True),
        _CUT,
    ),
    _claim(
        "before training lambda_max of every column is less than ten times the unpruned one where"
        " no shortcut has one, also with 80% of every tensor pruned and ties at random",
        _over_unpruned(idle=False),
    ),
    _claim(
        "where a shortcut has an idle channel lambda_max falls with BatchNorm's epsilon",
        _over_epsilon(idle=True),
        _CUT,
    ),
    _claim(
        "where no shortcut has an idle channel lambda_max does not follow BatchNorm's epsilon",
        _over_epsilon(idle=False),
    ),
    _claim(
        "lambda_max's right vector lives in the columns of pruned weights of idle channels",
        _where_it_lives,
        _CUT,
    ),
    _claim(
        "kernels alone pruned by 80%: lambda_max is large in the starts with a wholly pruned filter"
        " in a shortcut and in no other",
        _two_groups,
    ),
    _claim(
        "with every tensor pruned the loss ends where a dense network of as many live weights ends",
        _as_dense(EVERY),
    ),
    _claim(
        "with ties at random, where lambda_max does not rise, the loss ends where a dense network"
        " of as many live weights ends, too",
        _as_dense(SCATTERED),
    ),
)
