"""Random matrices, factors and sums of Kronecker products of every class, as floats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

SIZES = (1, 2, 3, 5, 8, 13, 20, 30, 40)  # few, as JAX compiles for every size

Rng = np.random.Generator
Make = Callable[[Rng, int], np.ndarray]


def rotated(rng: Rng, values: np.ndarray) -> np.ndarray:
    """A symmetric matrix with nearly these eigenvalues."""
    q = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    matrix = q * values @ q.T
    return (matrix + matrix.T) / 2


def _definite(rng: Rng, n: int) -> np.ndarray:
    decades = rng.uniform(0, 8)
    return rotated(rng, 10 ** (rng.uniform(0, 1, n) * decades + rng.uniform(-6, 6)))


def _indefinite(rng: Rng, n: int) -> np.ndarray:
    return rotated(rng, rng.standard_normal(n) * 10 ** rng.uniform(-6, 6))


def _negative(rng: Rng, n: int) -> np.ndarray:
    """Most of it negative, with now and then a small positive end."""
    values = -(10 ** rng.uniform(0, 4, n))
    if rng.random() < 0.5:
        values[0] = 10 ** rng.uniform(-6, 0)
    return rotated(rng, values)


def _graded_spectrum(rng: Rng, n: int) -> np.ndarray:
    return rotated(rng, 10 ** np.linspace(0, -12, n))


def _graded_rows(rng: Rng, n: int) -> np.ndarray:
    """D M D with D from 1 to 1e-6: entries over twelve decades, also in random order."""
    scale = 10 ** -np.linspace(0, 6, n)
    scale = scale if rng.random() < 0.5 else rng.permutation(scale)
    return scale[:, None] * rotated(rng, rng.uniform(0.5, 2, n)) * scale


def _graded_indefinite(rng: Rng, n: int) -> np.ndarray:
    scale = 10 ** -np.linspace(0, 6, n)
    return scale[:, None] * rotated(rng, rng.standard_normal(n)) * scale


def _repeated(rng: Rng, n: int) -> np.ndarray:
    """Exactly repeated: copies of one small matrix along the diagonal, in random order."""
    copies = max(d for d in range(1, min(n, 6) + 1) if n % d == 0)
    block = rng.integers(-4, 5, (n // copies, n // copies)).astype(float)
    matrix = np.kron(np.eye(copies), block @ block.T + np.eye(len(block)))
    order = rng.permutation(n)
    return matrix[order][:, order]


def _nearly_repeated(rng: Rng, n: int) -> np.ndarray:
    return rotated(rng, rng.choice([1.0, 1.0 + 1e-13, 3.0], n))


def _stored_product(rng: Rng, n: int) -> np.ndarray:
    """B B^T as floats hold it: of low rank before rounding, and of any after."""
    thin = rng.standard_normal((n, rng.integers(1, max(2, n))))
    return (thin @ thin.T) * 10 ** rng.uniform(-6, 6)


def _integer_gram(rng: Rng, n: int) -> np.ndarray:
    """B B^T of integers, which floats hold exactly; often of rank n - 1 alone."""
    rank = max(1, n - 1) if rng.random() < 0.5 else rng.integers(1, n + 1)
    thin = rng.integers(-9, 10, (n, rank)).astype(float)
    return thin @ thin.T


def _outlier(rng: Rng, n: int) -> np.ndarray:
    """One eigenvalue of 1e10 over a bulk near 1."""
    values = rng.uniform(0.5, 1.5, n)
    values[0] = 10 ** rng.uniform(6, 12)
    return rotated(rng, values)


def _zero(rng: Rng, n: int) -> np.ndarray:
    return np.zeros((n, n))


def _diagonal(rng: Rng, n: int) -> np.ndarray:
    values = 10 ** rng.uniform(-9, 9, n)
    values[rng.random(n) < 0.2] = 0.0
    return np.diag(values)


def _one(rng: Rng, n: int) -> np.ndarray:
    return np.array([[rng.choice([-1.0, 1.0, 1.0]) * 10 ** rng.uniform(-200, 200)]])


MATRICES: dict[str, Make] = {
    "definite": _definite,
    "indefinite": _indefinite,
    "negative": _negative,
    "graded spectrum": _graded_spectrum,
    "graded rows": _graded_rows,
    "graded indefinite": _graded_indefinite,
    "repeated": _repeated,
    "nearly repeated": _nearly_repeated,
    "stored product": _stored_product,
    "integer Gram": _integer_gram,
    "outlier": _outlier,
    "diagonal": _diagonal,
    "zero": _zero,
    "1 x 1": _one,
}


def symmetric(rng: Rng, name: str, n: int) -> np.ndarray:
    """A matrix of the class, exactly symmetric."""
    matrix = MATRICES[name](rng, n)
    return (matrix + matrix.T) / 2


WITHOUT_KAPPA = ("indefinite", "negative", "graded indefinite")

SHAPES = ((1, 1), (1, 4), (4, 1), (3, 8), (8, 3), (8, 8), (12, 20), (20, 12), (20, 20))


def _factor(rng: Rng, n: int, p: int) -> np.ndarray:
    return rng.standard_normal((n, p)) * 10 ** rng.uniform(-6, 6)


def _graded_factor(rng: Rng, n: int, p: int) -> np.ndarray:
    """Rows or columns over twelve decades: kappa up to 1e24 and more."""
    if rng.random() < 0.5:
        return rng.standard_normal((n, p)) * 10 ** -np.linspace(0, 12, p)
    return rng.standard_normal((n, p)) * 10 ** -np.linspace(0, 12, n)[:, None]


def _deficient_factor(rng: Rng, n: int, p: int) -> np.ndarray:
    """Rows repeated, or a product of integers."""
    if rng.random() < 0.5:
        return rng.standard_normal((n, p))[rng.integers(0, (n + 1) // 2, n)]
    inner = max(1, min(n, p) - 1)
    left, right = rng.integers(-5, 6, (n, inner)), rng.integers(-5, 6, (inner, p))
    return (left @ right).astype(float)


def _nearly_equal_rows(rng: Rng, n: int, p: int) -> np.ndarray:
    return rng.standard_normal((1, p)) + 10 ** rng.uniform(-15, -3) * rng.standard_normal((n, p))


FACTORS: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    "factor": _factor,
    "graded factor": _graded_factor,
    "deficient factor": _deficient_factor,
    "nearly equal rows": _nearly_equal_rows,
}

KRONECKER_SHAPES = ((2, 2, 3), (3, 3, 2), (1, 4, 5), (3, 2, 1))  # k, d, terms


def kronecker_terms(rng: Rng, k: int, d: int, terms: int) -> tuple[list, list]:
    """Positive semidefinite integers, scaled by powers of two: nothing is rounded."""
    full = rng.random() < 0.5
    sides = []
    for size in (k, d):
        thin = [rng.integers(-4, 5, (size, size if full else 1)) for _ in range(terms)]
        scale = [2.0 ** rng.integers(-20, 20) for _ in range(terms)]
        sides.append([s * (t @ t.T).astype(float) for s, t in zip(scale, thin, strict=True)])
    return sides[0], sides[1]


LINEAR_SIZES = ((4, 3), (4, 6, 3), (4, 2, 3), (3, 5, 4, 2), (5, 3, 4, 3, 2), (3, 3, 3, 3, 3))


def linear_weights(rng: Rng, sizes: tuple[int, ...], kind: str) -> list[np.ndarray]:
    """Weights W_1 .. W_L of a linear network: ordinary, graded layers, or with zero patterns."""
    pairs = zip(sizes[1:], sizes[:-1], strict=True)
    weights = [rng.standard_normal(pair) / pair[1] ** 0.5 for pair in pairs]
    if kind == "graded layers":
        return [w * 10 ** rng.uniform(-8, 8) for w in weights]
    if kind == "graded inside":
        return [w * 10 ** rng.uniform(-8, 8, w.shape[1]) for w in weights]
    if kind == "pruned":
        return [w * (rng.random(w.shape) < rng.uniform(0.3, 1)) for w in weights]
    return weights


LINEAR = ("ordinary", "graded layers", "graded inside", "pruned")

# Spectra whose ends a Lanczos run can miss: what makes them hard is a share of its tolerance.


def _beyond(values: np.ndarray, rng: Rng, rtol: float) -> np.ndarray:
    """One eigenvalue above the largest and one below the smallest, by shares of rtol."""
    least, largest = values.min(), values.max()
    values[0] = largest * (1 + rtol * rng.uniform(0.1, 1.2))
    values[1] = least * (1 - min(0.9, rtol * rng.uniform(0.1, 1.5)))
    return values


def _uniform(rng: Rng, n: int, rtol: float) -> np.ndarray:
    return _beyond(rng.uniform(1.0, 10 ** rng.uniform(0.1, 2), n), rng, rtol)


def _few(rng: Rng, n: int, rtol: float) -> np.ndarray:
    """All but two eigenvalues are one of three: a run of a few steps looks complete."""
    return _beyond(rng.choice([1.0, 1.5, 2.0], n), rng, rtol)


def _crowded(rng: Rng, n: int, rtol: float) -> np.ndarray:
    """Eigenvalues crowd towards both ends of the bulk, as in the proof of the sharp bound."""
    bulk = 1.5 + 0.5 * np.cos(np.pi * (np.arange(n) + rng.random()) / n)
    return _beyond(bulk, rng, rtol)


def _narrow(rng: Rng, n: int, rtol: float) -> np.ndarray:
    """The bulk is nearly one number, so that the first steps see little else."""
    return _beyond(1 + 1e-6 * rng.standard_normal(n), rng, rtol)


def _decay(rng: Rng, n: int, rtol: float) -> np.ndarray:
    return np.geomspace(1.0, 10 ** rng.uniform(1, 4), n)


HARD: dict[str, Callable[[Rng, int, float], np.ndarray]] = {
    "uniform bulk": _uniform,
    "few eigenvalues": _few,
    "crowded ends": _crowded,
    "narrow bulk": _narrow,
    "geometric": _decay,
}


def factors_in_turn(
    seed: int, count: int, shapes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, str, np.ndarray, Rng]]:
    """Yield the index, the class, a factor, and its stream for ``count`` factors of all classes."""
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        name = list(FACTORS)[index % len(FACTORS)]
        yield index, name, FACTORS[name](rng, *shapes[rng.integers(len(shapes))]), rng
