"""The description of a method of computing kappa."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gnjax.conditioning.ends import Ends, Problem


@dataclass(frozen=True)
class Method:
    """One way to both ends of a spectrum.

    Attributes:
      name: the word for ``condition_number(.., method=name)``.
      summary: what it does, in a sentence for the documentation.
      needs: what the operator must state or be, in a sentence for the documentation.
      refuses: returns why the method does not apply to a problem, or "" where it does.
      cost: returns the multiplications that it takes, roughly, for "auto" to compare.
      ends: computes both ends; None where no eigenvalue can be told from zero.
      sharp: whether it works on a factor, so that kappa up to 1e28 can be resolved.
    """

    name: str
    summary: str
    needs: str
    refuses: Callable[[Problem], str]
    cost: Callable[[Problem], float]
    ends: Callable[[Problem], Ends | None]
    sharp: bool = False
