"""Adapters, pruning and width: rows by dense Jacobians, claims that hold and fail, the figure."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from pandas import DataFrame

import gnjax
from experiments import adapter_sweep as experiment
from figures import t6
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE
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


_SHARES = (1.5, 3.0, 6.0)


def _table(powers, scales, shares=_SHARES):
    """kappa = scale * share^power for every family."""
    return DataFrame(
        {
            "network": network, "family": family, "amount": share / 10, "data": "digits",
            "samples": 6, "inputs": 64, "outputs": 10, "parameters": int(60 * share),
            "share": share, "depth": 3, "width": 12, "steps": 3, "seed": seed,
            "evidence": "measured", "failure": 0.0, "resolved": True, "rank": 60,
            "kappa": scales[family] * share ** (powers + 0.01 * seed),
            "kappa_low": scales[family] * share ** (powers + 0.01 * seed),
            "kappa_high": scales[family] * share ** (powers + 0.01 * seed),
        }
        for network in t6.NETWORKS
        for family in t6.FAMILIES
        for share in shares
        for seed in (0, 1, 2)
    )  # fmt: skip


def test_claims_can_hold_fail_and_be_out_of_reach():
    def statuses(table):
        return [claim.check(table).status for claim in experiment.CLAIMS]

    same = dict.fromkeys(t6.FAMILIES, 100.0)
    assert statuses(_table(-2.0, same)) == [HOLDS] * 5
    apart = {family: 100.0 if family == "pruned" else 500.0 for family in t6.FAMILIES}
    assert statuses(_table(1.0, apart)) == [FAILS] * 5
    assert statuses(_table(-2.0, same, shares=(0.5, 1.0))) == [NOT_TESTABLE] * 5
