"""The Gauss-Newton matrix of a linear network as an operator, with what its layers prove of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax

from gnjax.numerics.certificate import Error
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.scale import largest_exponent
from gnjax.operators.facts import STATED_RANK, Facts
from gnjax.papers.kronecker.factors import KroneckerFactors, of_kroneckers
from gnjax.papers.kronecker.on_range import OnRange, reduce
from gnjax.papers.kronecker.operator import SumOfKroneckers
from gnjax.papers.methods import closed_form, kronecker_krylov


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class LinearGaussNewton(SumOfKroneckers):
    """sum_l A_l (x) B_l with the factors of A_l = S_l S_l^T and of B_l = T_l T_l^T.

    It brings its own methods of computing kappa: closed forms, and Lanczos with a preconditioner.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> op = gnjax.papers.linear_gauss_newton(weights)
    >>> op.facts().rank().value, [left.shape for left in op.factors.lefts]
    (12, [(3, 8), (3, 3)])
    """

    factors: KroneckerFactors

    def facts(self) -> Facts:
        """Those of any sum, and what its layers prove.

        The bound on the rank is the rank for almost all weights.
        """
        return replace(
            super().facts(),
            rank=lambda: RankBound(self.factors.rank_bound, STATED_RANK),
            assumed=self.factors.assumed,
            factor=partial(of_kroneckers, self.factors),
            on_range=self.on_range,
            methods=(closed_form.METHOD, kronecker_krylov.METHOD),
        )

    def error(self, norm: float) -> Error:
        """||stored - exact||_2, with the rounding of the sum when it is formed."""
        evidence, failure = self.factors.evidence, self.factors.failure
        reason = "rounding of the products of layers"
        return Error(super().error(norm).value, evidence, failure, reason)

    def _exponents(self) -> list[tuple[int | None, int | None]]:
        """Twice those of S_l and T_l, as A_l and B_l may underflow where these do not."""
        sides = (
            [largest_exponent(s) for s in side]
            for side in (self.factors.lefts, self.factors.rights)
        )
        lefts, rights = ([None if e is None else 2 * e for e in side] for side in sides)
        return list(zip(lefts, rights, strict=True))

    def on_range(self) -> OnRange:
        return reduce(self, self.factors)

    def scaled(self, factor: float) -> LinearGaussNewton:
        """``factor`` times the operator, for a positive factor: it multiplies every B_l."""
        terms = super().scaled(factor)
        factors = self.factors.scaled(factor)
        return LinearGaussNewton(terms.lefts, terms.rights, terms.stored_error, factors)
