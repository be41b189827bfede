"""The symmetric matrix of an object of another library that can be multiplied with, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from gnjax.numerics.certificate import Error, unknown
from gnjax.numerics.host import on_device
from gnjax.numerics.outward import raised
from gnjax.numerics.rounding import spectral_error, unit_roundoff
from gnjax.numerics.validation import check_held
from gnjax.operators.algebra import Algebra
from gnjax.operators.elsewhere.measured import Measured, measured_products
from gnjax.operators.elsewhere.products import ForeignProducts, products_of, working_dtype
from gnjax.operators.facts import Facts

_COLUMNS = 256  # of the identity that are multiplied at once


class HostProducts(Algebra):
    """The products of an operator whose matrix is multiplied in host memory, by ``products``."""

    products: ForeignProducts

    @property
    def shape(self) -> tuple[int, int]:
        return self.products.shape

    @cached_property
    def dtype(self) -> Any:
        """That of the products, and float32 where JAX has no float64."""
        return working_dtype(self.products)

    def multiply(self, v: Any) -> np.ndarray:
        """A v in host memory in the dtype of this operator, computed in that of the object."""
        block = np.asarray(v).astype(self.products.dtype, copy=False)
        columns = block if block.ndim > 1 else block[:, None]
        product = self.products.multiply(columns).reshape(block.shape)
        with np.errstate(over="ignore"):  # refused below
            narrow = product.astype(self.dtype, copy=False)
        check_held(f"a product with {self.products.name}", product, narrow)
        return narrow

    def mv(self, v: jax.Array) -> jax.Array:
        return on_device(self.multiply(v))

    def narrowing(self, norm: float) -> Error:
        """A bound on ||E||_2 for the rounding E of A from the dtype of the products to the own one.

        In 32-bit mode JAX has no float64, so that a float64 matrix is stored in float32. Each entry
        is rounded once, by at most u |A_ij| (but for underflow), and so

            ||E||_2 <= ||E||_F <= u ||A||_F <= u n^{1/2} ||A||_2.

        A product A v is rounded by at most u ||A v||, which is less.
        """
        if self.products.dtype.itemsize <= np.dtype(self.dtype).itemsize:
            return Error(0.0)
        share = unit_roundoff(self.dtype) * self.shape[0] ** 0.5
        return Error(raised(share * abs(float(norm))), reason="rounding to float32")


@dataclass(frozen=True, repr=False, eq=False)
class BlackBox(HostProducts):
    """The symmetric matrix whose products are those of an object of another library.

    Attributes:
      products: the products.
      stated: a bound on their error in the 2-norm, or None where nobody states one.
      by_random_vectors: how far the products are from symmetric, repeatable and linear, measured
        by random vectors.
    """

    products: ForeignProducts
    stated: Error | None
    by_random_vectors: Measured

    @cached_property
    def dtype(self) -> Any:
        """The products' dtype; float32 if they show no more digits and nobody states an error.

        What is called float64 is often computed in float32, and Lanczos needs to know the rounding.
        """
        dtype = super().dtype
        rounding = spectral_error(self.shape[0], dtype) * self.by_random_vectors.norm
        is_coarse = self.stated is None and self.by_random_vectors.least_error > rounding
        return np.dtype(np.float32) if is_coarse and dtype.itemsize > 4 else dtype

    def as_matrix(self) -> jax.Array:
        """The products with the columns of the identity."""
        size = self.shape[0]
        firsts = range(0, size, _COLUMNS)
        blocks = [np.eye(size, min(_COLUMNS, size - first), -first) for first in firsts]
        return on_device(np.concatenate([self.multiply(block) for block in blocks], axis=1))

    def facts(self) -> Facts:
        return Facts(error=self._error, product=lambda: self.multiply)

    def _error(self, norm: float) -> Error:
        """The error that was stated; unknown where none was, or where the products refute it."""
        name = self.products.name
        if self.stated is None:
            return unknown(
                f"nobody states the error of the products of {name}; {self.by_random_vectors}"
            )
        rounding = spectral_error(self.shape[0], self.products.dtype) * max(
            norm, self.by_random_vectors.norm
        )
        least_error = self.by_random_vectors.least_error
        if least_error > self.stated.value + rounding:
            return unknown(
                f"the products of {name} have an error of at least {least_error:.2g}, "
                f"and {self.stated.value:.2g} was stated; {self.by_random_vectors}"
            )
        return self.stated + self.narrowing(norm)


def black_box(op: Any, error: Error | None = None) -> BlackBox | None:
    """The operator of an object with products; None where it has none."""
    products = products_of(op)
    if products is None:
        return None
    working_dtype(products)  # refuses complex numbers and empty shapes
    return BlackBox(products, error, measured_products(products))
