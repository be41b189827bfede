"""Write tests/fixtures/torch.json: PyTorch's default draws and forward passes, for comparison.

    python -m scripts.make_torch_fixtures

Needs torch and numpy, but neither JAX nor this library. The models below are written from
PyTorch's own layers (the transformer block is its ``TransformerEncoderLayer``); parameters have
the names of our modules, and :func:`tests.torch_weights.filled` gives their values from the names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.torch_weights import filled, spread

OUT = Path(__file__).parents[1] / "tests" / "fixtures" / "torch.json"
DRAWS = 400
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear 48 to 10": lambda: nn.Linear(48, 10),
    "linear 300 to 20": lambda: nn.Linear(300, 20),
    "convolution 3 to 16, kernel 3": lambda: nn.Conv2d(3, 16, 3),
    "convolution 16 to 8, kernel 1": lambda: nn.Conv2d(16, 8, 1),
}
Named = Iterator[tuple[str, torch.Tensor]]


class ResNet(nn.Module):
    def __init__(self, blocks: int, projection: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"stem": conv_norm(3, 16)})
        self.blocks: list[tuple[str, int]] = []
        before = 16
        for stage, filters in enumerate((16, 32, 64), start=1):
            for block in range(1, blocks + 1):
                name, stride = f"stage{stage}_block{block}", filters // before
                self.blocks.append((name, stride))
                self.parts[f"{name}:first"] = conv_norm(before, filters, stride=stride)
                self.parts[f"{name}:second"] = conv_norm(filters, filters)
                if projection and stride == 2:
                    self.parts[f"{name}:shortcut"] = conv_norm(before, filters, 1, 2)
                before = filters
        self.parts["head"] = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.parts["stem"](x))
        for name, stride in self.blocks:
            inner = torch.relu(self.parts[f"{name}:first"](x))
            inner = self.parts[f"{name}:second"](inner)
            if f"{name}:shortcut" in self.parts:
                x = self.parts[f"{name}:shortcut"](x)
            elif stride == 2:
                half = x.shape[1] // 2
                x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, half))
            x = torch.relu(inner + x)
        pooled = nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.parts["head"](pooled)

    def named(self) -> Named:
        for name, part in self.parts.items():
            yield from named_layers(name.replace(":", "."), part)


class VGG5(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        channels = (3, 32, 64, 128, 128)
        made = (conv_norm(a, b, bias=True) for a, b in pairwise(channels))
        self.layers = nn.ModuleList(made)
        self.head = nn.Linear(128 * (side // 16) ** 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = nn.functional.max_pool2d(torch.relu(layer(x)), 2)
        return self.head(x.permute(0, 2, 3, 1).flatten(1))  # our order of features

    def named(self) -> Named:
        for index, layer in enumerate(self.layers, start=1):
            yield from named_layers(f"layer{index}", layer)
        yield from named_layers("head", self.head)


class ViT(nn.Module):
    def __init__(self, side: int, patch: int = 4, width: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(width))
        self.positions = nn.Parameter(torch.zeros((side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                nhead=4,
                dim_feedforward=4 * width,
                dropout=0.0,
                activation=nn.GELU(approximate="tanh"),
                batch_first=True,
                norm_first=True,
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), 1, -1), patches], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])

    def named(self) -> Named:
        yield from named_layers("patches", self.patches)
        yield "token", self.token
        yield "positions", self.positions
        for index, block in enumerate(self.blocks, start=1):
            yield from _named_block(f"block{index}", block)
        yield from named_layers("head", self.head)


def _named_block(name: str, block: Any) -> Named:
    for kind, whole in (
        ("kernel", block.self_attn.in_proj_weight),
        ("bias", block.self_attn.in_proj_bias),
    ):
        for part, rows in zip(("query", "key", "value"), whole.chunk(3), strict=True):
            yield f"{name}.attention.{part}.{kind}", rows
    yield from named_layers(f"{name}.attention.out", block.self_attn.out_proj)
    yield from named_layers(f"{name}.dense1", block.linear1)
    yield from named_layers(f"{name}.dense2", block.linear2)
    yield from named_layers(f"{name}.norm1", block.norm1)
    yield from named_layers(f"{name}.norm2", block.norm2)


def conv_norm(
    channels: int, filters: int, kernel: int = 3, stride: int = 1, bias: bool = False
) -> nn.Sequential:
    conv = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=bias)
    return nn.Sequential(conv, nn.BatchNorm2d(filters))


def named_layers(name: str, layer: nn.Module) -> Named:
    """Parameters and statistics under the names of our modules."""
    if isinstance(layer, nn.Sequential):
        yield from named_layers(f"{name}.conv", layer[0])
        yield from named_layers(f"{name}.norm", layer[1])
        return
    normalises = isinstance(layer, nn.BatchNorm2d | nn.LayerNorm)
    yield f"{name}.{'scale' if normalises else 'kernel'}", layer.weight
    if layer.bias is not None:
        yield f"{name}.bias", layer.bias
    if isinstance(layer, nn.BatchNorm2d):
        yield f"{name}.mean", layer.running_mean
        yield f"{name}.var", layer.running_var


def outputs(model: Any) -> dict[str, Any]:
    """Of the filled model in both modes, on images of side 16."""
    model = model.double()
    with torch.no_grad():
        for name, tensor in model.named():
            tensor.copy_(torch.from_numpy(filled(name, tuple(tensor.shape))))
        images = torch.from_numpy(spread("images", (4, 16, 16, 3))).permute(0, 3, 1, 2)
        evaluation = model.eval()(images).tolist()
        training = model.train()(images).tolist()
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": count, "evaluation": evaluation, "training": training}


def statistics(make: Callable[[], nn.Module]) -> dict[str, dict[str, float]]:
    """Of the weights and of the biases over many default draws."""
    torch.manual_seed(0)
    layers = [make() for _ in range(DRAWS)]
    found = {}
    for name in ("weight", "bias"):
        drawn = torch.stack([getattr(layer, name).detach().double() for layer in layers])
        found[name] = {
            "count": drawn.numel(),
            "mean": drawn.mean().item(),
            "variance": drawn.var(correction=0).item(),
            "largest": drawn.abs().max().item(),
        }
    return found


def main() -> None:
    torch.backends.mha.set_fastpath_enabled(False)  # it computes the exact GELU whatever was asked
    content = {
        "provenance": {
            "made by": "python -m scripts.make_torch_fixtures",
            "torch": torch.__version__,
            "draws": DRAWS,
            "weights": "tests/torch_weights.py",
        },
        "initialisation": {name: statistics(make) for name, make in LAYERS.items()},
        "outputs": {
            "ResNet20": outputs(ResNet(3, projection=True)),
            "ResNet20, zeros": outputs(ResNet(3, projection=False)),
            "ResNet32": outputs(ResNet(5, projection=True)),
            "VGG5": outputs(VGG5(16)),
            "ViT": outputs(ViT(16)),
        },
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
