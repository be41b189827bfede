"""Blocks beside the whole curvature: dense matrices, intervals, claims, and the figure."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import gnjax
from experiments import block_alignment as experiment
from experiments.shared import alignment
from figures import t7
from tests.experiments.configs import records
from tests.figures.drawing import drawn, published


@pytest.fixture(scope="module")
def smoke():
    """The first cell of the MLP, and its rows."""
    cells = records(experiment.EXPERIMENT, "smoke", seeds=1)
    cell = next(c for c in cells if c.network == "mlp")
    return cell, [SimpleNamespace(**row) for row in experiment.measure(cell)]


def _dense(cell, stop):
    """G, H and the gradient by automatic differentiation after ``stop`` steps of optax's Adam."""
    model, x, y = experiment.made(cell)
    apply, params = gnjax.functional(model)
    w, back = ravel_pytree(params)
    rule = optax.adam(cell.path.rate)

    def loss(w):
        return optax.softmax_cross_entropy_with_integer_labels(apply(back(w), x), y).mean()

    slope, update, memory = jax.jit(jax.grad(loss)), jax.jit(rule.update), jax.jit(rule.init)(w)
    for _ in range(stop):
        change, memory = update(slope(w), memory)
        w = w + change
    p = np.asarray(jax.jit(lambda w: jax.nn.softmax(apply(back(w), x)))(w))
    jacobian = np.asarray(jax.jit(jax.jacobian(lambda w: apply(back(w), x)))(w))
    inner = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
    gauss_newton = np.einsum("nkp,nkl,nlq->pq", jacobian, inner, jacobian, optimize=True) / len(p)
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    return gauss_newton, np.asarray(jax.jit(jax.hessian(loss))(w)), np.asarray(slope(w)), sizes


