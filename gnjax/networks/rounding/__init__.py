"""How large the rounding errors of a network's Jacobian and of symmetric products are, measured."""

from gnjax.networks.rounding.errors import (
    SAFETY,
    Measured,
    draws,
    jacobian_error,
    jacobian_errors,
    measured_jacobian,
    measured_product,
    product_error,
)

__all__ = [
    "SAFETY",
    "Measured",
    "draws",
    "jacobian_error",
    "jacobian_errors",
    "measured_jacobian",
    "measured_product",
    "product_error",
]
