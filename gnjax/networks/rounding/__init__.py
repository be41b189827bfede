"""How large the rounding errors of a network's Jacobian and of symmetric products are, measured.

``docs/reference/evidence.md`` explains what an error, its kind and its reason are.
"""

from gnjax.networks.rounding.chosen_samples import all_are_looked_at, is_small
from gnjax.networks.rounding.errors import (
    JacobianErrors,
    MeasuredProduct,
    draws,
    error_of_all,
    jacobian_error,
    look_at_both,
    measure_jacobian,
    measured_product,
    product_by_looks,
    product_error,
    product_probes,
    reason_of,
    with_sums,
)
from gnjax.networks.rounding.formed import (
    MISTAKE,
    SAFETY,
    Forms,
    OtherPrograms,
    checked,
    direction,
    forms_of_images,
    forms_of_kernel,
    forms_of_products,
    forms_of_rows,
    probe_rows,
    watched,
)
from gnjax.networks.rounding.looks import (
    SecondLook,
    look_at_all,
    moved_network,
    second_look,
)

__all__ = [
    "MISTAKE",
    "SAFETY",
    "Forms",
    "JacobianErrors",
    "MeasuredProduct",
    "OtherPrograms",
    "SecondLook",
    "all_are_looked_at",
    "checked",
    "direction",
    "draws",
    "error_of_all",
    "forms_of_images",
    "forms_of_kernel",
    "forms_of_products",
    "forms_of_rows",
    "is_small",
    "jacobian_error",
    "look_at_all",
    "look_at_both",
    "measure_jacobian",
    "measured_product",
    "moved_network",
    "probe_rows",
    "product_by_looks",
    "product_error",
    "product_probes",
    "reason_of",
    "second_look",
    "watched",
    "with_sums",
]
