"""A sketch Y = J S of a factor J, made from its rows as they come.

S (q, s) is a sparse sign embedding: every row has a few entries +-1 at random places. Then J J^T
and Y Y^T agree on every direction to about (1 +- sqrt(m / s))^2, whatever the condition number of J
is (Nelson and Nguyen, 2013; Cohen, 2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ENTRIES = 4  # of every row of S, but for those that meet and cancel
_STREAM = 15485863  # a stream of random numbers that the caller is unlikely to use


class Sketch:
    """Y^T (s, m), as the parts of J are given to :meth:`add` one after the other."""

    def __init__(
        self, shape: tuple[int, int], width: int, *, by_rows: bool, dtype: np.dtype, seed: int
    ) -> None:
        self._rng = np.random.default_rng([_STREAM, seed])
        self._width, self._by_rows, self._dtype = width, by_rows, dtype
        self._embedding = self._drawn(shape[1]) if by_rows else None
        self._columns: list[np.ndarray] = []
        self._total = np.zeros((0 if by_rows else width, shape[0]), dtype)

    def add(self, part: np.ndarray) -> None:
        if self._by_rows:
            self._columns.append(self._embedding @ np.ascontiguousarray(part.T))
        else:
            self._total += self._drawn(len(part)) @ part

    @property
    def transposed(self) -> np.ndarray:
        """Y^T (s, m)."""
        return np.concatenate(self._columns, axis=1) if self._by_rows else self._total

    def _drawn(self, count: int) -> Any:
        """S^T for so many rows of S."""
        from scipy.sparse import csr_array  # 0.1 s of import, which not every user needs

        places = self._rng.integers(self._width, size=(count, _ENTRIES))
        signs = self._rng.integers(2, size=(count, _ENTRIES)) * 2 - 1
        entries = (signs * _ENTRIES**-0.5).astype(self._dtype)
        owners = np.repeat(np.arange(count), _ENTRIES)
        shape = (self._width, count)
        return csr_array((entries.ravel(), (places.ravel(), owners)), shape)
