"""Cells as Ray tasks: on one machine, and on a simulated cluster that loses a node."""

import builtins
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
        self.ended.append(cell.depth)


@pytest.fixture
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'gnjax[cluster]'")
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    extra = [nodes.add_node(num_cpus=1) for _ in range(2)]
    nodes.wait_for_nodes()
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes, extra
    ray.shutdown()
    nodes.shutdown()


def test_kill_9_of_a_node_loses_no_cell(cluster, tmp_path):
    nodes, extra = cluster
    toy.run(tmp_path / "whole", toy.Config(CELLS))
    store = toy.store(tmp_path / "cells")
    config = toy.Config(CELLS, 0.5)
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


def test_a_failure_on_a_node_is_that_cells_alone(cluster, tmp_path):
    store = toy.store(tmp_path)
    chosen = launch.plan(toy.EXPERIMENT, toy.Config(14), store)
    launcher = on_ray()
    assert launcher.device() == store.environment.device
    outcome = launch.run(toy.EXPERIMENT, chosen, store, toy.Silent(), launcher)
    assert len(outcome.finished) == 13
    assert "thirteen layers are unlucky" in outcome.failures[0].summary


def test_no_cluster_at_the_address_is_said_at_once(tmp_path):
    pytest.importorskip("ray")
    began = time.monotonic()
    store = toy.store(tmp_path)
    chosen = launch.plan(toy.EXPERIMENT, toy.Config(1), store)
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
    with pytest.raises(LauncherError, match=r"gnjax\[cluster\]"):
        on_ray()


def test_a_negative_share_of_a_gpu_is_refused():
    with pytest.raises(ValueError, match="gpus=-1"):
        on_ray(gpus=-1.0)
