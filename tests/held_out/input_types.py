"""Random networks on inputs of every type, such as pixels, masks, counts and half precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np

from tests.held_out import networks
from tests.held_out.architectures import ARCHITECTURES

TYPES = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16",
        "bfloat16", "float32", "float8_e4m3fn",
    )
}  # fmt: skip
_EXACT = 2**53  # float64 holds all integers up to here


def cases(seed: int, count: int, *, name: str = "") -> Iterator[tuple[str, networks.Case]]:
    """Every type in turn, for one architecture (that of the seed, if none is named)."""
    architecture = name or list(ARCHITECTURES)[seed % len(ARCHITECTURES)]
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        samples = int(rng.choice((networks.FEW, networks.SEVERAL)))
        loss = str(rng.choice(networks.LOSSES))
        case = networks.draw(rng, architecture, samples, loss, "ordinary")
        yield f"{seed}:{index}", typed(rng, case, list(TYPES)[index % len(TYPES)])


def typed(rng: np.random.Generator, case: networks.Case, name: str) -> networks.Case:
    """The case with inputs of a type; first layers are small where the inputs are large."""
    x = _drawn(rng, TYPES[name], case.x.shape)
    size = 2.0 ** np.ceil(np.log2(max(float(np.abs(x.astype(float)).max()), 1.0)))
    size = 1.0 if rng.random() < 0.2 else size  # saturated, or of large outputs
    params = {
        key: (value.astype(float) / (size if key[0] == "0" and key[1:] != "b" else 1.0)).astype(
            value.dtype
        )
        for key, value in case.params.items()
    }
    return replace(case, regime=f"inputs of {name}", params=params, x=x)


def _drawn(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Booleans, integers of the whole range or of a few values, or floats."""
    if dtype.kind == "b":
        return rng.random(shape) < rng.uniform(0.2, 0.8)
    if dtype.kind not in "iu":
        return rng.standard_normal(shape).astype(dtype)
    range_of = np.iinfo(dtype)
    low, high = max(range_of.min, -_EXACT), min(range_of.max, _EXACT)
    if rng.random() < 0.3:
        low, high = max(low, -3), 3
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)
