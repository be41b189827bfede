"""The sharpness family of a monitor, each member by dense matrices and on quadratics."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gnjax
from tests.references import hessian

RNG = np.random.default_rng(7)
X = RNG.standard_normal((12, 3))
Y = RNG.standard_normal((12, 2))
W = {"a": RNG.standard_normal((3, 3)) / 2, "b": RNG.standard_normal((3, 2))}
OPTIONS = {"kappa": False, "gauss_newton": False}


def network(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


def linear(params, x):
    return x @ params["b"]


def mean_loss(apply, x, y):
    return lambda params: 0.5 * ((apply(params, x) - y) ** 2).sum() / len(x)


def slope(function, params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(function)(params))])


def row_of(apply, params, *names, update=None, rate=None, **options):
    monitor = gnjax.Monitor(X, Y, measures=names, **OPTIONS, **options)
    return monitor(0, (apply, params), update=update, rate=rate)


def test_batch_sharpness_is_that_of_the_dense_matrices_of_batches():
    row = row_of(network, W, "batch_sharpness", batch_samples=5)  # two batches, two samples left
    above, below = 0.0, 0.0
    for part in (slice(0, 5), slice(5, 10)):
        loss = mean_loss(network, X[part], Y[part])
        g = slope(loss, W)
        above += g @ np.asarray(hessian(loss, W)) @ g
        below += g @ g
    assert abs(row.batch_sharpness - above / below) <= row.batch_sharpness_error
    assert row.batch_sharpness_error < 1e-10 * row.batch_sharpness


def test_batch_sharpness_of_all_samples_is_the_curvature_along_the_gradient():
    loss = mean_loss(network, X, Y)
    update = jax.tree.map(lambda leaf: -0.1 * leaf, jax.grad(loss)(W))
    row = row_of(network, W, "batch_sharpness", batch_samples=12, update=update)
    assert row.batch_sharpness == pytest.approx(row.directional, rel=1e-12)


def test_the_driving_eigenvalue_is_the_quotient_of_the_kernel_and_the_rate_of_the_loss():
    row = row_of(network, W, "driving_eigenvalue")
    kernel = np.asarray(gnjax.ntk((network, W), X).as_matrix()) / len(X)
    r = np.asarray(network(W, X) - Y).ravel()
    assert abs(row.driving_eigenvalue - r @ kernel @ r / (r @ r)) <= row.driving_eigenvalue_error
    assert row.driving_eigenvalue_error < 1e-10 * row.driving_eigenvalue
    loss = mean_loss(network, X, Y)
    gradient = slope(loss, W)
    rate_of_loss = gradient @ gradient / float(loss(W))  # -d log L / dt
    assert row.driving_eigenvalue == pytest.approx(rate_of_loss / 2, rel=1e-12)


def test_critical_sharpness_is_the_curvature_along_the_step_on_a_quadratic():
    """L(w - eta g) = L - eta |g|^2 + eta^2 / 2 g^T H g; along u it is g^T u that counts."""
    params, loss = {"b": W["b"]}, mean_loss(linear, X, Y)
    g, h = slope(loss, params), np.asarray(hessian(loss, params))
    row = row_of(linear, params, "critical_sharpness")
    assert abs(row.critical_sharpness - g @ h @ g / (g @ g)) <= row.critical_sharpness_error
    assert row.critical_sharpness_error < 1e-3 * row.critical_sharpness
    u = -0.01 * np.sign(g)
    update = {"b": u.reshape(3, 2)}
    row = row_of(linear, params, "critical_sharpness", update=update, rate=0.01)
    expected = (u @ h @ u) / (0.01 * -(g @ u))
    assert abs(row.critical_sharpness - expected) <= row.critical_sharpness_error


def test_critical_sharpness_is_where_the_loss_comes_back():
    loss = mean_loss(network, X, Y)
    gradient = jax.grad(loss)(W)
    row = row_of(network, W, "critical_sharpness")
    for value, larger in (
        (row.critical_sharpness - row.critical_sharpness_error, True),
        (row.critical_sharpness + row.critical_sharpness_error, False),
    ):
        moved = jax.tree.map(lambda leaf, g, eta=2 / value: leaf - eta * g, W, gradient)
        assert (float(loss(moved)) > float(loss(W))) == larger


def test_a_step_that_raises_the_loss_at_once_has_no_critical_step():
    loss = mean_loss(network, X, Y)
    upwards = jax.tree.map(lambda leaf: 0.1 * leaf, jax.grad(loss)(W))
    row = row_of(network, W, "critical_sharpness", update=upwards, rate=0.1)
    assert row.critical_sharpness > 1e6
    assert row.critical_sharpness_error == np.inf


def test_sign_sharpness_is_the_best_corner_of_a_small_cube():
    params = {"b": W["b"]}
    h = np.asarray(hessian(mean_loss(linear, X, Y), params))
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=6)))
    best = np.einsum("ci,ij,cj->c", corners, h, corners).max()
    row = row_of(linear, params, "sign_sharpness", rtol=1e-6)
    assert row.sign_sharpness <= best + row.sign_sharpness_error
    assert row.sign_sharpness > 0.95 * best
    assert row.sign_sharpness >= row.sharpness - row.sharpness_error  # the ball holds that of |d|


def test_spectral_sharpness_is_the_best_rotation_of_a_small_matrix():
    """The convex d^T H d is largest at an orthogonal matrix: a rotation or a reflection."""
    params = {"b": np.eye(2) + 0.0}
    x, y = X[:, :2], Y
    h = np.asarray(hessian(mean_loss(linear, x, y), params))
    angles = np.linspace(0, 2 * np.pi, 2001)
    c, s = np.cos(angles), np.sin(angles)
    matrices = [np.stack([c, sign * -s, s, sign * c], axis=1) for sign in (1, -1)]
    best = max(np.einsum("ci,ij,cj->c", m, h, m).max() for m in matrices)
    monitor = gnjax.Monitor(x, y, measures=["spectral_sharpness"], rtol=1e-8, **OPTIONS)
    row = monitor(0, (linear, params))
    assert row.spectral_sharpness <= best * (1 + 1e-5)
    assert row.spectral_sharpness > 0.95 * best
    assert monitor(1, (linear, params)).spectral_sharpness >= row.spectral_sharpness * (1 - 1e-12)


@pytest.mark.parametrize("name", ["sign_sharpness", "spectral_sharpness"])
def test_the_value_in_a_norm_is_that_of_a_vector_in_its_ball(name):
    row = row_of(network, W, name)
    h = np.asarray(hessian(mean_loss(network, X, Y), W))
    bound = np.abs(h).sum() if name == "sign_sharpness" else np.linalg.eigvalsh(h)[-1] * (3 + 2)
    assert 0 < row[name] <= bound  # a matrix of spectral norm 1 and rank r has |d|^2 at most r
    assert row[f"{name}_error"] < 1e-10 * row[name]
    assert row.products > 2


def test_rows_with_the_family_are_saved_and_printed():
    row = row_of(network, W, "batch_sharpness", "driving_eigenvalue", batch_samples=4)
    assert gnjax.MonitorRow.from_json(row.to_json()) == row
    assert "driving-eigenvalue" in str(row)
    assert {"batch_sharpness", "batch_sharpness_error"} <= set(row.numbers())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": ["sharpest"]}, "are not some of batch_sharpness"),
        ({"measures": ["batch_sharpness"]}, "batch_samples= together"),
        ({"batch_samples": 3}, "batch_samples= together"),
    ],
)
def test_settings_of_the_family_without_a_meaning_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gnjax.Monitor(X, Y, **options)


def test_what_cannot_be_measured_is_refused():
    mask = jax.tree.map(lambda leaf: leaf > 0, W)
    with pytest.raises(ValueError, match="of whole matrices"):
        row_of(network, W, "spectral_sharpness", mask=mask)
    with pytest.raises(ValueError, match="batch_samples=13 is not between"):
        row_of(network, W, "batch_sharpness", batch_samples=13)
    with pytest.raises(ValueError, match="these are coupled"):
        row_of(network, W, "batch_sharpness", batch_samples=3, coupled=True)
    with pytest.raises(ValueError, match="pass rate= with update="):
        row_of(network, W, "critical_sharpness", update=W)
