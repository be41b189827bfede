"""The claims of paper B about figure 3, as functions of the saved table."""

from __future__ import annotations

import numpy as np

from sweeps.claims import BEYOND, Claim, Verdict, not_testable, printed, verdict
from sweeps.rows import length
from sweeps.table import Columns


def _within_four(table: Columns) -> Verdict:
    z = (table["estimate"] - table["predicted"]) / table["standard_error"]
    largest = float(np.abs(z).max())
    precision = float((table["standard_error"] / table["predicted"]).max())
    text = f"largest |z| {largest:.2f}, root mean square {np.sqrt((z**2).mean()):.2f}, over "
    text += f"{length(table)} points known to {100 * precision:.2g}% or better"
    return verdict(largest <= 4, largest, text)


def _exact(table: Columns) -> Verdict:
    known = np.isfinite(table["exact"])
    if not known.any():
        return not_testable("no point where the trace was taken exactly")
    gaps = np.abs(table["exact"] / table["predicted"] - 1)[known]
    first = known & (table["epoch"] == table["epoch"][known].min())
    text = f"largest relative difference {gaps.max():.1e} over {known.sum()} points, from epoch "
    text += f"{table['epoch'][first][0]} on, where the loss is {table['excess'][first].max():.3g}"
    text += f" above its floor, to {table['excess'][known].min():.1e} above it"
    return verdict(bool(gaps.max() <= 1e-10), gaps.max(), text)


CLAIMS = (
    Claim(
        "B3",
        "Hutchinson within 4 standard errors of Eq 7 at every point",
        printed('Section 3, "the approximation holds very well, even early in training"'),
        _within_four,
    ),
    Claim(
        "B3",
        "the exact trace equals Eq 7 to 1e-10, early training included",
        BEYOND,
        _exact,
    ),
)
