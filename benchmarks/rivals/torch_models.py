"""The networks of the cases in torch, as modules whose parameters come in the cases' order."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks import gpt
from benchmarks.harness import Arrays, Case

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


class Module(torch.nn.Module):
    """A tree of arrays as parameters, under the names of the tree."""

    def __init__(self, tree: dict[str, Any]) -> None:
        super().__init__()
        for name, part in tree.items():
            if isinstance(part, dict):
                setattr(self, name, Module(part))
            elif isinstance(part, list):
                setattr(self, name, torch.nn.ModuleList(Module(one) for one in part))
            else:
                setattr(self, name, torch.nn.Parameter(torch.from_numpy(part)))


class GPT(Module):
    """Logits (n, v, t) of :mod:`benchmarks.gpt`, as torch's cross-entropy takes them."""

    def __init__(self, shape: gpt.Shape, tree: dict[str, Any]) -> None:
        super().__init__(tree)
        self.shape = shape

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        n, t = tokens.shape
        x = self.tokens[tokens] + self.positions[:t]
        for block in self.blocks:
            parts = _dense(block.qkv, _norm(block.norm1, x))
            q, k, v = parts.reshape(n, t, 3, self.shape.heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(2, 3) / (self.shape.width // self.shape.heads) ** 0.5
            allowed = torch.ones(t, t, dtype=torch.bool).tril()
            scores = scores.masked_fill(~allowed, -torch.inf)
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, -1)
            x = x + _dense(block.out, mixed)
            up = functional.gelu(_dense(block.up, _norm(block.norm2, x)), approximate="tanh")
            x = x + _dense(block.down, up)
        return (_norm(self.norm, x) @ self.tokens.T).transpose(1, 2)


def _dense(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return x @ layer.kernel + layer.bias


def _norm(layer: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], layer.scale, layer.bias, gpt.EPSILON)
