"""What is said of second-order steps and of kappa in their metric, asked of small networks: T3.

arXiv 2602.00816 is said to disagree with arXiv 2510.09378. Its text was not at hand, so that no
claim here is its own; the question whether a lower kappa goes with fewer steps is ours.
"""

from __future__ import annotations

import math
from typing import Any

import scipy.stats
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    BEYOND,
    Check,
    Claim,
    NotTestableError,
    Source,
    Verdict,
    elsewhere,
    not_testable,
)
from sweeps.comparisons import Compare
from sweeps.rows import where

PAPER = "arXiv 2510.09378"
TITLES = {"gpt": "GPT", "mlp": "MLP, p > k n", "mlp_many": "MLP, p < k n"}
BASELINES = ("Adam", "Shampoo", "K-FAC")
METRICS = ("SGD", "Adam", "diagonal", "K-FAC", "Shampoo", "layers", "full")
LOWERING = ("Adam", "Shampoo", "diagonal", "K-FAC", "layers")
TIMES = 5.4  # printed for SOAP and Muon
NEARLY = 1.5  # "nearly matches", a number of our own
USUAL, LITTLE = 0.1, 0.001  # dampings
MISSING = "a metric is missing"


def _lowers(metric: str) -> str:
    return f"the metric {metric!r} lowers kappa at the start and along training"


FEWER = "full Gauss-Newton needs fewer steps than Adam, Shampoo and K-FAC"
SO_MANY = f"{TIMES} times fewer than Adam and Shampoo, as {PAPER} prints it for SOAP and Muon"
MECHANISMS = {
    f"{TITLES['mlp']}: {FEWER}": "steps along all couplings between layers need small"
    " rates: the layers' blocks alone take 0.75 times its steps, and with a hundredth of the"
    " damping its best rate falls from 0.1 to 0.3 down to 0.01 to 0.03, and its steps are 5.1 times"
    " as many",
    f"{TITLES['gpt']}: {SO_MANY}": "with 1,064 parameters and full batches Adam arrives within"
    " 20 to 26 steps, Shampoo within 17 to 29 and full Gauss-Newton within 5 to 9; 5.4 is of"
    " batches that are never seen twice and of up to 1.5e8 parameters",
    _lowers("Adam"): "at the start P has one gradient's entries, which are no curvatures: kappa is"
    " 3.2 times that of G in the MLP on few images, and 0.95 (0.42, 2.2) times later",
    _lowers("Shampoo"): "at the start its factors are of one gradient and have rank one: kappa is"
    " 5.3 times that of G in the MLP on many images, and 1.3 (0.31, 5.5) times later",
}


def _best(rows: DataFrame) -> DataFrame:
    """The fewest steps in each metric of each seed; a lower bound where no run arrived."""
    found = []
    for (metric, seed), run in rows.groupby(["metric", "seed"]):
        there = run[run["reached"].astype(bool)]
        steps = float(run["steps"].max() if there.empty else there["steps"].min())
        found.append((metric, seed, steps, steps, math.inf if there.empty else steps))
    return DataFrame(found, columns=["metric", "seed", "steps", "steps_low", "steps_high"])


def _more_steps(network: str, slower: tuple[str, ...], faster: str, **side: Any) -> Compare:
    """The steps of some metrics over those of another, each at its best rate and settings.

    The settings are the damping and the momentum.
    """
    return Compare(
        "steps",
        {"panel": "race", "network": network},
        over={"metric": faster},
        each={"metric": slower},
        at="{metric}",
        name=f"steps, over those in the metric {faster!r},",
        prepare=_best,
        missing=MISSING,
        **side,
    )


def _start(frame: DataFrame) -> DataFrame:
    return where(frame, panel="kappa", step=0)


def _correlation(run: DataFrame, damping: float) -> float:
    """Spearman's correlation, over the metrics, of kappa at the start with the number of steps.

    Raises:
      NotTestableError: kappa or the number of steps of a metric is unknown, which the text names,
        or all of them are equal.
    """
    kappas, steps = [], []
    for metric in METRICS:
        own = 0.0 if metric == "SGD" else damping
        at = where(_start(run), metric=metric, damping=own)
        took = where(run, panel="race", metric=metric, damping=own, momentum=0.0)
        if at.empty or took.empty:
            msg = f"no row of the metric {metric} with damping {own:g}"
            raise NotTestableError(msg)
        if not at["resolved"].all():
            msg = f"kappa in the metric {metric} is not resolved"
            raise NotTestableError(msg)
        kappas.append(at["kappa"][0])
        steps.append(took["steps"][0] if took["reached"][0] else math.inf)
    found = float(scipy.stats.spearmanr(kappas, steps).statistic)
    if not math.isfinite(found):
        msg = "all kappas or all numbers of steps are equal"
        raise NotTestableError(msg)
    return found


