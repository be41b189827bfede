"""The rounding of a large network, measured on some of its samples, beside that on all of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnjax.networks.construct import network
from gnjax.networks.network import backward
from gnjax.networks.rounding import errors, few_samples
from gnjax.networks.rounding.formed import probe_rows

_SAMPLES, _BATCH, _IN, _HIDDEN, _OUT = 397, 16, 6, 5, 3
_MEASURED = few_samples._SAMPLES  # of a batch that is measured


def _cancelling(p, x):
    """tanh of a sum from which a large number is taken away again."""
    z = x[:, 1:] @ p[0] + x[:, :1]
    return jnp.tanh(z - x[:, :1]) @ p[1]


def _with_kinks(p, x):
    return jnp.maximum(x[:, 1:] @ p[0] + 0 * x[:, :1], 0) @ p[1]


def _net(function, x):
    keys = jax.random.split(jax.random.key(0))
    p = [
        jax.random.normal(keys[0], (_IN - 1, _HIDDEN)),
        jax.random.normal(keys[1], (_HIDDEN, _OUT)),
    ]
    return network((function, p), jnp.asarray(x), batch_size=_BATCH), p


def _inputs(*, far=0):
    """Samples, of which some are about 2^17 times as large in the feature that cancels."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((_SAMPLES, _IN))
    x[rng.choice(_SAMPLES, far, replace=False), 0] *= 2.0**17
    return x


def _at_kinks():
    """Samples of which a few have a unit so near its kink that float32 switches it."""
    x = _inputs()
    p = np.asarray(_net(_with_kinks, x)[1][0])
    for place in range(0, _SAMPLES, 40):
        w = p[:, place % _HIDDEN]
        x[place, 1:] -= w * ((x[place, 1:] @ w - 1e-9) / (w @ w))
    return x


@pytest.fixture
def counted(monkeypatch):
    """Batches that were measured; large networks begin at any size."""
    seen, measure = [], errors._batch_error
    monkeypatch.setattr(few_samples, "_WORK", 0.0)

    def batch_size(net, batch, *rest):
        seen.append(len(batch[0]))
        return measure(net, batch, *rest)

    monkeypatch.setattr(errors, "_batch_error", batch_size)
    return seen


def _on_all(net, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(few_samples, "_FEWEST", 10**9)
        return errors.measure_jacobian(net)


def _forms(net):
    """u^T J J^T w for the vectors that programs are compared by, from products with all samples."""
    vectors = probe_rows(net)
    images = [
        np.asarray(backward(net, net.x, net.target, jnp.asarray(u).reshape(net.samples, -1)))
        for u in vectors
    ]
    return np.array([[u @ w for w in images] for u in images])


CASES = [(_cancelling, _inputs), (_cancelling, lambda: _inputs(far=9)), (_with_kinks, _at_kinks)]


@pytest.mark.parametrize(("function", "inputs"), CASES, ids=["even", "some are bad", "kinks"])
def test_few_samples_show_the_rounding_of_all(function, inputs, counted, monkeypatch):
    """The samples that lose most digits are measured; a kink that float32 sees is no rounding."""
    net, _ = _net(function, inputs())
    some = errors.measure_jacobian(net)
    assert counted == [_MEASURED] * 4
    whole = _on_all(net, monkeypatch)
    assert 1 / 2 < some.whole.value / whole.whole.value < 3
    np.testing.assert_allclose(some.forms.values, whole.forms.values, rtol=1e-12)


def test_all_samples_that_lose_digits_are_measured(counted, monkeypatch):
    net, _ = _net(_cancelling, _inputs(far=180))
    some = errors.measure_jacobian(net).whole.value
    assert counted == [_MEASURED] * (23 + 2)  # 180 samples, and two batches of others
    assert 1 / 3 < some / _on_all(net, monkeypatch).whole.value < 3


def test_samples_of_a_few_large_batches_are_not_all_measured(counted):
    """Of 397 samples in 4 batches of 100, four batches of 8 are measured."""
    net, _ = _net(_cancelling, _inputs())
    in_four = dataclasses.replace(net, batch=100)
    found = errors.measure_jacobian(in_four)
    assert counted == [_MEASURED] * 4
    # other programs multiply the same vectors, whatever their batches
    np.testing.assert_allclose(found.forms.values, _forms(in_four), rtol=1e-9)


def test_every_sample_is_measured_where_there_is_no_float32(counted):
    """A model that converts to float64 itself rounds as before in what is to be float32."""
    errors.measure_jacobian(_net(lambda p, x: _cancelling(p, x.astype(np.float64)), _inputs())[0])
    assert sum(counted) == _SAMPLES
