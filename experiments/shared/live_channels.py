"""The channels of a pruned ResNet that can still do something, and the network that they make.

Where every tensor is pruned, the scale and the shift of BatchNorm are zero in the same channels.
Such a channel is 0 for every image and learns nothing: it is dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from gnjax.papers.training import minibatch as training

Flags = NDArray[np.bool_]
Leaves = Mapping[str, Any]
STAGES = (1, 2, 3)


def named(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their paths."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/").removesuffix("/value"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@dataclass(frozen=True, eq=False)
class Unit:
    """One convolution with its BatchNorm in a pruned network.

    Attributes:
      name: its path.
      reads, writes: the channels that live where its images come from, and where its own go: a
        sum in the residual stream lives where one of its terms does.
      live: its own live channels.
      idle: its channels with a scale, whose weights that are left all come from channels that are
        the same for every image before training, or which has none left. Their variance is 0.
        Where no channel that they could read differs between images, none is idle.
      empty: its channels of which no weight is left.
    """

    name: str
    reads: Flags
    writes: Flags
    live: Flags
    idle: Flags
    empty: Flags


def units(mask: Any) -> list[Unit]:
    """All units of a ResNet, in the order in which images pass them; ``mask`` is of its weights."""
    left = {name: np.asarray(leaf, bool) for name, leaf in named(mask).items()}
    return list(_units(left))


def _units(left: Mapping[str, Flags]) -> Iterator[Unit]:
    channels = left["stem/conv/kernel"].shape[2]
    reads, varies = np.ones(channels, bool), np.ones(channels, bool)
    for stage in (0, *STAGES):
        writers = _writers(left, stage)
        writes = np.any([_live(left, name) for name in writers], axis=0)
        if stage == 0:
            yield _unit(left, "stem", reads, writes, varies)
            reads, varies = writes, _varies(left, "stem", varies)
            continue
        for block in _blocks(left, stage):
            first, second, shortcut = (f"{block}/{of}" for of in ("first", "second", "shortcut"))
            yield _unit(left, first, reads, _live(left, first), varies)
            inside = _varies(left, first, varies)
            yield _unit(left, second, _live(left, first), writes, inside)
            added = varies
            if f"{shortcut}/conv/kernel" in left:
                yield _unit(left, shortcut, reads, writes, varies)
                added = _varies(left, shortcut, varies)
            reads, varies = writes, added | _varies(left, second, inside)


def _blocks(left: Mapping[str, Flags], stage: int) -> list[str]:
    found = {name.split("/")[0] for name in left}
    return sorted(name for name in found if name.startswith(f"stage{stage}_"))


def _writers(left: Mapping[str, Flags], stage: int) -> list[str]:
    """The units whose sums are the residual stream of a stage; the stem's is that of stage 1."""
    if stage == 0:
        return _writers(left, 1)
    ends = [f"{block}/{of}" for block in _blocks(left, stage) for of in ("second", "shortcut")]
    starts = ["stem"] if stage == 1 else []
    return starts + [name for name in ends if f"{name}/conv/kernel" in left]


def _live(left: Mapping[str, Flags], name: str) -> Flags:
    return left[f"{name}/norm/scale"] | left[f"{name}/norm/bias"]


def _fed(left: Mapping[str, Flags], name: str, varies: Flags) -> Flags:
    """The channels with a weight left that comes from a channel which differs between images."""
    return np.asarray((left[f"{name}/conv/kernel"] & varies[:, None]).any(axis=(0, 1, 2)))


def _varies(left: Mapping[str, Flags], name: str, varies: Flags) -> Flags:
    return _fed(left, name, varies) & left[f"{name}/norm/scale"]


def _unit(left: Mapping[str, Flags], name: str, reads: Flags, writes: Flags, varies: Flags) -> Unit:
    idle = left[f"{name}/norm/scale"] & ~_fed(left, name, varies) & varies.any()
    empty = np.asarray(~left[f"{name}/conv/kernel"].any(axis=(0, 1, 2)))
    return Unit(name, reads, writes, _live(left, name), idle, empty)


def live_weights(mask: Any) -> int:
    """How many weights are left that stand between live channels.

    No other weight can change an output: it reads a channel that is 0, or its own is. Of these the
    scales of idle channels change nothing either, and what leads to a channel that the head does
    not read. With ties at random scale and shift go in different places,
    and there are more of these.
    """
    left = {name: np.asarray(leaf, bool) for name, leaf in named(mask).items()}
    found = list(_units(left))
    total = 0
    for unit in found:
        kernel, scale = left[f"{unit.name}/conv/kernel"], left[f"{unit.name}/norm/scale"]
        total += int(np.count_nonzero(kernel[:, :, unit.reads][..., scale]))
        total += sum(
            int(np.count_nonzero(left[f"{unit.name}/norm/{of}"])) for of in ("scale", "bias")
        )
    head = left["head/kernel"][found[-1].writes]
    return int(total + np.count_nonzero(head) + np.count_nonzero(left["head/bias"]))


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The network of the live channels alone, which computes the same, and its mask."""

    net: nnx.Module
    mask: Any
    places: Mapping[str, Any]  # of each tensor: its entries' places in the whole one, by axis


def shrunk(net: nnx.Module, mask: Any) -> Shrunk:
    """A pruned ResNet without its dead channels."""
    places: dict[str, Any] = {}
    found = units(mask)
    for unit in found:
        reads, writes = (np.flatnonzero(flags) for flags in (unit.reads, unit.writes))
        height, width = named(mask)[f"{unit.name}/conv/kernel"].shape[:2]
        places[f"{unit.name}/conv/kernel"] = np.arange(height), np.arange(width), reads, writes
        for of in ("scale", "bias", "mean", "var"):
            places[f"{unit.name}/norm/{of}"] = (writes,)
    bias = np.arange(named(mask)["head/bias"].size)
    places["head/kernel"] = np.flatnonzero(found[-1].writes), bias
    places["head/bias"] = (bias,)
    small = nnx.clone(net)
    variables = nnx.state(small, (nnx.Param, nnx.BatchStat))
    nnx.update(small, _mapped(lambda name, leaf: leaf[np.ix_(*places[name])], variables))
    kept = _mapped(lambda name, leaf: np.asarray(leaf)[np.ix_(*places[name])], mask)
    return Shrunk(small, kept, places)


def _mapped(change: Any, tree: Any) -> Any:
    names, structure = named(tree), jax.tree.structure(tree)
    return jax.tree.unflatten(structure, [change(name, leaf) for name, leaf in names.items()])


def put_back(whole: training.State, small: training.State, places: Any) -> training.State:
    """The state of the whole network with the weights and statistics of its live channels."""
    inner = {**named(small.params), **named(small.statistics)}

    def change(name: str, leaf: jax.Array) -> jax.Array:
        value = jnp.asarray(inner[name], leaf.dtype)
        return leaf.at[np.ix_(*places[name])].set(value)

    return replace(
        whole, params=_mapped(change, whole.params), statistics=_mapped(change, whole.statistics)
    )
