"""The claims of paper A about figures 9 and 18, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sweeps import effects
from sweeps.claims import Claim, Verdict, not_testable, printed
from sweeps.rows import kept, length, where
from sweeps.table import Columns

FEWEST_EPOCHS = 50  # the paper trains for 100
SETTLED = 10  # the epoch from which on the spread of kappa counts
OFF = 0.9  # a wrong rank may be as low as this share of the chosen one
ROBUST = 10.0  # an order of magnitude, on the figure's logarithmic axis
FAR_MORE = 2.0


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


def _columns(names: Sequence[str], rows: Sequence[tuple[float, ...]]) -> Columns:
    return {key: np.array(col) for key, col in zip(names, zip(*rows, strict=True), strict=True)}


def _resolved(path: Columns, since: int = 0) -> Columns:
    shown = where(path, resolved=True)
    return kept(shown, shown["epoch"] >= since)


def _mean_kappa(path: Columns) -> float:
    """The geometric mean of kappa over the epochs."""
    kappa = _resolved(path)["kappa"]
    return float(np.exp(np.log(kappa).mean())) if kappa.size else float("nan")


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
    """For each seed the chosen rank r, and the factor kappa(r) / kappa(OFF r)."""
    found = []
    for seed in np.unique(spectra["seed"]):
        spectrum = where(spectra, seed=seed)
        rank = int(spectrum["rank"][0])
        kappa = spectrum["kappa"][np.argsort(spectrum["assumed_rank"])]
        found.append((seed, rank, float(kappa[rank - 1] / kappa[int(OFF * rank) - 1])))
    return _columns(("seed", "rank", "factor"), found)


def _ranks(factors: Columns) -> str:
    low, high = int(factors["rank"].min()), int(factors["rank"].max())
    return f"{low}" if low == high else f"{low} to {high}"


_SIZES = ("p/(k n)", "n/d", "batch/n", "epochs x rate")
_TREND = 'Appendix H.2, "the trend that a larger width improves both"'
_ROBUST = 'Appendix C, "quite robust (Epoch=0), but also very sensitive (Epoch=100)"'
_OF_18 = (("figure", 18),)

CLAIMS = (
    Claim(
        "9",
        "at epoch 0 kappa is robust to the rank: within a factor of ten over a tenth of the ranks",
        printed(_ROBUST),
        _robust_at_first,
        ("p/(k n)", "n/d"),
        (("figure", 9),),
        mechanism=(
            "the spectrum falls smoothly to its edge, so the answer lies in the choice of the"
            " rank: our rank counts every eigenvalue above its error in float64 (950; 9,202 at the"
            " paper's size, where the last is 2e-25 of the largest); at the numerical rank of"
            " float32, 542 and 8,104, the same tenth of the ranks spans a factor of 1.6 and of 6,"
            " after training 1.6 and 5"
        ),
    ),
    Claim(
        "9",
        "after training kappa varies far more with the assumed rank than before",
        printed(_ROBUST),
        _sensitive_after,
        ("p/(k n)", "n/d", "batch/n"),
        (("figure", 9),),
        mechanism=(
            "at the numerical rank of float32 kappa is as robust after training as before (1.6, at"
            " the paper's size 5.4 after 6.1); the smallest eigenvalues, which spread over many"
            " decades before training as well as after, lie below that rank"
        ),
    ),
    Claim(
        "18",
        "larger width: lower kappa, averaged over epochs",
        printed(_TREND),
        _falls(_mean_kappa, "mean kappa"),
        _SIZES,
        _OF_18,
    ),
    Claim(
        "18",
        "larger width: the loss decreases faster",
        printed(_TREND),
        _falls(_mean_loss, "mean loss"),
        _SIZES,
        _OF_18,
    ),
    Claim(
        "18",
        "larger width: kappa is more stable throughout training",
        printed('Appendix H.2, "also more stable throughout training for larger widths"'),
        _falls(_variation, "spread of log kappa"),
        _SIZES,
        _OF_18,
    ),
)
