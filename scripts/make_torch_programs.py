"""Write tests/fixtures/torch_programs.json: graphs of small modules, and what PyTorch computes.

    python -m scripts.make_torch_programs

Needs torch beside this library. For every group of modules in tests/networks/torch_modules/cases.py
the file has the steps of their graph, their numbers, and the values and the gradient that PyTorch
computes in float64.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import torch

import gnjax
from tests.networks.torch_modules.cases import GROUPS, together
from tests.networks.torch_modules.stored import array_to_json, to_json
from tests.torch_weights import spread

OUT = Path(__file__).parents[1] / "tests" / "fixtures" / "torch_programs.json"


def stored(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    apply, params = gnjax.from_torch(module, output=lambda found: found)
    x = tuple(tensor.numpy() for tensor in inputs)
    jax.eval_shape(apply, params, x)
    (made,) = apply.func.programs.values()
    arrays = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        "program": to_json(made.program),
        "numbers": _arrays(arrays),
        "x": [array_to_json(array) for array in x],
        **computed(module, inputs),
    }


def computed(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """The values by their names, and the gradient of the sum of them times fixed numbers."""
    found = module(*inputs)
    total = sum((v * torch.from_numpy(spread(n, tuple(v.shape)))).sum() for n, v in found.items())
    parameters = dict(module.named_parameters())
    gradient = torch.autograd.grad(
        total, list(parameters.values()), allow_unused=True, materialize_grads=True
    )
    return {
        "values": _arrays(found, digits=14),
        "gradient": _arrays(dict(zip(parameters, gradient, strict=True)), digits=14),
    }


def _arrays(tensors: dict[str, torch.Tensor], digits: int = 17) -> dict[str, Any]:
    found = {name: array_to_json(t.detach().numpy()) for name, t in sorted(tensors.items())}
    for array in found.values():
        if array["dtype"] == "float64":
            array["entries"] = [float(f"{entry:.{digits}g}") for entry in array["entries"]]
    return found


def main() -> None:
    gnjax.enable_x64()
    content = {"made by": "python -m scripts.make_torch_programs", "torch": torch.__version__}
    groups = {name: stored(*together(group)) for name, group in GROUPS.items()}
    lines = [f'"provenance":{json.dumps(content)}']
    lines += [f'"{name}":{json.dumps(g, separators=(",", ":"))}' for name, g in groups.items()]
    OUT.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
