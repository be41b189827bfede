"""The references of the held-out trials beside a second road to each of them."""

from __future__ import annotations

import flint
import jax
import mpmath
import numpy as np
import pytest
import scipy.special

from tests import references
from tests.held_out import many_digits, networks
from tests.held_out.architectures import ARCHITECTURES


def _symmetric(seed, size):
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    return matrix + matrix.T


def test_eigenvalues_agree_with_mpmath_to_sixty_digits():
    matrix = _symmetric(1, 6)
    found = many_digits.eigenvalues(matrix, 80)
    with mpmath.workdps(80):
        expected = sorted(mpmath.eigsy(mpmath.matrix(matrix.tolist()), eigvals_only=True))[::-1]
        for ours, theirs in zip(found, expected, strict=True):
            assert abs(mpmath.mpf(ours.str(78, radius=False)) - theirs) < mpmath.mpf(10) ** -70


@pytest.mark.parametrize("size", [1, 5, 40])
def test_eigenvalues_are_where_the_signs_of_pivots_change(size):
    matrix = _symmetric(2, size)
    found = many_digits.eigenvalues(matrix, 80)
    for index in {0, size // 2, size - 1}:
        near = float(found[index])
        moved = abs(near) * 1e-14
        assert many_digits.below(matrix, near - moved) == size - 1 - index
        assert many_digits.below(matrix, near + moved) == size - index


def test_repeated_eigenvalues_come_as_often_as_they_are():
    matrix = np.kron(np.eye(4), [[2.0, 1.0], [1.0, 2.0]]) + 0.0
    found = many_digits.eigenvalues(matrix, 80)
    assert [round(float(v), 12) for v in found] == [3.0] * 4 + [1.0] * 4
    assert all(abs(v - round(float(v))) < 1e-70 for v in found)


def test_the_rank_of_an_integer_gram_matrix_is_exact():
    factor = np.random.default_rng(3).integers(-5, 6, (12, 5)).astype(float)
    truth = many_digits.of_matrix(factor @ factor.T)
    assert truth.rank == 5
    assert [v == 0 for v in truth.values] == [False] * 5 + [True] * 7
    assert many_digits.rank(np.diag([1e-300, 1.0, 0.0])) == 2


def test_kappa_of_a_factor_far_beyond_double_precision():
    truth = many_digits.of_stored_factor(np.array([[1.0, 0.0], [1.0, 2.0**-60]]))
    with flint.ctx.workdps(60):
        square = 2 + flint.arb(2) ** -120
        root = (square * square - flint.arb(2) ** -118).sqrt()
        expected = (square + root) / (square - root)
        assert abs(truth.kappa() / expected - 1) < 1e-20


def test_linear_network_is_the_sum_of_kronecker_products():
    rng = np.random.default_rng(4)
    w1, w2 = rng.standard_normal((3, 2)), rng.standard_normal((2, 3))
    data = rng.standard_normal((2, 5))
    sigma = data @ data.T
    values, vectors = np.linalg.eigh(sigma)
    root = vectors * np.sqrt(values) @ vectors.T
    expected = np.kron(w2 @ w2.T, sigma) + np.kron(np.eye(2), root @ w1.T @ w1 @ root)
    truth = many_digits.linear_network([w1, w2], sigma)
    found = [float(v) for v in truth.padded(4)]
    np.testing.assert_allclose(found, np.linalg.eigvalsh(expected)[::-1], rtol=1e-10)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("loss", networks.LOSSES)
def test_references_of_networks_agree_with_jax(name, loss):
    """To the precision of the program: float64, or what the network casts to inside."""
    case = networks.draw(np.random.default_rng(5), name, 4, loss, "ordinary")
    truths = networks.truths(case, hessians=True)
    params = {key: value.astype(float) for key, value in case.params.items()}
    n, k = 4, case.architecture.outputs
    both = references.outputs_and_jacobian(case.architecture.jax, params, case.x)
    outputs, jacobian = map(np.asarray, both)

    def total(p):
        f = case.architecture.jax(p, case.x)
        if loss == "mse":
            return ((f - case.y) ** 2).sum() / 2 / n
        return (jax.nn.logsumexp(f, axis=-1) - f[np.arange(n), case.y]).sum() / n

    hessian = references.hessian(total, params)
    rtol = 5e-2 if "bfloat16" in name else 1e-5 if "single" in name else 1e-10
    expected = np.linalg.eigvalsh(jacobian.T @ jacobian)
    size = len(expected)
    _assert_same(truths.ntk.padded(size), expected, rtol)
    _assert_same(truths.hessian, np.linalg.eigvalsh(hessian), rtol)
    probabilities = scipy.special.softmax(outputs, axis=-1)
    weights = np.zeros((n * k, n * k))
    for i in range(n):
        at = slice(i * k, (i + 1) * k)
        p = probabilities[i]
        weights[at, at] = np.eye(k) if loss == "mse" else np.diag(p) - np.outer(p, p)
    gauss = jacobian.T @ weights @ jacobian / n
    _assert_same(truths.gauss_newton.padded(size), np.linalg.eigvalsh(gauss), rtol)
    scale = np.abs(hessian).max()
    _assert_same(truths.functional_hessian, np.linalg.eigvalsh(hessian - gauss), rtol, scale)


def _assert_same(found, expected, rtol, scale=0.0):
    scale = max(scale, np.abs(expected).max())
    np.testing.assert_allclose([float(v) for v in found], expected[::-1], atol=rtol * scale)
