"""What products with random vectors show of a matrix that nothing else is known about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnjax.numerics.rounding import unit_roundoff
from gnjax.operators.elsewhere.products import ForeignProducts

_STREAM = 15331
_NONLINEAR = 0.01  # of the norm; one rounding, even in bfloat16, is half as large at most


@dataclass(frozen=True)
class Measured:
    """Numbers that the error of the products cannot be smaller than, and a length to compare with.

    Attributes:
      asymmetric, unrepeatable, nonlinear: see :func:`measured_products`.
      norm: the largest ||B x|| / ||x||, which is at most the norm of the matrix.
      rounding: the relative error of one rounding in the precision of the products.
    """

    asymmetric: float
    unrepeatable: float
    nonlinear: float
    norm: float
    rounding: float

    @property
    def least_error(self) -> float:
        return max(self.asymmetric, self.unrepeatable, self.nonlinear)

    def __str__(self) -> str:
        """How far the products are from symmetric, repeatable and linear, for a certificate."""
        parts = (
            (self.asymmetric, "symmetric"),
            (self.unrepeatable, "the same when repeated"),
            (self.nonlinear, "linear"),
        )
        texts = [
            f"{word} to {number / self.norm:.1g}" if number else f"{word} exactly"
            for number, word in parts
        ]
        return (
            f"with random vectors they are {', '.join(texts)}, relative to the norm; one rounding "
            f"is {self.rounding:.1g}"
        )


def measured_products(products: ForeignProducts) -> Measured:
    """Measure how far products are from those of one symmetric matrix, by random vectors x and y.

    Products with x, y, x again and x + y are made; refused are products that are not linear.

    If B v are the products and e bounds ||B v - A v|| / ||v|| for a symmetric A, then e is at least

        |<x, B y> - <B x, y>| / (2 ||x|| ||y||),    ||B x - B' x|| / (2 ||x||),
        ||B (x + y) - B x - B y|| / (||x + y|| + ||x|| + ||y||),

    where B' x is the second product with x. None of them bounds e from above: products with a wrong
    symmetric matrix pass all three.
    """
    size, dtype = products.shape[0], products.dtype
    pair = np.random.default_rng(_STREAM).standard_normal((size, 2)).astype(dtype)
    total = pair.sum(axis=1, keepdims=True)  # rounded, so that x + y is not quite this vector
    images = _checked(products, pair)
    bx_again, b_total = _checked(products, pair[:, :1])[:, 0], _checked(products, total)[:, 0]
    (x, y), (bx, by) = pair.T.astype(float), images.T
    lengths = np.linalg.norm([x, y, total[:, 0].astype(float)], axis=1)
    measured = Measured(
        asymmetric=abs(float(x @ by - bx @ y)) / float(2 * lengths[0] * lengths[1]),
        unrepeatable=float(np.linalg.norm(bx - bx_again)) / float(2 * lengths[0]),
        nonlinear=float(np.linalg.norm(b_total - bx - by)) / float(lengths.sum()),
        # The largest |B v| / |v|; 1 where all products are zero, as numbers are divided by it.
        norm=float((np.linalg.norm([bx, by, b_total], axis=1) / lengths).max()) or 1.0,
        rounding=unit_roundoff(dtype),
    )
    for number, defect in (
        (measured.unrepeatable, "two products with one vector differ"),
        (measured.nonlinear, "A (x + y) and A x + A y differ"),
    ):
        if number > _NONLINEAR * measured.norm:
            msg = (
                f"{products.name} does not multiply with one matrix: {defect} by about "
                f"{2 * number / measured.norm:.1g} of its norm; fix its random numbers and its "
                "data, and pass an operator that is linear"
            )
            raise ValueError(msg)
    return measured


def _checked(products: ForeignProducts, block: np.ndarray) -> np.ndarray:
    """The products with columns (n, b) in float64; refused if they have another shape."""
    images = np.asarray(products.multiply(block))
    if images.shape != block.shape:
        msg = (
            f"{products.name} of shape {products.shape} returns an array of shape {images.shape} "
            f"for a block of columns of shape {block.shape}"
        )
        raise ValueError(msg)
    return images.astype(np.float64)
