"""The diagonal of any symmetric operator from products with random signs.

For a vector g of independent random signs, E[g_i (A g)_i] = A_ii, and the variance of one sample is
sum_{j != i} A_ij^2 (Bekas, Kokiopoulou and Saad, 2007). It is estimated for every entry from the
spread of its own samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from gnjax.numerics.answers.result import Result
from gnjax.numerics.certificate import MEASURED, Certificate, Error, certificate
from gnjax.numerics.limits import LIMITS, Limits
from gnjax.numerics.rounding import spectral_error
from gnjax.operators.elsewhere.recognised import as_operator, one_operator
from gnjax.operators.facts import error_of, symmetry_of
from gnjax.operators.near_one import check_stated_near_one
from gnjax.operators.protocol import Operator
from gnjax.spectra.krylov.host_products import host_product
from gnjax.spectra.stochastic.probes import (
    beyond_chance,
    probe_stream,
    signs,
    student,
    together,
)
from gnjax.spectra.stochastic.tolerance import SHARE, looks, most_probes
from gnjax.spectra.watch import Progress, watching


@dataclass(frozen=True, repr=False)
class DiagonalEstimate(Result):
    """diag(A) from random products, every entry with its standard error.

    Attributes:
      values: the estimates (n,); for a network ``op.unravel(values)`` is a tree like its
        parameters.
      standard_errors: the standard deviation of each estimate over the random vectors, from the
        spread of its own samples. It is infinite for a single vector, and for samples that are
        equal but too few to exclude chance: less than 20 + log2(n) of them.
      products: how many products with the operator were made.
      certificate: the errors that every entry shares: the rounding of the products, and how well A
        is known. The standard errors are not among them.
      finished: False where Ctrl-C ended the work; the answer is then that of the vectors so far.
      converged: whether the error of all entries together, in the 2-norm, is at most the ``rtol``
        that was asked for times the norm of the values. True where none was.

    >>> answer = gnjax.estimate_diagonal(np.diag([4.0, 2.0, 1.0]))
    >>> answer.values.tolist(), answer.standard_errors.tolist()
    ([4.0, 2.0, 1.0], [0.0, 0.0, 0.0])
    """

    _rows = ("values", "standard_errors")

    values: np.ndarray
    standard_errors: np.ndarray
    products: int
    certificate: Certificate
    finished: bool = True
    converged: bool = True


@one_operator
def estimate_diagonal(
    op: Operator | ArrayLike,
    *,
    probes: int | None = None,
    rtol: float | None = None,
    seed: int = 0,
    progress: Progress = None,
    limits: Limits = LIMITS,
) -> DiagonalEstimate:
    """diag(A) of a symmetric A from ``probes`` products, each entry with its standard error.

    The error of an entry falls with the square root of the number of products and grows with the
    other entries of its row. :func:`gnjax.metrics.diagonal_of` has the exact diagonal of a
    Gauss-Newton matrix of any size, and of other operators from a product for every row.

    Args:
      op: an operator, or a symmetric matrix in any form that :func:`gnjax.as_operator` takes.
      probes: the largest number of products with the operator, by default 100, and 10,000 where an
        ``rtol`` is given. Two more test the symmetry of an operator that does not state it.
      rtol: if given, random vectors are added until |d - diag(A)|_2 <= ``rtol`` |d|_2 holds for the
        values d with 95%. It is looked at after 16, 32, 64, .. vectors, and the 95% are those of
        all looks together. If ``probes`` do not suffice, ``converged`` is False.
      seed: of the random vectors.
      progress: True for a bar on stderr, or a function of the products made and expected. Ctrl-C
        then returns the answer so far, with ``finished`` False.
      limits: the limits of memory. Sixteen vectors are multiplied at once, fewer where
        ``basis_bytes`` has no room for them, and none are kept.

    >>> a = np.random.default_rng(0).standard_normal((50, 50))
    >>> answer = gnjax.estimate_diagonal(a + a.T, probes=200)
    >>> bool(np.mean(np.abs(answer.values - 2 * np.diag(a)) <= 2 * answer.standard_errors) > 0.9)
    True
    """
    operator = as_operator(op, limits=limits)
    probes = most_probes(probes, rtol, usual=100)
    # refuses numbers so large or small that squares of them over- or underflow, if op states that
    check_stated_near_one(operator)
    block, rng = together(operator, limits), probe_stream(seed)
    with watching(
        progress, int(probes), stoppable=True, op=operator, seconds=limits.seconds
    ) as watch:
        multiply, spread = watch(host_product(operator)), Spread(operator.shape[0])
        counts = looks(probes, rtol)
        for aim in counts:
            while spread.count < aim and not (spread.count and watch.stopped):
                tests = signs(rng, min(block, aim - spread.count), operator.shape[0])
                spread.add(tests, multiply(tests))
            # The rounding of the products and the error of A grow with the largest |A g|.
            level = spectral_error(operator.shape[0], operator.dtype) * spread.longest
            errors = spread.standard_errors(level)
            # Without a tolerance there is one look, after all vectors.
            converged = rtol is None or _is_small(spread, errors, rtol, len(counts))
            if spread.count < aim or converged:
                break
    rounding = Error(level, MEASURED, reason="rounding of the products")
    parts = rounding, error_of(operator, spread.longest), symmetry_of(operator)
    return DiagonalEstimate(
        spread.mean,
        errors,
        spread.count,
        certificate(*parts),
        finished=spread.count == aim,
        converged=converged,
    )


def _is_small(spread: Spread, errors: np.ndarray, rtol: float, looks: int) -> bool:
    """Whether the error of all entries is at most ``rtol`` times their norm, at all looks with 95%.

    For normal samples, whether they depend on each other or not, |d - diag(A)|_2 is beyond t times
    the root of the sum of squared standard errors with at most the chance that one normal number is
    beyond t standard errors, as long as t^2 >= 1.54 (Szekely and Bakirov, 2003).
    """
    half_width = student(spread.count, looks) * float(np.linalg.norm(errors))
    return half_width <= SHARE * rtol * float(np.linalg.norm(spread.mean))


class Spread:
    """The mean of samples g * (A g) (n,) and their variances, from blocks that come one by one."""

    def __init__(self, size: int) -> None:
        self.count, self.longest = 0, 0.0  # how many samples, and the largest |A g|
        self.mean, self.squares = np.zeros(size), np.zeros(size)  # sum of (sample - mean)^2

    def standard_errors(self, rounding: float) -> np.ndarray:
        """Those of the means (n,); infinite where equal samples, up to ``rounding``, may be chance.

        A sample g_i sum_j A_ij g_j is linear in the independent signs g_i g_j.
        """
        errors = np.sqrt(self.squares / max(self.count - 1, 1) / self.count)
        return beyond_chance(errors, rounding, self.count, degree=1)

    def add(self, tests: np.ndarray, images: np.ndarray) -> None:
        """Add the samples g * (A g) of a block of rows g, ``tests`` (b, n), with their products A
        g.

        For a samples before and b new ones, the sum of squared deviations of all from their mean is
        that of each group from its own, plus a b / (a + b) times the squared difference of the two
        means (Chan, Golub and LeVeque, 1983).
        """
        self.longest = max(self.longest, float(np.linalg.norm(images, axis=1).max()))
        samples, before = tests * images, self.count
        more, self.count = len(samples), before + len(samples)
        mean = samples.mean(axis=0)
        mean_difference = mean - self.mean
        self.squares += np.square(samples - mean).sum(axis=0)
        self.squares += np.square(mean_difference) * before * more / self.count
        self.mean += mean_difference * more / self.count
