"""The claims of paper A about figure 19, as functions of the saved table."""

from __future__ import annotations

from typing import Any

import numpy as np
from pandas import DataFrame

from sweeps.claims import (
    AS_COMPUTED,
    CERTIFIED,
    Claim,
    NotTestableError,
    Sentence,
    implied,
)
from sweeps.comparisons import Bounded, Compare, Prepare
from sweeps.rows import where

WHITENED, RAW = "whitened", "raw"
FULL, SMALL = "19", "19-triangle"
LOWEST, HIGHEST = 0.75, 1.5  # exponents nearer to 1 than to 1/2 and to 2
FEWEST = 3  # covariances that an exponent is fitted to


def _near_one(figure: str, prepare: Prepare, **asked: Any) -> Compare:
    """Whether e in kappa(G) ~ kappa(Sigma)^e is nearer to 1 than to 1/2 and to 2, at every L."""
    return Compare(
        "power",
        {"figure": figure},
        geometric=False,
        each="depth",
        above=LOWEST,
        below=HIGHEST,
        name="kappa(G) goes like kappa(Sigma) to the power",
        prepare=prepare,
        **asked,
    )


def _slopes(rows: DataFrame) -> DataFrame:
    """The exponent of each network over the powers t of Sigma, with the ends of its interval.

    Networks whose kappa is not resolved are left out, and the interval of each other one counts
    whole.
    """
    runs = where(rows, resolved=True).groupby(["depth", "seed"])
    found = [(*run, *_slope(one)) for run, one in runs if one["whitening"].nunique() >= FEWEST]
    if rows["whitening"].nunique() < FEWEST:
        msg = f"fewer than {FEWEST} powers of Sigma"
        raise NotTestableError(msg)
    return DataFrame(found, columns=["depth", "seed", "power", "power_low", "power_high"])


def _slope(rows: DataFrame) -> tuple[float, float, float]:
    """The slope of log kappa(G) over log kappa(Sigma), and its ends by those of the kappas."""
    x = np.log(rows["covariance_condition"].to_numpy())
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    value, low, high = (np.log(rows[f"kappa{end}"].to_numpy()) for end in ("", "_low", "_high"))
    ends = np.sort([weights * low, weights * high], axis=0).sum(axis=1)
    return float(weights @ value), float(ends[0]), float(ends[1])


def _two_points(of: str) -> Prepare:
    """log(raw / whitened) / log kappa(Sigma) of each network of small images, by its seed."""

    def prepare(rows: DataFrame) -> DataFrame:
        white = where(rows, whitening=WHITENED)[["depth", "seed", "kappa"]]
        both = where(rows, whitening=RAW).merge(
            white, on=["depth", "seed"], suffixes=("", "_whitened")
        )
        logs = np.log(both[of] / both["kappa_whitened"])
        return both.assign(power=logs / np.log(both["covariance_condition"]))

    return prepare


def _medians(raw: DataFrame) -> str:
    read, right = (np.exp(np.log(raw[of].to_numpy()).mean()) for of in ("one_triangle", "kappa"))
    return (
        f"; geometric means over all depths: kappa {read:.3g} from one triangle, {right:.3g} right,"
        f" kappa(Sigma) {raw['covariance_condition'].max():.3g}"
    )


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
            _near_one(SMALL, _two_points(of), missing="no small networks", beside=_medians),
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
        _near_one(
            FULL, _slopes, missing=f"kappa is resolved at fewer than {FEWEST} powers of Sigma"
        ),
        panel=(("figure", FULL),),
        column=CERTIFIED,
        mechanism=_SLOWER,
    ),
    Claim("19", "kappa <= first bound in every cell", implied("Lemma 2"), Bounded()),
)
