"""J J^T = sum_l J_l J_l^T with one term for each layer l, and kappa from these matrices.

Their eigenvalues are the squares of singular values of J and of the J_l. A factorisation of J takes
twice the time and has more digits of small ones. Where these are needed, it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnjax.conditioning.condition_number import ConditionNumber, condition_of_spectrum
from gnjax.diagnosis.remedies.suggestion import block_condition
from gnjax.numerics.certificate import Error, certificate
from gnjax.numerics.decompositions import lapack
from gnjax.numerics.rank_bound import RankBound
from gnjax.numerics.rounding import LAPACK_ROUNDING, gamma, spectral_error
from gnjax.operators.of_networks.network_gram import NetworkGram
from gnjax.operators.stored.matrices import dense
from gnjax.spectra.spectrum import Spectrum, squares

_COLUMNS = 2048  # of J that are multiplied at once, so that few numbers are added in one sum
_LOST = 1e-6  # of a singular value, which may be lost without a word: kappa has four digits
_DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True)
class Gram:
    """A A^T as computed in float64 for a matrix A, with a bound on its rounding in the 2-norm."""

    matrix: np.ndarray
    rounding: float

    def __add__(self, other: Gram) -> Gram:
        total = self.matrix + other.matrix
        of_sum = gamma(1, _DOUBLE) * float(np.trace(total))  # the trace of A A^T bounds its norm
        return Gram(total, self.rounding + other.rounding + of_sum)

    def less(self, other: Gram, share: float) -> Gram:
        """This matrix less a ``share`` of another one, which is one of its terms."""
        difference = self.matrix - share * other.matrix
        of_sum = gamma(2, _DOUBLE) * float(np.trace(self.matrix))
        return Gram(difference, self.rounding + share * other.rounding + of_sum)


def gram_of(rows: np.ndarray) -> Gram:
    """A A^T for A (m, c), the sum over blocks of 2048 columns.

    An entry is a sum of as many terms as a block has columns, and then of the blocks, so that the
    rounding is at most gamma |A| |A|^T, whose norm is at most ||A||_F^2, the trace.
    """
    size, columns = rows.shape
    total = np.zeros((size, size))
    for start in range(0, columns, _COLUMNS):
        block = rows[:, start : start + _COLUMNS]
        total += block @ block.T
    terms = min(columns, _COLUMNS) + columns // _COLUMNS + 1
    return Gram(total, gamma(terms, _DOUBLE) * float(np.trace(total)))


def part_of_columns(jacobian: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """These columns of J; a view where they follow each other."""
    first, last = int(columns[0]), int(columns[-1])
    if last - first + 1 == len(columns):
        return jacobian[:, first : last + 1]
    return jacobian[:, columns]


def layer_grams(jacobian: np.ndarray, layers: Sequence[np.ndarray]) -> Iterator[Gram]:
    """Yield J_l J_l^T (m, m) for the columns of every layer."""
    return (gram_of(part_of_columns(jacobian, columns)) for columns in layers)


def condition_by_gram(
    op: NetworkGram, gram: Gram, rows: Callable[[], np.ndarray], limit: Callable[[], RankBound]
) -> ConditionNumber:
    """kappa of A A^T from that matrix where it tells kappa, and else from singular values of A.

    Args:
      op: the Gauss-Newton matrix, whose Jacobian has a stated error.
      gram: A A^T for columns A of this Jacobian, times factors of at most 1.
      rows: returns A.
      limit: a bound on the rank of A, which is asked only where it is needed.
    """
    spectrum = _spectrum(gram, op.factor_error(), limit)
    if spectrum is None:
        return block_condition(op, rows(), limit)
    size = len(gram.matrix)
    stated = dense(gram.matrix, error=Error(gram.rounding, reason="rounding of J J^T"))
    return condition_of_spectrum(stated, spectrum, size, limit)


def _spectrum(gram: Gram, error: Error, limit: Callable[[], RankBound]) -> Spectrum | None:
    """The squares of the singular values of A from A A^T; None where that loses digits.

    An eigenvalue mu of A A^T is known to delta, the rounding of A A^T and of LAPACK, and the
    singular value s = mu^{1/2} to delta / s, or to (2 delta)^{1/2} where mu is below delta. That
    has to be less than the ``error`` of A, or than a millionth of s, for all singular values up to
    the rank.
    """
    values = np.maximum(lapack.symmetric_eigenvalues(gram.matrix)[::-1], 0.0)  # the largest first
    sigma = np.sqrt(values)
    delta = gram.rounding + spectral_error(len(values), _DOUBLE) * float(values[0])
    lost = np.where(
        values < delta, math.sqrt(2 * delta), delta / np.maximum(sigma, np.finfo(float).tiny)
    )
    is_told = lost <= np.maximum(error.value, _LOST * sigma)
    if not is_told.all():
        first = int(np.argmin(is_told))  # the largest that is not told
        # One above delta is no zero, so that the rank, which takes work to bound, does not matter.
        if values[first] > delta or not is_told[: limit().value].all():
            return None
    rests_on = certificate(LAPACK_ROUNDING.to(float(lost[0])) + error)
    return squares(sigma, lost + error.value, "factored", rests_on)
