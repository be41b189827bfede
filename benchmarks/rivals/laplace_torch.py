"""laplace-torch: log determinants of the posterior precision, and variances of predictions."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import harness
from benchmarks.rivals import torch_models


def logdet(case: harness.Case, repeats: int, structure: str) -> dict[str, Any]:
    """log det (N G + I), or that of its Kronecker factors, from the fit on."""

    def call() -> torch.Tensor:
        return _fitted(case, structure).log_det_posterior_precision

    runs, value = harness.in_turn(call, repeats, time.process_time)
    return {"tool": _signed(structure), "runs": runs, "value": float(value)}


def variances(case: harness.Case, repeats: int, x_new: np.ndarray) -> dict[str, Any]:
    """The variances of all outputs at new samples (m k,), from the fit on."""
    new = torch.from_numpy(x_new)

    def call() -> torch.Tensor:
        laplace = _fitted(case, "full")
        jacobians, _ = laplace.backend.jacobians(new)
        return laplace.functional_variance(jacobians).diagonal(dim1=1, dim2=2)

    runs, found = harness.in_turn(call, repeats, time.process_time)
    return {"tool": _signed("full"), "runs": runs, "variances": found.detach().numpy().ravel()}


def _fitted(case: harness.Case, structure: str) -> Any:
    """The approximation with the prior precision 1, fitted on all samples in one batch."""
    torch.set_default_dtype(torch.float64)
    x, y = torch_models.data(case)
    laplace = Laplace(
        _sequential(case),
        "classification",
        subset_of_weights="all",
        hessian_structure=structure,
        prior_precision=1.0,
    )
    laplace.fit(DataLoader(TensorDataset(x, y), batch_size=len(x)))
    return laplace


def _sequential(case: harness.Case) -> torch.nn.Module:
    """The network as the layers that Kronecker factors are made of."""
    layers = []
    for name in ("layer1", "layer2"):
        weight, bias = (torch.from_numpy(case.weights[f"{name}_{p}"]) for p in ("dense", "bias"))
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
        layer.weight.data, layer.bias.data = weight, bias
        layers.append(layer)
    return torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])


def _signed(structure: str) -> str:
    return f"{harness.signed('laplace-torch')}, {structure}"
