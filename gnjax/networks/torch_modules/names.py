"""Parameters by their paths in a module: flat, and as a dict of dicts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from gnjax.networks.forms.frameworks import Params


def paths_of(module: Any) -> dict[str, str]:
    """For every name of a parameter or buffer the first name of the same tensor."""
    first: dict[int, str] = {}
    everything = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: first.setdefault(id(tensor), name) for name, tensor in everything}


def nested(flat: Mapping[str, Any]) -> Params:
    """A dict of dicts by the parts of the names, in their order."""
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, last = name.split(".")
        place = nested
        for part in modules:
            place = place.setdefault(part, OrderedDict())
        place[last] = value
    return nested


def flat(nested: Any, before: str = "") -> dict[str, Any]:
    if not isinstance(nested, Mapping):
        return {before: nested}
    parts = (flat(value, f"{before}.{key}" if before else key) for key, value in nested.items())
    return {name: value for part in parts for name, value in part.items()}
