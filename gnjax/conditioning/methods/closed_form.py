"""Linear networks of one or two layers, whose spectrum is known in closed form."""

from __future__ import annotations

from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods.base import Method
from gnjax.operators.facts import kroneckers_of
from gnjax.papers.methods.closed_form import DEPTHS, closed_form_spectrum


def _refuses(problem: Problem) -> str:
    known = kroneckers_of(problem.op)
    if known is not None and len(known.factors.lefts) in DEPTHS:
        return ""
    depth = "no linear network" if known is None else f"depth {len(known.factors.lefts)}"
    return f"method='closed_form' knows linear networks of depth 1 and 2, got {depth}; use 'auto'"


def _cost(problem: Problem) -> float:
    factors = kroneckers_of(problem.op).factors
    k, d = (side[0].shape[0] for side in (factors.lefts, factors.rights))
    blocks = 1 if factors.whitened or len(factors.lefts) == 1 else k
    return 20.0 * (blocks * d**3 + k**3)


def _ends(problem: Problem) -> Ends | None:
    return ends_of_spectrum(problem, closed_form_spectrum(kroneckers_of(problem.op).factors))


METHOD = Method(
    "closed_form",
    "the eigenvalues from the singular values of one or two weight matrices",
    "a linear network of one or two layers",
    _refuses,
    _cost,
    _ends,
    sharp=True,
)
