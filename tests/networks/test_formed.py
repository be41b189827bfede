"""The class: what is formed from layers wrongly is noticed by products, which differentiate.

The rounding of J is measured on products, and on its rows where they are few. A kernel is formed
without rows, and the rows of a large J were compared with nothing, so that a mistake in the inputs
of layers left a small error beside a wrong matrix.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks.jacobians import pieces
from gnjax.networks.layer_types import LAYER_TYPES
from gnjax.networks.rounding import measure_jacobian
from tests import references


def _case(inputs, width):
    rng = np.random.default_rng(0)
    params = {"a": rng.standard_normal((inputs, width)), "b": rng.standard_normal((width, 2))}
    return params, rng.standard_normal((6, inputs)) / inputs**0.5


SMALL, LARGE = _case(8, 5), _case(500, 200)  # J of 12 rows; the large one has 1.2 million entries


def model(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


def _truth(case, columns=slice(None)):
    jacobian = np.asarray(references.jacobian(model, *case))[:, columns]
    return np.linalg.svd(jacobian, compute_uv=False) ** 2


@pytest.fixture(params=[1e-9, 1e-3, 1.0])
def mistake(request, monkeypatch):
    """A function that makes the inputs of layers too large by a share of them, in one place."""
    share = 1.0 + request.param

    def start(*, kernels_alone):
        if kernels_alone:
            plain = pieces.by_positions

            def enlarged(use, pair, dtype):
                a, delta = plain(use, pair, dtype)
                return share * a, delta

            monkeypatch.setattr(pieces, "by_positions", enlarged)
        else:
            kind = LAYER_TYPES["dot_general"]
            changed = replace(kind, inputs=lambda use, operand: share * kind.inputs(use, operand))
            monkeypatch.setitem(LAYER_TYPES, "dot_general", changed)
        jax.clear_caches()

    yield start
    jax.clear_caches()


def _assert_holds(spectrum, expected):
    spare = np.zeros(len(spectrum.values) - len(expected))
    apart = np.abs(spectrum.values - np.concatenate([expected, spare]))
    assert (apart <= spectrum.errors).all()


@pytest.mark.parametrize("case", [SMALL, LARGE], ids=["small", "large"])
def test_a_kernel_formed_wrongly_has_the_distance_as_its_error(mistake, case):
    expected, limits = _truth(case), gnjax.Limits(factor_bytes=0)
    params, x = case
    mistake(kernels_alone=True)
    op = gnjax.ntk((model, params), x, side="outputs")
    found = gnjax.eigenvalues(op, limits=limits)
    assert found.method == "dense"
    _assert_holds(found, op.scale * expected)
    assert "not what differentiation says" in str(found.certificate)
    kappa = gnjax.condition_number(op, method="dense")
    low, high = kappa.interval
    assert low <= expected[0] / expected[-1] <= high or (np.isnan(low) and not kappa.resolved)


def test_a_large_jacobian_formed_wrongly_has_the_distance_as_its_error(mistake):
    expected, (params, x) = _truth(LARGE), LARGE
    mistake(kernels_alone=False)
    op = gnjax.ntk((model, params), x, side="outputs")
    found = gnjax.eigenvalues(op)
    assert found.method == "factored"
    _assert_holds(found, op.scale * expected)
    assert "not what differentiation says" in str(found.certificate)


def test_blocks_formed_wrongly_have_the_distance_as_their_error(mistake):
    expected, (params, x) = _truth(LARGE, slice(0, 100_000)), LARGE
    mistake(kernels_alone=True)
    op = gnjax.ntk((model, params), x)
    spectra = gnjax.block_spectra(op, by="parameter", limits=gnjax.Limits(factor_work=0))
    assert spectra.method == "kernels"
    _assert_holds(spectra.blocks[0].spectrum, op.scale * expected)


def test_parts_by_labels_formed_wrongly_have_the_distance_as_their_error(mistake):
    params, x = LARGE
    expected = _truth((params, x[:3]))
    mistake(kernels_alone=True)
    op = gnjax.ntk((model, params), x)
    labels = np.array([0, 0, 0, 1, 1, 1])
    limits = gnjax.Limits(factor_bytes=1e6)  # of a kernel, and not of J
    spectra = gnjax.block_spectra(op, labels=labels, limits=limits)
    assert spectra.method == "kernels"
    _assert_holds(spectra.blocks[0].spectrum, op.scale * expected)


def test_what_is_formed_rightly_has_no_larger_error_with_equal_samples():
    params, x = SMALL
    x = np.concatenate([x, x[:2], x[:1]])
    expected = _truth((params, x))
    op = gnjax.ntk((model, params), x, side="outputs")
    for limits in (gnjax.Limits(), gnjax.Limits(factor_bytes=0)):
        found = gnjax.eigenvalues(op, limits=limits)
        apart = np.abs(found.values - op.scale * expected)
        assert (apart <= np.maximum(found.errors, 1e-14 * expected[0])).all()  # of the reference
        assert found.errors.max() <= 1e-12 * found.values[0]
        assert "differentiation" not in str(found.certificate)


def _last_layer(power):
    """A network whose Jacobian by its first layer is 2^power times that of an ordinary one."""
    params, x = SMALL
    far = np.ldexp(params["b"], power)
    return (lambda p, x: jnp.tanh(x @ p) @ far, params["a"]), x


@pytest.mark.parametrize("power", [-150, -60, 60, 150])
def test_a_mistake_is_seen_at_every_scale(mistake, power):
    """At every scale at which answers are given, forms being squares of J."""
    near, x = _last_layer(0)
    true = np.asarray(gnjax.ntk(near, x).factor())
    values = np.linalg.svd(true, compute_uv=False)
    mistake(kernels_alone=False)
    found = gnjax.ntk(_last_layer(power)[0], x, side="outputs")
    formed = found.factor()
    error = found.factor_error()
    apart = np.linalg.svd(np.ldexp(formed, -power), compute_uv=False) - values
    assert np.abs(apart).max() <= np.ldexp(error.value, -power) or not np.isfinite(error.value)
    assert np.abs(apart).max() > 1e-12


@pytest.mark.parametrize("power", [-150, -60, 0, 60, 150])
def test_what_is_formed_rightly_has_no_larger_error_at_any_scale(power):
    op = gnjax.ntk(_last_layer(power)[0], SMALL[1], side="outputs")
    before = op.factor_error().value
    size = np.linalg.norm(np.ldexp(op.factor(), -power))
    assert op.factor_error().value == before
    hidden = 5 * np.finfo(float).tiny * op.factor().size ** 0.5  # by underflow, in any entry
    assert before <= np.ldexp(1e-12 * size, power) + hidden


def test_the_error_of_a_small_block_is_not_lost_beside_a_large_one():
    """The class: a share of squares, of which the smaller ones underflow."""
    params, x = SMALL

    def error(power):
        """That of the columns of a, J_a being 2^power times that of an ordinary network."""
        near = {"a": params["a"], "b": np.ldexp(params["b"], power)}
        net = gnjax.ntk((model, near), x).net
        parts = np.split(np.arange(net.parameters), [net.counts[0]])
        return np.ldexp(measure_jacobian(net, parts).parts[0].value, -power)

    assert error(-500) >= error(0) / 100
