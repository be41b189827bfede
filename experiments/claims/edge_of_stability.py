"""What is said of sharpness along training, asked of a small MLP and a small GPT: figure T5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Series

from sweeps import effects
from sweeps.claims import BEYOND, Claim, Verdict, elsewhere, not_testable
from sweeps.effects import Effect
from sweeps.rows import where

DESCENT_PAPER = "arXiv 2103.00065"
ADAM_PAPER = "arXiv 2207.14484"
WARMUP_PAPER = "arXiv 2406.09405"
NEAR = 1.1  # "at" the threshold, a number of our own
REACHED = 0.95  # a run is at the edge from this share of the threshold on
UNFINISHED = "a run without a known sharpness in its last quarter"
MECHANISMS = {
    "gpt": "at rates 0.01 and 0.03 it ends within a tenth; at 0.1 the network does not train: the"
    " loss stays above 1.4, from 3.4, and ends at 0.07 to 0.11 with warm-up. Rounding decides what"
    " these runs do, so that their number changes from machine to machine"
}
Rows = Callable[[DataFrame], NDArray]


def _constant(frame: DataFrame, network: str, optimizer: str) -> dict[float, DataFrame]:
    """The runs without warm-up, by rate."""
    runs = where(frame, network=network, optimizer=optimizer, warmup=0)
    return {float(rate): where(runs, rate=rate) for rate in np.unique(runs["rate"])}


def _quarter(run: DataFrame, number: int) -> DataFrame:
    """The rows in one quarter of the steps, 1 to 4."""
    place = 4 * run["step"] / run["steps"]
    return run[(place > number - 1) & (place <= number)]


def _whole(runs: dict[float, DataFrame]) -> bool:
    """Whether there are runs, and each has a known sharpness in its last quarter."""
    each = [run for rows in runs.values() for _, run in rows.groupby("seed")]
    return bool(each) and all(np.isfinite(_quarter(run, 4)["preconditioned"]).any() for run in each)


def _logs(rows: DataFrame, of: Rows) -> NDArray:
    """The logarithm of ``of(run)`` for the run of each seed."""
    return np.log([float(of(run)) for _, run in rows.groupby("seed")])


def _per_rate(runs: dict[float, DataFrame], of: Rows) -> dict[str, Effect]:
    """The geometric mean over the seeds of ``of(run)``, at every rate."""
    return {
        f"at rate {rate:g}": effects.mean(_logs(rows, of)).exponential()
        for rate, rows in runs.items()
    }


def _geometric(values: Series) -> NDArray:
    """The geometric mean of the values that are known."""
    return np.exp(np.log(values[np.isfinite(values)].to_numpy()).mean())


def _late(run: DataFrame) -> NDArray:
    """Preconditioned sharpness over its threshold, a geometric mean over the last quarter."""
    last = _quarter(run, 4)
    return _geometric(last["preconditioned"] / last["final_threshold"])


def _distance(run: DataFrame) -> NDArray:
    ratio = _late(run)
    return np.maximum(ratio, 1 / ratio)


def _starts_below(runs: dict[float, DataFrame]) -> bool:
    firsts = [where(rows, step=1) for rows in runs.values()]
    return all((first["preconditioned"] < first["threshold"]).all() for first in firsts)


def _rises(frame: DataFrame) -> Verdict:
    runs = _constant(frame, "mlp", "gradient descent")
    if not _whole(runs):
        return not_testable(UNFINISHED)
    if not _starts_below(runs):
        return not_testable("a sharpness that starts above 2 / rate")
    found = _per_rate(
        runs, lambda run: _geometric(_quarter(run, 4)["sharpness"]) / run["sharpness"].iloc[0]
    )
    return effects.decide(found, "last quarter over the first step", above=1.0)


def _hovers(network: str, optimizer: str, of: Rows, **side: Any) -> Callable:
    limit = "2 / rate" if optimizer == "gradient descent" else "38 / rate"
    words = "over" if "above" in side else "apart from"

    def check(frame: DataFrame) -> Verdict:
        runs = _constant(frame, network, optimizer)
        if not _whole(runs):
            return not_testable(UNFINISHED)
        return effects.decide(_per_rate(runs, of), f"factor {words} {limit}", **side)

    return check


def _loss_falls(frame: DataFrame) -> Verdict:
    runs = _constant(frame, "mlp", "gradient descent")
    if not _whole(runs):
        return not_testable(UNFINISHED)
    found = _per_rate(
        runs,
        lambda run: _geometric(_quarter(run, 4)["loss"]) / _geometric(_quarter(run, 3)["loss"]),
    )
    return effects.decide(found, "loss of the last quarter over the third", below=1.0)


def _advance(run: DataFrame) -> NDArray:
    """The largest sharpness after the run has reached the edge, over the sharpness when it did.

    It is nan for a run that never reaches the edge. Adam's first step may lie beyond the edge, so
    that the run counts only from the last row that is below half the threshold.
    """
    ratio = (run["preconditioned"] / run["threshold"]).to_numpy()
    low = np.flatnonzero(ratio < REACHED / 2)
    first = low[-1] + 1 if len(low) else 0
    at = first + np.flatnonzero(ratio[first:] >= REACHED)
    if not len(at):
        return np.array(np.nan)
    sharpness = run["sharpness"].to_numpy()
    return np.nanmax(sharpness[at[0] :]) / sharpness[at[0]]


def _advances(frame: DataFrame) -> Verdict:
    adam, descent = (_constant(frame, "mlp", name) for name in ("Adam", "gradient descent"))
    if not adam or not descent:
        return not_testable("no runs")
    grown = {rate: _logs(rows, _advance) for rate, rows in adam.items()}
    other = np.mean([_logs(rows, _advance) for rows in descent.values()], axis=0)
    if not all(np.isfinite(values).all() for values in (*grown.values(), other)):
        return not_testable("a run that never reaches the edge")
    found = {
        f"at rate {rate:g}": effects.mean(values - other).exponential()
        for rate, values in grown.items()
    }
    name = "growth of the sharpness at the edge, over that of gradient descent,"
    return effects.decide(found, name, above=1.0)


def _pairs(frame: DataFrame) -> dict[float, tuple[DataFrame, DataFrame]]:
    """The runs of the GPT with the longest warm-up, and those without warm-up, by rate."""
    runs = where(frame, network="gpt", optimizer="Adam")
    longest = runs["warmup"].max() if len(runs) else 0
    if not longest:
        return {}
    pairs = {
        float(rate): tuple(where(runs, rate=rate, warmup=steps) for steps in (longest, 0))
        for rate in np.unique(runs["rate"])
    }
    return {rate: (warm, cold) for rate, (warm, cold) in pairs.items()}


def _gain(warm: DataFrame, cold: DataFrame) -> NDArray:
    """log (loss without warm-up / loss with it) in the last quarter, for each seed."""

    def late(run: DataFrame) -> NDArray:
        return _geometric(_quarter(run, 4)["loss"])

    return _logs(cold, late) - _logs(warm, late)


def _tolerates(frame: DataFrame) -> Verdict:
    pairs = _pairs(frame)
    if not pairs:
        return not_testable("no runs with warm-up")
    rate = max(pairs)
    found = {f"at rate {rate:g}": effects.mean(_gain(*pairs[rate])).exponential()}
    return effects.decide(found, "loss without warm-up over that with it", above=1.0)


def _more_at_larger_rates(frame: DataFrame) -> Verdict:
    pairs = _pairs(frame)
    if len(pairs) < 2:
        return not_testable("fewer than 2 rates with warm-up")
    gap = _gain(*pairs[max(pairs)]) - _gain(*pairs[min(pairs)])
    found = {f"at rate {max(pairs):g} over {min(pairs):g}": effects.mean(gap).exponential()}
    return effects.decide(found, "the loss's ratio without and with warm-up,", above=1.0)


def _first_step(warm: bool, **side: Any) -> Callable:
    def check(frame: DataFrame) -> Verdict:
        pairs = _pairs(frame)
        if not pairs:
            return not_testable("no runs with warm-up")
        runs = {rate: pair[0] if warm else pair[1] for rate, pair in pairs.items()}
        found = _per_rate(
            runs, lambda run: run["preconditioned"].iloc[0] / run["threshold"].iloc[0]
        )
        return effects.decide(found, "preconditioned sharpness over its threshold", **side)

    return check


def _at_its_end(warm: DataFrame) -> DataFrame:
    return warm[warm["step"] == warm["warmup"]]


def _falls(frame: DataFrame) -> Verdict:
    runs = {rate: warm for rate, (warm, _) in _pairs(frame).items()}
    if not runs or not all(len(_at_its_end(warm)) for warm in runs.values()):
        return not_testable("no rows where a warm-up ends")
    found = _per_rate(
        runs,
        lambda run: _at_its_end(run)["preconditioned"].iloc[0] / run["preconditioned"].iloc[0],
    )
    return effects.decide(found, "end of the warm-up over the first step", below=1.0)


def _lower_than_without(frame: DataFrame) -> Verdict:
    found: dict[str, Effect] = {}
    pairs = _pairs(frame)
    for rate, (warm, cold) in pairs.items():
        end = _at_its_end(warm)
        same = where(cold, step=warm["warmup"].iloc[0])
        if end.empty or same.empty:
            return not_testable("no rows where a warm-up ends")
        found[f"at rate {rate:g}"] = effects.ratio(end, same, "preconditioned")
    return effects.decide(found, "with warm-up over without, where it ends,", below=1.0)


CLAIMS = (
    Claim(
        "T5",
        "MLP, gradient descent: the sharpness rises",
        elsewhere(f'{DESCENT_PAPER}, Section 1, below 2 / rate it "tends to continually rise"'),
        _rises,
    ),
    Claim(
        "T5",
        "MLP, gradient descent: the sharpness ends at 2 / rate, within a tenth",
        elsewhere(f'{DESCENT_PAPER}, abstract, "hovers just above"; the tenth is ours'),
        _hovers("mlp", "gradient descent", _distance, below=NEAR),
    ),
    Claim(
        "T5",
        "MLP, gradient descent: just above it, on average",
        elsewhere(f'{DESCENT_PAPER}, abstract, "hovers just above the value 2/(step size)"'),
        _hovers("mlp", "gradient descent", _late, above=1.0),
    ),
    Claim(
        "T5",
        "MLP, gradient descent: the loss goes on falling there over many steps",
        elsewhere(f'{DESCENT_PAPER}, abstract, "consistently decreases over long timescales"'),
        _loss_falls,
    ),
    *(
        Claim(
            "T5",
            f"{title}, Adam: the preconditioned sharpness ends at 38 / rate, within a tenth",
            elsewhere(f'{ADAM_PAPER}, abstract, "typically equilibrates"; the tenth is ours'),
            _hovers(network, "Adam", _distance, below=NEAR),
            mechanism=MECHANISMS.get(network, ""),
        )
        for network, title in (("mlp", "MLP"), ("gpt", "GPT"))
    ),
    Claim(
        "T5",
        "MLP: at its edge Adam advances to larger sharpness more than gradient descent does",
        elsewhere(f'{ADAM_PAPER}, abstract, "can keep advancing into high-curvature regions"'),
        _advances,
    ),
    Claim(
        "T5",
        "GPT, Adam at a constant rate: the first step ends beyond the threshold",
        BEYOND,
        _first_step(warm=False, above=1.0),
    ),
    Claim(
        "T5",
        "GPT, Adam with warm-up: the first step ends below the threshold of its smaller rate",
        BEYOND,
        _first_step(warm=True, below=1.0),
    ),
    Claim(
        "T5",
        "GPT, Adam: the preconditioned sharpness falls during the warm-up",
        elsewhere(
            f'{WARMUP_PAPER}, abstract, "forcing the network to more well-conditioned areas"'
        ),
        _falls,
    ),
    Claim(
        "T5",
        "GPT, Adam: where the warm-up ends it is lower than after as many steps without",
        BEYOND,
        _lower_than_without,
    ),
    Claim(
        "T5",
        "GPT, Adam: at the largest rate the loss is smaller with warm-up",
        elsewhere(f'{WARMUP_PAPER}, abstract, "allowing the network to tolerate larger" rates'),
        _tolerates,
    ),
    Claim(
        "T5",
        "GPT, Adam: warm-up lowers the loss more at the largest rate than at the smallest",
        elsewhere(f'{WARMUP_PAPER}, abstract, "the overwhelming benefit of warmup"'),
        _more_at_larger_rates,
    ),
)
