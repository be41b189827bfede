"""J of a network: its rows, and the inputs and sensitivities of its layers, from one loop."""

from gnjax.networks.jacobians.coupled import factors as factors_of_coupled
from gnjax.networks.jacobians.coupled import rows as rows_of_coupled
from gnjax.networks.jacobians.coupled import widths as widths_of_coupled
from gnjax.networks.jacobians.items import (
    Item,
    as_columns,
    items_of,
    layer_of_leaf,
    sample_trace,
    uses_of,
)
from gnjax.networks.jacobians.pieces import PairsAndRows, joined, pieces_of
from gnjax.networks.jacobians.row_by_row import SMALL, jacobian, parameter_gram, row_blocks

__all__ = [
    "SMALL",
    "Item",
    "PairsAndRows",
    "as_columns",
    "factors_of_coupled",
    "items_of",
    "jacobian",
    "joined",
    "layer_of_leaf",
    "parameter_gram",
    "pieces_of",
    "row_blocks",
    "rows_of_coupled",
    "sample_trace",
    "uses_of",
    "widths_of_coupled",
]
