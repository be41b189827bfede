"""The state of an unfinished measurement in one file, so that a killed run goes on from it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from sweeps.cell import Measurement
from sweeps.storage.files import DamagedError, read_checked, set_aside, write_checked

State = TypeVar("State")
Stop = TypeVar("Stop")


@dataclass(frozen=True)
class Checkpoint:
    """The file in which a state is kept until its measurement is finished."""

    path: Path


def resumed(
    checkpoint: Checkpoint | None,
    state: State,
    stops: Sequence[Stop],
    step: Callable[[State, Stop], tuple[State, Measurement]],
) -> list[Measurement]:
    """The records of ``step`` at every stop; the state and the records are saved after each.

    ``step`` takes a state (a pytree of arrays) on to a stop. A run that was killed goes on from the
    last stop that it saved, and ends with the same records. None saves nothing.
    """
    found = None if checkpoint is None else load(checkpoint, state)
    records: list[Measurement] = []
    if found is not None:
        state, records = found
    for stop in stops[len(records) :]:
        state, record = step(state, stop)
        records.append(record)
        if checkpoint is not None:
            save(checkpoint, state, records)
    return records


def save(checkpoint: Checkpoint, state: Any, records: Sequence[Measurement]) -> None:
    """Keep a pytree of arrays (PRNG keys among them) and plain records, atomically."""
    body = {"state": [_encoded(leaf) for leaf in jax.tree.leaves(state)], "records": list(records)}
    write_checked(checkpoint.path, json.dumps(body))


def load(checkpoint: Checkpoint, like: State) -> tuple[State, list[Measurement]] | None:
    """The saved state, in the structure of ``like``, and the records.

    None where there is no file, where it holds a state of another structure, and where it is
    damaged; a damaged file is set aside as ``.corrupt``.
    """
    try:
        text = read_checked(checkpoint.path)
    except DamagedError:
        set_aside(checkpoint.path)
        text = None
    if text is None:
        return None
    leaves, structure = jax.tree.flatten(like)
    body = json.loads(text)
    described = [{name: saved[name] for name in ("dtype", "shape")} for saved in body["state"]]
    if described != [_description(leaf) for leaf in leaves]:
        return None
    decoded = [_decoded(saved, leaf) for saved, leaf in zip(body["state"], leaves, strict=True)]
    return jax.tree.unflatten(structure, decoded), body["records"]


def _encoded(leaf: jax.Array) -> dict[str, Any]:
    data = base64.b64encode(_host(leaf).tobytes()).decode()
    return {**_description(leaf), "data": data}


def _description(leaf: jax.Array) -> dict[str, Any]:
    host = _host(leaf)
    return {"dtype": host.dtype.str, "shape": list(host.shape)}


def _decoded(saved: dict[str, Any], like: jax.Array) -> jax.Array:
    data = np.frombuffer(base64.b64decode(saved["data"]), saved["dtype"]).reshape(saved["shape"])
    if _is_key(like):
        return jax.random.wrap_key_data(jax.numpy.asarray(data), impl=jax.random.key_impl(like))
    return jax.numpy.asarray(data)


def _host(leaf: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _is_key(leaf: jax.Array) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
