"""The networks of the cases in torch, as modules whose parameters come in the cases' order."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from benchmarks.rivals.harness import Arrays, Case

_NORM_EPSILON = 1e-5


class TanhMLP(torch.nn.Module):
    """W2 tanh(W1 x + b1) + b2."""

    def __init__(self, weights: Arrays) -> None:
        super().__init__()
        self.weights = parameters(weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weights
        hidden = torch.tanh(functional.linear(x, w["layer1_dense"], w["layer1_bias"]))
        return functional.linear(hidden, w["layer2_dense"], w["layer2_bias"])


class ResNet20(torch.nn.Module):
    """ResNet20 for CIFAR: three stages of three blocks, and shortcuts without parameters."""

    def __init__(self, weights: Arrays, statistics: Arrays) -> None:
        super().__init__()
        self.weights = parameters(weights)
        self.statistics = {name: torch.from_numpy(a) for name, a in statistics.items()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = functional.relu(self._conv_norm("stem", x, 1))
        for stage in (1, 2, 3):
            for block in (1, 2, 3):
                name = f"stage{stage}_block{block}"
                stride = 2 if stage > 1 and block == 1 else 1
                inner = functional.relu(self._conv_norm(f"{name}_first", z, stride))
                inner = self._conv_norm(f"{name}_second", inner, 1)
                z = functional.relu(inner + _shortcut(z, stride))
        return functional.linear(
            z.mean((2, 3)), self.weights["head_dense"], self.weights["head_bias"]
        )

    def _conv_norm(self, name: str, x: torch.Tensor, stride: int) -> torch.Tensor:
        """A 3 x 3 convolution and BatchNorm with frozen statistics."""
        z = functional.conv2d(x, self.weights[f"{name}_conv"], stride=stride, padding=1)
        return functional.batch_norm(
            z,
            self.statistics[f"{name}_mean"],
            self.statistics[f"{name}_variance"],
            self.weights[f"{name}_scale"],
            self.weights[f"{name}_shift"],
            training=False,
            eps=_NORM_EPSILON,
        )


def _shortcut(x: torch.Tensor, stride: int) -> torch.Tensor:
    """The identity; where the width doubles, every other pixel, padded with channels of zeros."""
    if stride == 1:
        return x
    around = x.shape[1] // 2
    return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, around, around))


def parameters(weights: Arrays) -> torch.nn.ParameterDict:
    """Parameters in the sorted order of their names, which is that of a case's flat vector."""
    return torch.nn.ParameterDict(
        {name: torch.nn.Parameter(torch.from_numpy(weights[name])) for name in sorted(weights)}
    )


def network(case: Case) -> torch.nn.Module:
    model = ResNet20(case.weights, case.statistics) if case.statistics else TanhMLP(case.weights)
    return model.eval()


def data(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with channels first, and labels."""
    x = np.moveaxis(case.x, -1, 1) if case.x.ndim == 4 else case.x
    return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(case.y)