def _blocks(matrix, sizes):
    """The layers' blocks: a bias and a kernel follow each other in the vector of parameters."""
    layer = np.repeat(np.arange(len(sizes)) // 2, sizes)
    return np.where(layer[:, None] == layer, matrix, 0.0)


def _cosine(one, other):
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


@pytest.mark.parametrize("stop", [0, 3])
def test_rows_are_those_of_dense_matrices(smoke, stop):
    cell, rows = smoke
    *matrices, gradient, sizes = _dense(cell, stop)
    for name, matrix in zip("GH", matrices, strict=True):
        blocks = _blocks(matrix, sizes)
        tops = [np.linalg.eigh(each)[1][:, -1] for each in (matrix, blocks)]
        expected = {
            ("error", 0.0): np.linalg.norm(matrix - blocks) / np.linalg.norm(matrix),
            ("eigenvector", 0.0): abs(_cosine(*tops)),
        }
        for damping in cell.dampings if name == "G" else ():
            added = damping * np.trace(matrix) / len(matrix) * np.eye(len(matrix))
            whole, parts = (np.linalg.solve(a + added, gradient) for a in (matrix, blocks))
            gained = (gradient @ parts) ** 2 / (parts @ (matrix + added) @ parts)
            expected["step", damping] = _cosine(whole, parts)
            expected["decrease", damping] = gained / (gradient @ whole)
        found = {(r.panel, r.damping): r for r in rows if (r.matrix, r.step) == (name, stop)}
        assert set(found) == set(expected)
        for key, value in expected.items():
            row = found[key]
            np.testing.assert_allclose(row.value, value, rtol=1e-8, err_msg=f"{name} {key}")
            assert row.value_low - 1e-8 <= value <= row.value_high + 1e-8
            assert row.value_high - row.value_low < 1e-6
            assert row.evidence in ("measured", "probable")


def _semidefinite(generator, size):
    half = generator.standard_normal((size, size // 2))
    return half @ half.T


@pytest.mark.parametrize("seed", range(5))
def test_intervals_hold_the_numbers_of_every_matrix_within_the_error(seed):
    """A semidefinite matrix A + E with ||E|| at the stated error, and its blocks."""
    generator = np.random.default_rng(seed)
    size, damping, error = 12, 0.3, 1e-4
    matrix, gradient = _semidefinite(generator, size), generator.standard_normal(size)
    near = _semidefinite(generator, size)
    exact = matrix + error * near / np.linalg.norm(near, 2)
    inside = np.arange(size)[:, None] // 4 == np.arange(size) // 4
    blocks, exact_blocks = np.where(inside, matrix, 0), np.where(inside, exact, 0)
    steps = tuple(alignment.step(a, damping, gradient, error) for a in (matrix, blocks))
    damped = exact + damping * np.eye(size)
    whole = np.linalg.solve(damped, gradient)
    parts = np.linalg.solve(exact_blocks + damping * np.eye(size), gradient)
    taken = steps[1].vector  # the share is that of the step as computed
    share = (gradient @ taken) ** 2 / (taken @ damped @ taken) / (gradient @ whole)
    found = {
        "steps": (alignment.of_steps(*steps), _cosine(whole, parts)),
        "decrease": (alignment.decrease(matrix, damping, gradient, error, steps), share),
    }
    tops = [
        gnjax.eigenvalues(alignment.stored(a, gnjax.Error(error, "measured")), k=1, vectors=True)
        for a in (matrix, blocks)
    ]
    vectors = [np.linalg.eigh(a)[1][:, -1] for a in (exact, exact_blocks)]
    found["tops"] = alignment.of_top_eigenvectors(*tops), abs(_cosine(*vectors))
    for name, (interval, value) in found.items():
        assert interval.low <= value <= interval.high, name
        assert interval.low < interval.value < interval.high, name
        assert interval.high - interval.low < 0.1, name


def test_an_unknown_error_leaves_every_cosine_open():
    """And one that is larger than the gap leaves the eigenvectors open."""
    spectrum = gnjax.eigenvalues(
        alignment.stored(np.diag([2.0, 1.0]), gnjax.Error(1.0, "measured")), k=1, vectors=True
    )
    found = alignment.of_top_eigenvectors(spectrum, spectrum)
    assert (found.low, found.high) == (0.0, 1.0)


def test_both_angles_open_the_cosine_of_eigenvectors():
    spectrum = gnjax.eigenvalues(np.diag([2.0, 1.0]), vectors=True)
    one, other = (dataclasses.replace(spectrum, angles=np.full(2, a)) for a in (0.1, 0.2))
    found = alignment.of_top_eigenvectors(one, other)
    assert found.low == pytest.approx(np.cos(0.3))


def test_the_gain_of_a_step_that_solves_badly_is_bounded_by_its_residual():
    """g^T M^{-1} g is stationary in the step, and its second order is the residual's."""
    generator = np.random.default_rng(0)
    matrix, gradient = np.diag(np.arange(4.0)), generator.standard_normal(4)
    damped, damping = matrix + 0.5 * np.eye(4), 0.5
    off = np.linalg.solve(damped, gradient) + np.array([0.2, 0.0, 0.0, 0.0])
    residual = float(np.linalg.norm(damped @ off - gradient))
    bad = alignment.Step(off, residual, residual / damping)
    exact = alignment.step(matrix, damping, gradient, 0.0)
    found = alignment.decrease(matrix, damping, gradient, 0.0, (bad, exact))
    assert found.low == pytest.approx(1, abs=1e-12)  # the residual lies along the first axis
    assert found.value > 1 + 1e-3


def test_a_matrix_that_is_its_blocks_is_matched():
    """Then the error is 0, and steps and eigenvectors are equal."""
    generator = np.random.default_rng(0)
    matrix = np.kron(np.eye(3), _semidefinite(generator, 4) + np.eye(4))
    gradient = generator.standard_normal(12)
    steps = (alignment.step(matrix, 0.1, gradient, 0.0),) * 2
    gained = alignment.decrease(matrix, 0.1, gradient, 0.0, steps)
    assert gained.low == pytest.approx(1, abs=1e-12) == gained.high
    assert alignment.of_steps(*steps).value == pytest.approx(1, abs=1e-12)


def test_the_figure_shows_every_comparison():
    table, figure = published("t7"), drawn("t7")
    for line, network in zip((figure.axes[:4], figure.axes[4:]), t7.NETWORKS, strict=True):
        for axes, panel in zip(line, t7.PANELS, strict=True):
            for curve in axes.containers:
                name = curve.get_label()
                shown = (table["network"] == network) & (table["panel"] == panel)
                if name.startswith("damping"):
                    shown &= table["damping"] == float(name.removeprefix("damping "))
                else:
                    shown &= table["matrix"] == {v: k for k, v in t7.MATRICES.items()}[name]
                mean = table[shown].groupby("step")["value"].mean()
                np.testing.assert_allclose(curve[0].get_ydata(), mean)
            assert len(axes.containers) == 2
    assert "beyond the papers" in t7.caption(table, {"precision": "float64"})
