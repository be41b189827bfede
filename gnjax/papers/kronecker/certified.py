"""Both ends of the spectrum of sum_l A_l (x) B_l, by preconditioned Lanczos with a certificate.

For m >> k every A_l = W^{L:l+1} W^{l+1:L} is near a multiple of the identity, so G is near
I (x) D with D = sum_l (tr A_l / k) B_l, a d x d matrix. D is a compression of G averaged over an
orthonormal basis of R^k, so lambda_min(G) <= lambda_min(D) and lambda_max(D) <= lambda_max(G):
for every s below lambda_min(G) the matrix P = I (x) (D - s I) is positive definite, and

    lambda_min(G) > s   if and only if   C = R^T (G - s I) R is positive definite

for any invertible R (Sylvester). With R R^T = P^{-1} for a shift near s, C has its spectrum in a
short interval around 1, so that few Lanczos steps from a random start decide the question, to the
probability of :func:`gnjax.spectra.krylov.missed.missed_probability`. The Krylov space of C, mapped
back by R, gives the eigenvalue itself by Rayleigh-Ritz on G: the inverse-free preconditioned method
of Golub and Ye (2002). The top end is the same for s I - G.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gnjax.papers.kronecker.locate import locate
from gnjax.papers.kronecker.packed import product
from gnjax.papers.kronecker.pencil import (
    BLOCK,
    Compression,
    beside,
    compressions,
    rayleigh_ritz,
    solve,
)
from gnjax.papers.kronecker.reduced import Reduced
from gnjax.spectra.krylov.host_products import beside_xla
from gnjax.spectra.krylov.lanczos import Run, missed_probability, random_rows
from gnjax.spectra.krylov.lanczos import ritz as ritz_values

_CERTIFY_STEPS = 200
_WIDENINGS = (1.0, 8.0, 64.0)
_TRIES = 2  # attempts with each widening
_LARGEST_SHARE = 0.1


@dataclass(frozen=True)
class End:
    """One end of a spectrum: the Ritz value bounds it from inside, ``bound`` from outside."""

    ritz: float
    bound: float
    missed: float
    products: int


def ends(reduced: Reduced, *, rtol: float, missed: float, seed: int = 0) -> tuple[End, End]:
    """The largest and the smallest eigenvalue, each missed with probability ``missed`` at most.

    Most of the tolerance ``rtol`` goes to the smallest, which is far harder to separate.
    """
    with beside_xla():
        compressed = compressions(reduced)
        return (
            _end(reduced, compressed, -1.0, _LARGEST_SHARE * rtol, missed, seed),
            _end(reduced, compressed, 1.0, (1 - 2 * _LARGEST_SHARE) * rtol, missed, seed),
        )


def _end(
    reduced: Reduced,
    compressed: tuple[Compression, ...],
    sign: float,
    rtol: float,
    missed: float,
    seed: int,
) -> End:
    """Locate the end, then certify that no eigenvalue lies beyond a bound near it.

    Where that takes too many steps, a wider bound is tried. ``sign`` is +1 for the smallest
    eigenvalue and -1 for the largest: the method minimises sign * eigenvalue. Each attempt may be
    wrong with a probability of at most ``share``, and these probabilities add up.
    """
    share, spent = missed / (_TRIES * len(_WIDENINGS)), 0.0
    located = locate(reduced, compressed, sign, rtol)
    best, products = located.ritz, located.run.products + BLOCK
    candidates = [located.first, best.row]
    for widening in _WIDENINGS:
        for _ in range(_TRIES):
            shift = beside(best.value, rtol * widening, compressed, sign)
            pencil = located.pencil.at(shift)
            known = located.deflation(pencil)
            start = random_rows(reduced.size, BLOCK, seed, apart=known.rows)
            enough = partial(_decided, floor=known.floor, missed=share)
            run, images = solve(pencil, start, _CERTIFY_STEPS, enough, known.rows)
            products += run.products
            found = rayleigh_ritz(pencil, run, images)
            candidates.append(found.row)
            best = min(best, found, key=lambda ritz: sign * ritz.value)
            exceeds = _exceeds(run, known.floor)
            if exceeds:
                chance = 0.0 if run.complete else float(missed_probability(run, known.floor)[0])
                if chance <= share:
                    value = _quotient(reduced, candidates, sign)
                    return End(value, shift, spent + chance, products)
            spent += share
            if exceeds:  # but the probability is too large: try a wider bound
                break
    unbounded = 0.0 if sign > 0 else np.inf
    return End(_quotient(reduced, candidates, sign), unbounded, 0.0, products)


def _quotient(reduced: Reduced, candidates: list[np.ndarray], sign: float) -> float:
    """The best x^T G x of the candidates x, from new products with G.

    A new product has the rounding of one product only. A Ritz value from a nearly singular pencil
    can be far off, and its vector is then not the best here.
    """
    rows = np.stack(candidates)
    images = np.asarray(product(reduced.operator, reduced.groups, rows))
    return sign * float((sign * (images * rows).sum(axis=1)).min())


def _decided(run: Run, images: list[np.ndarray], *, floor: float, missed: float) -> bool:
    """Whether C exceeds the floor, except with probability ``missed``, or is indefinite."""
    del images
    if not _exceeds(run, floor):
        values, residuals, _ = ritz_values(run)
        return bool(values[0] < 0 and residuals[0] <= 0.1 * abs(values[0]))
    return bool(missed_probability(run, floor)[0] <= missed)


def _exceeds(run: Run, floor: float) -> bool:
    return bool(np.linalg.eigvalsh(run.projection)[0] > floor)
