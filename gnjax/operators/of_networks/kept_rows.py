"""The rows of J in files, so that work that was interrupted goes on from those it has.

Every block of rows is a file of its own, written to the end under another name first. The folder of
a network is named by a digest of all that its rows depend on: the function, the parameters, the
samples and targets, the versions, and how many rows a block has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gnjax.networks.forms.samples import one_sample
from gnjax.networks.network import Network
from gnjax.numerics.extras import own_version
from gnjax.numerics.host import on_host

_Blocks = Callable[[int], Iterable[np.ndarray | jax.Array]]
"""The blocks of rows from the one with this number on."""


def kept(
    folder: Path, net: Network, blocks: _Blocks, kind: str = ""
) -> Iterator[np.ndarray | jax.Array]:
    """Yield the blocks that stand in the folder, then the others, each written as it comes.

    Rows of another ``kind`` than those of J have a folder of their own.
    """
    own = folder / "-".join([rows_digest(net), *kind.split()])
    own.mkdir(parents=True, exist_ok=True)
    count = 0
    while (block := _read(_path(own, count))) is not None:
        yield block
        count += 1
    for number, rows in enumerate(blocks(count), start=count):
        _write(_path(own, number), rows)
        yield rows


def rows_digest(net: Network) -> str:
    """Names the rows of J of a network: networks with different rows have different names."""
    closed = jax.make_jaxpr(net.one)(list(net.leaves), one_sample(net.x))
    parts = [own_version(), jax.__version__, str(closed.jaxpr), str(jax.tree.structure(net))]
    state = hashlib.sha256("\n".join(parts).encode())
    for leaf in (*closed.consts, *jax.tree.leaves(net)):
        array = np.asarray(leaf)
        state.update(f"{array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()[:32]


def _path(folder: Path, number: int) -> Path:
    return folder / f"rows-{number:06d}.npy"


def _read(path: Path) -> np.ndarray | None:
    """The block in a file; None where there is none, or one that was cut short."""
    try:
        block: Any = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return block


def _write(path: Path, block: np.ndarray | jax.Array) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    with partial.open("wb") as file:
        np.save(file, on_host(block), allow_pickle=False)
    partial.replace(path)
