"""One small module for each operator of the table, written as users of PyTorch write it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.networks.torch_modules.entries import ENTRYWISE, POSITIVE, zero
from tests.torch_weights import spread


def tensor(name, shape):
    """Entries of four digits, so that they take little room in a file; no two of them are equal."""
    return torch.from_numpy(np.round(spread(name, shape), 4))


class Applied(nn.Module):
    """function(x, *weights), with weights as the parameters w0, w1, ..."""

    def __init__(self, function, *weights):
        super().__init__()
        self.function = function
        for i, weight in enumerate(weights):
            self.register_parameter(f"w{i}", nn.Parameter(weight))

    def forward(self, x):
        return self.function(x, *self.parameters())


def of(function, *shapes, x=(2, 3, 4), positive=False):
    """A module whose weights have the shapes, and an input of the shape x (a tensor as it is)."""
    weights = [tensor(f"w{i}", shape) for i, shape in enumerate(shapes)]
    weights = [w.abs() + 0.1 if positive else w for w in weights]
    inputs = x if isinstance(x, torch.Tensor) else tensor("x", x)
    return Applied(function, *weights), (inputs,)


def entrywise(function, positive=False):
    """The function of one weight, beside an input."""
    return of(lambda x, w: function(w) + x[..., None] * w, (2, 2, 2), x=(2, 1), positive=positive)


def filled(module, *shapes):
    """A module of torch.nn in float64 with deterministic numbers, statistics included."""
    module = module.double()
    named = (*module.named_parameters(), *module.named_buffers())
    with torch.no_grad():
        for name, value in named:
            if value.is_floating_point():
                value.copy_(tensor(name, value.shape))
                if "var" in name or "norm" in name:
                    value.abs_().add_(0.3)
    return module, tuple(tensor(f"x{i}", shape) for i, shape in enumerate(shapes))


INDEX = torch.tensor([[[0, 2, 1, 2]], [[1, 0, 0, 2]]])  # (2, 1, 4), along the axis of size 3
TOKENS = torch.tensor([[0, 3, 1], [4, 0, 2]])
IMAGE = (2, 3, 6, 5)


def _written(x, w):
    """Written into places of a tensor, as masks and padded sequences are."""
    made = torch.zeros_like(x)
    made[:, 1] = w[0] * 2
    made[:, :, 1:3] += w[:, :2]
    made[:, 2, -1] = 5
    made[:, torch.tensor([0, 2]), torch.tensor([1, 1])] += w[:2, 0]
    return made


def _counted(x, w):
    """Positions of tokens, from their number and from a mask."""
    places = torch.arange(x.shape[1], device=x.device)
    ones = torch.ones_like(x[:, :, 0])
    return w[places] * torch.cumsum(ones, 1)[..., None] + torch.full_like(x, 2.0)


def _masked(x, w):
    size = x.shape[1]
    causal = torch.tril(torch.ones(size, size, dtype=torch.bool))
    return (torch.where(causal, w @ w.T, torch.finfo(w.dtype).min).softmax(-1) @ x).sum(-1)


def _many(w, x):
    """The same matrix for every sample."""
    return w.expand(x.shape[0], -1, -1)


SHAPES = {
    "cat": of(lambda x, w: torch.cat([x, w.expand(x.shape[0], -1, -1)], 1), (2, 4)),
    "stack": of(lambda x, w: torch.stack([x * w, x], 1), (3, 4)),
    "chunk": of(lambda x, w: torch.mul(*(x * w).chunk(2, -1)), (3, 4)),
    "split": of(lambda x, w: torch.cat((x * w).split([1, 2], 1)[::-1], 1), (3, 4)),
    "unbind": of(lambda x, w: (x * w).unbind(1)[1], (3, 4)),
    "slices": of(lambda x, w: (x * w)[:, -2:, ::2] + w[-1, 1], (3, 4)),
    "permute": of(lambda x, w: (x * w).permute(0, 2, 1).transpose(1, 2) + w.T.T, (3, 4)),
    "squeeze": of(lambda x, w: (x * w).unsqueeze(1).squeeze(1)[..., None].squeeze(-1), (3, 4)),
    "view": of(lambda x, w: (x * w).reshape(x.shape[0], -1).view(-1, 4, 3).flatten(1), (3, 4)),
    "flip": of(lambda x, w: (x * w).flip(1, 2), (3, 4)),
    "roll": of(lambda x, w: torch.roll(x * w, (1, -1), (1, 2)), (3, 4)),
    "repeat": of(lambda x, w: w.repeat(x.shape[0], 2, 1) + x.repeat_interleave(2, 1), (3, 4)),
    "tril": of(lambda x, w: torch.tril(x * w) + torch.triu(x * w, 1) * 2, (3, 4)),
    "diagonal": of(lambda x, w: (x * w).diagonal(1, 1, 2), (3, 4)),
    "pixel_shuffle": of(lambda x, w: F.pixel_shuffle(x * w, 2), (1, 3, 4), x=(2, 4, 3, 4)),
    "padding": of(lambda x, w: F.pad(x * w, (1, 2, 0, 1), value=0.5), (3, 4)),
    "padding that cuts": of(lambda x, w: F.pad(x * w, (-1, 2)), (3, 4)),
    "reflection": of(lambda x, w: F.pad(x * w, (1, 2), mode="reflect"), (3, 4)),
    "reflection of images": of(
        lambda x, w: F.pad(x * w, (1, 2, 2, 1), mode="reflect"), (6, 5), x=IMAGE
    ),
    "replication": of(lambda x, w: F.pad(x * w, (1, 2, 2, 1), mode="replicate"), (6, 5), x=IMAGE),
    "circular": of(lambda x, w: F.pad(x * w, (1, 2), mode="circular"), (3, 4)),
    "written": of(_written, (3, 4)),
    "counted": of(_counted, (3, 4)),
    "masked": of(_masked, (3, 4)),
    "meshgrid": of(
        lambda x, w: x * sum(torch.meshgrid(w, torch.arange(4.0).double(), indexing="ij")), (3,)
    ),
}


def _norms(x, w):
    """Norms of every order over two axes at once, and of vectors of zeros."""
    orders = (0, 0.5, 1, 1.5, 3, float("inf"), -float("inf"))
    found = [torch.linalg.vector_norm(x * w, order, dim=(1, 2)) for order in orders]
    zeros = [torch.linalg.vector_norm(zero(w), order) for order in orders[2:-1]]
    return torch.stack([*found, F.normalize(x * w, p=1, dim=(1, 2)).sum((1, 2))], 1) + sum(zeros)


def _equal_entries(x, w):
    """An image whose entries are all equal, each with a derivative of its own."""
    return x.new_zeros(x.shape[0], 1, *w.shape) + zero(w)


REDUCTIONS = {
    "sum": of(lambda x, w: (x * w).sum((1, 2)) + w.sum(), (3, 4)),
    "mean": of(lambda x, w: (x * w).mean(-1, keepdim=True) + w.mean(), (3, 4)),
    "var": of(
        lambda x, w: (x * w).var(-1) + (x * w).std(1, unbiased=False).sum(-1)[:, None], (3, 4)
    ),
    "prod": of(lambda x, w: (x * w).prod(-1) + w.prod(), (3, 4)),
    "amax": of(lambda x, w: (x * w).amax(-1) - (x * w).amin((1, 2))[:, None], (3, 4)),
    "amax of equals": of(lambda x, w: zero(w).amax(-1) * x.sum((1, 2))[:, None], (3, 4)),
    "max": of(lambda x, w: (x * w).max(-1)[0] - (x * w).min(1).values.sum(-1)[:, None], (3, 4)),
    "max of equals": of(lambda x, w: zero(w).max(-1)[0] * x.sum((1, 2))[:, None], (3, 4)),
    "max of all": of(lambda x, w: x * w.max() - x * w.min(), (3, 4)),
    "maximum": of(lambda x, w: torch.maximum(x, w) - torch.minimum(x, 2 * w), (3, 4)),
    "argmax": of(lambda x, w: w[(x * w).argmax(-1)] + w[(x * w).argmin(-1)], (4,)),
    "any": of(
        lambda x, w: w * (x > 0.9).any(-1)[..., None] + w * (x > -0.9).all(2)[..., None], (3, 4)
    ),
    "cumsum": of(lambda x, w: (x * w).cumsum(1), (3, 4)),
    "norm": of(lambda x, w: F.normalize(x * w, dim=-1) + w.norm(), (3, 4)),
    "norm of zeros": of(lambda x, w: torch.linalg.vector_norm(zero(w), dim=-1) + x.sum(-1), (3, 4)),
    "norms": of(_norms, (3, 4)),
    "norm of all": of(lambda x, w: x * (w.norm() + w.norm(3) + zero(w).norm()), (3, 4)),
    "std of equals": of(lambda x, w: zero(w).std(-1) + x.sum(-1), (3, 4)),
    "norm of one": of(lambda x, w: torch.linalg.vector_norm(x * w, 1, dim=-1), (3, 4)),
    "softmax": of(lambda x, w: (x * w).softmax(1), (3, 4)),
    "log_softmax": of(lambda x, w: F.log_softmax(x * w, -1), (3, 4)),
    "logsumexp": of(lambda x, w: torch.logsumexp(x * w, -1), (3, 4)),
    "sort": of(lambda x, w: (x * w).sort(-1, descending=True)[0] + w.sort(0).values, (3, 4)),
    "topk": of(lambda x, w: (x * w).topk(2, -1)[0], (3, 4)),
}
INDEXING = {
    "embedding": of(lambda x, w: F.embedding(x, w), (5, 4), x=TOKENS),
    "embedding with padding": of(lambda x, w: F.embedding(x, w, padding_idx=0), (5, 4), x=TOKENS),
    "index": of(lambda x, w: w[x] + w[:, 1][x][..., None], (5, 4), x=TOKENS),
    "index_select": of(lambda x, w: (x * w).index_select(1, torch.tensor([2, 0])), (3, 4)),
    "gather": of(lambda x, w: (2 * w).expand(x.shape[0], -1, -1).gather(1, x), (3, 4), x=INDEX),
    "scatter": of(lambda x, w: _many(w, x).scatter(1, x, _many(3 * w[:1], x)), (3, 4), x=INDEX),
    "scatter of numbers": of(lambda x, w: _many(w, x).scatter(1, x, 2.0), (3, 4), x=INDEX),
    "scatter of sums": of(
        lambda x, w: (
            w.sum()
            * torch.ones(2, 3, 4)
            .double()
            .scatter(1, x, torch.full((2, 1, 4), 3.0).double(), reduce="add")
        ),
        (3, 4),
        x=INDEX,
    ),
    "scatter_add": of(
        lambda x, w: _many(w, x).scatter_add(1, x, _many(3 * w[:1], x)), (3, 4), x=INDEX
    ),
    "one_hot": of(lambda x, w: F.one_hot(x, 5).double() @ w, (5, 4), x=TOKENS),
}
MATRICES = {
    "linear": of(F.linear, (5, 4), (5,)),
    "linear without bias": of(F.linear, (5, 4)),
    "addmm": of(lambda x, w, b: torch.addmm(b, x, w), (4, 5), (5,), x=(2, 4)),
    "scaled addmm": of(
        lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=2), (4, 5), (5,), x=(2, 4)
    ),
    "matmul": of(lambda x, w: x @ w, (4, 5)),
    "mm": of(lambda x, w: torch.mm(x, w), (4, 5), x=(2, 4)),
    "bmm": of(lambda x, w: torch.bmm(x, w.expand(x.shape[0], -1, -1)), (4, 5)),
    "mv": of(lambda x, w: torch.mv(x, w), (4,), x=(2, 4)),
    "einsum": of(lambda x, w: torch.einsum("nij,jk->nki", x, w), (4, 5)),
    "conv1d": filled(nn.Conv1d(3, 4, 3, padding=1), (2, 3, 8)),
    "conv1d, same": filled(nn.Conv1d(3, 4, 4, padding="same"), (2, 3, 8)),
    "conv2d": filled(nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), IMAGE),
    "conv2d, groups": filled(nn.Conv2d(4, 6, 3, dilation=2, groups=2), (2, 4, 7, 7)),
    "conv2d, depthwise": filled(nn.Conv2d(3, 6, 3, groups=3), IMAGE),
    "conv3d": filled(nn.Conv3d(2, 3, 2), (2, 2, 3, 3, 4)),
    "conv_transpose1d": filled(nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1), (2, 3, 4)),
    "conv_transpose2d": filled(
        nn.ConvTranspose2d(3, 4, (3, 2), stride=2, padding=1, dilation=(2, 1)), (2, 3, 4, 4)
    ),
    "conv_transpose2d, groups": filled(nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 3, 3)),
    "attention": of(lambda x, w: F.scaled_dot_product_attention(x * w, x, x @ w.T @ w), (3, 4)),
    "causal attention": of(
        lambda x, w: F.scaled_dot_product_attention(x * w, x, x * 2, is_causal=True, scale=0.3),
        (3, 4),
    ),
    "masked attention": of(
        lambda x, w: F.scaled_dot_product_attention(x * w, x, x, torch.ones(3, 3).tril(-1) > 0),
        (3, 4),
    ),
    "biased attention": of(
        lambda x, w, b: F.scaled_dot_product_attention(x * w, x, x, b), (3, 4), (3, 3)
    ),
    "grouped attention": of(
        lambda x, w: F.scaled_dot_product_attention(
            torch.stack([x * w, x, x, w * 2 + x], 1),
            torch.stack([x, x * w], 1),
            torch.stack([x, x * w], 1),
            enable_gqa=True,
        ),
        (3, 4),
    ),
}
LAYERS = {
    "BatchNorm1d": filled(nn.BatchNorm1d(3), (2, 3)),
    "BatchNorm2d": filled(nn.BatchNorm2d(3), IMAGE),
    "BatchNorm2d, not affine": filled(
        nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False)), IMAGE
    ),
    "GroupNorm": filled(nn.GroupNorm(2, 4), (2, 4, 5, 3)),
    "InstanceNorm2d": filled(nn.InstanceNorm2d(3, affine=True), IMAGE),
    "LayerNorm": filled(nn.LayerNorm(4), (2, 3, 4)),
    "LayerNorm of two axes": filled(nn.LayerNorm((3, 4)), (2, 3, 4)),
    "RMSNorm": filled(nn.RMSNorm(4, eps=1e-6), (2, 3, 4)),
    "weight_norm": filled(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), (2, 4)),
    "spectral_norm": filled(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), (2, 4)),
    "MultiheadAttention": filled(
        nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=True), (2, 3, 8)
    ),
    "MaxPool1d": filled(nn.Sequential(nn.Conv1d(3, 2, 1), nn.MaxPool1d(2)), (2, 3, 7)),
    "MaxPool2d": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True)), IMAGE
    ),
    "MaxPool2d, dilated": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.MaxPool2d(2, 1, dilation=2)), IMAGE
    ),
    "MaxPool3d": filled(nn.Sequential(nn.Conv3d(2, 2, 1), nn.MaxPool3d(2)), (2, 2, 4, 4, 5)),
    "AvgPool1d": filled(nn.Sequential(nn.Conv1d(3, 2, 1), nn.AvgPool1d(2)), (2, 3, 7)),
    "AvgPool2d": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True)), IMAGE
    ),
    "AvgPool2d, padding not counted": filled(
        nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        ),
        IMAGE,
    ),
    "AvgPool2d, divisor": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.AvgPool2d(2, divisor_override=3)), IMAGE
    ),
    "AvgPool3d": filled(nn.Sequential(nn.Conv3d(2, 2, 1), nn.AvgPool3d(2)), (2, 2, 4, 4, 5)),
    "AdaptiveAvgPool1d": filled(
        nn.Sequential(nn.Conv1d(3, 2, 1), nn.AdaptiveAvgPool1d(3)), (2, 3, 7)
    ),
    "AdaptiveAvgPool2d": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d((3, 4))), IMAGE
    ),
    "AdaptiveAvgPool2d to one": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)), IMAGE
    ),
    "AdaptiveAvgPool2d, channels last": of(
        lambda x, w: F.adaptive_avg_pool2d((x * w).permute(0, 3, 1, 2), 1), (4, 3), x=(2, 5, 4, 3)
    ),
    "AdaptiveAvgPool3d": filled(
        nn.Sequential(nn.Conv3d(2, 2, 1), nn.AdaptiveAvgPool3d((2, 3, 3))), (2, 2, 4, 4, 5)
    ),
    "AdaptiveMaxPool2d": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveMaxPool2d((3, 4))), IMAGE
    ),
    "AdaptiveMaxPool2d of equals": of(
        lambda x, w: F.adaptive_max_pool2d(_equal_entries(x, w), (2, 3)), (5, 7)
    ),
    "AdaptiveMaxPool1d of equals": of(
        lambda x, w: F.adaptive_max_pool1d(_equal_entries(x, w), 3), (7,)
    ),
    "MaxPool2d of equals": of(lambda x, w: F.max_pool2d(_equal_entries(x, w), 3, 2, 1), (5, 7)),
    "AdaptiveMaxPool3d": filled(
        nn.Sequential(nn.Conv3d(2, 2, 1), nn.AdaptiveMaxPool3d((2, 3, 3))), (2, 2, 4, 4, 5)
    ),
    "Upsample, of sequences": filled(
        nn.Sequential(nn.Conv1d(3, 2, 1), nn.Upsample(9, mode="linear"), nn.Upsample(4)), (2, 3, 6)
    ),
    "Upsample, of volumes": filled(
        nn.Sequential(
            nn.Conv3d(1, 1, 1), nn.Upsample((4, 3, 2), mode="trilinear"), nn.Upsample((3, 4, 4))
        ),
        (2, 1, 3, 2, 3),
    ),
    "Upsample": filled(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2)), IMAGE),
    "Upsample, to a size": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(size=(8, 6))), IMAGE
    ),
    "Upsample, bilinear": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=1.5, mode="bilinear")), IMAGE
    ),
    "Upsample, corners": filled(
        nn.Sequential(
            nn.Conv2d(3, 2, 1), nn.Upsample(size=(8, 7), mode="bilinear", align_corners=True)
        ),
        IMAGE,
    ),
    "Upsample, bicubic": filled(
        nn.Sequential(nn.Conv2d(3, 2, 1), nn.Upsample(scale_factor=2, mode="bicubic")), IMAGE
    ),
}
GROUPS = {
    "entries": {
        **{name: entrywise(function) for name, function in ENTRYWISE.items()},
        **{name: entrywise(function, positive=True) for name, function in POSITIVE.items()},
    },
    "shapes": SHAPES,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "matrices": MATRICES,
    "layers": LAYERS,
}


class Together(nn.Module):
    """All modules of a group, each with an input of its own; the outputs by their names."""

    def __init__(self, group):
        super().__init__()
        self.parts = nn.ModuleDict({f"the {name}": module for name, (module, _) in group.items()})

    def forward(self, *inputs):
        return {name: part(x) for (name, part), x in zip(self.parts.items(), inputs, strict=True)}


def together(group):
    """The module of a group in evaluation mode, and its inputs."""
    return Together(group).eval(), tuple(x for _, (x,) in group.values())
