"""S P S = I up to rounding for every block, in both precisions, and answers are those of S A S."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import gnjax
from gnjax.operators.metrics.metric import (
    Metric,
    diagonal_block,
    kronecker_block,
    matrix_block,
    symmetric_factor,
)

RNG = np.random.default_rng(0)


def _factor(*shape, decades=2.0):
    """Positive definite (g, m, m) with eigenvalues over some decades."""
    q = np.linalg.qr(RNG.standard_normal(shape))[0]
    return symmetric_factor((q * np.geomspace(1, 10**-decades, shape[-1])) @ q.swapaxes(1, 2))


def _own(*shape, start=0):
    return start + RNG.permutation(int(np.prod(shape))).reshape(shape)


LEFT, RIGHT = _factor(2, 3, 3), _factor(2, 4, 4)
COUNTS = symmetric_factor(np.array([[0.5, 0.25, 0.2, 0.05, 0.0]]))
MATRIX = _factor(1, 6, 6, decades=6.0).matrix[0]
SPREAD = RNG.uniform(0.1, 1, (2, 3, 4))
BLOCKS = {
    "diagonal": (diagonal_block("d", _own(7), np.geomspace(1, 1e-6, 7)), 0.0),
    "matrix": (matrix_block("m", _own(6), MATRIX), 1e-8),
    "product": (kronecker_block("k", _own(2, 3, 4), LEFT, RIGHT), 1e-3),
    "root": (kronecker_block("k", _own(2, 3, 4), LEFT, RIGHT, power=0.25), 0.0),
    "lookup": (kronecker_block("k", _own(1, 5, 4), COUNTS, _factor(1, 4, 4)), 1e-4),
    "corrected": (kronecker_block("k", _own(2, 3, 4), LEFT, RIGHT, values=SPREAD), 0.0),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", BLOCKS)
def test_the_root_of_a_block(name, dtype):
    block, damping = BLOCKS[name]
    metric = Metric(name, (block,), damping)
    scaling = metric.scaling(jnp.dtype(dtype))
    unit = jax.device_put(np.eye(metric.parameters, dtype=dtype))
    root = np.asarray(scaling(unit), np.float64)
    norm, inverse = np.linalg.norm(root, 2), np.linalg.norm(np.linalg.inv(root), 2)
    exact = scipy.linalg.sqrtm(np.linalg.inv(metric.as_matrix())).real
    # U and V are rounded once, and S v in two sums for each of them.
    rounding = 20 * len(root) * float(jnp.finfo(dtype).eps) * (norm * inverse) ** 2
    assert np.linalg.norm(root - exact, 2) <= rounding * norm
    assert norm <= scaling.norm * (1 + scaling.rounding(1.0, jnp.dtype(dtype)))
    assert scaling.norm == pytest.approx(norm, rel=1e-3)
    assert scaling.inverse == pytest.approx(inverse, rel=1e-3)


def test_kronecker_blocks_against_numpy():
    """P by np.kron for each group, its powers and its inverse root, at permuted places."""
    block, _ = BLOCKS["product"]
    exact = np.zeros((24, 24))
    for g in range(2):
        own = block.indices[g].ravel()
        exact[np.ix_(own, own)] = np.kron(LEFT.matrix[g], RIGHT.matrix[g])
    metric = Metric("product", (block,), 0.1)
    assert np.abs(metric.as_matrix() - exact - 0.1 * np.eye(24)).max() < 1e-14
    v = RNG.standard_normal(24)
    wanted = np.linalg.solve(exact + 0.1 * np.eye(24), v)
    assert np.abs(np.asarray(metric.solve(v)) - wanted).max() < 1e-12 * np.abs(wanted).max()
    assert Metric("none", (), 0.0).parameters == 0


@pytest.mark.parametrize("turned", [0.0, 1e-3])
@pytest.mark.parametrize("side", ["parameters", "outputs"])
def test_answers_are_those_of_the_root_that_is_stored(side, turned):
    """Whatever its basis is: P is S^-2, and ||S|| is bounded for a W that is not orthogonal too."""
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    op = gnjax.gauss_newton(model, RNG.standard_normal((9, 3)), side=side)
    metric = gnjax.metrics.kfac(op, damping=1e-3)
    blocks = tuple(
        replace(b, left=replace(b.left, basis=b.left.basis + turned * RNG.uniform(size=(1,))))
        for b in metric.blocks
    )
    scaled = gnjax.preconditioned(op, replace(metric, blocks=blocks))
    root = np.asarray(scaled.scaling(jax.device_put(np.eye(26))))
    assert np.linalg.norm(root, 2) <= scaled.scaling.norm * (1 + 1e-13)
    factor = replace(op, side="parameters").factor()
    values = np.linalg.svd(root @ factor, compute_uv=False)
    kappa = gnjax.condition_number(scaled)
    low, high = kappa.at_rank
    exact = (values[0] / values[kappa.rank - 1]) ** 2
    assert low * (1 - 1e-12) <= exact <= high * (1 + 1e-12)
    assert high / low < 1 + 1e-6


def _simple_metric():
    op = gnjax.gauss_newton((lambda w, x: x @ w, np.ones((2, 1))), np.diag([1.0, 2.0]))
    return gnjax.metrics.kfac(op, damping=0.5)


@pytest.mark.parametrize("dtype", [int, np.int8, bool, np.float32, float])
def test_a_metric_is_solved_for_numbers_of_every_type(dtype):
    """P = diag(1, 2.5); the answer of integers is not cut off to integers."""
    found = _simple_metric().solve(np.ones(2, dtype))
    assert np.abs(np.asarray(found, float) - [1.0, 0.4]).max() < 1e-6


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2), (2, 1, 1)])
def test_a_vector_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"P \(2 x 2\) is solved for a vector \(2,\)"):
        _simple_metric().solve(np.ones(shape))
