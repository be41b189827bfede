"""The claims of paper A about networks pruned at initialisation: figures 1 and 13 to 17.

kappa is the certified one and not that at a numerical rank, which is never above 1 / tolerance: in
Figure 13 a trend of such values would be one of the tolerance. A trend over the pruning rate is an
exponent e in (1 - rate)^e, fitted for every seed on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import permutations
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray
from pandas import DataFrame

from sweeps.claims import (
    AS_PRINTED,
    BEYOND,
    FAILS,
    HOLDS,
    OTHER,
    SOME,
    UNDECIDED,
    Claim,
    NotTestableError,
    Sentence,
    Source,
    Verdict,
    not_testable,
)
from sweeps.comparisons import Compare, Prepare
from sweeps.effects import decide, exponent, mean, ratio
from sweeps.rows import geometric_means, points, where

KAPPA = "kappa"
SPARSE, MODERATE = (0.8, 0.9), (0.2, 0.4, 0.6)  # pruning rates
VALLEY = 0.4  # the pruning rate
SMALL_STEPS = ("vgg5",)  # trained with smaller steps, too
EARLY, REACHED = 12, 0.1  # the epoch, and the loss, of the link between speed and kappa
CHANCE = 0.05  # a correlation is decided where fewer of all orders have one as large
LAST = 0.1  # the share of the epochs whose mean is the final loss

OTHER_DATA = ("vit", "resnet20", "resnet32", "feed_forward")  # other experiments have CIFAR-10
FIGURES: Mapping[str, str] = {
    "resnet20": "C2",
    "vit": "C2",
    "resnet32": "C2",
    "vgg5": "16",
    "feed_forward": "C2",
}
_PLACE = "Section 1, of Figure 1"  # Appendix I.1 has other networks and prints no outcome of them
_RESNET20 = ("1, 14",)
_SHARE = ("p/(k n)",)
_ALONG = ("p/(k n)", "batch/n")  # what decides along training: an epoch has n / batch steps
_CIFAR = ("cifar10", "cifar10_part")  # the images decide: on others these verdicts differ
SLOWDOWN = Sentence(
    "A",
    _PLACE,
    "training sparse networks from scratch using stochastic gradient descent results in a slowdown "
    "of training",
    _ALONG,
    data=_CIFAR,
    figures=_RESNET20,
)
INCREASE = Sentence(
    "A",
    _PLACE,
    "which is also reflected in an increase in the condition number of the GN matrix",
    _ALONG,
    SOME,  # of after training and averaged over the stops, which it leaves open
    data=_CIFAR,
    figures=_RESNET20,
)
HARDER = Sentence(
    "A", "Section 7", "pruned networks are more difficult to train", _ALONG, data=_CIFAR
)
WORSE = Sentence(
    "A", "Section 7", "pruned networks .. have worse conditioning", _SHARE, data=_CIFAR
)
BECAUSE = Sentence(
    "A",
    "Section 7",
    "more difficult to train as they have worse conditioning",
    _ALONG,
    data=_CIFAR,
)
"""Section 7's sentence in three parts; the cause is judged by what it makes go together."""

_STEP = (
    "Long steps make the valley: the printed ones have rate / (1 - momentum) = 1. In a VGG5 of 8"
    " filters kappa at 40% over unpruned is 0.086 with them, 0.61 with a tenth of the rate and"
    " 0.66 without momentum, which are equally short. lambda_min of the unpruned network falls"
    " from 12 to 0.13 with the printed steps and stays at 12 with short ones."
)
MECHANISMS: Mapping[str, str] = {
    "resnet20": _STEP,
    "resnet32": _STEP,
    "vgg5": _STEP,
    "vit": (
        "Training rebuilds lambda_min: from initialisation to the trained stops it grows 1200-fold "
        "unpruned and 8700-fold at 40%, while lambda_max grows 35-fold and 37-fold."
    ),
    "feed_forward": (
        "Training rebuilds lambda_min: it grows 4-fold unpruned and 10-fold at 40%, to 0.34 and "
        "0.40, while lambda_max grows 97-fold and 94-fold and stays at half at 40%. It is not "
        "instability (rate x lambda_max / n starts at 0.07) nor slower training: at losses of "
        "0.005 to 0.008 two seeds have kappa 1.7e5 unpruned and 8e4 at 40%."
    ),
}


