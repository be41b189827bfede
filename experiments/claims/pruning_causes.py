"""What makes the valley of kappa over the pruning rate: claims of our own about figure C4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from experiments.claims.pruning_sweep import VALLEY, log_quotients, valley
from sweeps import effects
from sweeps.claims import BEYOND, Claim, Verdict, not_testable
from sweeps.effects import decide, mean
from sweeps.rows import kept, length, where
from sweeps.table import Columns

TITLES: Mapping[str, str] = {
    "printed": "the printed recipe",
    "short_steps": "steps of a tenth of the length",
    "no_momentum": "without momentum, so steps of a tenth of the length",
    "long_steps": "without momentum, steps as long as before",
    "no_decay": "without weight decay",
    "no_drop": "without the drop of the rate",
    "alike": "each network equally near to instability",
    "first_norms": "filters back at the norms of the start",
    "batch_statistics": "J through BatchNorm's statistics",
}


def trained(table: Columns, variant: str) -> Columns:
    """The rows of a variant after training."""
    rows = where(table, variant=variant)
    return kept(rows, rows["epoch"] > 0)


def _valley(table: Columns) -> Verdict:
    """Whether kappa after training is lower at the valley's rate than at both ends."""
    return valley(trained(table, "printed"))


def _shallower(variant: str) -> Callable[[Columns], Verdict]:
    """Whether kappa(valley) / kappa(unpruned) is nearer to 1 than with the printed recipe."""

    def check(table: Columns) -> Verdict:
        logs = {name: depths(table, name) for name in (variant, "printed")}
        seeds = sorted(set(logs[variant]) & set(logs["printed"]))
        if not seeds:
            return not_testable("no networks of both recipes")
        changed, printed = (np.array([logs[name][s] for s in seeds]) for name in logs)
        listed = f"{np.exp(changed.mean()):.3g} in place of {np.exp(printed.mean()):.3g}"
        name = f"kappa at rate={VALLEY:g} over unpruned, {listed}; quotient"
        return decide({"": mean(changed - printed).exponential()}, name, above=1.0)

    return check


def depths(table: Columns, variant: str) -> dict[int, float]:
    """log of kappa at the valley's rate over that of the unpruned network, by seed."""
    return log_quotients(trained(table, variant))


def _starts_stable(table: Columns) -> Verdict:
    """Whether the printed steps are shorter than the longest one that is stable at the start."""
    rows = trained(table, "printed")
    rates = np.unique(rows["pruned"])
    found = {
        f"at rate={rate:g}": effects.ratio(
            at, {**at, "instability": np.ones(length(at))}, "instability", len(rates)
        )
        for rate in rates
        for at in [where(rows, pruned=rate)]
    }
    return decide(found, "step over the longest stable one", below=1.0)


CLAIMS = (
    Claim(
        "C4",
        "with the printed recipe kappa of trained networks is lower at 40% than at both ends",
        BEYOND,
        _valley,
    ),
    Claim(
        "C4",
        "the printed step is stable at the start, for the loss of all samples",
        BEYOND,
        _starts_stable,
    ),
    *(
        Claim("C4", f"{title}: the valley is shallower", BEYOND, _shallower(variant))
        for variant, title in TITLES.items()
        if variant != "printed"
    ),
)
