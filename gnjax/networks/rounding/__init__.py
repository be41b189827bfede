"""How large the rounding errors of a network's Jacobian and of symmetric products are, measured."""

from gnjax.networks.rounding.errors import (
    JacobianErrors,
    MeasuredProduct,
    draws,
    jacobian_error,
    measured,
    measured_product,
    product_error,
    reason_of,
)
from gnjax.networks.rounding.formed import (
    MISTAKE,
    SAFETY,
    Forms,
    checked,
    direction,
    forms_of_images,
    forms_of_kernel,
    forms_of_rows,
    probe_rows,
    watched,
)
from gnjax.networks.rounding.programs import OtherPrograms

__all__ = [
    "MISTAKE",
    "SAFETY",
    "Forms",
    "JacobianErrors",
    "MeasuredProduct",
    "OtherPrograms",
    "checked",
    "direction",
    "draws",
    "forms_of_images",
    "forms_of_kernel",
    "forms_of_rows",
    "jacobian_error",
    "measured",
    "measured_product",
    "probe_rows",
    "product_error",
    "reason_of",
    "watched",
]
