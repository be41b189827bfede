"""The claims of paper A about figures 9 and 18, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sweeps import effects
from sweeps.claims import HOLDS, NOT_TESTABLE, Claim, Sentence, Verdict, not_testable
from sweeps.rows import kept, length, where
from sweeps.table import Columns

FEWEST_EPOCHS = 50  # the paper trains for 100
SETTLED = 10  # the epoch from which on the spread of kappa counts
OFF = 0.9  # a wrong rank may be as low as this share of the chosen one
ROBUST = 10.0  # an order of magnitude, on the figure's logarithmic axis
FAR_MORE = 2.0
NARROW = 50  # from here on the spread no longer falls


def _falls(quantity: Callable[[Columns], float], name: str) -> Callable[[Columns], Verdict]:
    """Whether a quantity of the runs falls with the width: its log-log slope is negative."""

    def check(table: Columns) -> Verdict:
        shown = where(table, figure=18)
        widths = np.unique(shown["width"])
        last = int(shown["epoch"].max()) if length(shown) else 0
        if len(widths) < 2 or last < FEWEST_EPOCHS:
            return not_testable(f"{len(widths)} widths and {last} epochs; the paper has 6 and 100")
        every = _columns(
            ("width", "seed", name),
            [
                (width, seed, quantity(where(shown, width=width, seed=seed)))
                for width in widths
                for seed in np.unique(shown["seed"])
            ],
        )
        curve = kept(every, np.isfinite(every[name]))
        if len(np.unique(curve["width"])) < len(widths):
            return not_testable("a width has no resolved kappa")
        found = effects.trend(curve, "width", "m", rises=False, of=name)
        missing = length(every) - length(curve)
        text = f"; {missing} of {length(every)} networks have no resolved kappa"
        return replace(found, text=found.text + text) if missing else found

    return check


def _falls_then_flat(table: Columns) -> Verdict:
    """Whether the spread of log kappa falls with the width; and whether it does from m = 50 on."""
    check = _falls(_variation, "spread of log kappa")
    found = check(table)
    wide = kept(table, table["width"] >= NARROW) if found.status != NOT_TESTABLE else table
    if len(np.unique(where(wide, figure=18)["width"])) < 2 or found.status == NOT_TESTABLE:
        return found
    return replace(found, text=f"{found.text}; from m={NARROW} on {check(wide).text}")


def _columns(names: Sequence[str], rows: Sequence[tuple[float, ...]]) -> Columns:
    return {key: np.array(col) for key, col in zip(names, zip(*rows, strict=True), strict=True)}


def _resolved(path: Columns, since: int = 0) -> Columns:
    shown = where(path, resolved=True)
    return kept(shown, shown["epoch"] >= since)


def _kappa_falls(table: Columns) -> Verdict:
    """Whether the mean of log kappa over the epochs falls with the width.

    A kappa that is not resolved counts with its lower bound. Larger values at widths below the
    average width make the slope smaller. So where only such widths have unresolved kappas, a slope
    that is negative with the bounds is negative; nothing else is decided.
    """
    found = _falls(_mean_kappa, "mean kappa")(table)
    shown = where(table, figure=18, measured=True)
    bounded = np.unique(shown["width"][~shown["resolved"]])
    if not len(bounded) or found.status == NOT_TESTABLE:
        return found
    listed = f"lower bounds among kappa at m={', '.join(f'{width:g}' for width in bounded)}"
    narrow = np.log(bounded).max() < np.log(np.unique(shown["width"])).mean()
    if not narrow or found.status != HOLDS:
        return not_testable(listed)
    return replace(found, text=f"{found.text}; {listed}")


def _mean_kappa(path: Columns) -> float:
    """The geometric mean of kappa over the epochs, by lower bounds where it is not resolved."""
    shown = where(path, measured=True)
    kappa = np.where(shown["resolved"], shown["kappa"], shown["kappa_low"])
    return float(np.exp(np.log(kappa).mean()))


def _variation(path: Columns) -> float:
    """The standard deviation of log kappa over the epochs, once training has settled."""
    kappa = _resolved(path, SETTLED)["kappa"]
    return float(np.log(kappa).std(ddof=1)) if kappa.size > 1 else float("nan")


def _mean_loss(path: Columns) -> float:
    return float(np.nanmean(path["loss"]))


def _spectra(table: Columns) -> dict[int, Columns]:
    shown = where(table, figure=9)
    return {int(epoch): where(shown, epoch=epoch) for epoch in np.unique(shown["epoch"])}


def _robust_at_first(table: Columns) -> Verdict:
    spectra = _spectra(table)
    if not spectra:
        return not_testable("no spectra")
    first = _factors(spectra[min(spectra)])
    logs = np.log(first["factor"])
    text = f"the {1 - OFF:.0%} of ranks up to the chosen one, {_ranks(first)}, span a factor"
    return effects.decide({"": effects.mean(logs).exponential()}, text, below=ROBUST)


def _sensitive_after(table: Columns) -> Verdict:
    spectra = _spectra(table)
    if len(spectra) < 2 or max(spectra) < FEWEST_EPOCHS:
        return not_testable(f"no spectra {FEWEST_EPOCHS} epochs apart")
    first, last = _factors(spectra[min(spectra)]), _factors(spectra[max(spectra)])
    text = "factor of kappa over the same ranks after training / before"
    return effects.decide({"": effects.ratio(last, first, "factor")}, text, above=FAR_MORE)


def _factors(spectra: Columns) -> Columns:
    """For each seed the numerical rank r, and the factor kappa(r) / kappa(OFF r)."""
    found = []
    for seed in np.unique(spectra["seed"]):
        counted = where(spectra, seed=seed, counted=True)
        kappa = counted["kappa"][np.argsort(counted["assumed_rank"])]
        rank = len(kappa)
        found.append((seed, rank, float(kappa[-1] / kappa[int(OFF * rank) - 1])))
    return _columns(("seed", "rank", "factor"), found)


def _ranks(factors: Columns) -> str:
    low, high = int(factors["rank"].min()), int(factors["rank"].max())
    return f"{low}" if low == high else f"{low} to {high}"


_SIZES = ("p/(k n)", "n/d", "batch/n", "epochs x rate")
_OF_9, _OF_18 = (("figure", 9),), (("figure", 18),)
_ROBUST = Sentence(
    "A",
    "Appendix C",
    "can be quite robust (Epoch=0) .. to the numerical matrix rank",
    ("p/(k n)", "n/d"),
)
_SENSITIVE = Sentence(
    "A",
    "Appendix C",
    "but also very sensitive (Epoch=100) to the numerical matrix rank",
    ("p/(k n)", "n/d", "batch/n"),
)
_IMPROVES = Sentence(
    "A",
    "Appendix I.2",
    "a larger width improves both the conditioning and the convergence speed",
    _SIZES,
)
_STABLE = Sentence("A", "Appendix I.2", "more stable throughout training for larger widths", _SIZES)

CLAIMS = (
    Claim(
        "9",
        "at epoch 0 kappa at the numerical rank of single precision is within a factor of ten of "
        "that at a tenth fewer ranks",
        _ROBUST,
        _robust_at_first,
        panel=_OF_9,
    ),
    Claim(
        "9",
        "after training kappa varies far more with that rank than before",
        _SENSITIVE,
        _sensitive_after,
        panel=_OF_9,
        mechanism=(
            "at the numerical rank of single precision kappa is as robust after training as before"
            " (1.6, at the paper's size 1.2); the smallest eigenvalues, which spread over"
            " many decades before training as well as after, lie below that rank: of 950 at n = 95"
            " it counts 478 to 559, and of 10,000 at the paper's size 683 to 809"
        ),
    ),
    Claim(
        "18",
        "larger width: lower kappa, averaged over epochs",
        _IMPROVES,
        _kappa_falls,
        panel=_OF_18,
    ),
    Claim(
        "18",
        "larger width: the loss decreases faster",
        _IMPROVES,
        _falls(_mean_loss, "mean loss"),
        panel=_OF_18,
    ),
    Claim(
        "18",
        "larger width: kappa is more stable throughout training",
        _STABLE,
        _falls_then_flat,
        panel=_OF_18,
    ),
)
