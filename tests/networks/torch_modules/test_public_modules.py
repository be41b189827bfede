"""Modules of torchvision, timm and transformers: known layers, and numbers beside torch.func."""

import re

import pytest

import gnjax
from benchmarks import torch_modules

torch = pytest.importorskip("torch", reason="torch comes with gnjax[torch]")
for package in ("torchvision", "timm", "transformers"):
    pytest.importorskip(package, reason="make test-torch installs it")

from benchmarks.rivals import public_modules  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.export


def test_every_model_has_a_title():
    assert list(public_modules.CASES) == list(torch_modules.MODELS)


def test_nearly_all_parameters_are_in_known_layers():
    """Of these modules the layers of 95% of the parameters are known, as ``repr`` says."""
    for name in public_modules.CASES:
        case = public_modules.made(name)
        op = gnjax.gauss_newton(
            gnjax.from_torch(case.module), case.x, y=case.y, loss="cross_entropy"
        )
        said = re.search(r"([\d,]+) of ([\d,]+) parameters in known layers", repr(op))
        known, parameters = (int(said[i].replace(",", "")) for i in (1, 2))
        assert parameters == sum(p.numel() for p in case.module.parameters())
        assert known >= 0.95 * parameters, name


@pytest.mark.slow
@pytest.mark.parametrize("task", torch_modules.TASKS)
@pytest.mark.parametrize(
    "name", [name for name in public_modules.CASES if not name.startswith("resnet")]
)
def test_numbers_are_those_of_torch_func(name, task):
    """To 1e-10 of the largest; the spectra of a ResNet's Hessian: test_residual_networks."""
    case = public_modules.made(name)
    found, exact = (
        solver(case, task)() for solver in (torch_modules.gnjax_solver, public_modules.by_torch)
    )
    assert torch_modules.difference(task, found, exact) <= 1e-10
