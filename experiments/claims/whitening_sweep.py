"""The claims of paper A about figure 19, as functions of the saved table."""

from __future__ import annotations

import numpy as np

from sweeps import effects
from sweeps.claims import FAILS, HOLDS, Claim, Sentence, Verdict, implied, not_testable
from sweeps.effects import bound_holds
from sweeps.rows import by_seed, growth_exponent, where
from sweeps.table import Columns

WHITENED, RAW = "whitened", "raw"
LOWEST, HIGHEST = 0.75, 1.5  # exponents nearer to 1 than to 1/2 and to 2
FEWEST = 3  # covariances that an exponent is fitted to


def _lowers(table: Columns) -> Verdict:
    white, raw = (where(table, whitening=kind) for kind in (WHITENED, RAW))
    if not len(white["depth"]):
        return not_testable("no rows")
    found = effects.compared(raw, white, "depth", "L")
    return effects.decide(found, "kappa(raw) / kappa(whitened)", above=1.0)


def _proportional(table: Columns) -> Verdict:
    """Whether e in kappa(G) ~ kappa(Sigma^t)^e is near 1 at every L, over the powers t of Sigma.

    Near means nearer to 1 than to 1/2 and to 2. Networks whose kappa is not resolved are left out.
    """
    rows = where(table, resolved=True)
    found = {}
    depths = np.unique(rows["depth"])
    for depth in depths:
        here = where(rows, depth=depth)
        seeds = [one for one in by_seed(here) if len(np.unique(one["whitening"])) >= FEWEST]
        if seeds:
            slopes = [growth_exponent(one["covariance_condition"], one["kappa"]) for one in seeds]
            found[f"at L={depth}"] = effects.mean(np.array(slopes), together=len(depths))
    if not found:
        return not_testable(f"fewer than {FEWEST} powers of Sigma with a resolved kappa")
    name = "kappa(G) ~ kappa(Sigma)^e, e ="
    low = effects.decide(found, name, above=LOWEST)
    high = effects.decide(found, name, below=HIGHEST)
    return low if low.status == FAILS or high.status == HOLDS else high


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
    Claim("19", "whitening lowers kappa at every L", _ESSENTIAL, _lowers),
    Claim(
        "19",
        "over inputs of covariance Sigma^t kappa grows as a power of kappa(Sigma^t) near 1",
        _NEARLY,
        _proportional,
        mechanism=(
            "in the direction v of Sigma's smallest eigenvalue only v^T P^T P v of a partial"
            " product P counts, a mean over the directions of the weights and not their smallest"
            " eigenvalue; so kappa of the weights and of Sigma do not multiply, and Lemma 2, which"
            " multiplies them, is a bound from above only"
        ),
    ),
    Claim("19", "kappa <= first bound in every cell", implied("Lemma 2"), bound_holds()),
)
