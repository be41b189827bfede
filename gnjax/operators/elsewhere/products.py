"""How objects of other libraries multiply, recognised by what they have and never by an import.

All of them become a function from blocks of columns (n, b) in host memory to their products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from gnjax.numerics.host import HostProduct
from gnjax.numerics.precision import real_dtype
from gnjax.operators.facts import check_shape


@dataclass(frozen=True)
class ForeignProducts:
    """A square matrix that can be multiplied with, and no more.

    Attributes:
      name: what the object is called, for messages.
      shape: (n, n).
      dtype: the precision in which the object multiplies.
      multiply: the product with a block of columns (n, b) of that precision.
    """

    name: str
    shape: tuple[int, int]
    dtype: np.dtype
    multiply: HostProduct


def products_of(op: Any) -> ForeignProducts | None:
    """The products of an object of another library; None where it has none."""
    name = type(op).__name__
    if hasattr(op, "in_structure") and hasattr(op, "mv"):  # as those of lineax
        return _of_structures(op, name)
    if callable(getattr(op, "to_scipy", None)):  # as those of curvlinops, on arrays of PyTorch
        return _of_shape(op.to_scipy(), name)
    return _of_shape(op, name)


def _of_shape(op: Any, name: str) -> ForeignProducts | None:
    """The products of an object with shape and dtype, as SciPy's; None where it has none."""
    multiply = _product_with_columns(op)
    if multiply is None or not hasattr(op, "shape") or not hasattr(op, "dtype"):
        return None
    shape = tuple(op.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        msg = (
            f"an operator has a square shape (n, n), got {shape}; of a Jacobian J pass "
            "the operator of J J^T or J^T J"
        )
        raise ValueError(msg)
    rows, columns = int(shape[0]), int(shape[1])
    return ForeignProducts(name, (rows, columns), _precision(op.dtype, name), multiply)


def _product_with_columns(op: Any) -> HostProduct | None:
    """A function from columns (n, b) to their products, by the best method of the object."""
    if hasattr(op, "matmat"):
        return lambda block: np.asarray(op.matmat(block))
    if hasattr(op, "matvec"):
        return lambda block: np.stack([np.asarray(op.matvec(v)) for v in block.T], axis=1)
    if hasattr(op, "mv"):
        return lambda block: np.asarray(op.mv(block))
    if hasattr(op, "__matmul__"):
        return lambda block: np.asarray(op @ block)
    return None


def _of_structures(op: Any, name: str) -> ForeignProducts:
    """The products of an operator from trees to trees, with each tree as one flat vector."""
    structure, returned = op.in_structure(), op.out_structure()
    if [leaf.shape for leaf in jax.tree.leaves(structure)] != [
        leaf.shape for leaf in jax.tree.leaves(returned)
    ]:
        msg = f"{name} is not square: it takes {structure} and returns {returned}"
        raise ValueError(msg)
    zero, tree_of = ravel_pytree(
        jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), structure)
    )

    @jax.jit
    def multiply(block: jax.Array) -> jax.Array:
        """The products with the columns of a block (n, b), each as a tree."""
        return jax.vmap(lambda v: ravel_pytree(op.mv(tree_of(v)))[0], 1, 1)(block)

    size = len(zero)
    return ForeignProducts(
        name, (size, size), _precision(zero.dtype, name), lambda b: np.asarray(multiply(b))
    )


def _precision(dtype: Any, name: str) -> np.dtype:
    """The precision in which an object ``name`` of this dtype is asked to multiply.

    It is float64 for integers, booleans and floats of more than 64 bits, and else the dtype itself.
    """
    try:
        numpy_dtype = np.dtype(dtype)
    except TypeError as error:
        msg = f"{name} states the dtype {dtype!r}, which numpy does not know; state numpy's"
        raise ValueError(msg) from error
    needs_float64 = numpy_dtype.kind in "iub" or (
        numpy_dtype.kind == "f" and numpy_dtype.itemsize > 8
    )
    return np.dtype(np.float64) if needs_float64 else numpy_dtype


def working_dtype(products: ForeignProducts) -> np.dtype:
    """The precision of the operator: that of the products, and float32 in 32-bit mode."""
    check_shape(products)
    return np.dtype(real_dtype()) if products.dtype.itemsize > 4 else products.dtype
