"""Arithmetic modulo a prime q: exact, whatever the sizes of the numbers, and so without rounding.

Every floating number is m 2^e with integers m and e, and has a residue modulo q. Sums, products and
quotients of residues are the residues of the exact sums, products and quotients.

The rank of a matrix of residues is not above the rank of the exact matrix. It is below only where q
divides every minor of the order of the exact rank, which happens to about one number in q.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache

import numpy as np

PRIME = 2147483579
"""q, the largest prime below 2^31 for which (q - 1) / 2 is a prime as well.

The powers of 2 then take at least (q - 1) / 2 different residues, so that numbers which differ by
powers of two, as those of a computer often do, are told apart.
"""

_Product = Callable[[np.ndarray, np.ndarray], np.ndarray]

_LIMB = 16  # bits: a residue is high 2^16 + low, and sums of products of such halves are exact
_LONGEST = 2**20  # terms of such a sum that a float64 holds exactly
_BLOCK = 64  # columns that are eliminated together


def residues(numbers: np.ndarray) -> np.ndarray:
    """The residues modulo q of floating numbers m 2^e with integers m and e.

    Numbers may be below the normal ones. The residue of nan and of an infinite number is 0.
    """
    finite = np.where(np.isfinite(numbers), numbers, 0).astype(np.float64)
    mantissas, exponents = np.frexp(finite)
    integers = np.ldexp(mantissas, 53).astype(np.int64) % PRIME  # a float64 has 53 binary digits
    # the number is its integer times 2^(exponent - 53), and -1126 <= exponent - 53 <= 971
    smallest = -1200
    powers = _powers_of_two(smallest, 1100)
    return integers * powers[exponents - 53 - smallest] % PRIME


@cache
def _powers_of_two(first: int, last: int) -> np.ndarray:
    """The residues modulo q of 2^first, .., 2^(last - 1); exponents may be negative."""
    return np.array([pow(2, exponent, PRIME) for exponent in range(first, last)])


def inverses(a: np.ndarray) -> np.ndarray:
    """1 / a = a^(q - 2) modulo the prime q, by Fermat's theorem.

    Where a is zero, the answer is the number by which :func:`unknowns` stands for 1 / 0.
    """
    inverse, is_zero = powers(a, PRIME - 2), a == 0
    return np.where(is_zero, unknowns("1 / 0", a), inverse) if is_zero.any() else inverse


def powers(a: np.ndarray, exponent: int) -> np.ndarray:
    """a^exponent modulo q for an exponent of 0 or more, by squares: a^13 = a^8 a^4 a."""
    result, power = np.ones_like(a), a  # power is a^1, a^2, a^4, ..
    while exponent:
        if exponent & 1:
            result = result * power % PRIME
        power = power * power % PRIME
        exponent >>= 1
    return result


def unknowns(name: str, *arguments: np.ndarray) -> np.ndarray:
    """Residues that stand for the values of a function such as exp, which has none modulo q.

    They are hashes of the function's ``name`` and of the residues of its ``arguments``, entry by
    entry: equal arguments have equal residues, and different ones look independent.
    """
    with np.errstate(over="ignore"):
        state = np.asarray(zlib.crc32(name.encode()), np.uint64)
        for argument in arguments:
            state = _scrambled(state + _scrambled(argument.astype(np.uint64)))
    return np.asarray(state % np.uint64(PRIME), np.int64)


def _scrambled(state: np.ndarray) -> np.ndarray:
    """A hash of 64-bit integers without collisions, the output function of splitmix64."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def drawn(seed: int, *shape: int) -> np.ndarray:
    """An array of random residues, each of 0 .. q - 1 with the same probability."""
    return np.random.default_rng(seed).integers(0, PRIME, shape)


