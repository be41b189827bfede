"""The claims of paper A about figure 19, as functions of the saved table."""

from __future__ import annotations

import numpy as np

from sweeps import effects
from sweeps.claims import Claim, Verdict, implied, not_testable, printed
from sweeps.claims import verdict as decided
from sweeps.effects import bound_holds
from sweeps.rows import geometric_means, where
from sweeps.table import Columns

WHITENED, RAW = "whitened", "raw"
ABOUT = 10.0  # an order of magnitude, on the figure's logarithmic axis


def _lowers(table: Columns) -> Verdict:
    white, raw = (where(table, whitening=kind) for kind in (WHITENED, RAW))
    if not len(white["depth"]):
        return not_testable("no rows")
    found = effects.compared(raw, white, "depth", "L")
    return effects.decide(found, "kappa(raw) / kappa(whitened)", above=1.0)


def _by_kappa_of_sigma(table: Columns) -> Verdict:
    """Whether kappa(raw) / kappa(whitened) is within a factor of ten of kappa(Sigma) at every L."""
    white, raw = (where(table, whitening=kind) for kind in (WHITENED, RAW))
    if not (len(white["depth"]) and white["resolved"].all() and raw["resolved"].all()):
        return not_testable("no rows, or a kappa that is not resolved")
    share = raw["kappa"] / white["kappa"] / raw["covariance_condition"]
    depths, shares = geometric_means({**raw, "share": share}, "depth", "share")
    listed = ", ".join(f"{s:.3g} at L={d}" for s, d in zip(shares, depths, strict=True))
    text = (
        f"kappa(raw) / kappa(whitened) in units of kappa(Sigma) = "
        f"{raw['covariance_condition'][0]:.3g}: {listed}"
    )
    near = np.abs(np.log(shares)) <= np.log(ABOUT)
    return decided(bool(near.all()), shares[np.abs(np.log(shares)).argmax()], text)


CLAIMS = (
    Claim(
        "19",
        "whitening lowers kappa at every L",
        printed('Appendix I.1, "whitening the data is essential to improve the conditioning"'),
        _lowers,
        ("d/k", "m/d"),
    ),
    Claim(
        "19",
        "the data's conditioning has a nearly proportional effect: within a factor of ten",
        printed('Section 7 (a), "nearly proportional impact", not said of this figure'),
        _by_kappa_of_sigma,
        ("d/k", "m/d"),
        mechanism=(
            "in the direction v of Sigma's smallest eigenvalue only v^T P^T P v of a partial"
            " product P counts, a mean over the directions of the weights and not their smallest"
            " eigenvalue; so kappa of the weights and of Sigma do not multiply, and Lemma 2, which"
            " multiplies them, is a bound from above only"
        ),
    ),
    Claim("19", "kappa <= first bound in every cell", implied("Lemma 2"), bound_holds()),
)
