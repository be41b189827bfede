"""Adapters, pruning and width: rows by dense Jacobians."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import gnjax
from experiments import adapter_sweep as experiment
from tests import references
from tests.experiments.configs import records


def _row(family, network="mlp"):
    """The cell of the last amount of a family, and its row."""
    found = [
        c
        for c in records(experiment.EXPERIMENT, "smoke")
        if (c.family, c.network) == (family, network)
    ]
    cell = max(found, key=lambda c: c.amount)
    return cell, SimpleNamespace(samples=cell.samples, outputs=10, **experiment.measure(cell))


def _assert_kappa_of(jacobian, row):
    values = np.linalg.svd(np.asarray(jacobian), compute_uv=False) ** 2
    assert row.resolved
    np.testing.assert_allclose(row.kappa, values[0] / values[row.rank - 1], rtol=1e-6)
    assert row.rank == np.linalg.matrix_rank(np.asarray(jacobian))
    assert row.share == row.parameters / (row.samples * row.outputs)


def test_a_row_of_a_pruned_network():
    cell, row = _row("pruned")
    model, x, _ = experiment.made(cell)
    apply, params = gnjax.functional(model)
    kept = [
        np.abs(leaf) > np.quantile(np.abs(leaf), 0.5)
        if leaf.ndim > 1
        else np.ones(leaf.shape, bool)
        for leaf in map(np.asarray, jax.tree.leaves(params))
    ]
    jacobian = references.jacobian(apply, params, x)
    kept = np.concatenate([mask.ravel() for mask in kept])
    assert row.parameters == kept.sum()
    _assert_kappa_of(np.asarray(jacobian)[:, kept], row)


@pytest.mark.parametrize("steps", [0, 3])
def test_a_row_of_adapters(steps):
    """The chain rule by hand: an adapter A B moves W by dA B + A dB."""
    cell, row = _row("adapters, trained" if steps else "adapters")
    model, x, y = experiment.made(cell)
    kernels = [np.asarray(getattr(model, f"dense{i}").kernel) for i in (1, 2, 3)]
    _, factors = experiment.adapted(model, int(cell.amount), cell.seed)
    ordered = [factors[key] for key in sorted(factors, key=int)]

    def outputs(now, w=None):
        w = [k + f["a"] @ f["b"] for k, f in zip(kernels, now, strict=True)] if w is None else w
        h = jax.nn.relu(jnp.asarray(x) @ w[0])
        return jax.nn.relu(h @ w[1]) @ w[2]

    rule = optax.adam(cell.adam_rate)
    memory = jax.jit(rule.init)(ordered)

    def loss(now):
        return optax.softmax_cross_entropy_with_integer_labels(outputs(now), y).mean()

    @jax.jit
    def trained(now, memory):
        moved, memory = rule.update(jax.grad(loss)(now), memory, now)
        return optax.apply_updates(now, moved), memory

    for _ in range(steps):
        ordered, memory = trained(ordered, memory)
    ordered = jax.tree.map(np.asarray, ordered)
    weights = [k + f["a"] @ f["b"] for k, f in zip(kernels, ordered, strict=True)]
    slopes = jax.jit(jax.jacfwd(lambda w: outputs(None, w).ravel()))(weights)
    slopes = [np.asarray(slope) for slope in slopes]  # (n k, in, out)
    parts = [np.einsum("rio,ia->rao", d, f["a"]) for d, f in zip(slopes, ordered, strict=True)]
    if steps:
        parts += [np.einsum("rio,ao->ria", d, f["b"]) for d, f in zip(slopes, ordered, strict=True)]
    jacobian = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    assert row.parameters == jacobian.shape[1]
    _assert_kappa_of(jacobian, row)


def test_adapters_leave_a_gpt_as_it_is_until_they_are_trained():
    cell, row = _row("adapters", "gpt")
    model, x, _ = experiment.made(cell)
    apply, factors = experiment.adapted(model, 2, 0)
    np.testing.assert_array_equal(apply(factors, jnp.asarray(x)), model(jnp.asarray(x)))
    kernels = [
        v for path, v in nnx.to_flat_state(nnx.state(model, nnx.Param)) if path[-1] == "kernel"
    ]
    assert len(factors) == len(kernels)
    rank = int(cell.amount)
    assert row.parameters == sum(rank * kernel.shape[1] for kernel in kernels)
