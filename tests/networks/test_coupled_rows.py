"""Kernels and blocks of coupled batches, whose layers have fewer positions than inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.networks import jacobians
from gnjax.networks.jacobians import pieces
from tests.references import jacobian

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 30))
PARAMS = {
    "deep": RNG.standard_normal((9, 9)) / 3,  # used twice, at 6 positions together
    "first": RNG.standard_normal((30, 9)) / 5,
    "offset": RNG.standard_normal(9),
    "last": RNG.standard_normal((9, 4)),
    "stacked": RNG.standard_normal((2, 9, 9)) / 3,  # two matrices in one parameter
}


def noisy(params, x):
    """Every place in the batch has its own noise, as in an autoencoder with one key."""
    hidden = jnp.tanh(x @ params["first"] + params["offset"][None])
    hidden = jnp.tanh(hidden @ params["deep"]) @ params["deep"]
    noise = jax.random.normal(jax.random.key(0), hidden.shape)
    hidden = jnp.tanh(hidden @ params["stacked"][0]) @ params["stacked"][1]
    return (hidden + noise * jnp.exp(hidden / 2)) @ params["last"]


def dense(loss: str) -> np.ndarray:
    """R^T J (n r, p), with B = R R^T made from the softmax by eigenvalues."""
    rows = np.asarray(jacobian(noisy, PARAMS, X))
    if loss == "squared_error":
        return rows
    outputs = np.asarray(noisy(PARAMS, X))
    parts = []
    for f, part in zip(outputs, rows.reshape(len(outputs), -1, rows.shape[1]), strict=True):
        p = np.exp(f - f.max()) / np.exp(f - f.max()).sum()
        values, vectors = np.linalg.eigh(np.diag(p) - np.outer(p, p))
        parts.append((vectors[:, 1:] * np.sqrt(values[1:])).T @ part)
    return np.concatenate(parts)


@pytest.mark.parametrize("loss", ["squared_error", "cross_entropy"])
def test_fewer_columns_have_the_kernel_of_all(loss):
    options = {} if loss == "squared_error" else {"loss": loss}
    op = gnjax.gauss_newton((noisy, PARAMS), X, side="outputs", **options)
    assert op.net.coupled
    whole = dense(loss)
    columns = np.concatenate(list(jacobians.rows_of_coupled(op.net)))
    assert columns.shape[1] < whole.shape[1] - 30 * 9 + 3 * 9 + 1  # of "first", 3 positions
    true = np.linalg.svd(whole, compute_uv=False)
    assert np.linalg.svd(columns, compute_uv=False) == pytest.approx(true, rel=1e-12)
    matrix = np.asarray(op.as_matrix())
    values = np.sort(np.linalg.eigvalsh(matrix))[::-1]
    assert values == pytest.approx(true**2 * op.scale, rel=1e-10)
    kappa = gnjax.condition_number(op)
    assert kappa.method == "factored"
    assert kappa.interval[0] <= (true[0] / true[-1]) ** 2 <= kappa.interval[1]


def test_rows_of_the_same_chunk_twice_come_once(monkeypatch):
    monkeypatch.setattr(pieces, "_ROWS", 5)  # of 12
    net = gnjax.ntk((noisy, PARAMS), X).net
    blocks = list(jacobians.rows_of_coupled(net))
    assert [len(block) for block in blocks] == [5, 5, 2]
    kernel = np.concatenate(blocks) @ np.concatenate(blocks).T
    whole = np.asarray(jacobian(noisy, PARAMS, X))
    assert kernel == pytest.approx(whole @ whole.T, rel=1e-12)


def test_rows_of_j_of_a_coupled_batch_come_once(monkeypatch):
    monkeypatch.setattr(pieces, "_ROWS", 5)  # of 12
    net = gnjax.ntk((noisy, PARAMS), X).net
    blocks = list(jacobians.row_blocks(net))
    assert [len(block) for block in blocks] == [5, 5, 2]
    whole = np.asarray(jacobian(noisy, PARAMS, X))
    assert np.concatenate(blocks) == pytest.approx(whole, rel=1e-12, abs=1e-14)


def test_masked_entries_are_no_columns():
    mask = jax.tree.map(np.ones_like, PARAMS) | {"first": RNG.uniform(size=(30, 9)) < 0.5}
    op = gnjax.ntk((noisy, PARAMS), X, mask=mask)
    chosen = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(mask)]) > 0
    whole = np.asarray(jacobian(noisy, PARAMS, X))[:, chosen]
    assert np.asarray(op.as_matrix()) == pytest.approx(whole @ whole.T, rel=1e-11)


def test_blocks_of_layers_larger_than_memory():
    """J takes 8 x 12 x 558 bytes, and a quarter of that is allowed."""
    limits = gnjax.Limits(factor_bytes=8 * 12 * 558 / 2)
    spectra = gnjax.block_spectra((noisy, PARAMS), X, limits=limits)
    assert spectra.method == "jacobian"
    whole, start, inside = np.asarray(jacobian(noisy, PARAMS, X)), 0, 0.0
    for name, leaf in sorted(PARAMS.items()):
        columns = whole[:, start : start + leaf.size]
        start += leaf.size
        block = spectra[name]
        true = np.linalg.svd(columns, compute_uv=False) ** 2 / 3
        assert block.spectrum.values[: len(true)] == pytest.approx(true, abs=1e-13 * true[0])
        assert len(block.spectrum) == leaf.size
        inside += float(np.square(true).sum())
    total = float(np.square(np.linalg.svd(whole, compute_uv=False) ** 2 / 3).sum())
    assert spectra.off_block_share == pytest.approx(1 - inside / total, rel=1e-10)


def test_a_metric_multiplies_a_column_of_every_parameter():
    metric = jax.tree.map(lambda leaf: 1 + leaf**2, PARAMS)
    op = gnjax.preconditioned(gnjax.ntk((noisy, PARAMS), X), metric)
    roots = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(metric)]) ** -0.5
    true = np.linalg.svd(np.asarray(jacobian(noisy, PARAMS, X)) * roots[None], compute_uv=False)
    kappa = gnjax.condition_number(op)
    assert kappa.interval[0] <= (true[0] / true[-1]) ** 2 <= kappa.interval[1]
