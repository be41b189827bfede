"""Functions of every entry, as users of PyTorch write them, at kinks too."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def zero(w):
    """0, with the derivative of w."""
    return w - w.detach()


ENTRYWISE = {
    "abs": torch.abs,
    "abs at 0": lambda w: torch.abs(zero(w)) + F.l1_loss(zero(w), w.detach() * 0, reduction="none"),
    "acosh": lambda w: torch.acosh(w + 2),
    "acos": lambda w: torch.acos(w * 0.5),
    "asin": lambda w: torch.asin(w * 0.5),
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atan2": lambda w: torch.atan2(w, w * w + 0.3),
    "atanh": lambda w: torch.atanh(w * 0.5),
    "bitwise_and": lambda w: w * ((w > 0) & (w < 0.5)),
    "bitwise_or": lambda w: w * ((w > 0.5) | (w < 0)),
    "bitwise_xor": lambda w: w * ((w > -0.5) ^ (w < 0.5)),
    "bitwise_not": lambda w: w * ~(w > 0.2),
    "ceil": lambda w: torch.ceil(3 * w),
    "celu": F.celu,
    "clamp": lambda w: torch.clamp(w, -0.5, 0.5),
    "clamp at tensors": lambda w: torch.clamp(zero(w) + 1, w.detach() * 0, w.detach() * 0 + 1),
    "clamp at its ends": lambda w: torch.clamp(zero(w), 0, None) * 2 + torch.clamp(zero(w), max=0),
    "alias": lambda w: torch.ops.aten.alias(w) * 2,
    "clone": lambda w: w.clone() * 2,
    "comparisons": lambda w: w * (w != 0.5) + w * (w >= 0.1) - w * (w <= -0.1),
    "equal": lambda w: w * (w == w),
    "cos": torch.cos,
    "cosh": torch.cosh,
    "detach": lambda w: w * w.detach(),
    "no_grad": lambda w: w * _without_gradient(w),
    "div": lambda w: w / (w + 3) + 2 / (w + 3),
    "floor division": lambda w: torch.div(w, 0.3, rounding_mode="floor"),
    "division towards zero": lambda w: torch.div(w, 0.3, rounding_mode="trunc"),
    "elu": F.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "floor": lambda w: torch.floor(3 * w),
    "fmod": lambda w: torch.fmod(w, 0.3),
    "gelu": F.gelu,
    "gelu by tanh": lambda w: F.gelu(w, approximate="tanh"),
    "glu": lambda w: torch.cat([F.glu(w)] * 2, -1),
    "hardshrink at its ends": lambda w: F.hardshrink(zero(w) - 0.5) + F.hardshrink(zero(w) + 0.5),
    "hardsigmoid": lambda w: w * F.hardsigmoid(4 * w.detach()),  # whose 1 / 6 is of float32
    "hardsigmoid at its ends": lambda w: F.hardsigmoid(zero(w) - 3) + F.hardsigmoid(zero(w) + 3),
    "hardswish at its ends": lambda w: F.hardswish(zero(w) - 3) + 2 * F.hardswish(zero(w) + 3),
    "hardswish": lambda w: F.hardswish(4 * w),
    "hardtanh": lambda w: F.hardtanh(2 * w),
    "relu6 at its ends": lambda w: F.relu6(zero(w)) + F.relu6(zero(w) + 6),
    "isnan": lambda w: torch.where(torch.isnan(w) | torch.isinf(w), 0, w),
    "leaky_relu": lambda w: F.leaky_relu(w, 0.1),
    "leaky_relu at 0": lambda w: F.leaky_relu(zero(w), 0.1),
    "logical": lambda w: w * torch.logical_and(w > 0, torch.logical_not(w > 0.7)),
    "logical_or": lambda w: w * torch.logical_or(w > 0.5, torch.logical_xor(w > 0, w > 0.2)),
    "logsigmoid": F.logsigmoid,
    "logsigmoid at 0": lambda w: F.logsigmoid(zero(w)),
    "masked_fill": lambda w: w.masked_fill(w > 0, -1.0),
    "mish": F.mish,
    "neg": lambda w: -w,
    "powers": lambda w: w**2 + w**3 + (w + 2) ** 1.7 + (w + 2) ** 0.5 + 2**w,
    "powers of 0": lambda w: zero(w) ** 2 + w,
    "power of tensors": lambda w: (w + 2) ** w,
    "prelu": lambda w: F.prelu(w, w[0, 0, :1]),
    "reciprocal": lambda w: torch.reciprocal(w + 2),
    "relu": F.relu,
    "relu at 0": lambda w: F.relu(zero(w)),
    "remainder": lambda w: torch.remainder(w, 0.3),
    "round": lambda w: torch.round(3 * w),
    "rsub": lambda w: 1 - w - torch.sub(w, w * w, alpha=2) + torch.add(w, w * w, alpha=3),
    "selu": F.selu,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "silu": F.silu,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sinc": lambda w: torch.sinc(w) + torch.sinc(zero(w)),
    "softplus": F.softplus,
    "softplus far from 0": lambda w: F.softplus(20 * w, beta=100) + F.softplus(zero(w) + 20),
    "softsign": F.softsign,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "to": lambda w: w * w.to(torch.int64).to(torch.float64),
    "trunc": lambda w: torch.trunc(3 * w),
}
POSITIVE = {
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
}


def _without_gradient(w):
    with torch.no_grad():
        return w * 2
