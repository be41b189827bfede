"""The claims of paper A about figure 17, as functions of the saved table.

Each pruned network is compared with the unpruned one, so that no single rate decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pandas import DataFrame

from experiments.claims.pruning_sweep import BECAUSE, HARDER, INCREASE, WORSE, go_together
from sweeps.claims import (
    AS_COMPUTED,
    AS_PRINTED,
    BEYOND,
    CERTIFIED,
    HOLDS,
    OTHER,
    Check,
    Claim,
    Verdict,
    not_testable,
)
from sweeps.comparisons import Compare, Prepare
from sweeps.effects import decide, ratio
from sweeps.rows import geometric_means

LAST = 0.9  # the final loss is the mean over the epochs from this share of the last one on
BOTH_FALL = (
    "Pruning lowers both ends of the spectrum alike. With J of the parameters left, lambda_max is"
    " 0.80, 0.49 and 0.22 times that of the unpruned network at rates of 0.2, 0.4 and 0.6, and"
    " lambda_min 0.83, 0.58 and 0.23 times; at 0.8 they are 0.058 and 0.043 times."
)
MENDED = "J has the columns of the parameters that pruning has left"


def _kappas(frame: DataFrame, run: str, of: str, *, trained: bool) -> DataFrame:
    """The rows of kappa before training or after, at epochs at which every such network has one."""
    rows = frame[(frame["run"] == run) & (frame["of"] == of) & frame["measured"]]
    rows = rows[(rows["epoch"] > 0) == trained]
    networks = len(rows.drop_duplicates(["pruned", "seed"]))
    return rows.groupby("epoch").filter(lambda at: len(at) == networks)


def _at_every_rate(verdict: Verdict, rows: DataFrame, frame: DataFrame, run: str) -> Verdict:
    """The verdict, unless it holds while a rate of the run is not computed yet."""
    rates = set(frame["pruned"][frame["run"] == run]) - {0.0}
    missing = sorted(rates - set(rows["pruned"]))
    if verdict.status != HOLDS or not missing:
        return verdict
    listed = ", ".join(f"{rate:g}" for rate in missing)
    return not_testable(f"not computed yet at rates of {listed}; {verdict.text}")


def _over_unpruned(
    of: str, name: str, prepare: Prepare | None = None, *, from_one_seed: bool = False
) -> Compare:
    """Whether ``of`` of every pruned network is larger than that of the unpruned one."""
    return Compare(
        of,
        over={"pruned": 0.0},
        each="pruned",
        above=1,
        name=f"{name} over that of the unpruned network:",
        from_one_seed=from_one_seed,
        prepare=prepare,
        missing="no pruned and no unpruned network of this run is computed yet",
    )


def _at_start(run: str, of: str) -> Check:
    """Before training, of networks in general: one start has no interval and decides nothing."""

    def check(frame: DataFrame) -> Verdict:
        rows = _kappas(frame, run, of, trained=False)
        verdict = _over_unpruned("kappa", "kappa")(rows)
        return _at_every_rate(verdict, rows, frame, run)

    return check


def _trained(run: str, of: str) -> Check:
    def check(frame: DataFrame) -> Verdict:
        rows = _kappas(frame, run, of, trained=True)
        epochs = ", ".join(str(epoch) for epoch in sorted(set(rows["epoch"])))
        name = f"kappa after {epochs} epochs (a mean over these)"
        verdict = _over_unpruned("kappa", name, from_one_seed=True)(rows)
        return _at_every_rate(verdict, rows, frame, run)

    return check


def _last_losses(frame: DataFrame, run: str, since: float) -> DataFrame:
    """The losses over the epochs from a share of the last one on."""
    rows = frame[(frame["run"] == run) & ~frame["measured"]]
    return rows[(rows["epoch"] > 0) & (rows["epoch"] >= since * rows["epoch"].max())]


def _losses(run: str, since: float, name: str) -> Compare:
    """Of networks in general: one start decides nothing."""
    return _over_unpruned("loss", name, lambda frame: _last_losses(frame, run, since))


def _slow_is_ill_conditioned(frame: DataFrame) -> Verdict:
    """Whether the rates with a larger kappa before training are those with a larger final loss.

    Both are means over the seeds that have both.
    """
    start = _kappas(frame, "plotted", "left", trained=False)
    losses = _last_losses(frame, "plotted", LAST)
    seeds = np.intersect1d(start["seed"], losses["seed"])
    start, losses = (rows[rows["seed"].isin(seeds)] for rows in (start, losses))
    if start["pruned"].nunique() < 4:
        return not_testable("fewer than 4 rates with kappa before training")
    rates, kappas = geometric_means(start, "pruned", "kappa")
    final = losses[losses["pruned"].isin(rates)]
    _, means = geometric_means(final, "pruned", "loss")
    name = "the final loss and kappa before training"
    found = go_together(name, np.asarray(rates), means, kappas)
    return replace(found, seeds=len(seeds))


def _of_run(run: str, of: str, column: str) -> tuple[Claim, Claim]:
    """The claims about kappa at the start and in training."""
    what = "all parameters" if of == "all" else "the parameters left"
    mended = MENDED if column == AS_COMPUTED else ""
    start = f"at initialisation kappa, J of {what}, is larger at every rate than unpruned"
    along = f"trained, kappa, J of {what}, is larger at every rate than unpruned"
    if run != "plotted":
        start, along = (f"{words} ({RUNS[run]})" for words in (start, along))
    panel = (("run", run), ("of", of))
    return (
        Claim(
            "17",
            start,
            WORSE,
            _at_start(run, of),
            panel=panel,
            mechanism=BOTH_FALL if column == CERTIFIED else "",
            column=column,
            mended=mended,
        ),
        Claim("17", along, INCREASE, _trained(run, of), panel=panel, column=column, mended=mended),
    )


def _slower(run: str, column: str) -> tuple[Claim, Claim]:
    of_run = "" if run == "plotted" else f" ({RUNS[run]})"
    panel = (("run", run), ("measured", False))
    words = "the loss, averaged over {}, is larger at every rate than unpruned" + of_run
    return (
        Claim(
            "17",
            words.format("the epochs"),
            HARDER,
            _losses(run, 0.0, "loss over all epochs"),
            panel=panel,
            column=column,
        ),
        Claim(
            "17",
            words.format("the last tenth of them"),
            HARDER,
            _losses(run, LAST, "final loss"),
            panel=panel,
            column=column,
        ),
    )


RUNS = {
    "default": "PyTorch's initialisation, at a rate of 0.05",
    "unit": "images of values in [0, 1]",
}
_PLOTTED_LEFT = (("run", "plotted"), ("of", "left"))


def _falls_with_parameters(frame: DataFrame) -> Verdict:
    """Whether kappa of trained networks is larger for J of the parameters left, at every rate."""
    left, whole = (_kappas(frame, "plotted", of, trained=True) for of in ("left", "all"))
    left, whole = (rows[rows["pruned"] > 0] for rows in (left, whole))
    both = left.merge(whole[["pruned", "seed", "epoch"]], on=["pruned", "seed", "epoch"])
    if both.empty:
        return not_testable("kappa of both is not computed yet")
    again = whole.merge(left[["pruned", "seed", "epoch"]], on=["pruned", "seed", "epoch"])
    by_rate = both.groupby("pruned")
    found = {
        f"at rate={rate:g}": ratio(rows, again[again["pruned"] == rate], "kappa")
        for rate, rows in by_rate
    }
    text = "kappa, J of the parameters left, over kappa, J of all:"
    verdict = decide(found, text, above=1, from_one_seed=True)
    return _at_every_rate(verdict, both, frame, "plotted")


CLAIMS = (
    *_of_run("plotted", "left", CERTIFIED),
    *_of_run("plotted", "all", AS_COMPUTED),
    *_slower("plotted", AS_PRINTED),
    Claim(
        "17",
        "over the rates a large final loss goes with a large kappa before training",
        BECAUSE,
        _slow_is_ill_conditioned,
        panel=_PLOTTED_LEFT,
    ),
    *_of_run("default", "all", OTHER),
    *_slower("default", OTHER),
    Claim(
        "17",
        "trained, leaving the columns of the pruned parameters out of J makes kappa larger at every"
        " rate",
        BEYOND,
        _falls_with_parameters,
        ("p/(k n)",),
        _PLOTTED_LEFT,
    ),
)
