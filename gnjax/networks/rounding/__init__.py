"""How large the rounding errors of a network's Jacobian and of symmetric products are, measured."""

from gnjax.networks.rounding.errors import (
    SAFETY,
    draws,
    jacobian_error,
    jacobian_errors,
    product_error,
)

__all__ = ["SAFETY", "draws", "jacobian_error", "jacobian_errors", "product_error"]
