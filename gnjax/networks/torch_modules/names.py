"""Names of the parameters of a module of PyTorch, and a dict of dicts by their parts."""

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
    """A dict of dicts in the same order: "layers.0.weight" is at ["layers"]["0"]["weight"].

    Its dicts are ordered, as JAX would sort the keys of others.
    """
    nested: OrderedDict[str, Any] = OrderedDict()
    for name, value in flat.items():
        *modules, own_name = name.split(".")
        innermost = nested
        for module in modules:
            innermost = innermost.setdefault(module, OrderedDict())
        innermost[own_name] = value
    return nested
