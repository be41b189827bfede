"""What is said of sharpness along training, asked of a small MLP and a small GPT: figure T5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Series

from sweeps import effects
from sweeps.claims import BEYOND, Claim, NotTestableError, Verdict, elsewhere, not_testable
from sweeps.comparisons import Compare, Prepare
from sweeps.effects import Effect
from sweeps.rows import where

DESCENT_PAPER = "arXiv 2103.00065"
ADAM_PAPER = "arXiv 2207.14484"
WARMUP_PAPER = "arXiv 2406.09405"
NEAR = 1.1  # "at" the threshold, a number of our own
REACHED = 0.95  # a run is at the edge from this share of the threshold on
MECHANISMS = {
    "gpt": "at rates 0.01 and 0.03 it ends within a tenth; at 0.1 the network does not train: the"
    " loss stays above 1.4, from 3.4, and ends at 0.07 to 0.11 with warm-up. Rounding decides what"
    " these runs do, so that their number changes from machine to machine"
}
Number = Callable[[DataFrame], float]


def _constant(frame: DataFrame, network: str, optimizer: str) -> dict[float, DataFrame]:
    """The runs without warm-up, by rate."""
    runs = where(frame, network=network, optimizer=optimizer, warmup=0)
    return {float(rate): where(runs, rate=rate) for rate in np.unique(runs["rate"])}


def _quarter(run: DataFrame, number: int) -> DataFrame:
    """The rows in one quarter of the steps, 1 to 4."""
    place = 4 * run["step"] / run["steps"]
    return run[(place > number - 1) & (place <= number)]


def _finished(rows: DataFrame) -> DataFrame:
    """The runs, if there are any and each has a known sharpness in its last quarter."""
    runs = [run for _, run in rows.groupby(["rate", "seed"])]
    known = [np.isfinite(_quarter(run, 4)["preconditioned"]).any() for run in runs]
    if not runs or not all(known):
        msg = "a run without a known sharpness in its last quarter"
        raise NotTestableError(msg)
    return rows


def _from_below(rows: DataFrame) -> DataFrame:
    """The finished runs, if the sharpness of all of them starts below the threshold."""
    first = where(_finished(rows), step=1)
    if not (first["preconditioned"] < first["threshold"]).all():
        msg = "a sharpness that starts above 2 / rate"
        raise NotTestableError(msg)
    return rows


def _logs(rows: DataFrame, of: Number) -> NDArray:
    """The logarithm of ``of(run)`` for the run of each seed."""
    return np.log([float(of(run)) for _, run in rows.groupby("seed")])


def _geometric(values: Series) -> float:
    """The geometric mean of the values that are known."""
    return float(np.exp(np.log(values[np.isfinite(values)].to_numpy()).mean()))


def _late(run: DataFrame) -> float:
    """Preconditioned sharpness over its threshold, a geometric mean over the last quarter."""
    last = _quarter(run, 4)
    return _geometric(last["preconditioned"] / last["final_threshold"])


def _distance(run: DataFrame) -> float:
    ratio = _late(run)
    return max(ratio, 1 / ratio)


def _at_every_rate(
    of: Number,
    name: str,
    network: str = "mlp",
    optimizer: str = "gradient descent",
    prepare: Prepare = _finished,
    **side: Any,
) -> Compare:
    """Whether a number of the run of each seed lies on a side at every rate, without warm-up."""
    rows = {"network": network, "optimizer": optimizer, "warmup": 0}
    return Compare(of, rows, each="rate", name=name, prepare=prepare, **side)


def _rise(run: DataFrame) -> float:
    return _geometric(_quarter(run, 4)["sharpness"]) / run["sharpness"].iloc[0]


def _late_fall_of_the_loss(run: DataFrame) -> float:
    return _geometric(_quarter(run, 4)["loss"]) / _geometric(_quarter(run, 3)["loss"])


def _advance(run: DataFrame) -> float:
    """The largest sharpness after the run has reached the edge, over the sharpness when it did.

    It is nan for a run that never reaches the edge. Adam's first step may lie beyond the edge, so
    that the run counts only from the last row that is below half the threshold.
    """
    ratio = (run["preconditioned"] / run["threshold"]).to_numpy()
    low = np.flatnonzero(ratio < REACHED / 2)
    first = low[-1] + 1 if len(low) else 0
    at = first + np.flatnonzero(ratio[first:] >= REACHED)
    if not len(at):
        return np.nan
    sharpness = run["sharpness"].to_numpy()
    return float(np.nanmax(sharpness[at[0] :]) / sharpness[at[0]])


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

    def late(run: DataFrame) -> float:
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


def _of_gpt(of: Number, name: str, prepare: Prepare, **side: Any) -> Compare:
    rows = {"network": "gpt", "optimizer": "Adam"}
    return Compare(of, rows, each="rate", name=name, prepare=prepare, **side)


def _first_step(run: DataFrame) -> float:
    return run["preconditioned"].iloc[0] / run["threshold"].iloc[0]


def _warm(rows: DataFrame) -> DataFrame:
    """The runs with the longest warm-up."""
    if not rows["warmup"].any():
        msg = "no runs with warm-up"
        raise NotTestableError(msg)
    return where(rows, warmup=rows["warmup"].max())


def _cold(rows: DataFrame) -> DataFrame:
    """The runs without warm-up, if others have one."""
    return rows[rows["warmup"] == 0] if len(_warm(rows)) else rows


def _at_its_end(warm: DataFrame) -> DataFrame:
    return warm[warm["step"] == warm["warmup"]]


def _to_its_end(rows: DataFrame) -> DataFrame:
    """The runs with the longest warm-up, if every rate has a row where it ends."""
    if not rows["warmup"].any() or set(_at_its_end(_warm(rows))["rate"]) != set(rows["rate"]):
        msg = "no rows where a warm-up ends"
        raise NotTestableError(msg)
    return _warm(rows)


def _fall(run: DataFrame) -> float:
    return _at_its_end(run)["preconditioned"].iloc[0] / run["preconditioned"].iloc[0]


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
        _at_every_rate(_rise, "last quarter over the first step", prepare=_from_below, above=1.0),
    ),
    Claim(
        "T5",
        "MLP, gradient descent: the sharpness ends at 2 / rate, within a tenth",
        elsewhere(f'{DESCENT_PAPER}, abstract, "hovers just above"; the tenth is ours'),
        _at_every_rate(_distance, "factor apart from 2 / rate", below=NEAR),
    ),
    Claim(
        "T5",
        "MLP, gradient descent: just above it, on average",
        elsewhere(f'{DESCENT_PAPER}, abstract, "hovers just above the value 2/(step size)"'),
        _at_every_rate(_late, "factor over 2 / rate", above=1.0),
    ),
    Claim(
        "T5",
        "MLP, gradient descent: the loss goes on falling there over many steps",
        elsewhere(f'{DESCENT_PAPER}, abstract, "consistently decreases over long timescales"'),
        _at_every_rate(
            _late_fall_of_the_loss, "loss of the last quarter over the third", below=1.0
        ),
    ),
    *(
        Claim(
            "T5",
            f"{title}, Adam: the preconditioned sharpness ends at 38 / rate, within a tenth",
            elsewhere(f'{ADAM_PAPER}, abstract, "typically equilibrates"; the tenth is ours'),
            _at_every_rate(_distance, "factor apart from 38 / rate", network, "Adam", below=NEAR),
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
        _of_gpt(_first_step, "preconditioned sharpness over its threshold", _cold, above=1.0),
    ),
    Claim(
        "T5",
        "GPT, Adam with warm-up: the first step ends below the threshold of its smaller rate",
        BEYOND,
        _of_gpt(_first_step, "preconditioned sharpness over its threshold", _warm, below=1.0),
    ),
    Claim(
        "T5",
        "GPT, Adam: the preconditioned sharpness falls during the warm-up",
        elsewhere(
            f'{WARMUP_PAPER}, abstract, "forcing the network to more well-conditioned areas"'
        ),
        _of_gpt(_fall, "end of the warm-up over the first step", _to_its_end, below=1.0),
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
