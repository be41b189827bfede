"""hessian-eigenthings on the GPT of :mod:`benchmarks.gpt`.

python -m benchmarks.rivals.torch_gpt [--tokens=64] [--steps=20]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from hessian_eigenthings import (
    GGNOperator,
    lanczos,
    supervised_forward,
    supervised_loss_of_output,
)
from torch.nn import functional

from benchmarks import gpt
from benchmarks.rivals import harness

SHAPE = gpt.Shape()


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
    """Logits (n, v, t), as torch's cross-entropy takes them."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        n, t = tokens.shape
        x = self.tokens[tokens] + self.positions[:t]
        for block in self.blocks:
            parts = _dense(block.qkv, _norm(block.norm1, x))
            q, k, v = parts.reshape(n, t, 3, SHAPE.heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(2, 3) / (SHAPE.width // SHAPE.heads) ** 0.5
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = GPT(gpt.weights(SHAPE)).eval()
    batch = tuple(torch.from_numpy(part) for part in gpt.text(SHAPE, options.tokens))
    began = time.perf_counter()
    operator = GGNOperator(
        model, [batch], supervised_forward, supervised_loss_of_output(functional.cross_entropy)
    )
    found = lanczos(
        operator,
        k=harness.EIGENVALUES,
        max_iter=options.steps,
        reorthogonalize=True,
        which="LA",
        seed=0,
    )
    seconds = time.perf_counter() - began
    values = found.eigenvalues
    record = {
        "seconds": round(seconds, 1),
        "peak_GiB": round(harness.peak_bytes() / 2**30, 2),
        "parameters": operator.size,
        "largest": values.tolist(),
        "residual": float(found.residuals.max() / values.max()),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
