"""Programs of modules as JSON, so that they can be tested where PyTorch is not installed."""

from __future__ import annotations

import dataclasses

import numpy as np

from gnjax.networks.torch_modules.program import Program, Ref, Step


def to_json(program):
    return {
        "parameters": dict(program.parameters),
        "fixed": dict(program.fixed),
        "constants": {name: array_to_json(a) for name, a in program.constants.items()},
        "samples": list(program.samples),
        "steps": [
            _written({**dataclasses.asdict(step), **_arguments(step)}) for step in program.steps
        ],
        "results": _written(program.results),
    }


def _arguments(step):  # dataclasses.asdict would take references apart
    return {"args": step.args, "kwargs": dict(step.kwargs)}


def from_json(stored):
    return Program(
        parameters=stored["parameters"],
        fixed=stored["fixed"],
        constants={name: array_from_json(a) for name, a in stored["constants"].items()},
        samples=tuple(stored["samples"]),
        steps=tuple(Step(**_read(step)) for step in stored["steps"]),
        results=_read(stored["results"]),
    )


def array_to_json(array):
    array = np.asarray(array)
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "entries": array.ravel().tolist(),
    }


def array_from_json(stored):
    return np.array(stored["entries"], stored["dtype"]).reshape(stored["shape"])


def _written(tree):
    if isinstance(tree, Ref):
        return {"ref": tree.name}
    if isinstance(tree, dict):
        return {key: _written(value) for key, value in tree.items()}
    return [_written(entry) for entry in tree] if isinstance(tree, list | tuple) else tree


def _read(tree):
    if isinstance(tree, dict):
        if set(tree) == {"ref"}:
            return Ref(tree["ref"])
        return {key: _read(value) for key, value in tree.items()}
    return [_read(entry) for entry in tree] if isinstance(tree, list) else tree
