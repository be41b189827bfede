"""Six modules of PyTorch as users have them, with random weights, in float64 and evaluation mode.

They need torchvision, timm and transformers. Their outputs are (n, k) or, for the language model,
(n, t, k); the labels are (n,) or (n, t). ``reference`` has their spectra from torch.func.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vjp, vmap

from benchmarks import harness

_CHUNK = 64  # outputs at a time in reverse mode
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
    made.__name__: made for made in (cnn, resnet18, resnet10t, vit, gpt2, bert)
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


Solve = Callable[[], harness.Arrays]


def answer(
    solver: Callable[[Case, str], Solve], name: str, task: str, repeats: int
) -> dict[str, Any]:
    """The numbers of a tool, and the seconds of its first answer and of those after it."""
    case = made(name)
    solve = solver(case, task)
    first, found = harness.once(solve)
    return {
        "found": found,
        "first": first,
        "again": [harness.once(solve)[0] for _ in range(repeats)],
        "parameters": sum(p.numel() for p in case.module.parameters()),
    }


def reference(name: str, task: str, repeats: int) -> dict[str, Any]:
    return answer(by_torch, name, task, repeats)


def by_torch(case: Case, task: str) -> Solve:
    """The eigenvalues of G that are not zero, those of its blocks, or the Hessian's by ARPACK."""
    if task == "hessian":
        return lambda: {"values": _hessian_eigenvalues(case)}

    def solve() -> harness.Arrays:
        root = _root(case)  # R with G = R^T R
        if task == "kappa":
            return {"all": _squares(list(root.values()))}
        parts = blocks(case.module)
        return {layer: _squares([root[path] for path, _ in part]) for layer, part in parts.items()}

    return solve


def _squares(columns: list[np.ndarray]) -> np.ndarray:
    return nonzero(np.linalg.svd(np.concatenate(columns, axis=1), compute_uv=False) ** 2)


def _root(case: Case) -> dict[str, np.ndarray]:
    """Rows (diag(s) - s s^T)^{1/2} J / n^{1/2} for the softmax s of each output."""
    model = Logits(case.module)
    names = {f"module.{name}": p.detach() for name, p in case.module.named_parameters()}
    x = torch.from_numpy(case.x)
    outputs, pull = vjp(lambda p: functional_call(model, p, (x,)), names)
    count, classes = outputs.shape
    share = outputs.softmax(-1)
    rows = torch.zeros(count, classes, count, classes, dtype=outputs.dtype)
    middle = torch.diag_embed(share) - share[:, :, None] * share[:, None, :]
    values, vectors = torch.linalg.eigh(middle)
    half = vectors * values.clamp(min=0).sqrt()[:, None, :]
    rows[torch.arange(count), :, torch.arange(count), :] = half.transpose(1, 2)
    flat = rows.flatten(0, 1) / count**0.5
    found = vmap(pull, chunk_size=_CHUNK)(flat)[0]
    return {name.removeprefix("module."): p.flatten(1).numpy() for name, p in found.items()}


def _hessian_eigenvalues(case: Case) -> np.ndarray:
    """The largest ones by ARPACK, to the last digits, with products of torch.func."""
    model, x = Logits(case.module), torch.from_numpy(case.x)
    y = torch.from_numpy(case.y).flatten()
    names = {f"module.{name}": p.detach() for name, p in case.module.named_parameters()}
    sizes = [p.numel() for p in names.values()]

    def loss(parameters: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y)

    def product(v: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(v.ravel().copy()).split(sizes)
        pairs = zip(names.items(), parts, strict=True)
        tangents = {name: part.view_as(p) for (name, p), part in pairs}
        _, image = jvp(grad(loss), (names,), (tangents,))
        return torch.cat([part.flatten() for part in image.values()]).numpy()

    whole = scipy.sparse.linalg.LinearOperator((sum(sizes),) * 2, product, dtype=np.float64)
    found = scipy.sparse.linalg.eigsh(whole, harness.EIGENVALUES, which="LA", tol=1e-11, ncv=40)
    return np.sort(found[0])[::-1]


def blocks(module: torch.nn.Module) -> dict[str, list[tuple[str, torch.Tensor]]]:
    """The parameters of each layer under its name in gnjax, its path with slashes."""
    found: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for path, parameter in module.named_parameters():
        found.setdefault(path.rpartition(".")[0].replace(".", "/"), []).append((path, parameter))
    return found


def nonzero(values: np.ndarray) -> np.ndarray:
    """From the largest down, without those below 1e-13 of it."""
    values = np.sort(np.asarray(values))[::-1]
    return values[values > 1e-13 * values[0]]
