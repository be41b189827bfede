"""Six modules of PyTorch as users have them, with random weights, in float64 and evaluation mode.

They need torchvision, timm and transformers. Their outputs are (n, k) or, for the language model,
(n, t, k); the labels are (n,) or (n, t).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

_CLASSES = 3
_WORDS = 32
_WIDTH = 64  # of the transformers: biases and norms are then 2% of their parameters


class Case(NamedTuple):
    """A module, inputs for it and labels."""

    module: nn.Module
    x: np.ndarray
    y: np.ndarray


class Logits(nn.Module):
    """What a module of transformers returns as one matrix (n t, k), as tools of PyTorch take it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.module(x)
        logits: torch.Tensor = getattr(found, "logits", found)
        return logits.flatten(0, -2)


def cnn() -> Case:
    """Two convolutions with BatchNorm."""
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, _CLASSES),
    )
    return _of_images(module, samples=12, side=16)


def resnet18() -> Case:
    from torchvision.models import resnet18 as made

    return _of_images(made(num_classes=_CLASSES), samples=6, side=32)


def resnet10t() -> Case:
    import timm

    return _of_images(timm.create_model("resnet10t", num_classes=_CLASSES), samples=6, side=32)


def vit() -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    # With "eager" attention this module computes its softmax in float32. With "sdpa" PyTorch would
    # choose a program for CPUs that cannot be differentiated twice, so that one is switched off.
    torch.backends.cuda.enable_flash_sdp(enabled=False)
    sizes = _sizes(image_size=16, patch_size=4, num_labels=_CLASSES, attn_implementation="sdpa")
    return _of_images(ViTForImageClassification(ViTConfig(**sizes)), samples=12, side=16)


def gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": _WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 8, "vocab_size": _WORDS}
    config = GPT2Config(**sizes, attn_implementation="eager", use_cache=False)
    tokens = _tokens(4, 9)
    return _finished(GPT2LMHeadModel(config), tokens[:, :-1], tokens[:, 1:])


def bert() -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = _sizes(vocab_size=_WORDS, max_position_embeddings=8, num_labels=_CLASSES)
    module = BertForSequenceClassification(BertConfig(**sizes))
    return _finished(module, _tokens(12, 8), _labels(12))


CASES: dict[str, Callable[[], Case]] = {
    "CNN with BatchNorm": cnn,
    "resnet18 of torchvision": resnet18,
    "resnet10t of timm": resnet10t,
    "ViT of transformers": vit,
    "GPT-2 of transformers": gpt2,
    "BERT of transformers": bert,
}


def made(name: str) -> Case:
    """The case of a name in :data:`CASES`, the same at every call."""
    torch.manual_seed(0)
    return CASES[name]()


def _sizes(**others: Any) -> dict[str, Any]:
    return {
        "hidden_size": _WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 4 * _WIDTH,
        "attn_implementation": "eager",
    } | others


def _of_images(module: nn.Module, samples: int, side: int) -> Case:
    x = np.random.default_rng(0).standard_normal((samples, 3, side, side))
    return _finished(module, x, _labels(samples))


def _labels(samples: int) -> np.ndarray:
    return np.arange(samples) % _CLASSES


def _tokens(samples: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, _WORDS, (samples, length))


def _finished(module: nn.Module, x: np.ndarray, y: np.ndarray) -> Case:
    """In float64, with statistics of BatchNorm and scales of norms as training leaves them."""
    module = module.double()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
        if isinstance(part, nn.BatchNorm2d | nn.LayerNorm):
            part.weight.data.uniform_(0.5, 1.5)
    return Case(module.eval(), x, y)
