"""Arithmetic of sizes: numbers of Python, that a graph computes from the shapes of its inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

_OF_OPERATOR = ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "getitem")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

TABLE: dict[str, Callable[..., Any]] = {
    **{f"python.{name}": getattr(operator, name) for name in (*_OF_OPERATOR, *_COMPARISONS)},
    "python.ceil": math.ceil,
    "python.floor": math.floor,
    "python.sym_float": float,
    "python.sym_int": int,
    "python.sym_max": max,
    "python.sym_min": min,
    "python.sym_not": operator.not_,
    "python.trunc": math.trunc,
    "sym_numel": lambda x: int(x.size),
    "sym_size": lambda x, dim: int(x.shape[dim]),
}
