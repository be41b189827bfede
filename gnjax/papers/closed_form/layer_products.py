"""Products of layers on random vectors in about twice the working precision, on the host.

A vector is kept as an unevaluated sum y + c: y has 20 significant bits below the largest entry, and
c is the rest, some 10^-6 of it. A matrix is split in the same way, row by row, into H + R, with so
few bits in H that H y is exact in float64 in any order of summation. Then

    W (y + c) = H y + (R y + W c),

where only the second part rounds, by gamma (||R|| ||y|| + ||W|| ||c||) at most. What a step rounds
runs through all later layers and is multiplied by the norm of their product.

For a Gaussian G of eight columns and any matrix M with top right singular vector v, ||M G||_F is at
least ||M||_2 |v^T G|. The square of |v^T G| has a chi-square distribution with eight degrees of
freedom, P(chi-square < x) <= (x / 2)^4 / 4!, so that |v^T G| is above 0.088 except with the
probability ``FAILURE``. What the library draws does not depend on M.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnjax.numerics.outward import raised, underflow
from gnjax.numerics.rounding import gamma, unit_roundoff

_Array = NDArray[np.float64]

FAILURE = 1e-11
_PROBES = 8
_BITS = 20
_ROWS = 128  # rows of a block, so that it and its two parts stay in the cache
_DOUBLE = np.dtype(np.float64)
_UNIT = unit_roundoff(_DOUBLE)
_FACTOR = (2 * (24 * FAILURE) ** 0.25) ** -0.5


@dataclass(frozen=True)
class Map:
    """W + beta I with a rectangular identity."""

    matrix: NDArray
    skip: float = 0.0

    def times(self, vectors: _Array) -> _Array:
        """(W + beta I) on columns (n, b), in float64."""
        image = np.asarray(self.matrix, np.float64) @ vectors
        if self.skip:
            shared = min(self.matrix.shape)
            image[:shared] += self.skip * vectors[:shared]
        return image


@dataclass(frozen=True)
class Vectors:
    """The sum of ``main``, which has few bits, and ``rest``, up to ``error`` in Frobenius norm."""

    main: _Array
    rest: _Array
    error: float


def probes(size: int, seed: int) -> tuple[_Array, float]:
    """Gaussian columns G (size, 8) of few bits, and a factor c with ||M||_2 <= c ||M G||_F.

    For exact Gaussian columns ||M||_2 <= ``_FACTOR`` ||M G||_F, but for the probability
    ``FAILURE``. Rounding G by D gives ||M G|| <= ||M (G + D)|| + ||M|| ||D||, so that c is
    ``_FACTOR`` / (1 - ``_FACTOR`` ||D||).
    """
    exact = np.random.default_rng((seed, size)).standard_normal((size, _PROBES))
    short = _leading(exact.T, _BITS).T
    rounding = raised(_norm(short - exact))
    return short, raised(_FACTOR / (1 - _FACTOR * rounding))


def product_errors(
    steps: Sequence[Map],
    products: Sequence[NDArray | None],
    norms: Callable[[int, int], float],
    seed: int,
) -> list[float]:
    """Bounds on ||P_i - M_i .. M_1||_2 for the ``steps`` M_i and the stored ``products`` P_i.

    Each fails with a probability of at most ``FAILURE``. For a product that is None, 0 is returned.
    Both P_i and the M_i one after the other are applied to random columns G, and c ||difference||
    bounds the norm, for the factor c of :func:`probes`. The rounding of step j runs through the
    later ones, and is multiplied by ``norms(i, j)`` >= ||M_i .. M_(j+1)||_2.
    """
    if all(product is None for product in products):
        return [0.0] * len(products)
    start, factor = probes(steps[0].matrix.shape[1], seed)
    state = Vectors(start, np.zeros_like(start), 0.0)
    errors, local = [], []
    for index, (step, product) in enumerate(zip(steps, products, strict=True), start=1):
        state = apply(step, state)
        local.append(state.error)
        if product is None:
            errors.append(0.0)
            continue
        image = apply(Map(product), Vectors(start, np.zeros_like(start), 0.0))
        carried = sum(norms(index, j) * e for j, e in enumerate(local, start=1))
        gap = (image.main - state.main) + (image.rest - state.rest)
        # The rounding of both differences and of their sum.
        rounding = 2 * _UNIT * (_norm(image.rest) + _norm(state.rest) + 2 * _norm(gap))
        errors.append(raised(factor * (_norm(gap) + rounding + image.error + carried)))
    return errors


def middle_norms(steps: Sequence[Map], first: int, seed: int) -> _Array:
    """Bounds N_ab >= ||W_a .. W_(b+1)||_2 on the products of consecutive ``steps`` W_1 .. W_L.

    They are for first <= b <= a <= L, with N_aa = 1, in an array (L + 1, L + 1). The smaller of two
    bounds: the product of Frobenius norms, and probes that start behind each layer b, multiplied in
    float64. What that rounds at layer i runs through the layers i + 1 .. a.
    """
    depth = len(steps)
    norms, local = np.eye(depth + 1), np.zeros((depth + 1, depth + 1))
    blocks: dict[int, _Array] = {}  # W_a .. W_(b+1) on the random columns that start behind b
    factors: dict[int, float] = {}
    for a, step in enumerate(steps, start=1):
        columns = step.matrix.shape[1]
        frobenius = _norm(step.matrix) * (1 + gamma(step.matrix.size, _DOUBLE))
        frobenius = raised(frobenius + abs(step.skip) * min(step.matrix.shape) ** 0.5)
        if first <= a - 1 <= depth - 2:
            blocks[a - 1], factors[a - 1] = probes(columns, seed + a)
        for b, image in blocks.items():
            local[a, b] = 2 * gamma(columns + 2, _DOUBLE) * frobenius * _norm(image)
        if blocks:
            images = step.times(np.concatenate(list(blocks.values()), axis=1))
            blocks = dict(zip(blocks, np.split(images, len(blocks), axis=1), strict=True))
        for b in range(a - 1, first - 1, -1):
            norms[a, b] = raised(norms[a - 1, b] * frobenius)
            if b in blocks:
                carried = float(norms[a, b + 1 : a + 1] @ local[b + 1 : a + 1, b])
                probed = raised(factors[b] * (_norm(blocks[b]) + carried))
                norms[a, b] = min(probed, norms[a, b])
    return norms


def apply(step: Map, vectors: Vectors) -> Vectors:
    """(W + beta I) (y + c) in about twice the working precision, with the error of this step alone.

    beta is split as W is, for the part of the identity. The sum of the exact products is again
    split into a part of few bits and a rest.
    """
    main, rest, norm, low = _split_product(step.matrix, vectors)
    y, c = _norm(vectors.main), _norm(vectors.rest)
    columns = step.matrix.shape[1]
    error = gamma(columns + 2, _DOUBLE) * (low * y + norm * c)
    error += underflow(2 * columns, main.size, _DOUBLE)
    if step.skip:
        shared = min(step.matrix.shape)
        high = float(_leading(np.full((1, 1), step.skip), 53 - _BITS - 1)[0, 0])
        added = high * vectors.main[:shared]
        total = main[:shared] + added
        high_part = total - main[:shared]
        # What the sum has lost by rounding, exactly (Knuth's two-sum).
        lost = (main[:shared] - (total - high_part)) + (added - high_part)
        main[:shared] = total
        small = (step.skip - high) * vectors.main[:shared] + step.skip * vectors.rest[:shared]
        rest[:shared] += lost + small
        error += 4 * _UNIT * (_norm(lost) + _norm(rest) + abs(step.skip - high) * y)
        error += 4 * _UNIT * abs(step.skip) * c
    short = _leading(main.T, _BITS).T
    rest += main - short
    error += 2 * _UNIT * _norm(rest)
    return Vectors(short, rest, raised(error))


def _split_product(matrix: NDArray, vectors: Vectors) -> tuple[_Array, _Array, float, float]:
    """H y exactly, R y + W c, and bounds on ||W||_F and ||R||_F, for W = H + R and y + c.

    Each row of H has so few bits that H y, a sum of as many terms as W has columns, is exact in the
    53 bits of float64.
    """
    rows, columns = matrix.shape
    bits = 53 - _BITS - math.ceil(math.log2(columns + 1))
    main = np.empty((rows, vectors.main.shape[1]))
    rest, norm, low = np.empty_like(main), 0.0, 0.0
    has_rest = vectors.rest.any()
    for begin in range(0, rows, _ROWS):
        part = slice(begin, begin + _ROWS)
        block = np.asarray(matrix[part], np.float64)
        high = _leading(block, bits)
        main[part] = high @ vectors.main
        remainder = np.subtract(block, high, out=high)
        rest[part] = remainder @ vectors.main
        if has_rest:
            rest[part] += block @ vectors.rest
        norm, low = math.hypot(norm, _norm(block)), math.hypot(low, _norm(remainder))
    lost = 1 + gamma(matrix.size, _DOUBLE)
    return main, rest, raised(norm * lost), raised(low * lost)


def _leading(rows: _Array, bits: int) -> _Array:
    """Every row rounded to multiples of 2^-bits times the power of two above its largest entry."""
    _, exponents = np.frexp(np.abs(rows).max(axis=1, keepdims=True))
    shift = np.ldexp(1.5, exponents + 52 - bits)  # added and subtracted, it leaves leading bits
    leading = rows + shift
    leading -= shift
    return leading


def _norm(matrix: NDArray) -> float:
    return float(np.linalg.norm(np.asarray(matrix, np.float64)))
