"""The columns of a table that hold a condition number with its certificate."""

from __future__ import annotations

from typing import Any

import gnjax

CERTIFICATE = (
    *("kappa", "kappa_low", "kappa_high", "evidence", "failure", "resolved"),
    *("method", "rank", "lambda_max", "lambda_min"),
)


def certificate(kappa: gnjax.answers.ConditionNumber) -> dict[str, Any]:
    """A condition number with its interval at its rank, and the ends of its spectrum.

    ``evidence`` is the weakest kind that the interval rests on, ``failure`` the probability that it
    misses, and ``resolved`` says whether it is finite.
    """
    return {
        "kappa": kappa.value,
        "kappa_low": kappa.at_rank[0],
        "kappa_high": kappa.at_rank[1],
        "evidence": kappa.certificate.kind,
        "failure": kappa.certificate.failure,
        "resolved": kappa.bounded,
        "method": kappa.method,
        "rank": kappa.rank,
        "lambda_max": kappa.lambda_max,
        "lambda_min": kappa.lambda_min,
    }
