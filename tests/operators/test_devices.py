"""One spectrum over several devices: samples sharded, the same calls, the same numbers."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gnjax
from tests.several_devices import network


def _start(*arguments, devices=1, module="tests.several_devices"):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _answer(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def _check(found):
    model, x = network(np.asarray)
    alone = gnjax.condition_number(gnjax.gauss_newton(model, x, side="parameters"))
    assert found["resolved"]
    assert abs(found["kappa"] / alone.value - 1) < 1e-8
    assert found["sharded"]
    assert found["reduces"]  # every device multiplies by its own samples, and results are added
    assert not found["gathers"]  # no device ever holds all samples


@pytest.mark.slow
def test_eight_simulated_devices():
    _check(_answer(_start(8, devices=8)))


@pytest.mark.slow
def test_two_processes():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    processes = [_start(2, rank, port) for rank in (0, 1)]
    for process in processes:
        _check(_answer(process))


@pytest.mark.slow
def test_the_page_on_several_gpus_runs_on_eight_simulated_devices():
    page = Path(__file__).parents[2] / "docs" / "howto" / "models" / "several_gpus.md"
    out, err = _start(page, devices=8, module="doctest").communicate(timeout=300)
    assert (out, err) == ("", "")