def _of(frame: DataFrame, network: str, steps: str = "printed") -> DataFrame:
    return where(frame, network=network, steps=steps)


def _measured(frame: DataFrame, network: str, steps: str = "printed") -> DataFrame:
    return where(_of(frame, network, steps), measured=True)


def trained(rows: DataFrame) -> DataFrame:
    """The rows of the seeds that were trained; some are measured at initialisation alone."""
    seeds = np.unique(rows["seed"][rows["epoch"] > 0])
    return rows[rows["seed"].isin(seeds)]


def _lost(rows: DataFrame) -> str:
    """The number of rows at each pruning rate whose numerical rank is below k n, as text."""
    short = rows["rank_numerical"] < rows["samples"] * rows["outputs"]
    rates = np.unique(rows["pruned"][short])
    listed = ", ".join(
        f"{np.count_nonzero(short & (rows['pruned'] == rate))} of "
        f"{np.count_nonzero(rows['pruned'] == rate)} at rate={rate:g}"
        for rate in rates
    )
    return f"; rank deficient: {listed}" if listed else ""


def _kappas(rows: DataFrame) -> str:
    return f": {points('rate', *geometric_means(rows, 'pruned', KAPPA))}{_lost(rows)}"


def _losses(rows: DataFrame) -> str:
    return f": {points('rate', *geometric_means(rows, 'pruned', 'loss'))}"


def _above_unpruned(
    network: str,
    of: str,
    name: str,
    beside: Callable[[DataFrame], str],
    prepare: Prepare | None = None,
    **rows: Any,
) -> Compare:
    """Whether a column of every pruned network is larger than that of the unpruned one."""
    return Compare(
        of,
        {"network": network, "steps": "printed", **rows},
        over={"pruned": 0.0},
        each="pruned",
        above=1.0,
        name=f"{name} over that of the unpruned network:",
        prepare=prepare,
        missing="fewer than 2 pruning rates",
        beside=beside,
    )


def _grows_along(network: str) -> Compare:
    """Whether kappa, averaged over the epochs, grows with the pruning rate, as the loss has to."""
    return Compare(
        KAPPA,
        {"network": network, "steps": "printed", "measured": True},
        along="kept",
        below=0.0,
        name="kappa over the epochs goes like (1 - rate) to the power",
        prepare=_of_trained,
        missing="fewer than 2 pruning rates",
        beside=_kappas,
    )


def _of_trained(rows: DataFrame) -> DataFrame:
    if trained(rows).empty:
        msg = "no trained networks"
        raise NotTestableError(msg)
    return trained(rows)


def _over_unpruned(network: str, rates: tuple[float, ...], steps: str = "printed") -> Compare:
    """Whether kappa, averaged over the epochs and the seeds, exceeds that of the whole network."""
    return Compare(
        KAPPA,
        {"network": network, "steps": steps, "measured": True},
        over={"pruned": 0.0},
        each={"pruned": rates},
        above=1.0,
        name="kappa over that of the unpruned network:",
        prepare=trained,
        missing="no trained networks to compare",
        beside=_lost,
    )


def _later(rows: DataFrame, epoch: float = 0) -> DataFrame:
    return rows[rows["epoch"] > epoch]


def _last(rows: DataFrame) -> DataFrame:
    return _later(rows, (1 - LAST) * rows["epoch"].max())


def valley(rows: DataFrame) -> Verdict:
    """Whether kappa of trained networks is lower at a moderate rate than at both ends."""
    bottom, most = where(rows, pruned=VALLEY), max(rows["pruned"], default=0.0)
    if bottom.empty or where(rows, pruned=0.0).empty or most == VALLEY:
        return not_testable("no trained networks to compare")
    found = {
        f"over that at rate={rate:g}": ratio(bottom, where(rows, pruned=rate), KAPPA)
        for rate in (0.0, most)
    }
    return decide(found, f"kappa at rate={VALLEY:g}:", below=1.0)


def _valley(network: str) -> Callable[[DataFrame], Verdict]:
    """The verdict of :func:`valley` on one kind of network."""
    return lambda frame: valley(_later(_measured(frame, network), 0))


