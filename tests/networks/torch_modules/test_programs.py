"""Every operator of the table computes what PyTorch computes, which is stored with its graph."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from gnjax.networks.torch_modules.operators import OPERATORS
from tests.networks.torch_modules.stored import array_from_json, from_json
from tests.torch_weights import spread

_FIXTURE = Path(__file__).parents[2] / "fixtures" / "torch_programs.json"
_STORED = {n: g for n, g in json.loads(_FIXTURE.read_text()).items() if n != "provenance"}


def _arrays(stored):
    return {name: array_from_json(array) for name, array in stored.items()}


def _computed(group):
    """The values and the gradient by our table."""
    program, numbers = from_json(group["program"]), _arrays(group["numbers"])
    params = {name: numbers.pop(name) for name in group["gradient"]}
    x = [array_from_json(array) for array in group["x"]]
    cotangent = [spread(name, tuple(v["shape"])) for name, v in group["values"].items()]

    @jax.jit
    def both(params, fixed, x):
        values, pull = jax.vjp(lambda p: program(p, fixed, x), params)
        return values, pull(cotangent)[0]

    values, gradient = both(params, numbers, x)
    return dict(zip(group["values"], values, strict=True)), gradient


@pytest.mark.parametrize("name", _STORED)
def test_programs_compute_what_pytorch_computes(name):
    """Sums of some hundred terms of order one: 1e-12 is a few thousand roundings."""
    group = _STORED[name]
    for found, stored in zip(_computed(group), (group["values"], group["gradient"]), strict=True):
        for path, expected in _arrays(stored).items():
            assert found[path].dtype == expected.dtype, path
            np.testing.assert_allclose(found[path], expected, rtol=1e-12, atol=1e-12, err_msg=path)


def test_every_operator_of_the_table_is_in_a_stored_program():
    """Those of Python's own numbers aside."""
    reached = {step["operator"] for g in _STORED.values() for step in g["program"]["steps"]}
    of_tensors = {name for name in OPERATORS if not name.startswith(("python.", "sym_"))}
    assert {n for n in reached if not n.startswith(("python.", "sym_"))} == of_tensors
