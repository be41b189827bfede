"""Arithmetic modulo a prime q: exact, whatever the sizes of the numbers, and so without rounding.

Every floating number is m 2^e with integers m and e, and has a residue modulo q. Sums, products and
quotients of residues are the residues of the exact sums, products and quotients.

The rank of a matrix of residues is not above the rank of the exact matrix. It is below only where q
divides every minor of the order of the exact rank, which happens to about one number in q.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

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
    """The residues of finite floating numbers, which need not be normal; those of others are 0."""
    finite = np.where(np.isfinite(numbers), numbers, 0).astype(np.float64)
    mantissas, exponents = np.frexp(finite)
    whole = np.ldexp(mantissas, 53).astype(np.int64) % PRIME
    smallest = -1200  # below the exponent of every float64
    powers = _powers_of_two(smallest, 1100)
    return whole * powers[exponents - 53 - smallest] % PRIME


def _powers_of_two(first: int, last: int) -> np.ndarray:
    return np.array([pow(2, exponent, PRIME) for exponent in range(first, last)])


def inverses(a: np.ndarray) -> np.ndarray:
    """1 / a modulo q, by Fermat's a^(q - 2); where a is zero, a number that stands for 1 / 0."""
    return np.where(a == 0, unknowns("1 / 0", a), powers(a, PRIME - 2))


def powers(a: np.ndarray, exponent: int) -> np.ndarray:
    """a^exponent modulo q for an exponent of 0 or more."""
    result, square = np.ones_like(a), a
    while exponent:
        if exponent & 1:
            result = result * square % PRIME
        square = square * square % PRIME
        exponent >>= 1
    return result


def unknowns(name: str, *arguments: np.ndarray) -> np.ndarray:
    """Residues that stand for the values of a function of which nothing but its name is known.

    They look random, and are the same for the same arguments.
    """
    with np.errstate(over="ignore"):
        state = np.asarray(zlib.crc32(name.encode()), np.uint64)
        for argument in arguments:
            state = _mixed(state + _mixed(argument.astype(np.uint64)))
    return np.asarray(state % np.uint64(PRIME), np.int64)


def _mixed(state: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which every bit depends on every other (that of splitmix64)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Random residues."""
    return np.random.default_rng(seed).integers(0, PRIME, shape)


def bilinear(product: _Product, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A bilinear map of residues, each of whose results is a sum of at most 2^20 products a b.

    ``product`` computes it for arrays of float64, here for halves of the residues, of which all
    sums of products are exact.
    """
    (high_a, low_a), (high_b, low_b) = halves(a), halves(b)
    middle = product(high_a, low_b) + product(low_a, high_b)
    parts = [product(high_a, high_b), middle, product(low_a, low_b)]
    total = np.zeros((), np.int64)
    for part in parts:
        total = (total * 2**_LIMB + as_residues(part)) % PRIME
    return total


def halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """high and low with a = high 2^16 + low, in float64."""
    return (a >> _LIMB).astype(np.float64), (a & (2**_LIMB - 1)).astype(np.float64)


def as_residues(exact: np.ndarray) -> np.ndarray:
    """The residues of integers in float64, which must be below 2^53 to be exact."""
    if not (np.abs(exact) < 2.0**53).all():
        msg = "a sum of residues is too long to be exact in float64"
        raise OverflowError(msg)
    return exact.astype(np.int64) % PRIME


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two matrices of residues."""
    total = np.zeros((len(a), b.shape[1]), np.int64)
    for start in range(0, a.shape[1], _LONGEST):
        part = slice(start, start + _LONGEST)
        total += bilinear(np.matmul, a[:, part], b[part])
    return total % PRIME


def rank(matrix: np.ndarray) -> int:
    """The rank of a matrix of residues, by elimination of some columns at a time."""
    rest, count = matrix, 0
    while rest.size:
        block, rest = rest[:, :_BLOCK], rest[:, _BLOCK:]
        pivots, columns = _pivots(block)
        count += len(pivots)
        others = np.delete(np.arange(len(block)), pivots)
        if rest.size and len(pivots):
            inverse = _inverse(block[pivots][:, columns])
            steps = product(block[others][:, columns], inverse)
            rest = np.concatenate([rest[pivots], rest[others]])
            rest = (rest[len(pivots) :] - product(steps, rest[: len(pivots)])) % PRIME
    return count


def _pivots(block: np.ndarray) -> tuple[list[int], list[int]]:
    """As many rows and columns as the rank is, such that the matrix of both is invertible."""
    remaining, free = block.copy(), np.ones(len(block), bool)
    pivots: list[int] = []
    columns: list[int] = []
    for column in range(block.shape[1]):
        possible = np.flatnonzero((remaining[:, column] != 0) & free)
        if not len(possible):
            continue
        pivot = int(possible[0])
        pivots.append(pivot)
        columns.append(column)
        free[pivot] = False
        row = remaining[pivot] * inverses(remaining[pivot, column]) % PRIME
        steps = np.where(free, remaining[:, column], 0)
        remaining = (remaining - steps[:, None] * row[None]) % PRIME
    return pivots, columns


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of an invertible matrix of residues, by the elimination of Gauss and Jordan."""
    size = len(matrix)
    both = np.concatenate([matrix, np.eye(size, dtype=np.int64)], axis=1)
    for place in range(size):
        pivot = place + int(np.flatnonzero(both[place:, place])[0])
        both[[place, pivot]] = both[[pivot, place]]
        both[place] = both[place] * inverses(both[place, place]) % PRIME
        steps = both[:, place] * (np.arange(size) != place)
        both = (both - steps[:, None] * both[place][None]) % PRIME
    return both[:, size:]
