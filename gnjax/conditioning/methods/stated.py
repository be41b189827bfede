"""The eigenvalues that an operator states, which need no computation."""

from __future__ import annotations

from gnjax.conditioning.ends import Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods.method import Method
from gnjax.spectra.whole import stated_spectrum


def _refuses(problem: Problem) -> str:
    """Why the method does not apply, or "": the operator states no eigenvalues."""
    if stated_spectrum(problem.op) is not None:
        return ""
    return (
        "method='stated' needs an operator that states its eigenvalues, such as gnjax.diagonal; "
        "use 'auto'"
    )


def _ends(problem: Problem) -> Ends | None:
    """Both ends of the eigenvalues that the operator states; None where it states none."""
    spectrum = stated_spectrum(problem.op)
    return None if spectrum is None else ends_of_spectrum(problem, spectrum)


METHOD = Method(
    "stated",
    "the eigenvalues that the operator states, with no computation",
    "an operator that states its `eigenvalues`, such as `gnjax.diagonal`",
    _refuses,
    lambda problem: 0.0,
    _ends,
)
