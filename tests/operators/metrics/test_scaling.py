"""S P S = I up to what the scaling states, for every metric, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from gnjax.operators.metrics.factor import diagonal_factor, symmetric_factor
from gnjax.operators.metrics.metric import (
    DiagonalBlock,
    KroneckerBlock,
    MatrixBlock,
    Metric,
    product_block,
)

RNG = np.random.default_rng(0)


def _factor(*shape, decades=2.0):
    """Positive definite (g, m, m) with eigenvalues over some decades."""
    q = np.linalg.qr(RNG.standard_normal(shape))[0]
    return symmetric_factor((q * np.geomspace(1, 10**-decades, shape[-1])) @ q.swapaxes(1, 2))


def _own(*shape, start=0):
    return start + RNG.permutation(int(np.prod(shape))).reshape(shape)


LEFT, RIGHT = _factor(2, 3, 3), _factor(2, 4, 4)
COUNTS = diagonal_factor(np.array([[0.5, 0.25, 0.2, 0.05, 0.0]]))
MATRIX = _factor(1, 6, 6, decades=6.0).matrix[0]
SPREAD = RNG.uniform(0.1, 1, (2, 3, 4))
BLOCKS = {
    "diagonal": (DiagonalBlock("d", _own(7), np.geomspace(1, 1e-6, 7)), 0.0),
    "matrix": (MatrixBlock("m", _own(6), MATRIX), 1e-8),
    "product": (product_block("k", _own(2, 3, 4), LEFT, RIGHT), 1e-3),
    "root": (product_block("k", _own(2, 3, 4), LEFT, RIGHT, 0.25), 0.0),
    "lookup": (product_block("k", _own(1, 5, 4), COUNTS, _factor(1, 4, 4)), 1e-4),
    "corrected": (KroneckerBlock("k", _own(2, 3, 4), LEFT, RIGHT, SPREAD), 0.0),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", BLOCKS)
def test_the_root_of_a_block(name, dtype):
    block, damping = BLOCKS[name]
    metric = Metric(name, (block,), damping)
    scaling = metric.scaling(jnp.dtype(dtype))
    unit = jax.device_put(np.eye(metric.parameters, dtype=dtype))
    root = np.asarray(scaling(unit), np.float64)
    matrix = metric.as_matrix()
    off = np.linalg.norm(root @ matrix @ root - np.eye(len(root)), 2)
    norm, inverse = np.linalg.norm(root, 2), np.linalg.norm(np.linalg.inv(root), 2)
    rounding = scaling.rounding(1.0, jnp.dtype(dtype)) * (norm * inverse)  # of the columns of S
    assert off <= scaling.eta + 2 * rounding
    assert scaling.eta < 1000 * float(jnp.finfo(dtype).eps) * (norm * inverse) ** 2
    assert scaling.norm == pytest.approx(norm, rel=1e-3)
    assert scaling.inverse == pytest.approx(inverse, rel=1e-3)


def test_kronecker_blocks_against_numpy():
    """P by np.kron for each group, its powers and its inverse root, at permuted places."""
    block, _ = BLOCKS["product"]
    exact = np.zeros((24, 24))
    for g in range(2):
        own = block.own[g].ravel()
        exact[np.ix_(own, own)] = np.kron(LEFT.matrix[g], RIGHT.matrix[g])
    metric = Metric("product", (block,), 0.1)
    assert np.abs(metric.as_matrix() - exact - 0.1 * np.eye(24)).max() < 1e-14
    v = RNG.standard_normal(24)
    wanted = np.linalg.solve(exact + 0.1 * np.eye(24), v)
    assert np.abs(np.asarray(metric.solve(v)) - wanted).max() < 1e-12 * np.abs(wanted).max()


def test_what_a_perturbed_basis_moves_is_stated():
    """Eigenvectors that are wrong by 1e-6 are seen, in the residual and in S P S."""
    factor = _factor(1, 5, 5)
    turn = np.linalg.qr(np.eye(5) + 1e-6 * RNG.standard_normal((5, 5)))[0]
    wrong = type(factor)(factor.matrix, factor.eigenvalues, factor.basis @ turn)
    found = np.linalg.norm(
        (wrong.basis * wrong.eigenvalues[:, None]) @ wrong.basis.swapaxes(1, 2) - wrong.matrix
    )
    assert found <= wrong.residual < 1.1 * found
    metric = Metric("wrong", (product_block("k", _own(1, 5, 3), wrong, _factor(1, 3, 3)),), 1e-3)
    root = np.asarray(metric.scaling(jnp.dtype(float))(jax.device_put(np.eye(15))))
    own = metric.blocks[0].own.ravel()
    exact = 1e-3 * np.eye(15)
    exact[np.ix_(own, own)] += np.kron(factor.matrix[0], metric.blocks[0].right.matrix[0])
    off = np.linalg.norm(root @ exact @ root - np.eye(15), 2)
    assert 1e-7 < off <= metric.scaling(jnp.dtype(float)).eta


def test_powers_are_lipschitz_above_zero_and_hoelder_at_zero():
    regular, singular = _factor(1, 4, 4), symmetric_factor(np.diag([1.0, 1.0, 0, 0])[None])
    assert regular.powered(0.25).distance < 1e-12
    assert singular.powered(0.25).distance >= singular.residual**0.25
    assert gnjax.metrics.Metric("none", (), 0.0).parameters == 0