def _goes_with_steps(network: str, damping: float) -> Compare:
    return Compare(
        lambda run: _correlation(run, damping),
        {"network": network},
        geometric=False,
        above=0.0,
        name="rank correlation",
        missing=f"no row of the network {network}",
    )


def _less_damping(network: str) -> Check:
    """Whether less damping gives full Gauss-Newton both a lower kappa and more steps."""

    def check(frame: DataFrame) -> Verdict:
        rows = where(frame, network=network, metric="full")
        usual, little = (where(_start(rows), damping=damping) for damping in (USUAL, LITTLE))
        races = where(rows, panel="race")
        slow, slower = (_best(where(races, damping=damping)) for damping in (USUAL, LITTLE))
        if not all(map(len, (usual, little, slow, slower))):
            return not_testable(MISSING)
        found = {
            f"kappa, {USUAL:g} over {LITTLE:g}": effects.ratio(usual, little),
            f"steps, {LITTLE:g} over {USUAL:g}": effects.ratio(slower, slow, "steps"),
        }
        return effects.decide(found, "between the dampings:", above=1.0)

    return check


_WHEN = {False: "at the start", True: "along training"}


def _lowers_kappa(metric: str) -> Compare:
    return Compare(
        "kappa",
        {"panel": "kappa", "metric": metric, "damping": USUAL},
        over={"metric": "SGD", "damping": 0.0},
        each={"network": TITLES, "late": _WHEN},
        at=lambda network, late: f"{_WHEN[late]} ({TITLES[network]})",
        below=1.0,
        name="kappa over that of G,",
        prepare=lambda rows: rows.assign(late=rows["step"] > 0),
        missing=MISSING,
    )


def _claim(network: str, statement: str, source: Source, check: Check) -> Claim:
    """A claim of the paper, which is about transformers, and the same question about an MLP."""
    words = f"{TITLES[network]}: {statement}"
    own = source if network == "gpt" else BEYOND
    return Claim("T3", words, own, check, mechanism=MECHANISMS.get(words, ""))


CLAIMS = (
    *(
        _claim(
            network,
            FEWER,
            elsewhere(
                f'{PAPER}, abstract, "substantial gains over existing optimizers"; these are ours'
            ),
            _more_steps(network, BASELINES, "full", above=1.0),
        )
        for network in TITLES
    ),
    _claim(
        "gpt",
        SO_MANY,
        BEYOND,
        _more_steps("gpt", ("Adam", "Shampoo"), "full", above=TIMES),
    ),
    *(
        _claim(
            network,
            "exact layer blocks nearly match it: at most half as many steps again",
            elsewhere(f'{PAPER}, abstract, "nearly matches"; the half is ours'),
            _more_steps(network, ("layers",), "full", below=NEARLY),
        )
        for network in TITLES
    ),
    *(
        _claim(
            network,
            "Adam, Shampoo and K-FAC need more steps than exact layer blocks",
            elsewhere(f'{PAPER}, abstract, "a significant performance gap"; the methods are ours'),
            _more_steps(network, BASELINES, "layers", above=1.0),
        )
        for network in TITLES
    ),
    *(
        _claim(
            network,
            f"at damping {damping:g} metrics with a lower kappa need fewer steps",
            BEYOND,
            _goes_with_steps(network, damping),
        )
        for damping in (USUAL, LITTLE)
        for network in TITLES
    ),
    *(
        _claim(
            network,
            "full Gauss-Newton, a hundredth of the damping: lower kappa and more steps",
            BEYOND,
            _less_damping(network),
        )
        for network in TITLES
    ),
    *(
        Claim(
            "T3",
            words := _lowers(metric),
            BEYOND,
            _lowers_kappa(metric),
            mechanism=MECHANISMS.get(words, ""),
        )
        for metric in LOWERING
    ),
)
