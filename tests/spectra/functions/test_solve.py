"""Solutions: shapes in and out, preconditioners, what is refused, and metrics as operators."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gnjax
from gnjax.numerics.certificate import unknown
from gnjax.operators.factorisation import Factorisation
from tests.held_out.matrices import rotated

_NO_SMALL_SIDE = gnjax.Limits(whole_rows=1)
_MODEL = gnjax.models.MLP((4, 6, 2), activation="tanh", key=jax.random.key(0))
_X = np.asarray(jax.random.normal(jax.random.key(1), (7, 4)))


def _gauss_newton():
    return gnjax.gauss_newton(_MODEL, _X)


def _cross_kernel():
    return gnjax.ntk(_MODEL, _X[:2], _X)


def _matrix(op):
    return np.asarray(op.as_matrix(), float)


def test_variances_are_printed_with_their_range_and_their_largest_error():
    new = gnjax.factored(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    for answer, words in (
        (
            gnjax.predictive_variance(np.diag([4.0, 1.0]), new),
            "variances of 3 outputs from 0.25 to",
        ),
        (gnjax.inverse_diagonal(np.diag([4.0, 2.0])), "2 entries from 0.25 to 0.5"),
    ):
        assert str(answer).startswith(words)
        assert f"each to {answer.errors.max():.2g} (" in str(answer)


@pytest.mark.parametrize("limits", [gnjax.Limits(), _NO_SMALL_SIDE])
def test_trees_vectors_and_columns_come_out_as_they_went_in(limits):
    op, rng = _gauss_newton(), np.random.default_rng(0)
    matrix = _matrix(op) + 0.1 * np.eye(op.shape[0])
    for b in (rng.standard_normal(op.shape[0]), rng.standard_normal((op.shape[0], 3))):
        x = gnjax.solve(op, b, damping=0.1, limits=limits)
        assert x.value.shape == b.shape
        assert np.abs(x.value - np.linalg.solve(matrix, b)).max() <= x.error
        assert x.errors.shape == (1,) if b.ndim == 1 else (3,)
        assert x.error == x.errors.max()
        assert gnjax.answers.Solution.from_json(x.to_json()).value.tolist() == x.value.tolist()
    tree = op.unravel(b[:, 0])
    of_tree = gnjax.solve(op, tree, damping=0.1, limits=limits)
    assert jax.tree.structure(of_tree.value) == jax.tree.structure(tree)
    assert np.linalg.norm(op.ravel(of_tree.value) - x.value[:, 0]) <= of_tree.error + x.error


def test_damping_is_the_same_as_a_shift():
    op, b = _gauss_newton(), np.ones(44)
    one, other = gnjax.solve(op, b, damping=0.3), gnjax.solve(op + 0.1, b, damping=0.2)
    assert np.linalg.norm(one.value - other.value) <= one.error + other.error
    assert gnjax.logdet(op + 0.3).value == pytest.approx(gnjax.logdet(op, damping=0.3).value)
    whole = gnjax.effective_dimension(op + 0.1, damping=0.2).value
    values = gnjax.eigenvalues(op).values + 0.1
    assert whole == pytest.approx((values / (values + 0.2)).sum())


def test_a_metric_makes_conjugate_gradients_faster_and_changes_nothing_else():
    rng = np.random.default_rng(1)
    scales = 10.0 ** rng.uniform(-2, 2, 60)
    matrix = scales[:, None] * rotated(rng, rng.uniform(0.5, 2, 60)) * scales
    op, b = gnjax.dense(matrix), rng.standard_normal(60)
    exact = np.linalg.solve(matrix, b)
    options = {"rtol": 1e-8, "limits": _NO_SMALL_SIDE}
    alone = gnjax.solve(op, b, **options)
    helped = gnjax.solve(op, b, preconditioner=gnjax.diagonal(np.diagonal(matrix)), **options)
    assert helped.products * 3 < alone.products
    for x in (alone, helped):
        assert x.method == "conjugate gradients"
        assert np.linalg.norm(x.value - exact) <= x.error
    assert helped.finished


def test_what_is_not_reached_is_said():
    """A residual below the rounding of products is not finished, and the error tells the rest."""
    op = gnjax.dense(rotated(np.random.default_rng(2), 10.0 ** -np.linspace(0, 12, 20)))
    x = gnjax.solve(op, np.ones(20), rtol=1e-15, damping=1e-13, limits=_NO_SMALL_SIDE)
    assert not x.finished
    assert "NOT FINISHED" in str(x)


@pytest.mark.parametrize("limits", [gnjax.Limits(), _NO_SMALL_SIDE])
def test_predictive_variances_are_those_of_the_dense_inverse(limits):
    op, new = 7 * _gauss_newton(), gnjax.ntk(_MODEL, _X[:3] + 0.5)
    rows = np.asarray(new.factor())
    found = gnjax.predictive_variance(op, new, damping=0.3, limits=limits)
    exact = np.diagonal(rows @ np.linalg.inv(_matrix(op) + 0.3 * np.eye(44)) @ rows.T)
    assert (np.abs(found.values - exact) <= found.errors).all()
    assert (found.errors < 1e-6 * exact).all()
    assert found.finished


def test_an_error_of_the_rows_is_an_error_of_the_variance():
    """Both ends of the interval of a row: j^T A^{-1} j for j = 1 +- 0.1 and A = 2."""
    rows = gnjax.factored(np.array([[1.0]]), error=gnjax.Error(0.1))
    found = gnjax.predictive_variance(np.array([[2.0]]), rows)
    assert found.values[0] == pytest.approx(0.5)
    assert 1.1**2 / 2 - 0.5 <= found.errors[0] < 1.2**2 / 2 - 0.5
    unknown = gnjax.predictive_variance(np.eye(1), OfUnknownError())
    assert unknown.errors[0] == np.inf
    assert unknown.certificate.kind == "unknown"


class OfUnknownError:
    """A factor with an error that nobody states."""

    shape, dtype = (1, 1), np.dtype(float)

    def facts(self):
        factor = Factorisation((1, 1), lambda: np.ones((1, 1)), lambda: unknown("nobody knows"))
        return gnjax.operators.Facts(symmetric=True, factor=lambda: factor)

    def mv(self, v):
        return v

    def as_matrix(self):
        return np.eye(1)


_B = np.ones(3)
_REFUSED = {
    "singular": (lambda: gnjax.solve(np.diag([1.0, 0.0, 2.0]), _B), "singular as far as is known"),
    "of low rank": (lambda: gnjax.solve(gnjax.factored(np.ones((3, 1))), _B), "rank 1"),
    "indefinite": (lambda: gnjax.solve(np.diag([1.0, -1.0, 2.0]), _B), "not positive definite"),
    "too little damping": (
        lambda: gnjax.logdet(np.diag([1.0, -1.0, 2.0]), damping=0.5),
        "pass a damping above 1",
    ),
    "damping below by less than three digits show": (
        lambda: gnjax.solve(np.diag([1.0, -0.0100199, 2.0]), _B, damping=0.01),
        "is -0.0100199 .* above 0.0101$",  # 0.01 would be refused again
    ),
    "no damping": (lambda: gnjax.logdet(_gauss_newton()), "has no inverse and no logarithm"),
    "negative damping": (lambda: gnjax.solve(np.eye(3), _B, damping=-1.0), "is negative"),
    "damping nan": (lambda: gnjax.logdet(np.eye(3), damping=np.nan), "one finite number"),
    "no dimension": (lambda: gnjax.effective_dimension(np.eye(3), damping=0.0), "is then the rank"),
    "shape": (lambda: gnjax.solve(np.eye(3), np.ones(4)), r"got shape \(4,\)"),
    "shape of a network": (
        lambda: gnjax.solve(_gauss_newton(), np.ones(4), damping=1.0),
        r"takes a vector b \(44,\)",
    ),
    "tree": (lambda: gnjax.solve(np.eye(3), {"w": _B}), "got a tree"),
    "another tree": (
        lambda: gnjax.solve(_gauss_newton(), {"w": _B}, damping=1.0),
        "does not look like",
    ),
    "no right side": (lambda: gnjax.solve(np.eye(3), "gradient"), "got a str"),
    "nan in b": (lambda: gnjax.solve(np.eye(3), np.full(3, np.nan)), "b contains NaN"),
    "nan in A": (lambda: gnjax.logdet(np.full((3, 3), np.nan)), "NaN"),
    "complex": (lambda: gnjax.solve(np.eye(3), 1j * _B), "real"),
    "preconditioner": (
        lambda: gnjax.solve(np.eye(3), _B, preconditioner=np.eye(3)),
        "knows its inverse",
    ),
    "optimiser as preconditioner": (
        lambda: gnjax.solve(np.eye(3), _B, preconditioner=optax.adam(1e-3).init(_B)),
        r"optimizer_metric\(op, state, optimizer\).* got a tuple",
    ),
    "size of preconditioner": (
        lambda: gnjax.solve(np.eye(3), _B, preconditioner=gnjax.diagonal([1.0])),
        "has 1 rows",
    ),
    "rows": (
        lambda: gnjax.predictive_variance(np.eye(3), gnjax.factored(np.ones((2, 4)))),
        "rows of 3 numbers.* got a .* with rows of 4 numbers",
    ),
    "kernel with training samples": (
        lambda: gnjax.predictive_variance(_gauss_newton(), _cross_kernel(), damping=1.0),
        r"such as gnjax.ntk\(model, x_new\); got a CrossKernel",
    ),
    "no rows": (lambda: gnjax.predictive_variance(np.eye(3), np.eye(3)), "got a ndarray"),
    "rtol": (lambda: gnjax.solve(np.eye(3), _B, rtol=2.0), "rtol=2.0"),
    "f": (lambda: gnjax.trace_of("det", np.eye(3)), "one of log, inverse, sqrt"),
    "undefined f": (lambda: gnjax.trace_of(np.log10, np.diag([1.0, -1.0])), "not finite"),
    "shape of f": (lambda: gnjax.trace_of(np.sum, np.eye(3)), "of the same shape"),
    "method": (lambda: gnjax.logdet(np.eye(3), method="lanczos"), "method='lanczos'"),
    "probes": (lambda: gnjax.inverse_diagonal(np.eye(3), probes=1), "probes=1"),
    "few probes": (lambda: gnjax.logdet(np.eye(3), probes=9), "an integer of at least 10"),
    "few products": (lambda: gnjax.distance(np.eye(3), np.eye(3), probes=9), "of at least 10"),
    "no room": (
        lambda: gnjax.inverse_diagonal(np.eye(3), method="exact", limits=_NO_SMALL_SIDE),
        "use method='estimate'",
    ),
    "distance": (lambda: gnjax.distance(np.eye(3), np.eye(2)), "have one shape"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_cannot_be_answered_is_refused_in_words(case):
    call, words = _REFUSED[case]
    with pytest.raises(ValueError, match=words) as refused:
        call()
    assert str(refused.value).count("\n") == 0


def test_a_hessian_without_stated_sign_is_asked_for_its_smallest_eigenvalue():
    y = np.ones((7, 2))
    op = gnjax.hessian(_MODEL, _X, y)
    least = gnjax.eigenvalues(op).values[-1]
    assert least < 0
    with pytest.raises(ValueError, match="not positive definite"):
        gnjax.solve(op, np.ones(44), damping=-0.5 * least)
    for limits in (gnjax.Limits(), _NO_SMALL_SIDE):
        x = gnjax.solve(op, np.ones(44), damping=0.1 - least, limits=limits)
        exact = np.linalg.solve(_matrix(op) + (0.1 - least) * np.eye(44), np.ones(44))
        assert np.linalg.norm(x.value - exact) <= x.error < 1e-6


def test_a_large_error_of_a_semidefinite_matrix_is_no_reason_to_refuse():
    """Numbers of 8 bits inside leave eigenvalues in doubt, but none can be negative."""

    def model(w, x):
        return jnp.tanh((x @ w).astype(jnp.bfloat16)).astype(x.dtype)

    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((3, 2)), rng.standard_normal((12, 3))
    op = 12 * gnjax.gauss_newton((model, w), x)
    spectrum = gnjax.eigenvalues(op)
    damping = 0.1 * (spectrum.errors[-1] - spectrum.values[-1])
    assert damping > 0
    for f in ("log", "inverse", "sqrt"):
        exact = gnjax.trace_of(f, op, damping=damping)
        assert np.isfinite(exact.error)


def test_evidence_is_asked_for_by_limits():
    """A trace of a network whose rounding nobody measured has an unknown error."""
    for asked in ("log", "inverse"):
        trace = gnjax.trace_of(
            asked, _gauss_newton(), damping=1.0, limits=gnjax.Limits(evidence="none")
        )
        assert trace.certificate.kind == "unknown"


def _metrics():
    op = _gauss_newton()
    yield gnjax.metrics.kfac(op, damping=1e-3)
    yield gnjax.metrics.ekfac(op, damping=1e-3)
    _, params = gnjax.functional(_MODEL)
    gradient = jax.tree.map(lambda w: np.asarray(w) + 1.0, params)
    adam = optax.adam(1e-3)
    _, state = adam.update(gradient, adam.init(params))
    yield gnjax.metrics.optimizer_metric(op, state, adam)
    steps = jax.tree.map(lambda w: np.stack([w, np.ones_like(w)]), gradient)
    factors = gnjax.metrics.shampoo_factors(steps)
    yield gnjax.metrics.shampoo(op, factors, damping=1e-3)


def test_a_metric_is_an_operator():
    """It multiplies, and has trace, log det, eigenvalues, solutions, distance and a repr."""
    rng = np.random.default_rng(4)
    for metric in _metrics():
        p = _matrix(metric)
        norm, v = np.linalg.norm(p, 2), rng.standard_normal((44, 2))
        assert isinstance(metric, gnjax.Operator)
        assert np.abs(np.asarray(metric @ v) - p @ v).max() < 1e-12 * norm
        assert np.abs(np.asarray((2 * metric + 1) @ v) - 2 * p @ v - v).max() < 1e-12 * norm
        truth = np.linalg.eigvalsh(p)
        spectrum = gnjax.eigenvalues(metric)
        assert (np.abs(spectrum.values - truth[::-1]) <= spectrum.errors + 1e-14 * norm).all()
        trace = gnjax.trace(metric, method="exact")
        assert abs(trace.value - np.trace(p)) <= sum(e.value for e in trace.certificate.parts) + (
            1e-14 * norm
        )
        log = gnjax.logdet(metric)
        assert abs(log.value - np.log(truth).sum()) <= log.error + 1e-9
        x = gnjax.solve(metric, v)
        assert x.method == "stated"
        assert np.linalg.norm(x.value - np.linalg.solve(p, v), axis=0).max() <= x.error
        kappa = gnjax.condition_number(metric)
        assert kappa.value == pytest.approx(truth[-1] / truth[0])
        op = _gauss_newton()
        far, norm_of_g = gnjax.distance(op, metric), np.linalg.norm(_matrix(op))
        assert abs(far.value - np.linalg.norm(_matrix(op) - p) / norm_of_g) <= far.error + 1e-14
        by_factor = gnjax.distance(op, metric, limits=gnjax.Limits(whole_rows=14))
        assert by_factor.method == "factored"
        assert abs(by_factor.value - far.value) <= by_factor.error + far.error
        assert len(repr(metric).split("\n")) == 1
