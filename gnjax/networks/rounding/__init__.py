"""How large the rounding errors of a network's Jacobian and of symmetric products are, measured."""

from gnjax.networks.rounding.errors import (
    Measured,
    draws,
    jacobian_error,
    measured,
    product_error,
)
from gnjax.networks.rounding.formed import (
    SAFETY,
    Forms,
    checked,
    forms_of_images,
    forms_of_kernel,
    forms_of_rows,
    probe_rows,
    watched,
)

__all__ = [
    "SAFETY",
    "Forms",
    "Measured",
    "checked",
    "draws",
    "forms_of_images",
    "forms_of_kernel",
    "forms_of_rows",
    "jacobian_error",
    "measured",
    "probe_rows",
    "product_error",
    "watched",
]
