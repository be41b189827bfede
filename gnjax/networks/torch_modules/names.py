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
    """A dict with keys such as "layers.0.weight" as a dict of dicts, with the same order.

    So the value at "layers.0.weight" gets to ["layers"]["0"]["weight"].
    """
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, own_name = name.split(".")
        innermost = nested
        for module in modules:
            innermost = innermost.setdefault(module, OrderedDict())
        innermost[own_name] = value
    return nested


def flat(nested: Any, prefix: str = "") -> dict[str, Any]:
    """A dict of dicts as one dict with keys such as "layers.0.weight", the inverse of ``nested``.

    ``prefix`` is the path of the dict itself, with which all keys start.
    """
    if not isinstance(nested, Mapping):
        return {prefix: nested}
    values_by_name: dict[str, Any] = {}
    for key, value in nested.items():
        values_by_name.update(flat(value, f"{prefix}.{key}" if prefix else key))
    return values_by_name
