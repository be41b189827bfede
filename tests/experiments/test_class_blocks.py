"""Blocks by class and token: rows by closed forms and dense matrices."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from flax import nnx

import gnjax
from experiments import class_blocks as experiment
from tests.experiments.configs import records


def _cell(network, steps=3):
    """The first cell of a network of the smoke profile with so many steps."""
    fewer = {name: {"steps": steps} for name in ("linear", "gpt")}
    cells = records(experiment.EXPERIMENT, "smoke", **fewer)
    return next(cell for cell in cells if cell.network == network)


def test_rows_of_the_linear_model_are_its_closed_form():
    """The block of class k is the mean of p_k (1 - p_k) x x^T, here after three steps by hand."""
    cell = _cell("linear")
    rows = [SimpleNamespace(**row) for row in experiment.measure(cell)]
    _, x, tokens, y = experiment.made(cell)
    weight, targets = np.zeros((cell.outputs, cell.outputs)), np.eye(cell.outputs)[y]
    stages = {"start": weight}
    now = weight
    for _ in range(3):
        p = scipy.special.softmax(x @ now, axis=-1)
        now = now - cell.training.descent_rate * x.T @ (p - targets) / len(x)
    stages["gradient descent"] = now
    for stage, matrix in stages.items():
        p = scipy.special.softmax(x @ matrix, axis=-1)
        found = [row for row in rows if row.stage == stage]
        assert {row.part for row in found} == {"class"}
        for row in found:
            share = p[:, row.rank] * (1 - p[:, row.rank])
            np.testing.assert_allclose(row.trace, share.mean(), rtol=1e-10)
            counts = np.bincount(tokens, weights=share, minlength=cell.outputs)
            np.testing.assert_allclose(row.largest, counts.max() / len(x), rtol=1e-10)
            assert row.frequency == np.mean(y == row.rank)
            lost = -np.log(p[y == row.rank, row.rank]).mean()
            np.testing.assert_allclose(row.loss, lost, rtol=1e-10)


@pytest.mark.slow
def test_rows_of_the_gpt_are_blocks_of_the_dense_matrix():
    cell = _cell("gpt", steps=1)
    rows = [SimpleNamespace(**row) for row in experiment.measure(cell)]
    model, x, _, _ = experiment.made(cell)
    apply, params = gnjax.functional(model)
    p = scipy.special.softmax(jax.jit(apply)(params, x), axis=-1).reshape(-1, cell.outputs)
    middle = p[:, :, None] * (np.eye(cell.outputs) - p[:, None, :])
    for part, name in (("class", "head"), ("token", "tokens")):
        found = getattr(model, name)
        value = found.kernel[...] if part == "class" else found[...]

        def outputs(value, part=part):
            copy = nnx.clone(model)
            (copy.head.kernel if part == "class" else copy.tokens)[...] = value
            return copy(jnp.asarray(x)).reshape(-1, cell.outputs)

        jacobian = np.asarray(jax.jit(jax.jacfwd(outputs))(value))  # (n t, k, a, b)
        for row in (r for r in rows if r.part == part and r.stage == "start"):
            own = jacobian[..., row.rank] if part == "class" else jacobian[..., row.rank, :]
            block = np.einsum("nka,nkl,nlb->ab", own, middle, own, optimize=True) / len(p)
            np.testing.assert_allclose(row.trace, np.trace(block), rtol=1e-8)
            np.testing.assert_allclose(row.largest, np.linalg.eigvalsh(block)[-1], rtol=1e-8)
    assert {row.part for row in rows} == {"class", "token"}


def test_adam_is_optaxs():
    cell = _cell("linear", steps=2)
    model, x, _, y = experiment.made(cell)
    apply, params = gnjax.functional(model)
    found = experiment.trained(
        params, apply, x, y, 0.05, optimizer="Adam", steps=cell.training.steps
    )
    rule = optax.adam(0.05)
    memory = jax.jit(rule.init)(params)

    def loss(w):
        return optax.softmax_cross_entropy_with_integer_labels(apply(w, x), y).mean()

    @jax.jit
    def moved(params, memory):
        change, memory = rule.update(jax.grad(loss)(params), memory)
        return optax.apply_updates(params, change), memory

    for _ in range(2):
        params, memory = moved(params, memory)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
