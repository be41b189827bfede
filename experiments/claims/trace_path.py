"""The claims of paper B about figure 3, as functions of the saved table."""

from __future__ import annotations

from itertools import product

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Sentence, Verdict, not_testable, verdict
from sweeps.rows import where

EARLY = 0.1  # the share of the epochs that count as early


def _within_four(frame: DataFrame) -> Verdict:
    error = frame["standard_error"].to_numpy()
    z = (frame["estimate"] - frame["predicted"]).to_numpy() / error
    largest = float(np.abs(z).max())
    precision = float((error / frame["predicted"].to_numpy()).max())
    usual = np.sqrt((z**2).mean())
    text = (
        f"estimates are off by {largest:.2f} standard errors at most and {usual:.2f} in the root"
        " mean square, over "
    )
    text += f"{len(frame)} points known to {100 * precision:.2g}% or better"
    return verdict(largest <= 4, largest, text)


def _exact(frame: DataFrame) -> Verdict:
    known = frame[np.isfinite(frame["exact"])]
    if known.empty:
        return not_testable("no point where the trace was taken exactly")
    gaps = np.abs(known["exact"] / known["predicted"] - 1).to_numpy()
    first = known[known["epoch"] == known["epoch"].min()]
    text = f"largest relative difference {gaps.max():.1e} over {len(known)} points, from epoch "
    text += f"{first['epoch'].iloc[0]} on, where the loss is {first['excess'].max():.3g}"
    text += f" above its floor, to {known['excess'].min():.1e} above it"
    return verdict(bool(gaps.max() <= 1e-10), gaps.max(), text)


def _flattens_early(frame: DataFrame) -> Verdict:
    """Whether Eq 7's trace at the last stop of the first tenth lies below that at epoch 0."""
    epochs = np.unique(frame["epoch"])
    early = epochs[(epochs > 0) & (epochs <= EARLY * epochs[-1])]
    if epochs[0] > 0 or not len(early):
        return not_testable("no stop in the first tenth of the training")
    found = {}
    for panel in np.unique(frame["panel"]):
        rows = where(frame, panel=panel)
        later, first = (where(rows, epoch=epoch) for epoch in (early[-1], 0))
        found[f"({panel})"] = effects.ratio(later, first, "predicted")
    return effects.decide(found, f"trace at epoch {early[-1]} over that at epoch 0", below=1.0)


def _loss_falls(frame: DataFrame) -> Verdict:
    """Whether the loss falls from each stop to the next, in every run."""
    panels, seeds, widths = (np.unique(frame[name]) for name in ("panel", "seed", "width"))
    steps: list[float] = []
    ends: list[float] = []
    for panel, seed, width in product(panels, seeds, widths):
        run = where(frame, panel=panel, seed=seed, width=width)
        excess = run.sort_values("epoch")["excess"].to_numpy()
        steps.extend(np.diff(excess))
        if len(excess):
            ends.append(excess[-1] / excess[0])
    if not steps:
        return not_testable("fewer than 2 stops")
    text = f"the loss falls in {np.count_nonzero(np.array(steps) < 0)} of {len(steps)} steps; what"
    text += f" it has above its floor ends at {min(ends):.2g} to {max(ends):.2g} of its start"
    return verdict(max(steps) < 0, max(steps), text)


CLAIMS = (
    Claim(
        "B3",
        "Hutchinson within 4 standard errors of Eq 7 at every point",
        Sentence("B", "Section 2.2", "the approximation holds very well, even early in training"),
        _within_four,
    ),
    Claim(
        "B3",
        "after a tenth of the training the trace is lower than at its start",
        BEYOND,
        _flattens_early,
    ),
    Claim(
        "B3",
        "the loss falls from each stop to the next; on real labels to a floor above 0",
        Sentence(
            "B",
            "Section 2, of Assumption 1, a loss near zero",
            "While this does not hold everywhere .. it gets more accurate with training",
        ),
        _loss_falls,
    ),
    Claim(
        "B3",
        "the exact trace equals Eq 7 to 1e-10, early training included",
        BEYOND,
        _exact,
    ),
)
