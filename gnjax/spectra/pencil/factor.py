"""A factor J with A = J J^T in host memory, and products with A.

J is held some rows at a time, or J^T is, in float64 or rounded to float32. Products of a run may be
made in the precision in which J is held; whatever an answer rests on is computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gnjax.spectra.pencil.base import Products

_HEIGHT = 256  # rows of a part: fewer would make more passes over the products
_TILE = 2**19  # numbers of J that are converted to float64 at once: they stay in the cache


@dataclass(frozen=True)
class StoredFactor:
    """J (m, q) in parts.

    Attributes:
      parts: rows of J one part after the other, or rows of J^T.
      by_rows: whether the parts are rows of J.
      lost: a bound on ||J - J as held||_F from the rounding to the precision of the parts.
      squared: ||J||_F^2.
    """

    parts: tuple[np.ndarray, ...]
    by_rows: bool
    lost: float
    squared: float

    @property
    def shape(self) -> tuple[int, int]:
        shape = sum(map(len, self.parts)), self.parts[0].shape[1]
        return shape if self.by_rows else shape[::-1]

    @property
    def dtype(self) -> np.dtype:
        return self.parts[0].dtype

    @property
    def exact(self) -> bool:
        return self.dtype == np.float64

    def gram(self) -> np.ndarray:
        """J J^T in the precision in which J is held."""
        if not self.by_rows:
            return sum(part.T @ part for part in self.parts)
        ends = np.cumsum([0, *map(len, self.parts)])
        matrix = np.empty((ends[-1], ends[-1]), self.dtype)
        for i, part in enumerate(self.parts):
            for j, other in enumerate(self.parts[: i + 1]):
                block = part @ other.T
                matrix[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = block
                matrix[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] = block.T
        return matrix

    def products(self, rows: np.ndarray) -> Products:
        """J J^T w and w^T J J^T w for rows w, in float64 whatever the precision of J is."""
        times = _plain if self.exact else _in_float64
        if not self.by_rows:
            images, forms = np.zeros(rows.shape), np.zeros((len(rows), len(rows)))
            for part in self.parts:
                inner = times(rows, part, True)
                forms += inner @ inner.T
                images += times(inner, part, False)
            return Products(images, forms)
        inner = self._pulled(rows, times)
        images = np.concatenate([times(inner, part, True) for part in self.parts], axis=1)
        return Products(images, inner @ inner.T)

    def light(self, rows: np.ndarray) -> np.ndarray:
        """J J^T w for rows w, in the precision in which J is held."""
        if self.exact:
            return self.products(rows).images
        narrow = rows.astype(np.float32)
        if not self.by_rows:
            return sum(((narrow @ part.T) @ part).astype(float) for part in self.parts)
        inner = self._pulled(narrow, _plain)
        images = [_plain(inner, part, True) for part in self.parts]
        return np.concatenate(images, axis=1).astype(np.float64)

    def _pulled(self, rows: np.ndarray, times: Callable[..., np.ndarray]) -> np.ndarray:
        """J^T w for rows w, from rows of J."""
        total = np.zeros((len(rows), self.parts[0].shape[1]), rows.dtype)
        start = 0
        for part in self.parts:
            stop = start + len(part)
            total += times(np.ascontiguousarray(rows[:, start:stop]), part, False)
            start = stop
        return total


def store(
    blocks: Iterable[np.ndarray],
    *,
    by_rows: bool,
    dtype: np.dtype,
    seen: Callable[[np.ndarray], None] = lambda block: None,
) -> StoredFactor:
    """Hold J in a precision, many rows in each part; ``seen`` is given every part as it is full."""
    parts, lost, squared = [], 0.0, 0.0
    room, filled = np.empty((0, 0), dtype), 0
    for block in blocks:
        squared += float(np.vdot(block, block))
        start = 0
        while start < len(block):
            if filled == len(room):
                room, filled = np.empty((_HEIGHT, block.shape[1]), dtype), 0
            some = block[start : start + len(room) - filled]
            held = room[filled : filled + len(some)]
            with np.errstate(over="ignore"):
                held[:] = some
            lost += _squared_difference(some, held)
            start, filled = start + len(some), filled + len(some)
            if filled == len(room):
                seen(room)
                parts.append(room)
    if filled < len(room):
        seen(room[:filled])
        parts.append(room[:filled])
    return StoredFactor(tuple(parts), by_rows, (1 + 1e-6) * lost**0.5, squared)


def _squared_difference(block: np.ndarray, part: np.ndarray) -> float:
    if part.dtype == block.dtype:
        return 0.0
    flat, held, total = block.reshape(-1), part.reshape(-1), 0.0
    for start in range(0, flat.size, _TILE):
        moved = flat[start : start + _TILE] - held[start : start + _TILE]
        total += float(moved @ moved)
    return total


def _plain(rows: np.ndarray, part: np.ndarray, transpose: bool) -> np.ndarray:
    """rows times the part, or its transpose."""
    return rows @ (part.T if transpose else part)


def _in_float64(rows: np.ndarray, part: np.ndarray, transpose: bool) -> np.ndarray:
    """:func:`_plain` in float64 for a part in float32, converted tile by tile."""
    height, width = part.shape
    step = max(1, _TILE // height)
    out = np.zeros((len(rows), height if transpose else width))
    tile = np.empty((height, min(step, width)))
    for start in range(0, width, step):
        stop = min(start + step, width)
        wide = tile[:, : stop - start]
        np.copyto(wide, part[:, start:stop])
        if transpose:
            out += rows[:, start:stop] @ wide.T
        else:
            np.matmul(rows, wide, out=out[:, start:stop])
    return out
