"""Samples that come in batches (x, y) from a list or a loader, and are the same in every pass."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

_AGAIN = (
    "give a list of batches (x, y), or a loader without shuffling and without random augmentation "
    "that can be passed over again and again"
)


def is_batches(x: Any) -> bool:
    """Whether x is a list or a loader of batches (x, y), and no array or pytree of arrays."""
    if isinstance(x, dict | tuple | str | bytes) or hasattr(x, "__array__") or hasattr(x, "shape"):
        return False
    if isinstance(x, list):
        return bool(x) and all(_is_batch(batch) for batch in x)
    return hasattr(x, "__iter__")


def _is_batch(batch: Any) -> bool:
    """Whether an entry of a list seems to be a batch (x, y), and not a row of numbers."""
    if isinstance(batch, dict):
        return True
    if not isinstance(batch, tuple | list) or not batch:
        return False
    return isinstance(batch[0], dict | tuple) or bool(getattr(batch[0], "shape", ()))


@dataclass(frozen=True)
class Batches:
    """Batches (x, y), with a digest of each by which every later pass is checked."""

    source: Iterable[Any]
    digests: tuple[bytes, ...]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield the batches (x, y) of one pass; one that differs from the first is refused."""
        count = 0
        for batch in self.source:
            x, y = pair_of(batch)
            if count >= len(self.digests) or tree_digest((x, y)) != self.digests[count]:
                break
            count += 1
            yield x, y
        else:
            if count == len(self.digests):
                return
        msg = f"two passes over the batches differ, at batch {count}; {_AGAIN}"
        raise ValueError(msg)


def check_again(source: Any) -> None:
    """Refuse an iterator, which can be passed over only once."""
    if iter(source) is source:
        msg = f"x is an iterator, which can be passed over once only; {_AGAIN}"
        raise ValueError(msg)


def pair_of(batch: Any) -> tuple[Any, Any]:
    """The x and y of a batch; anything but a pair is refused."""
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        entries = f" of {len(batch)}" if hasattr(batch, "__len__") else ""
        msg = (
            "x is a sequence of batches, and a batch is a pair (x, y), where x may be a dict or a "
            f"tuple and y may be None; got {type(batch).__name__}{entries}"
        )
        raise ValueError(msg)
    return batch[0], batch[1]


def tree_digest(tree: Any) -> bytes:
    """A digest of the numbers, shapes and types of a pytree of arrays."""
    hash_of_tree = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        hash_of_tree.update(f"{array.shape}{array.dtype}".encode())
        hash_of_tree.update(array.tobytes())
    return hash_of_tree.digest()
