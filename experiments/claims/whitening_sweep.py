"""The claims of paper A about figure 19, as functions of the saved table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pandas import DataFrame

from sweeps import effects
from sweeps.claims import (
    AS_COMPUTED,
    CERTIFIED,
    Claim,
    Sentence,
    Verdict,
    implied,
    not_testable,
)
from sweeps.comparisons import Bounded, Compare
from sweeps.effects import Effect
from sweeps.rows import where

WHITENED, RAW = "whitened", "raw"
FULL, SMALL = "19", "19-triangle"
LOWEST, HIGHEST = 0.75, 1.5  # exponents nearer to 1 than to 1/2 and to 2
FEWEST = 3  # covariances that an exponent is fitted to


def _proportional(frame: DataFrame) -> Verdict:
    """Whether e in kappa(G) ~ kappa(Sigma^t)^e is near 1 at every L, over the powers t of Sigma.

    Near means nearer to 1 than to 1/2 and to 2. Networks whose kappa is not resolved are left out,
    and the interval of each other one counts whole.
    """
    rows = where(frame, figure=FULL, resolved=True)
    found = {}
    depths = np.unique(rows["depth"])
    for depth in depths:
        of_seeds = [one for _, one in where(rows, depth=depth).groupby("seed")]
        seeds = [one for one in of_seeds if one["whitening"].nunique() >= FEWEST]
        if seeds:
            value, low, high = np.array([_slope(one) for one in seeds]).T
            found[f"at L={depth}"] = effects.mean(value, lows=low, highs=high)
    if where(frame, figure=FULL)["whitening"].nunique() < FEWEST:
        return not_testable(f"fewer than {FEWEST} powers of Sigma")
    if not found:
        return not_testable(f"kappa is resolved at fewer than {FEWEST} powers of Sigma")
    return _near_one(found)


def _slope(rows: DataFrame) -> tuple[float, float, float]:
    """The slope of log kappa(G) over log kappa(Sigma), and its ends by those of the kappas."""
    x = np.log(rows["covariance_condition"].to_numpy())
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    value, low, high = (np.log(rows[f"kappa{end}"].to_numpy()) for end in ("", "_low", "_high"))
    ends = np.sort([weights * low, weights * high], axis=0).sum(axis=1)
    return float(weights @ value), float(ends[0]), float(ends[1])


def _from_two(of: str) -> Callable[[DataFrame], Verdict]:
    """The same of small images, raw and whitened alone, by one triangle or by the whole matrix."""

    def check(frame: DataFrame) -> Verdict:
        white, raw = (where(frame, figure=SMALL, whitening=kind) for kind in (WHITENED, RAW))
        if raw.empty:
            return not_testable("no small networks")
        found = _near_one(_two_points(white, raw, of))
        return replace(found, text=f"{found.text}; {_medians(raw)}")

    return check


def _two_points(white: DataFrame, raw: DataFrame, of: str) -> dict[str, Effect]:
    """log(raw / whitened) / log kappa(Sigma) at each depth, a mean over the seeds."""
    depths = np.unique(raw["depth"])
    found = {}
    for depth in depths:
        one, other = (where(rows, depth=depth) for rows in (white, raw))
        above, below = other[of].to_numpy(), one["kappa"].to_numpy()
        logs = np.log(above / below) / np.log(other["covariance_condition"].to_numpy())
        found[f"at L={depth}"] = effects.mean(logs)
    return found


def _medians(raw: DataFrame) -> str:
    read, right = (np.exp(np.log(raw[of].to_numpy()).mean()) for of in ("one_triangle", "kappa"))
    return (
        f"geometric means over all depths: kappa {read:.3g} from one triangle, {right:.3g} right,"
        f" kappa(Sigma) {raw['covariance_condition'].max():.3g}"
    )


def _near_one(found: dict[str, Effect]) -> Verdict:
    name = "kappa(G) goes like kappa(Sigma) to the power"
    return effects.between(found, name, LOWEST, HIGHEST)


_SIZES = ("d/k", "m/d")
_ESSENTIAL = Sentence(
    "A",
    "Appendix I.3, also Remark R2 of Section 4.1",
    "whitening the data is essential to improve the conditioning",
    _SIZES,
)
_NEARLY = Sentence(
    "A",
    "Section 7 (a)",
    "The conditioning of the input data has a nearly proportional impact",
    _SIZES,
)

_SLOWER = (
    "Lemma 2 multiplies kappa(Sigma) by condition numbers of the weights, which bounds"
    " kappa(G) from above. In the direction of Sigma's smallest eigenvalue the weights"
    " count with a mean over their own directions, and not with their smallest singular"
    " value. So kappa(G) grows more slowly than the bound"
)

CLAIMS = (
    Claim(
        "19",
        "whitening lowers kappa at every L",
        _ESSENTIAL,
        Compare(
            "kappa",
            {"figure": FULL, "whitening": RAW},
            over={"whitening": WHITENED},
            each="depth",
            above=1.0,
            name="kappa(raw) / kappa(whitened)",
            missing="no network on raw and on whitened inputs",
        ),
        panel=(("figure", FULL),),
    ),
    *(
        Claim(
            "19",
            f"on small images, raw over whitened, {how} gives a power of kappa(Sigma) from"
            f" {LOWEST:g} to {HIGHEST:g}",
            _NEARLY,
            _from_two(of),
            panel=(("figure", SMALL),),
            column=column,
            mended=mended,
            mechanism=mechanism,
        )
        for how, of, column, mended, mechanism in (
            (
                "kappa read off one triangle of the matrix",
                "one_triangle",
                AS_COMPUTED,
                "the whole matrix counts and not one of its triangles",
                "",
            ),
            ("kappa of the whole matrix", "kappa", CERTIFIED, "", _SLOWER),
        )
    ),
    Claim(
        "19",
        f"over inputs of covariance Sigma^t kappa is a power of kappa(Sigma^t) from {LOWEST:g} to"
        f" {HIGHEST:g}",
        _NEARLY,
        _proportional,
        panel=(("figure", FULL),),
        column=CERTIFIED,
        mechanism=_SLOWER,
    ),
    Claim("19", "kappa <= first bound in every cell", implied("Lemma 2"), Bounded()),
)
