"""What paper A says of networks pruned at initialisation: figures 1 and 13 to 17.

kappa is the pseudo-condition number at the numerical rank, as in Appendix C of the paper. A trend
over the pruning rate is an exponent e in (1 - rate)^e, fitted for every seed on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sweeps.claims import BEYOND, Claim, Source, Verdict, not_testable, printed
from sweeps.effects import decide, exponent, ratio
from sweeps.rows import geometric_means, length, points, where
from sweeps.table import Columns

KAPPA = "kappa_numerical"
SPARSE, MODERATE = (0.8, 0.9), (0.2, 0.4, 0.6)  # pruning rates
VALLEY = 0.4
LAST = 0.1  # the share of the epochs whose mean is the final loss

FIGURES: Mapping[str, str] = {
    "resnet20": "1, 14",
    "vit": "13",
    "resnet32": "15",
    "vgg5": "16",
    "feed_forward": "17",
}
_SLOWDOWN = printed(
    'Section 1, at Figure 1: "training sparse networks from scratch using stochastic gradient '
    'descent results in a slowdown of training" (other networks: Section I.1)'
)
_INCREASE = printed(
    'Section 1, at Figure 1: "which is also reflected in an increase in the condition number of '
    'the GN matrix" (other networks: Section I.1)'
)
_WORSE = printed(
    'Section 7: "why pruned networks are more difficult to train as they have worse conditioning"'
)


def _of(table: Columns, network: str, steps: str = "printed") -> Columns:
    return where(table, network=network, steps=steps)


def _measured(table: Columns, network: str, steps: str = "printed") -> Columns:
    return where(_of(table, network, steps), measured=True)


def _trend(rows: Columns, of: str, name: str) -> Verdict:
    """Whether a column grows with the pruning rate, by the exponent of the share that is kept."""
    if len(np.unique(rows["pruned"])) < 2:
        return not_testable("fewer than 2 pruning rates")
    found = decide({"": exponent(rows, "kept", of)}, f"{name} ~ (1 - rate)^e, e =", below=0.0)
    listed = points("rate", *geometric_means(rows, "pruned", of))
    text = f"{found.text}: {listed}{_lost(rows) if of == KAPPA else ''}"
    return Verdict(found.status, found.number, text, found.low, found.high)


def _lost(rows: Columns) -> str:
    """Where the numerical rank is below the number of rows of J."""
    short = rows["rank_numerical"] < rows["samples"] * rows["outputs"]
    rates = np.unique(rows["pruned"][short])
    listed = ", ".join(
        f"{np.count_nonzero(short & (rows['pruned'] == rate))} of "
        f"{np.count_nonzero(rows['pruned'] == rate)} at rate={rate:g}"
        for rate in rates
    )
    return f"; rank deficient: {listed}" if listed else ""


def _grows_at_start(network: str) -> Callable[[Columns], Verdict]:
    def check(table: Columns) -> Verdict:
        return _trend(where(_measured(table, network), epoch=0), KAPPA, "kappa")

    return check


def _over_unpruned(
    network: str, rates: tuple[float, ...], steps: str = "printed"
) -> Callable[[Columns], Verdict]:
    """Whether kappa, averaged over the epochs and the seeds, exceeds that of the whole network."""

    def check(table: Columns) -> Verdict:
        rows = _measured(table, network, steps)
        whole = where(rows, pruned=0.0)
        found = {rate: where(rows, pruned=rate) for rate in rates}
        found = {rate: pruned for rate, pruned in found.items() if length(pruned)}
        if not length(whole) or not found or rows["epoch"].max() == 0:
            return not_testable("no trained networks to compare")
        compared = {
            f"at rate={rate:g}": ratio(pruned, whole, KAPPA, len(found))
            for rate, pruned in found.items()
        }
        verdict = decide(compared, "kappa over that of the unpruned network:", above=1.0)
        return Verdict(
            verdict.status, verdict.number, verdict.text + _lost(rows), verdict.low, verdict.high
        )

    return check


def _slows(network: str) -> Callable[[Columns], Verdict]:
    def check(table: Columns) -> Verdict:
        rows = _of(table, network)
        trained = _later(rows, 0)
        return _trend(trained, "loss", "loss over all epochs")

    return check


def _ends_higher(network: str) -> Callable[[Columns], Verdict]:
    def check(table: Columns) -> Verdict:
        rows = _of(table, network)
        last = rows["epoch"].max() if length(rows) else 0
        return _trend(_later(rows, (1 - LAST) * last), "loss", "final loss")

    return check


def _later(rows: Columns, epoch: float) -> Columns:
    keep = rows["epoch"] > epoch
    return {name: column[keep] for name, column in rows.items()}


def _valley(network: str) -> Callable[[Columns], Verdict]:
    """Whether kappa of trained networks is lower at a moderate rate than at both ends."""

    def check(table: Columns) -> Verdict:
        rows = _later(_measured(table, network), 0)
        if not length(rows):
            return not_testable("no trained networks")
        bottom, most = where(rows, pruned=VALLEY), rows["pruned"].max()
        found = {
            f"over that at rate={rate:g}": ratio(bottom, where(rows, pruned=rate), KAPPA, 2)
            for rate in (0.0, most)
        }
        return decide(found, f"kappa at rate={VALLEY:g}:", below=1.0)

    return check


def _falls_with_parameters(table: Columns) -> Verdict:
    """The exponents of kappa at initialisation in p / (k n), one for every network."""
    start = where(table, steps="printed", measured=True, epoch=0)
    shares = {**start, "share": start["parameters"] / (start["samples"] * start["outputs"])}
    names = [name for name in FIGURES if len(np.unique(where(shares, network=name)["share"])) > 1]
    found = {
        f"({name})": exponent(where(shares, network=name), "share", KAPPA, len(names))
        for name in names
    }
    return decide(found, "kappa ~ (p/(k n))^e, e =", below=0.0)


def _claim(
    network: str,
    statement: str,
    source: Source,
    check: Callable[[Columns], Verdict],
    steps: str = "printed",
    mechanism: str = "",
) -> Claim:
    panel = (("network", network), ("steps", steps))
    return Claim(FIGURES[network], statement, source, check, ("p/(k n)",), panel, mechanism)


def _printed(network: str) -> tuple[Claim, ...]:
    return (
        _claim(
            network,
            "kappa at initialisation grows with the pruning rate",
            _WORSE,
            _grows_at_start(network),
        ),
        _claim(
            network,
            "sparse networks (80% and 90% pruned) have a larger kappa, averaged over the epochs, "
            "than the unpruned one",
            _INCREASE,
            _over_unpruned(network, SPARSE),
        ),
        _claim(
            network,
            "networks of which 20% to 60% is pruned have a larger kappa, averaged over the epochs, "
            "than the unpruned one",
            _INCREASE,
            _over_unpruned(network, MODERATE),
        ),
        _claim(
            network,
            "the loss, averaged over the epochs, grows with the pruning rate",
            _SLOWDOWN,
            _slows(network),
        ),
        _claim(
            network,
            "the final loss grows with the pruning rate",
            _SLOWDOWN,
            _ends_higher(network),
        ),
    )


def _beyond(network: str) -> tuple[Claim, ...]:
    return (
        _claim(
            network,
            "trained, kappa has a valley over the pruning rate: at 40% it is below both ends",
            BEYOND,
            _valley(network),
        ),
        _claim(
            network,
            "with small steps (learning rate 0.005, constant), sparse networks have a larger kappa",
            BEYOND,
            _over_unpruned(network, SPARSE, "smaller"),
            "smaller",
        ),
    )


CLAIMS = (
    *(claim for network in FIGURES for claim in _printed(network)),
    *(claim for network in FIGURES for claim in _beyond(network)),
    Claim(
        "C2",
        "kappa at initialisation falls with the number of parameters an output, p/(k n)",
        BEYOND,
        _falls_with_parameters,
    ),
)
