"""Modules of PyTorch drawn at random, beside torch.autograd.

    python -m tests.networks.torch_modules.campaign --minutes 5 [--seed 0]

Every module is a chain of layers and functions at random sizes, types and modes, with inputs and
biases that are 0 or equal in places, so that kinks and ties are met. J J^T of ``gnjax.ntk`` and one
product with the Hessian are compared with those of ``torch.autograd``. Where rounding decides on
which side of a kink a number is, they may differ; then the eigenvalues have to be within the errors
that the answer states. An answer is right, refused or beside the truth; the exit status is 1 where
one is beside it, or fails without a sentence.
"""

from __future__ import annotations

import argparse
import collections
import re
import secrets
import sys
import time
import warnings

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import gnjax

TOLERANCE = 1e-9  # relative to the largest entry; float32 inside of a module has 1e-5
_COARSE = 1e-5
CLASSES = ("right", "refused", "beside", "Hessian beside", "failed")


class Function(nn.Module):
    """A function of a tensor as a layer."""

    def __init__(self, name, function):
        super().__init__()
        self.name, self.function = name, function

    def forward(self, x):
        return self.function(x)


ENTRIES = {
    **{
        name: getattr(F, name)
        for name in str.split(
            "relu relu6 elu selu celu gelu silu mish softplus softsign logsigmoid hardswish "
            "hardsigmoid hardtanh hardshrink softshrink tanhshrink leaky_relu"
        )
    },
    **{
        name: getattr(torch, name)
        for name in str.split("abs sin cos tanh sigmoid atan erf sinc sign square expm1")
    },
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: x.clamp_min(0),
    "softplus of 100": lambda x: F.softplus(x, beta=100),
    "threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "where": lambda x: torch.where(x > 0, x, 0.3 * x),
    "log1p of abs": lambda x: torch.log1p(x.abs()),
    "sqrt": lambda x: torch.sqrt(x * x + 1),
    "power": lambda x: (x * x + 0.5) ** 1.3,
    "float32": lambda x: x.float().tanh().to(x.dtype),
    "detach": lambda x: x * x.detach(),
}
OVER_AXIS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize by 1": lambda x: F.normalize(x, p=1, dim=-1),
    "normalize by 3": lambda x: F.normalize(x, p=3, dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1).values,
    "flip": lambda x: x.flip(-1) * 2,
    "minus mean": lambda x: x - x.mean(-1, keepdim=True),
    "over std": lambda x: x / (x.std(-1, keepdim=True) + 0.1),
    "over norm": lambda x: x / (1 + torch.linalg.vector_norm(x, 1, dim=-1, keepdim=True)),
    "over maximum": lambda x: x - x.amax(-1, keepdim=True) * 0.5,
    "first of max": lambda x: x - x.max(-1, keepdim=True).values,
    "over infinity": lambda x: x / (1 + torch.linalg.vector_norm(x, float("inf"), -1, True)),
    "over both axes": lambda x: (
        x / (1 + torch.linalg.vector_norm(x, 3, tuple(range(1, x.ndim)), True))
    ),
}
IMAGES = {
    "MaxPool2d": lambda x: F.max_pool2d(x, 2, 1),
    "AvgPool2d": lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False),
    "AdaptiveMaxPool2d": lambda x: F.adaptive_max_pool2d(x, (2, 3)),
    "AdaptiveAvgPool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "reflect": lambda x: F.pad(x, (1, 0, 0, 1), mode="reflect"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "instance_norm": F.instance_norm,
    "roll": lambda x: x.roll(1, -1) * x,
}


def _in_inference_mode(x):
    with torch.inference_mode():
        held = x * 2
    return x + held


def _hooked(x):
    if x.requires_grad:
        x.register_hook(lambda gradient: 2 * gradient)
    return x * 1.0


TRAPS = {
    "detach_": lambda x: x + (x * 2).detach_(),
    "inference mode": _in_inference_mode,
    "hook": _hooked,
    "numpy's random": lambda x: x * np.random.rand(),  # noqa: NPY002
    "data": lambda x: x + x.data,
}


