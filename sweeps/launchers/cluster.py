"""Cells as tasks of a Ray cluster, or of Ray on this machine."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

from sweeps.cell import Cell
from sweeps.launchers.work import (
    Ended,
    Failure,
    Launcher,
    LauncherError,
    Task,
    keep,
    measured,
    settle,
)
from sweeps.storage import store as stores
from sweeps.storage.checkpoint import Checkpoint
from sweeps.storage.environment import device_kind, precision_name
from sweeps.storage.store import Finished

_RETRIES = 3  # of a cell whose node or process died


def on_ray(address: str | None = None, *, gpus: float = 0.0) -> Launcher:
    """A launcher with one Ray task for each cell, on the cluster at ``address`` or on this machine.

    Each takes a core and ``gpus`` of a GPU. Measurements come back to this process, which stores
    them, so that nodes need not share a file system. Ray repeats the tasks of a node that died.
    """
    if gpus < 0:
        msg = f"gpus={gpus:g} must be 0 or more"
        raise ValueError(msg)
    ray = _ray()
    compute = partial(_launch, ray=ray, address=address, gpus=gpus)
    return Launcher(compute, cache(partial(_device, ray, address, gpus)))


def _launch(
    task: Task, cells: Sequence[Cell], ray: ModuleType, address: str | None, gpus: float
) -> Iterator[tuple[Cell, Ended]]:
    with _connected(ray, address):
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)(_measured)
        left = deque(cells)
        flying: dict[Any, tuple[Cell, ExitStack]] = {}
        while left or flying:
            while left and len(flying) < _capacity(ray, gpus):
                cell = left.popleft()
                claim, known = _claimed(task, cell)
                if claim is None:
                    yield cell, known
                else:
                    flying[remote.remote(task, cell)] = (cell, claim)
            for reference in ray.wait(list(flying))[0] if flying else ():
                cell, claim = flying.pop(reference)
                with claim:
                    yield cell, keep(task, cell, _result(ray, reference, cell))


def _claimed(task: Task, cell: Cell) -> tuple[ExitStack | None, Finished | None]:
    """A claim on the cell, to be closed once the cell is stored, or None if it is not ours.

    The second value is the stored result, if there is one.
    """
    with ExitStack() as stack:
        claim = stack.enter_context(stores.claim(task.store, cell))
        return (stack.pop_all() if claim.mine else None), claim.finished


def _measured(task: Task, cell: Cell) -> Finished | Failure:
    settle(1, task.store.environment.precision)
    return measured(task, cell, Checkpoint(stores.checkpoint_path(task.store, cell)))


def _device(ray: ModuleType, address: str | None, gpus: float) -> str:
    """The kind of device that a task of the cluster meets; all nodes must have the same."""
    with _connected(ray, address):
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=_RETRIES)(_device_of_task)
        return ray.get(remote.remote(precision_name()))


def _device_of_task(precision: str) -> str:
    settle(1, precision)
    return device_kind()


def _result(ray: ModuleType, reference: Any, cell: Cell) -> Finished | Failure:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        summary = f"Ray gave it up after {_RETRIES} retries: {type(error).__name__}"
        return Failure(cell, summary, f"{error}\n")


def _capacity(ray: ModuleType, gpus: float) -> int:
    """How many cells the cluster as it is now can compute at once; 1 while it has no node."""
    resources = ray.cluster_resources()
    room = resources.get("CPU", 0)
    if gpus:
        room = min(room, resources.get("GPU", 0) / gpus)
    return max(1, int(room))


@contextmanager
def _connected(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Ray for as long as the context lasts, unless the caller has started it.

    A Ray that is started here has no dashboard, and its ports ask for the token that it keeps in
    the home of the user: Ray 2.59 is the first that does. It cannot be bound to the loopback.
    """
    if ray.is_initialized():
        yield
        return
    options = {"include_dashboard": False} if address is None else {"address": address}
    try:
        _check_reachable(address)
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise LauncherError(_unreached(address, error)) from error
    try:
        yield
    finally:
        ray.shutdown()


def _unreached(address: str | None, error: Exception) -> str:
    why = " ".join(str(error).split())
    if address is None:
        return f"Ray does not start on this machine: {why}"
    return (
        f"cannot join Ray at {address}: {why}; start a cluster with `ray start --head`, and if it "
        "asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here"
    )


def _check_reachable(address: str | None) -> None:
    """Fail within seconds where nothing listens; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and "/" not in host:  # "auto" and ray://.. are Ray's own to resolve
        socket.create_connection((host, int(port)), timeout=10).close()


def _ray() -> ModuleType:
    try:
        import ray
    except ModuleNotFoundError as error:
        msg = "--launcher=ray needs Ray: pip install '.[cluster]' in the checkout of gnjax"
        raise LauncherError(msg) from error
    return ray