def bilinear(product: _Product, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The residues of a bilinear map of a and b, such as a matrix product, from those of a and b.

    ``product`` computes the map for arrays of float64. Each of its results is a sum of at most 2^20
    products of an entry of a and an entry of b. With a = h 2^16 + l for each array, the map is

        h_a h_b 2^32 + (h_a l_b + l_a h_b) 2^16 + l_a l_b,

    in which h and l are below 2^16, so that float64 holds each of the three sums exactly.
    """
    (high_a, low_a), (high_b, low_b) = halves(a), halves(b)
    middle = product(high_a, low_b) + product(low_a, high_b)
    coefficients = [product(high_a, high_b), middle, product(low_a, low_b)]
    total = np.zeros((), np.int64)
    for coefficient in coefficients:  # Horner's rule for the polynomial in 2^16
        if not (np.abs(coefficient) < 2.0**53).all():
            msg = "a sum of residues is too long to be exact in float64"
            raise OverflowError(msg)
        total = (total * 2**_LIMB + coefficient.astype(np.int64)) % PRIME
    return total


def halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair (high, low) with a = high 2^16 + low and low below 2^16, in float64."""
    return (a >> _LIMB).astype(np.float64), (a & (2**_LIMB - 1)).astype(np.float64)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product A B modulo q of two matrices of residues.

    At most 2^20 terms are summed at a time, so that their sums are exact in float64.
    """
    total = np.zeros((len(a), b.shape[1]), np.int64)
    for start in range(0, a.shape[1], _LONGEST):
        terms = slice(start, start + _LONGEST)
        total += bilinear(np.matmul, a[:, terms], b[terms])
    return total % PRIME


def rank(matrix: np.ndarray) -> int:
    """The rank of a matrix of residues, by Gaussian elimination of 64 columns at a time.

    If these have the rank r, with an invertible matrix A of r pivot rows and columns, the same
    columns C of the other rows, and remaining columns P of the pivot rows and R of the others, the
    rank is r plus that of the Schur complement R - C A^{-1} P.
    """
    remaining, rank_so_far = matrix, 0
    while remaining.size:
        block, remaining = remaining[:, :_BLOCK], remaining[:, _BLOCK:]
        (pivots,) = _pivots(block[None])
        pivot_rows, pivot_columns = pivots[pivots >= 0], np.flatnonzero(pivots >= 0)
        rank_so_far += len(pivot_rows)
        other_rows = np.delete(np.arange(len(block)), pivot_rows)
        if remaining.size and len(pivot_rows):
            inverse = _inverse(block[pivot_rows][:, pivot_columns])
            factors = product(block[other_rows][:, pivot_columns], inverse)
            eliminated = product(factors, remaining[pivot_rows])
            remaining = (remaining[other_rows] - eliminated) % PRIME
    return rank_so_far


def ranks(matrices: np.ndarray) -> np.ndarray:
    """The ranks (n,) of n symmetric matrices of residues, (n, k, k), all at once.

    What is zero in all of them splits them into blocks, as those of the tokens of a sample, whose
    ranks are added.
    """
    from scipy.sparse.csgraph import connected_components  # imported when first used

    count, labels = connected_components((matrices != 0).any(axis=0))
    total = np.zeros(len(matrices), int)
    for label in range(count):
        indices = np.flatnonzero(labels == label)
        block = matrices[:, indices[:, None], indices[None]]
        if len(indices) > _BLOCK:
            total += [rank(matrix) for matrix in block]
        else:
            total += (_pivots(block) >= 0).sum(axis=1)
    return total


def _pivots(blocks: np.ndarray) -> np.ndarray:
    """The rows of the pivots (n, c) of n matrices (n, m, c), one for each column; -1 where none is.

    They come from Gaussian elimination. The pivot rows and their columns make an invertible matrix,
    as large as the rank. Arithmetic is exact, so that a pivot need not be large.
    """
    reduced, is_free = blocks.copy(), np.ones(blocks.shape[:2], bool)
    every, pivots = np.arange(len(blocks)), np.full((len(blocks), blocks.shape[2]), -1)
    for column in range(blocks.shape[2]):
        candidates = (reduced[:, :, column] != 0) & is_free
        exists, chosen = candidates.any(axis=1), candidates.argmax(axis=1)
        pivots[:, column] = np.where(exists, chosen, -1)
        is_free[every, chosen] &= ~exists
        row = reduced[every, chosen]
        # the inverse of each pivot, by Python, which is the sooner for a few
        inverse = [pow(pivot, -1, PRIME) if pivot else 0 for pivot in row[:, column].tolist()]
        row = row * np.array(inverse)[:, None] % PRIME  # with 1 as its pivot
        factors = np.where(is_free & exists[:, None], reduced[:, :, column], 0)
        reduced = (reduced - factors[:, :, None] * row[:, None]) % PRIME  # zeros below the pivot
    return pivots


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of an invertible matrix A of residues, by the elimination of Gauss and Jordan.

    Row operations turn [A, I] into [I, A^{-1}].
    """
    size = len(matrix)
    augmented = np.concatenate([matrix, np.eye(size, dtype=np.int64)], axis=1)
    for column in range(size):
        pivot = column + int(np.flatnonzero(augmented[column:, column])[0])
        augmented[[column, pivot]] = augmented[[pivot, column]]
        row = augmented[column] * inverses(augmented[column, column]) % PRIME
        augmented[column] = row
        factors = augmented[:, column] * (np.arange(size) != column)  # the pivot row stays
        augmented = (augmented - factors[:, None] * row[None]) % PRIME
    return augmented[:, size:]