def _shallower(network: str) -> Callable[[DataFrame], Verdict]:
    """Whether kappa(valley) / kappa(unpruned) is larger with small steps than with printed ones."""

    def check(frame: DataFrame) -> Verdict:
        logs = {
            steps: log_quotients(_later(_measured(frame, network, steps), 0))
            for steps in ("smaller", "printed")
        }
        seeds = sorted(set(logs["smaller"]) & set(logs["printed"]))
        if not seeds:
            return not_testable("no networks trained with both step sizes")
        found = mean(np.array([logs["smaller"][s] - logs["printed"][s] for s in seeds]))
        depths = ", ".join(
            f"{math.exp(np.mean([logs[steps][s] for s in seeds])):.3g} with {steps} steps"
            for steps in logs
        )
        name = f"kappa at rate={VALLEY:g} over unpruned, {depths}; quotient"
        return decide({"": found.exponential()}, name, above=1.0)

    return check


def log_quotients(rows: DataFrame) -> dict[int, float]:
    """The mean of log kappa at the valley's rate minus that of the unpruned network, by seed."""
    pruned, whole = where(rows, pruned=VALLEY), where(rows, pruned=0.0)
    return {
        int(seed): float(
            np.log(where(pruned, seed=seed)[KAPPA].to_numpy()).mean()
            - np.log(where(whole, seed=seed)[KAPPA].to_numpy()).mean()
        )
        for seed in np.intersect1d(pruned["seed"], whole["seed"])
    }


def _falls_with_parameters(frame: DataFrame) -> Verdict:
    """Whether kappa at initialisation falls with p / (k n) in every network."""
    start = where(frame, steps="printed", measured=True, epoch=0)
    shares = start.assign(share=start["parameters"] / (start["samples"] * start["outputs"]))
    names = [name for name in FIGURES if len(np.unique(where(shares, network=name)["share"])) > 1]
    found = {f"({name})": exponent(where(shares, network=name), "share", KAPPA) for name in names}
    return decide(found, "kappa goes like (p/(k n)) to the power", below=0.0)


def _slow_is_ill_conditioned(network: str) -> Callable[[DataFrame], Verdict]:
    """Whether the rates at which a low loss is reached later have a larger kappa early on.

    Spearman's correlation over the rates, of each one's means over the seeds: of the first epoch
    with a loss of at most ``REACHED``, and of kappa at epoch ``EARLY``. It is decided by the share
    of all orders of the rates that correlate as much.
    """

    def check(frame: DataFrame) -> Verdict:
        rows = trained(_of(frame, network))
        early = where(rows, measured=True, epoch=EARLY)
        rates = np.unique(early["pruned"]) if len(early) else np.empty(0)
        if len(rates) < 4:
            return not_testable(f"fewer than 4 rates with kappa after {EARLY} epochs")
        name = f"epochs to a loss of {REACHED:g} and kappa after {EARLY} epochs"
        return go_together(name, rates, *_link(rows, early, rates))

    return check


def go_together(name: str, rates: NDArray, first: NDArray, second: NDArray) -> Verdict:
    """Whether two quantities have the same order over the rates, by Spearman's correlation."""
    rho, above, below = _spearman(first, second)
    status = HOLDS if above <= CHANCE else FAILS if below <= CHANCE else UNDECIDED
    listed = ", ".join(
        f"{one:.4g} and {other:.3g} at rate={rate:g}"
        for rate, one, other in zip(rates, first, second, strict=True)
    )
    short = f"Spearman's correlation of {name} over the rates is {rho:.2f}"
    text = f"{short} (as much or more in {above:.1%} of all orders): {listed}"
    return Verdict(status, rho, text, short=short)


def _link(rows: DataFrame, early: DataFrame, rates: NDArray) -> tuple[NDArray, NDArray]:
    """Epochs to the low loss, infinite where it is not reached, and kappa, at each rate."""
    epochs, kappas = [], []
    for rate in rates:
        firsts = []
        for _, run in where(rows, pruned=rate).groupby("seed"):
            low = run["epoch"][run["loss"] <= REACHED]
            firsts.append(low.min() if low.size else np.inf)
        epochs.append(np.mean(firsts))
        kappas.append(np.exp(np.log(where(early, pruned=rate)[KAPPA].to_numpy()).mean()))
    return np.array(epochs), np.array(kappas)


