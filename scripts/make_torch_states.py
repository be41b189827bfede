"""Write tests/fixtures/torch_*.safetensors: state dicts of PyTorch, and what they compute.

    python -m scripts.make_torch_states

Needs torch and safetensors, but neither JAX nor this library. The modules below are written from
PyTorch's own layers and bear the names that public code gives to them: ``ResNet`` and ``VGG`` those
of the usual networks for CIFAR, ``ViT`` those of the code that paper A used. Each file holds the
state dict in float32 after a few batches in training mode, so that BatchNorm's statistics are not
those of a start, and in the file's note the images and outputs of float64 in evaluation mode.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

OUT = Path(__file__).parents[1] / "tests" / "fixtures"
IMAGES = (3, 3, 8, 8)
OUTPUTS = 4


class Block(nn.Module):
    def __init__(self, channels: int, filters: int, projection: bool) -> None:
        super().__init__()
        self.stride = filters // channels
        self.conv1 = nn.Conv2d(channels, filters, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Sequential()
        if projection and self.stride == 2:
            side_way = nn.Conv2d(channels, filters, 1, self.stride, bias=False)
            self.shortcut = nn.Sequential(side_way, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        x = self.shortcut(x)
        if x.shape != branch.shape:
            half = x.shape[1] // 2
            x = nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, half))
        return torch.relu(branch + x)


class ResNet(nn.Module):
    def __init__(self, projection: bool, width: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        before = width
        for stage in range(3):
            filters, made = width * 2**stage, []
            for _ in range(blocks):
                made.append(Block(before, filters, projection))
                before = filters
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.linear = nn.Linear(before, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class VGG(nn.Module):
    def __init__(self, filters: tuple[int, ...] = (3, 5)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in pairwise((3, *filters)):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(filters[-1] * (IMAGES[2] // 2 ** len(filters)) ** 2, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_projection = nn.Linear(width, 3 * width)
        self.output_projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv_projection(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.output_projection(mixed.transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.layernorm_1, self.layernorm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        inner, outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        gelu = nn.GELU(approximate="tanh")
        self.mlp = nn.Sequential(OrderedDict(dense_1=inner, activation=gelu, dense_2=outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.layernorm_1(x))
        return x + self.mlp(self.layernorm_2(x))


class ViT(nn.Module):
    def __init__(self, patch: int = 4, width: int = 6, depth: int = 2, heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Module()
        self.embedding.patch_embeddings = nn.Module()
        self.embedding.patch_embeddings.projection = nn.Conv2d(3, width, patch, patch)
        self.embedding.cls_token = nn.Parameter(torch.randn(1, 1, width))
        tokens = (IMAGES[2] // patch) ** 2 + 1
        self.embedding.position_embeddings = nn.Parameter(torch.randn(1, tokens, width))
        self.encoder = nn.Module()
        self.encoder.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(depth))
        self.classifier = nn.Linear(width, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.embedding.patch_embeddings.projection(x).flatten(2).transpose(1, 2)
        token = self.embedding.cls_token.expand(len(x), -1, -1)
        x = torch.cat([token, patches], dim=1) + self.embedding.position_embeddings
        for block in self.encoder.blocks:
            x = block(x)
        return self.classifier(x[:, 0])


def write(name: str, module: nn.Module) -> None:
    """Scales and shifts are drawn anew, because those of a start hide what is exchanged."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d | nn.LayerNorm):
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.uniform_(-0.5, 0.5)
        for _ in range(5):
            module.train()(2 * torch.randn(16, *IMAGES[1:]) + 0.5)
        state = {key: value.clone() for key, value in module.state_dict().items()}
        images = torch.randn(IMAGES).double()
        outputs = module.double().eval()(images)
    note = {
        "made by": "python -m scripts.make_torch_states",
        "torch": torch.__version__.partition("+")[0],
        "images": json.dumps(images.tolist()),
        "outputs": json.dumps(outputs.tolist()),
    }
    save_file(state, OUT / f"torch_{name}.safetensors", metadata=note)


def write_types() -> None:
    """The same numbers in every type, with an empty array and one without axes."""
    numbers = torch.tensor([[1.5, -2.0, 0.0], [0.15625, 3e4, -7.0]])
    kinds = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8")
    state = {kind: numbers.clamp(-100, 100).to(getattr(torch, kind)) for kind in kinds}
    state |= {"uint8": numbers.clamp(0, 9).to(torch.uint8), "bool": numbers > 0}
    state |= {"empty": torch.zeros(0, 3), "scalar": torch.tensor(2.5)}
    version = torch.__version__.partition("+")[0]
    save_file(state, OUT / "torch_types.safetensors", metadata={"torch": version})


def main() -> None:
    torch.manual_seed(0)
    write("resnet", ResNet(projection=True))
    write("resnet_zeros", ResNet(projection=False))
    write("vgg", VGG())
    write("vit", ViT())
    write_types()


if __name__ == "__main__":
    main()
