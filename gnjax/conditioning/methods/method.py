"""The description of a method of computing kappa."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gnjax.conditioning.ends import Ends, Problem
from gnjax.operators.facts import facts_of
from gnjax.operators.protocol import Operator


@dataclass(frozen=True)
class Method:
    """One way to compute both ends of a spectrum.

    Attributes:
      name: the name for ``condition_number(.., method=name)``.
      summary: what it does, for the table of the documentation.
      needs: what the operator must state or be, for the table of the documentation.
      refuses: returns why the method does not apply to a problem, or "" where it applies.
      cost: returns roughly how many multiplications it takes; "auto" compares these numbers.
      ends: computes both ends; returns None where no eigenvalue can be told from zero.
      sharp: whether it resolves eigenvalues far below the rounding of the matrix, because it works
        on a factor or on known structure.
    """

    name: str
    summary: str
    needs: str
    refuses: Callable[[Problem], str]
    cost: Callable[[Problem], float]
    ends: Callable[[Problem], Ends | None]
    sharp: bool = False

    def of(self, op: Operator) -> Method:
        """The operator's own method of this name, where it brings one; else this one."""
        return next((own for own in facts_of(op).methods if own.name == self.name), self)
