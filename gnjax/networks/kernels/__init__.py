"""J of a network row by row, J^T J and J J^T as matrices, by the structure of its layers."""

from gnjax.networks.kernels.coupled import jacobians as jacobians_of_coupled
from gnjax.networks.kernels.coupled import rows as rows_of_coupled
from gnjax.networks.kernels.coupled import widths as widths_of_coupled
from gnjax.networks.kernels.cross import cross_gram
from gnjax.networks.kernels.grams import gram_work, output_gram, output_grams
from gnjax.networks.kernels.rows import (
    Item,
    in_batches,
    items_of,
    jacobian,
    joined,
    parameter_gram,
    row_blocks,
    sample_trace,
)

__all__ = [
    "Item",
    "cross_gram",
    "gram_work",
    "in_batches",
    "items_of",
    "jacobian",
    "jacobians_of_coupled",
    "joined",
    "output_gram",
    "output_grams",
    "parameter_gram",
    "row_blocks",
    "rows_of_coupled",
    "sample_trace",
    "widths_of_coupled",
]
