"""The claims of paper A about figure 19, as functions of the saved table."""

from __future__ import annotations

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
from sweeps.effects import Effect, bound_holds
from sweeps.rows import growth_exponent, where

WHITENED, RAW = "whitened", "raw"
FULL, SMALL = "19", "19-triangle"
LOWEST, HIGHEST = 0.75, 1.5  # exponents nearer to 1 than to 1/2 and to 2
FEWEST = 3  # covariances that an exponent is fitted to


def _lowers(frame: DataFrame) -> Verdict:
    white, raw = (where(frame, figure=FULL, whitening=kind) for kind in (WHITENED, RAW))
    if white.empty:
        return not_testable("no network on raw and on whitened inputs")
    found = effects.compared(raw, white, "depth", "L")
    return effects.decide(found, "kappa(raw) / kappa(whitened)", above=1.0)


def _proportional(frame: DataFrame) -> Verdict:
    """Whether e in kappa(G) ~ kappa(Sigma^t)^e is near 1 at every L, over the powers t of Sigma.

    Near means nearer to 1 than to 1/2 and to 2. Networks whose kappa is not resolved are left out.
    """
    rows = where(frame, figure=FULL, resolved=True)
    found = {}
    depths = np.unique(rows["depth"])
    for depth in depths:
        of_seeds = [one for _, one in where(rows, depth=depth).groupby("seed")]
        seeds = [one for one in of_seeds if one["whitening"].nunique() >= FEWEST]
        if seeds:
            slopes = [
                growth_exponent(one["covariance_condition"].to_numpy(), one["kappa"].to_numpy())
                for one in seeds
            ]
            found[f"at L={depth}"] = effects.mean(np.array(slopes), together=len(depths))
    if not found:
        return not_testable(f"kappa is resolved at fewer than {FEWEST} powers of Sigma")
    return _near_one(found)


def _as_computed(frame: DataFrame) -> Verdict:
    """The same of what the published code takes for kappa, from raw and whitened inputs alone.

    The text of the verdict has the exponents of the right kappa of these networks, too.
    """
    white, raw = (where(frame, figure=SMALL, whitening=kind) for kind in (WHITENED, RAW))
    if raw.empty:
        return not_testable("no small networks")
    read = _two_points(white, raw, "one_triangle")
    right = ", ".join(f"{e} {at}" for at, e in _two_points(white, raw, "kappa").items())
    found = _near_one(read)
    text = f"from one triangle, {found.text}; from the whole matrix to the power {right}"
    return replace(found, text=f"{text}; {_medians(raw)}")


def _two_points(white: DataFrame, raw: DataFrame, of: str) -> dict[str, Effect]:
    """log(raw / whitened) / log kappa(Sigma) at each depth, a mean over the seeds."""
    depths = np.unique(raw["depth"])
    found = {}
    for depth in depths:
        one, other = (where(rows, depth=depth) for rows in (white, raw))
        above, below = other[of].to_numpy(), one["kappa"].to_numpy()
        logs = np.log(above / below) / np.log(other["covariance_condition"].to_numpy())
        found[f"at L={depth}"] = effects.mean(logs, together=len(depths))
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

CLAIMS = (
    Claim(
        "19",
        "whitening lowers kappa at every L",
        _ESSENTIAL,
        _lowers,
        panel=(("figure", FULL),),
    ),
    Claim(
        "19",
        "kappa read off one triangle on raw inputs, over kappa on whitened ones, is a power of"
        " kappa(Sigma) near 1",
        _NEARLY,
        _as_computed,
        panel=(("figure", FULL),),
        column=AS_COMPUTED,
        mended="the whole matrix counts and not one of its triangles",
    ),
    Claim(
        "19",
        "over inputs of covariance Sigma^t kappa grows as a power of kappa(Sigma^t) near 1",
        _NEARLY,
        _proportional,
        panel=(("figure", FULL),),
        column=CERTIFIED,
        mechanism=(
            "Lemma 2 multiplies kappa(Sigma) by condition numbers of the weights, which bounds"
            " kappa(G) from above. In the direction of Sigma's smallest eigenvalue the weights"
            " count with a mean over their own directions, and not with their smallest singular"
            " value. So kappa(G) grows more slowly than the bound"
        ),
    ),
    Claim("19", "kappa <= first bound in every cell", implied("Lemma 2"), bound_holds()),
)
