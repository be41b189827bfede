"""Parameters by their paths in a module: flat, and as a dict of dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gnjax.networks.forms.frameworks import Params


def paths_of(module: Any) -> dict[str, str]:
    """For every name of a parameter or buffer the first name of the same tensor.

    Layers that share a tensor have several names for it.
    """
    first_names: dict[int, str] = {}
    parameters_and_buffers = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {
        name: first_names.setdefault(id(tensor), name) for name, tensor in parameters_and_buffers
    }


def nested(flat: Mapping[str, Any]) -> Params:
    """Values by names such as "layers.0.weight" as a dict of dicts, in the order of the names."""
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, own_name = name.split(".")
        parameters = nested
        for module in modules:
            parameters = parameters.setdefault(module, OrderedDict())
        parameters[own_name] = value
    return nested


def flat(nested: Any, before: str = "") -> dict[str, Any]:
    """The values of a dict of dicts by names such as "layers.0.weight".

    ``before`` is the name of ``nested`` itself, with which all names start.
    """
    if not isinstance(nested, Mapping):
        return {before: nested}
    parts = (flat(value, f"{before}.{key}" if before else key) for key, value in nested.items())
    return {name: value for part in parts for name, value in part.items()}
