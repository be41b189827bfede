"""The spectrum of a linear network with one or two layers, in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from gnjax.conditioning.ends import FLOOR_OF_SQUARES, Ends, Problem, ends_of_spectrum
from gnjax.conditioning.methods import Method
from gnjax.numerics.certificate import Certificate, Error, certificate
from gnjax.numerics.rounding import (
    LAPACK_ROUNDING,
    iteration_errors,
    singular_values,
    spectral_error,
)
from gnjax.papers.kronecker.factors import KroneckerFactors
from gnjax.spectra.spectrum import Spectrum, squares

_DEPTHS = (1, 2)


def closed_form_spectrum(factors: KroneckerFactors) -> Spectrum:
    """The spectrum of G for a linear network with one or two layers.

    G is the sum over layers l of S_l S_l^T (x) T_l T_l^T, where ``factors.lefts`` has S_l and
    ``factors.rights`` has T_l. Sigma is the second moment of the d inputs, and k the number of
    outputs.

    With one layer these are the eigenvalues of Sigma, each k times. With two layers, S_1 = W_2 and
    T_2 = Sigma^{1/2} W_1^T, a rotation of the outputs turns G into k blocks
    sigma_i(W_2)^2 Sigma + T_2 T_2^T, which have the factors [sigma_i(W_2) Sigma^{1/2}, T_2]. For
    whitened data the blocks have the same eigenvectors, and the eigenvalues of G are
    sigma_i(W_2)^2 + sigma_j(W_1)^2. A singular value known to e gives its square to
    (2 sigma + e) e.
    """
    k, d = (side[0].shape[0] for side in (factors.lefts, factors.rights))
    of_right, right_error = _sigma(factors.rights[-1], factors.right_errors[-1])
    of_products = Error(
        0.0, factors.evidence, factors.failure, "rounding of the products of layers"
    )
    rests_on = certificate(LAPACK_ROUNDING, of_products)
    if len(factors.lefts) == 1:
        values = np.tile(_padded(of_right, d), k)
        return squares(values, right_error + iteration_errors(values), "closed_form", rests_on)
    of_left, left_error = _sigma(factors.lefts[0], factors.left_errors[0])
    if not factors.whitened:
        left_error += float(iteration_errors(of_left)[0])  # of the largest, so of each
        return _blocks(factors, _padded(of_left, k), left_error, rests_on)
    of_left, of_right = _padded(of_left, k), _padded(of_right, d)
    sums = np.add.outer(of_left**2, of_right**2).ravel()
    left_errors = left_error + iteration_errors(of_left)
    right_errors = right_error + iteration_errors(of_right)
    errors = np.add.outer(
        (2 * of_left + left_errors) * left_errors, (2 * of_right + right_errors) * right_errors
    ).ravel()
    order = np.argsort(-sums)
    return Spectrum(sums[order], errors[order], "closed_form", rests_on)


def _blocks(
    factors: KroneckerFactors, of_left: np.ndarray, left_error: float, rests_on: Certificate
) -> Spectrum:
    """The squares of the singular values of [sigma_i T_1, T_2] for every sigma_i of W_2.

    ``of_left`` (k,) are the singular values sigma_i of W_2, within ``left_error``. A change of
    sigma_i, T_1 or T_2 moves the singular values by at most the norm of its change in the block.
    """
    first, second = (np.asarray(t) for t in factors.rights)
    sigma = [singular_values(np.concatenate([s * first, second], axis=1)) for s in of_left]
    norm = max(values[0] for values in sigma)
    first_norm = np.linalg.norm(first, 2)
    error = spectral_error(sum(first.shape), first.dtype) * (norm + first_norm * of_left[0])
    error += left_error * first_norm + (of_left[0] + left_error) * float(factors.right_errors[0])
    error += float(factors.right_errors[1])
    values = np.concatenate(sigma)
    return squares(values, error + iteration_errors(values), "closed_form", rests_on)


def _sigma(factor: jax.Array, factor_error: jax.Array) -> tuple[np.ndarray, float]:
    values = singular_values(np.asarray(factor))
    return values, spectral_error(max(factor.shape), factor.dtype) * values[0] + float(factor_error)


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - len(values)))


def _factors(problem: Problem) -> KroneckerFactors:
    """The factors of the operator, which states this method."""
    op: Any = problem.op
    factors: KroneckerFactors = op.factors
    return factors


def _refuses(problem: Problem) -> str:
    """Why there is no closed form, or "": it is known for one and two layers alone."""
    depth = len(_factors(problem).lefts)
    if depth in _DEPTHS:
        return ""
    return (
        f"method='closed_form' knows linear networks of depth 1 and 2, got depth {depth}; use "
        "'auto'"
    )


def _cost(problem: Problem) -> float:
    """About how many operations the singular values take: of each d x d block, and of W_2."""
    factors = _factors(problem)
    k, d = (side[0].shape[0] for side in (factors.lefts, factors.rights))
    blocks = 1 if factors.whitened or len(factors.lefts) == 1 else k
    return 20.0 * (blocks * d**3 + k**3)


def _ends(problem: Problem) -> Ends | None:
    """Both ends of the spectrum from the closed form; None if no eigenvalue is surely positive.

    Of singular values known to e, the error of a zero is e^2, and an eigenvalue can be told from
    zero from ``FLOOR_OF_SQUARES`` times e^2 on.
    """
    ends = ends_of_spectrum(problem, closed_form_spectrum(_factors(problem)))
    return None if ends is None else replace(ends, floor=FLOOR_OF_SQUARES * ends.floor)


METHOD = Method(
    "closed_form",
    "the eigenvalues from the singular values of one or two weight matrices",
    "one or two layers",
    _refuses,
    _cost,
    _ends,
    sharp=True,
)
