"""The factors of a sum of Kronecker products, sum_l S_l S_l^T (x) T_l T_l^T, with their errors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax
import numpy as np

from gnjax.numerics.certificate import MEASURED, PROVED, Error, weakest
from gnjax.numerics.host import by_numpy, on_device
from gnjax.numerics.outward import frobenius_norm, raised, stored_bound, underflow
from gnjax.numerics.rounding import gamma, unit_roundoff
from gnjax.operators.factorisation import Factorisation, compact, compaction_error


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class KroneckerFactors:
    """S_l and T_l with A_l = S_l S_l^T and B_l = T_l T_l^T, and how far each is from exact.

    For a linear network S_l = W^{L:l+1} (k, a_l) and T_l = Sigma^{1/2} W^{1:l-1} (d, a_{l-1}).
    Column spaces grow with l on the left and shrink with l on the right, which makes the range of
    sum_l A_l (x) B_l a staircase (see :mod:`gnjax.papers.closed_form.staircase`).

    Attributes:
      left_errors, right_errors: (L,), bounds on ||stored - exact||_2.
      left_ranks, right_ranks: upper bounds on the ranks, proved by the widths and the zeros of the
        layers (see :mod:`gnjax.papers.closed_form.patterns`), and by Sigma.
      whitened: whether T_1 is the identity.
      assumed: whether something was taken for zero because it is small: the rank of Sigma was read
        off a numerical cut-off. The bounds are then those of the network at that rank.
      evidence: what the errors rest on, "proved" or "probable".
      failure: the probability that one of the errors does not hold.

    >>> weights = gnjax.initializers.chain(jax.random.key(0), (4, 8, 3), "kaiming_normal")
    >>> factors = gnjax.papers.linear_gauss_newton(weights).factors
    >>> [left.shape for left in factors.lefts], [right.shape for right in factors.rights]
    ([(3, 8), (3, 3)], [(4, 4), (4, 8)])
    >>> factors.rank_bound
    12
    """

    lefts: tuple[jax.Array, ...]
    rights: tuple[jax.Array, ...]
    left_errors: jax.Array
    right_errors: jax.Array
    left_ranks: tuple[int, ...] = field(metadata={"static": True})
    right_ranks: tuple[int, ...] = field(metadata={"static": True})
    whitened: bool = field(metadata={"static": True})
    assumed: bool = field(default=False, metadata={"static": True})
    evidence: str = field(default=PROVED, metadata={"static": True})
    failure: float = field(default=0.0, metadata={"static": True})

    def __repr__(self) -> str:
        k, d = (side[0].shape[0] for side in (self.lefts, self.rights))
        dtype = np.dtype(self.rights[0].dtype).name
        return f"<KroneckerFactors: {len(self.lefts)} pairs, {k} x {k} and {d} x {d}, {dtype}>"

    def scaled(self, factor: float) -> KroneckerFactors:
        """S_l and factor^{1/2} T_l, those of the network whose Sigma is ``factor`` times as large.

        Let E bound the error of the stored T_l. The stored root r differs from factor^{1/2} by a
        relative error, and the product of r with each entry is rounded. So factor^{1/2} T_l has an
        error of at most r E (1 + gamma) + r gamma ||T_l||_F, and what underflow changes. The root
        in float64, its conversion and the product are three roundings; gamma_4 allows for one more.
        T_1 is no longer the identity, so that the result does not count as whitened.
        """
        root = np.asarray(factor**0.5, self.rights[0].dtype)
        rounding = gamma(4, root.dtype)
        errors = [
            raised(float(root) * (float(error) * (1 + rounding) + rounding * frobenius_norm(right)))
            + underflow(1, right.size, root.dtype)
            for right, error in zip(self.rights, self.right_errors, strict=True)
        ]
        return replace(
            self,
            rights=tuple(on_device(root * by_numpy(right)) for right in self.rights),
            right_errors=stored_bound(errors, root.dtype),
            whitened=False,
        )

    @property
    def rank_bound(self) -> int:
        """sum_l (u_l - u_{l-1}) v_l for the bounds u_l and v_l on the ranks of S_l and T_l."""
        rises = np.diff((0, *self.left_ranks))
        return int(np.dot(rises, self.right_ranks))


def of_kroneckers(factors: KroneckerFactors) -> Factorisation:
    """J = [S_1 (x) T_1, .., S_L (x) T_L], so that J J^T = sum_l S_l S_l^T (x) T_l T_l^T.

    A factor S with more columns than rows is replaced by the transposed R of S^T = Q R.
    """
    pairs = list(zip(factors.lefts, factors.rights, strict=True))
    rows = pairs[0][0].shape[0] * pairs[0][1].shape[0]
    columns = sum(min(s.shape) * min(t.shape) for s, t in pairs)

    def form() -> np.ndarray:
        small = ((compact(np.asarray(s)), compact(np.asarray(t))) for s, t in pairs)
        return np.concatenate([np.kron(s, t) for s, t in small], axis=1).astype(float)

    return Factorisation((rows, columns), form, lambda: _kronecker_error(factors))


def _kronecker_error(factors: KroneckerFactors) -> Error:
    """A bound on the error of J = [S_1 (x) T_1, .., S_L (x) T_L] in the 2-norm.

    With errors e of S and f of T, that of S (x) T is at most e ||T|| + (||S|| + e) f, and the
    rounding of the product. The QR factorisation of a wide factor has a measured error.
    """
    squared, compacted = 0.0, False
    sides = zip(
        factors.lefts, factors.rights, factors.left_errors, factors.right_errors, strict=True
    )
    for left, right, left_error, right_error in sides:
        s_norm, t_norm = (float(np.linalg.norm(np.asarray(f))) for f in (left, right))
        s_error = float(left_error) + compaction_error(left.shape, left.dtype, s_norm)
        t_error = float(right_error) + compaction_error(right.shape, right.dtype, t_norm)
        rounding = unit_roundoff(left.dtype) * s_norm * t_norm
        error_of_term = s_error * t_norm + (s_norm + s_error) * t_error + rounding
        squared += error_of_term**2
        compacted |= left.shape[1] > left.shape[0] or right.shape[1] > right.shape[0]
    kind = weakest(factors.evidence, MEASURED) if compacted else factors.evidence
    return Error(squared**0.5, kind, factors.failure, "rounding of the products of layers")
