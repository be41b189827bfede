"""Cells as Ray tasks: on one machine, and on a simulated cluster that loses a node."""

import builtins
import os
import subprocess
import sys
import threading
import time

import pytest

from sweeps.launchers import launch
from sweeps.launchers.cluster import on_ray
from sweeps.launchers.work import LauncherError
from tests import toy

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
CELLS = 12


class Noted(toy.Silent):
    """Remembers which cells ended in this run."""

    def __init__(self):
        self.ended = []

    def finished(self, cell, result):
        self.ended.append(cell.keywords["depth"])


@pytest.fixture
def three_nodes():
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[cluster]'")
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    extra = [nodes.add_node(num_cpus=1) for _ in range(2)]
    nodes.wait_for_nodes()
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes, extra
    ray.shutdown()
    nodes.shutdown()


def test_a_failure_is_that_cells_alone_and_kill_9_of_a_node_loses_no_cell(three_nodes, tmp_path):
    """One test, because three nodes take long to start."""
    nodes, extra = three_nodes
    store = toy.store(tmp_path / "unlucky")
    chosen = launch.plan(toy.EXPERIMENT, toy.config(14), store)
    launcher = on_ray()
    assert launcher.device() == store.environment.device
    outcome = launch.run(toy.EXPERIMENT, chosen, store, toy.Silent(), launcher)
    assert len(outcome.finished) == 13
    assert "thirteen layers are unlucky" in outcome.failures[0].summary
    toy.run(tmp_path / "whole", toy.config(CELLS))
    store = toy.store(tmp_path / "cells")
    config = toy.config(CELLS, 0.5)
    watcher = Noted()

    def kill_one_at_work():
        while len(watcher.ended) < 2:
            time.sleep(0.05)
        nodes.remove_node(extra[0], allow_graceful=False)

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    chosen = launch.plan(toy.EXPERIMENT, config, store)
    outcome = launch.run(toy.EXPERIMENT, chosen, store, watcher, on_ray())
    killer.join()
    assert outcome.failures == []
    assert sorted(watcher.ended) == list(range(1, CELLS + 1))  # each stored once
    toy.run(tmp_path, config)  # from the store alone
    assert (tmp_path / "table.csv").read_bytes() == (tmp_path / "whole/table.csv").read_bytes()


_OWNER = """
import ray
from sweeps.launchers import cluster
with cluster._connected(ray, None):
    print(ray.get_runtime_context().gcs_address, flush=True)
    input()
    print(ray.get(ray.remote(lambda: "ours").remote()))
"""
_STRANGER = """
import sys
from sweeps.launchers.cluster import on_ray
print("joined", on_ray(sys.argv[1]).device())
"""


def test_a_stranger_cannot_join_the_ray_of_this_machine(tmp_path):
    """Its ports are open to the network, and who joins can run anything: they ask for a token."""
    pytest.importorskip("ray")
    usual = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    mine = {**usual, "HOME": str(tmp_path / "mine")}  # where the token will be
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], env=mine, **piped)
    address = owner.stdout.readline().strip()
    for stranger in (
        {"RAY_AUTH_MODE": "disabled"},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guessed"},
    ):
        done = subprocess.run(
            [sys.executable, "-c", _STRANGER, address],
            env={**usual, **stranger, "HOME": str(tmp_path / "elsewhere")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode != 0
        assert "joined" not in done.stdout
        told = done.stderr.splitlines()[-1]
        assert f"LauncherError: cannot join Ray at {address}" in told
        assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in told
    assert owner.communicate("\n", timeout=120)[0] == "ours\n"


def test_no_cluster_at_the_address_is_said_at_once(tmp_path):
    pytest.importorskip("ray")
    began = time.monotonic()
    store = toy.store(tmp_path)
    chosen = launch.plan(toy.EXPERIMENT, toy.config(1), store)
    with pytest.raises(LauncherError, match="ray start --head"):
        launch.run(toy.EXPERIMENT, chosen, store, toy.Silent(), on_ray("127.0.0.1:1"))
    assert time.monotonic() - began < 10


def test_without_ray_the_remedy_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "ray":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(LauncherError, match=r"'\.\[cluster\]"):
        on_ray()


def test_a_negative_share_of_a_gpu_is_refused():
    with pytest.raises(ValueError, match="gpus=-1"):
        on_ray(gpus=-1.0)
