"""What the operators of PyTorch's graphs compute, by their names.

The keys are names of ATen without the namespace: ``add`` is every overload of ``aten::add``.
The functions take what the operators take, with arrays of JAX in place of tensors, and know nothing
of PyTorch. Types of results are stated by the graph, so that ``dtype`` is no argument here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnjax.networks.torch_modules.operators import (
    arrangement,
    attention,
    elementwise,
    indexing,
    matrix_products,
    normalisation,
    pooling,
    reductions,
    resizing,
    sizes,
)

OPERATORS: dict[str, Callable[..., Any]] = {
    **attention.TABLE,
    **elementwise.TABLE,
    **indexing.TABLE,
    **matrix_products.TABLE,
    **normalisation.TABLE,
    **pooling.TABLE,
    **reductions.TABLE,
    **resizing.TABLE,
    **arrangement.TABLE,
    **sizes.TABLE,
}

__all__ = ["OPERATORS"]