class Drawn:
    """A module and its inputs, from a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.names = []
        self.module, self.x = self._images() if self.rng.random() < 0.4 else self._vectors()
        self._finish()

    def _function(self, table):
        name = str(self.rng.choice(list(table)))
        self.names.append(name)
        return Function(name, table[name])

    def _functions(self):
        kinds = [ENTRIES, OVER_AXIS, TRAPS]
        count = self.rng.integers(1, 4)
        return [self._function(kinds[k]) for k in self.rng.choice(3, count, p=[0.7, 0.27, 0.03])]

    def _layer(self, layer):
        self.names.append(type(layer).__name__)
        return layer

    def _vectors(self):
        width, n = int(self.rng.integers(2, 5)), int(self.rng.integers(2, 6))
        if self.rng.random() < 0.2:
            first = self._layer(nn.Embedding(6, width, padding_idx=0))
            x = self.rng.integers(0, 6, (n, 3))
            layers = [first, nn.Flatten(), nn.Linear(3 * width, width)]
        else:
            x = self._numbers((n, 3))
            layers = [self._layer(nn.Linear(3, width, bias=self.rng.random() < 0.8))]
        layers += self._functions()
        norms = [nn.LayerNorm(width), nn.BatchNorm1d(width), nn.Identity(), nn.Dropout(0.5)]
        layers += [self._layer(norms[self.rng.integers(4)])]
        layers += self._functions()
        layers += [nn.Linear(width, 2)]
        return nn.Sequential(*layers, *(self._functions() if self.rng.random() < 0.5 else [])), x

    def _images(self):
        n, channels = int(self.rng.integers(2, 4)), int(self.rng.integers(1, 4))
        groups = int(self.rng.choice([1, 2]))
        conv = nn.Conv2d(2, 2 * channels, 3, padding=1, groups=groups)
        norms = [nn.BatchNorm2d(2 * channels), nn.GroupNorm(2, 2 * channels), nn.Identity()]
        layers = [self._layer(conv), *self._functions()]
        layers += [self._layer(norms[self.rng.integers(3)]), self._function(IMAGES)]
        layers += [*self._functions(), nn.Flatten(), nn.LazyLinear(2)]
        x = self._numbers((n, 2, 4, 5))
        module = nn.Sequential(*layers)
        with torch.no_grad():
            module.eval()(torch.from_numpy(x).float())
        return module, x

    def _numbers(self, shape):
        x = self.rng.standard_normal(shape)
        kind = self.rng.random()
        if kind < 0.25:
            x[0] = 0
        return np.round(x * 2) / 2 if kind > 0.75 else x

    def _finish(self):
        with torch.no_grad():
            for name, value in (*self.module.named_parameters(), *self.module.named_buffers()):
                if "bias" in name and self.rng.random() < 0.5:
                    value.zero_()
                if "running_var" in name:
                    value.uniform_(0.5, 2)
                if value.is_floating_point() and self.rng.random() < 0.1:
                    value.copy_(torch.round(value * 2) / 2)
        self.module.train(mode=bool(self.rng.random() < 0.5))  # from_torch evaluates either way
        if self.rng.random() < 0.5:
            self.module.double()


def truth(module, x, y, v):
    """J J^T and one product with the Hessian of the mean squared error, by torch.autograd."""
    module = module.double().eval()
    parameters = list(module.parameters())

    def gradient(value, **options):
        found = torch.autograd.grad(
            value, parameters, allow_unused=True, materialize_grads=True, **options
        )
        return torch.cat([part.reshape(-1) for part in found])

    tensor = torch.from_numpy(x)
    outputs = module(tensor).reshape(len(x), -1)
    rows = [gradient(value, retain_graph=True) for value in outputs.reshape(-1)]
    jacobian = torch.stack(rows).numpy()
    loss = ((outputs - torch.from_numpy(y)) ** 2).sum() / (2 * len(x))
    slope = gradient(loss, create_graph=True)
    try:
        product = gradient(slope @ torch.from_numpy(v)) if slope.requires_grad else 0 * slope
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        return jacobian @ jacobian.T, None
    exact = product.detach().numpy()  # NaN where PyTorch's second derivative is, as of sinc at 0
    return jacobian @ jacobian.T, exact if np.isfinite(exact).all() else None


def _beside(found, exact, coarse):
    size = np.abs(exact).max() or 1.0
    return not np.abs(found - exact).max() <= (_COARSE if coarse else TOLERANCE) * size


def _enclosed(op, exact):
    """Whether the eigenvalues of the exact matrix are within the errors of those of ``op``."""
    spectrum = gnjax.eigenvalues(op)
    apart = np.abs(np.sort(np.asarray(spectrum.values)) - np.linalg.eigvalsh(exact))
    errors = np.asarray(spectrum.errors)[np.argsort(np.asarray(spectrum.values))]
    return bool((apart <= errors + TOLERANCE * np.abs(exact).max()).all())


def one(seed):
    """The class of the answer, what it is about, and what was said."""
    drawn = Drawn(seed)
    coarse = not {"float32", "hardsigmoid"}.isdisjoint(drawn.names)
    rng = np.random.default_rng(seed)
    about = " ".join(drawn.names)
    try:
        model = gnjax.from_torch(drawn.module)
        gram = gnjax.ntk(model, drawn.x)
        kernel = gram.as_matrix()
        y = rng.standard_normal((len(drawn.x), len(kernel) // len(drawn.x)))
        op = gnjax.hessian(model, drawn.x, y, loss="squared_error")
        v = rng.standard_normal(op.shape[0])
        product = np.asarray(op @ v)
    except ValueError as error:
        return "refused", about, str(error)
    except Exception as error:  # noqa: BLE001  (what a campaign is there to find)
        return "failed", about, f"{type(error).__name__}: {error}"
    exact, exact_product = truth(drawn.module, drawn.x, y, v)
    if _beside(np.asarray(kernel), exact, coarse) and not _enclosed(gram, exact):
        return "beside", about, f"{np.abs(kernel - exact).max():.1e} of {np.abs(exact).max():.1e}"
    if exact_product is not None and _beside(product, exact_product, coarse):
        columns = [truth(drawn.module, drawn.x, y, unit)[1] for unit in np.eye(len(v))]
        if not _enclosed(op, np.stack(columns, axis=1)):
            apart = np.abs(product - exact_product).max()
            return "Hessian beside", about, f"{apart:.1e} of {np.abs(exact_product).max():.1e}"
    return "right", about, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--minutes", type=float, default=5.0)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    gnjax.enable_x64()
    warnings.simplefilter("ignore")
    end, seed = time.monotonic() + 60 * options.minutes, options.seed
    counts, reasons = collections.Counter(), collections.Counter()
    while time.monotonic() < end:
        kind, about, said = one(seed)
        counts[kind] += 1
        if kind == "refused":
            reasons[re.sub(r"by [\d.e+]+%|[\d(][\d, ()]*|NaN or Inf", "..", said)[:160]] += 1
        elif kind != "right":
            print(f"seed {seed}: {kind}: {about}: {said}", flush=True)
        seed += 1
        if seed % 20 == 0:
            jax.clear_caches()
    print({kind: counts[kind] for kind in CLASSES})
    for said, count in reasons.most_common():
        print(f"{count:5d} {said}")
    return int(bool(counts["beside"] or counts["Hessian beside"] or counts["failed"]))


if __name__ == "__main__":
    sys.exit(main())
