"""Operators of every kind, each beside the matrix that it stands for."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import gnjax
from gnjax import papers
from tests.references import hessian, jacobian

SIZE = 6


@dataclass(frozen=True)
class Callers:
    """An operator as a caller writes one: the four things that are required, and nothing else."""

    matrix: jax.Array

    @property
    def shape(self):
        return self.matrix.shape

    @property
    def dtype(self):
        return self.matrix.dtype

    def mv(self, v):
        return self.matrix @ v

    def as_matrix(self):
        return self.matrix


@dataclass(frozen=True, repr=False)
class CallersWithAlgebra(gnjax.Algebra, Callers):
    """The same with the algebra of all operators, inherited."""


@dataclass(frozen=True)
class CallersWithError(Callers):
    """The same with its error stated as a number."""

    error_of_entries: float = 1e-6

    def facts(self):
        return gnjax.operators.Facts(error=self.error_of_entries)


def _rotation(size, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def matrix(kind):
    """A symmetric matrix of a kind, with entries that are exact in float32 too."""
    values = {
        "definite": np.array([5.0, 3.0, 2.0, 1.0, 0.5, 0.25]),
        "indefinite": np.array([2.0, 1.0, 0.5, -0.25, -1.0, -3.0]),
        "negative": -np.array([0.25, 0.5, 1.0, 2.0, 3.0, 5.0]),
        "deficient": np.array([4.0, 2.0, 1.0, 0.0, 0.0, 0.0]),
        "zero": np.zeros(SIZE),
        "one": np.array([2.5]),
    }[kind]
    basis = _rotation(len(values), 3)
    full = (basis * values) @ basis.T
    return np.asarray((full + full.T) / 2, np.float32).astype(float)


def _factor(kind):
    """J (6, 8) of the rank of the kind: exact integers, so that the rank is exact too."""
    rng = np.random.default_rng(4)
    if kind == "definite":
        return rng.integers(-3, 4, (SIZE, 8)).astype(float)
    if kind == "deficient":
        return (rng.integers(-2, 3, (SIZE, 3)) @ rng.integers(-2, 3, (3, 8))).astype(float)
    return {"zero": np.zeros((SIZE, 8)), "one": np.array([[1.5, 2.0]])}[kind]


def _weights():
    rng = np.random.default_rng(6)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3), (4, 4), (2, 4))]


def _linear_matrix(weights):
    first, second, third = (w.astype(float) for w in weights)
    pairs = [
        (third @ second, np.eye(3)),
        (third, first.T),
        (np.eye(2), (second @ first).T),
    ]
    return sum(np.kron(s @ s.T, t @ t.T) for s, t in pairs)


def _network():
    """A network whose weights and inputs are exact in float32."""
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    x = np.random.default_rng(8).standard_normal((3, 3)).astype(np.float32)
    apply, params = gnjax.functional(model)
    return (apply, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)), x


def _references(apply, params, x, y):
    """J and the Hessian of the mean loss, by automatic differentiation in float64."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        inputs, targets = np.asarray(x, np.float64), np.asarray(y, np.float64)

        def loss(p):
            return jnp.square(apply(p, inputs) - targets).sum() / (2 * len(x))

        return np.asarray(jacobian(apply, wide, inputs)), hessian(loss, wide)


def stored(kind):
    """(name, operator, matrix) for operators of stored numbers that can be of the kind."""
    exact = matrix(kind)
    yield "dense", gnjax.dense(exact), exact
    entries = np.diagonal(exact)
    yield "diagonal", gnjax.diagonal(entries), np.diag(entries)
    yield "callers", Callers(jax.device_put(exact)), exact
    yield "callers_with_error", CallersWithError(jax.device_put(exact)), exact
    yield "callers_with_algebra", CallersWithAlgebra(jax.device_put(exact)), exact
    yield "sparse", gnjax.as_operator(scipy.sparse.csr_array(exact)), exact
    yield "callers_box", gnjax.as_operator(aslinearoperator(exact)), exact
    yield "callers_box_with_error", gnjax.as_operator(aslinearoperator(exact), error=1e-6), exact
    op, eye = gnjax.dense(exact), np.eye(len(exact))
    yield "scaled", 0.75 * op, 0.75 * exact
    yield "turned_round", -op, -exact
    yield "raised", op + 0.5, exact + 0.5 * eye
    yield "difference", 3 * op - 2 * op, exact  # terms far longer than the whole
    yield "callers_sum", op + Callers(jax.device_put(exact)), 2 * exact
    yield "callers_with_error_sum", op + CallersWithError(jax.device_put(exact)), 2 * exact
    if kind not in ("indefinite", "negative"):
        factor = _factor(kind)
        yield "factored", gnjax.factored(factor), factor @ factor.T
        scaled = 0.3 * gnjax.factored(factor)
        yield "scaled_factored", scaled, 0.3 * (factor @ factor.T)
        yield "damped", gnjax.factored(factor) + 0.25, factor @ factor.T + 0.25 * eye
        yield "sum", scaled + gnjax.factored(factor) / 8, (0.3 + 1 / 8) * (factor @ factor.T)
    if kind in ("definite", "deficient"):
        small = np.array([[2.0, 1.0], [1.0, 2.0]])
        kroneckers = papers.sum_of_kroneckers([small, np.eye(2)], [exact, exact])
        yield "kroneckers", kroneckers, np.kron(small + np.eye(2), exact)


def networks():
    """(name, operator, matrix) for networks, the matrix by automatic differentiation."""
    weights = _weights()
    linear = papers.linear_gauss_newton(weights)
    yield "linear", linear, _linear_matrix(weights)
    yield "scaled_linear", 0.3 * linear, 0.3 * _linear_matrix(weights)
    yield "damped_linear", linear + 1e-3, _linear_matrix(weights) + 1e-3 * np.eye(linear.shape[0])
    (apply, params), x = _network()
    n = len(x)
    y = np.random.default_rng(9).standard_normal((n, 2)).astype(np.float32)
    j, full = _references(apply, params, x, y)
    model = (apply, params)
    small = j.T @ j / n
    op = gnjax.gauss_newton(model, x, side="parameters")
    yield "gauss_newton", op, small
    yield "linearised", gnjax.linearised(op), small
    yield "with_jacobian", gnjax.with_jacobian(op), small
    yield "outputs", gnjax.gauss_newton(model, x, side="outputs"), j @ j.T / n
    yield "ntk", gnjax.ntk(model, x), j @ j.T
    yield "scaled_gauss_newton", 2 * op, 2 * small
    yield "damped_gauss_newton", op + 1e-2, small + 1e-2 * np.eye(len(small))
    yield "sum_hessian", op + gnjax.functional_hessian(model, x, y), full
    yield "hessian", gnjax.hessian(model, x, y), full
    yield "functional_hessian", gnjax.functional_hessian(model, x, y), full - small