def _spearman(first: NDArray, second: NDArray) -> tuple[float, float, float]:
    """The correlation of the ranks, and the shares of orders with one as large, and as small."""
    ranks = [scipy.stats.rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    scale = float(np.linalg.norm(ranks[0]) * np.linalg.norm(ranks[1]))
    if scale == 0:
        return 0.0, 1.0, 1.0
    orders = np.array(list(permutations(ranks[1])))
    found = orders @ ranks[0] / scale
    rho = float(ranks[0] @ ranks[1] / scale)
    return rho, float(np.mean(found >= rho - 1e-12)), float(np.mean(found <= rho + 1e-12))


def _claim(
    network: str,
    statement: str,
    source: Source | Sentence,
    check: Callable[[DataFrame], Verdict],
    steps: str = "printed",
    mechanism: str = "",
) -> Claim:
    panel = (("network", network), ("steps", steps))
    ratios = () if isinstance(source, Sentence) else _SHARE
    column = AS_PRINTED
    if network in OTHER_DATA:
        statement, column = f"{network}, kernels pruned, other data: {statement}", OTHER
    return Claim(FIGURES[network], statement, source, check, ratios, panel, mechanism, column)


def _printed(network: str) -> tuple[Claim, ...]:
    return (
        _claim(
            network,
            "kappa at initialisation is larger at every rate than unpruned",
            WORSE,
            _above_unpruned(network, KAPPA, "kappa", _kappas, measured=True, epoch=0),
        ),
        _claim(
            network,
            "kappa, averaged over the epochs, grows with the pruning rate",
            INCREASE,
            _grows_along(network),
            mechanism=MECHANISMS[network],
        ),
        _claim(
            network,
            "the loss, averaged over the epochs, is larger at every rate than unpruned",
            HARDER,
            _above_unpruned(network, "loss", "loss over all epochs", _losses, _later),
        ),
        _claim(
            network,
            "the final loss is larger at every rate than unpruned",
            HARDER,
            _above_unpruned(network, "loss", "final loss", _losses, _last),
        ),
    )


def _at_single_rates(network: str) -> tuple[Claim, ...]:
    """Rate by rate, which no sentence says: the curves of the figures may imply it."""
    return tuple(
        _claim(
            network,
            f"networks of which {rates} is pruned have a larger kappa, averaged over the epochs, "
            "than the unpruned one",
            BEYOND,
            _over_unpruned(network, which),
            mechanism=MECHANISMS[network],
        )
        for rates, which in (("80% and 90%", SPARSE), ("20% to 60%", MODERATE))
    )


def _valley_of(network: str) -> Claim:
    statement = "trained, kappa has a valley over the pruning rate: at 40% it is below both ends"
    return _claim(network, statement, BEYOND, _valley(network))


def _link_of(network: str) -> Claim:
    statement = "over the rates slow training goes with a large kappa early in training"
    return _claim(network, statement, BECAUSE, _slow_is_ill_conditioned(network))


def _with_small_steps(network: str) -> Claim:
    statement = (
        "with a constant learning rate of 0.005 (0.1, 0.02, 0.01, 0.005 and 0.003 were tried), "
        "networks of which 80% and 90% is pruned have a larger kappa, averaged over the epochs, "
        "than the unpruned one"
    )
    check = _over_unpruned(network, SPARSE, "smaller")
    return _claim(network, statement, BEYOND, check, "smaller")


def _valley_is_of_the_step(network: str) -> Claim:
    statement = "the valley is shallower with a learning rate of 0.005 than with the printed one"
    return _claim(network, statement, BEYOND, _shallower(network), "smaller")


CLAIMS = (
    *(claim for network in FIGURES for claim in _printed(network)),
    *(claim for network in FIGURES for claim in _at_single_rates(network)),
    *(_valley_of(network) for network in FIGURES),
    *(_link_of(network) for network in FIGURES),
    *(_with_small_steps(network) for network in SMALL_STEPS),
    *(_valley_is_of_the_step(network) for network in SMALL_STEPS),
    Claim(
        "C2",
        "kappa at initialisation falls with the number of parameters an output, p/(k n)",
        BEYOND,
        _falls_with_parameters,
    ),
)
