"""What was measured on a CPU decides nothing on an accelerator, here a pretended one."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import gnjax
from gnjax.networks import network
from gnjax.numerics.memory import device as module
from gnjax.numerics.memory.device import CPU, Device, device
from gnjax.operators.of_networks import stored_jacobian
from tests.networks import CASES

_BYTES = 128e9


@pytest.fixture
def accelerator(monkeypatch):
    """A backend that calls itself a GPU; the computing is that of the CPU."""
    module._accelerator.cache_clear()
    stats = SimpleNamespace(memory_stats=lambda: {"bytes_limit": _BYTES})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda backend: [stats])
    yield
    module._accelerator.cache_clear()


def test_a_cpu_goes_by_its_caches():
    assert device() is CPU


def test_an_accelerator_goes_by_its_memory(accelerator):
    assert device() == Device(1e9, 1e9, stores=False)


@pytest.mark.usefixtures("accelerator")
def test_one_that_does_not_say_takes_as_little_as_a_cpu(monkeypatch):
    silent = SimpleNamespace(memory_stats=lambda: None)
    monkeypatch.setattr(jax, "local_devices", lambda backend: [silent])
    assert device() == Device(CPU.batch, CPU.columns, stores=False)


def _batch_and_columns(model, x):
    """The samples of a batch, and the widths in which 7 columns are multiplied."""
    net = gnjax.ntk(model, x).net
    seen = []

    def product(v):
        seen.append(v.shape[1])
        return v

    network.columns(net, product, np.ones((2, 7)))
    return net.batch, seen


@pytest.mark.parametrize("pretended", [False, True])
def test_batches_and_columns_follow_the_device(monkeypatch, request, pretended):
    model, x = CASES["mlp relu"]()
    written = gnjax.ntk(model, x).net.written
    monkeypatch.setattr(module, "CPU", Device(2 * written, 6 * written, stores=True))
    if pretended:
        request.getfixturevalue("accelerator")
    batch, widths = _batch_and_columns(model, x)
    assert batch == (len(x) if pretended else 2)
    assert widths == ([7] if pretended else [3, 2, 2])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.5])
def test_a_batch_writes_as_much_as_some_passes_over_all_parameters(monkeypatch, share):
    model, x = CASES["mlp relu"]()
    written, parameters = gnjax.ntk(model, x).net.written, gnjax.ntk(model, x).net.parameters
    passes = share * len(x) * written / parameters
    cpu = Device(2 * written, 6 * written, stores=True, passes=passes)
    monkeypatch.setattr(module, "CPU", cpu)
    assert cpu.written(parameters) == pytest.approx(max(2, share * len(x)) * written)
    assert gnjax.ntk(model, x).net.batch == (len(x) if share > 1 else 2)


def test_a_jacobian_is_stored_unasked_on_a_cpu_alone(monkeypatch, request):
    monkeypatch.setattr(stored_jacobian, "_GAIN", 0.0)
    op = gnjax.ntk(*CASES["cnn with stride"]())
    assert stored_jacobian.products_before(op) < np.inf
    request.getfixturevalue("accelerator")
    assert stored_jacobian.products_before(op) == np.inf
