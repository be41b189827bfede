"""What every operator and every method owes, whatever they are and in whichever precision.

Matrices small enough that numpy's eigenvalues in float64 are exact beside the errors stated.
"""

import math

import jax
import numpy as np
import pytest

import gnjax
from gnjax.conditioning.methods import METHODS
from gnjax.numerics.certificate import KINDS, MEASURED, PROVED, UNKNOWN
from gnjax.numerics.rank_bound import SHAPES
from gnjax.operators.facts import (
    error_of,
    factorisation_of,
    positivity_of,
    rank_of,
    symmetry_of,
    twin_of,
    unshifted_of,
)
from gnjax.papers.methods import METHODS as OF_LINEAR_NETWORKS
from tests.contracts.operators import Callers, CallersWithError, networks, stored

_KINDS = ("definite", "indefinite", "negative", "deficient", "zero", "one")
_PRECISIONS = {"float64": True, "float32": False}
_REFERENCE = 1e-14  # of the norm: numpy's eigenvalues of a matrix of at most 40 rows

pytestmark = pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")


def _cases(precision):
    with jax.enable_x64(_PRECISIONS[precision]):
        for kind in _KINDS:
            for name, op, exact in stored(kind):
                yield f"{kind}-{name}", op, exact
        yield from networks()


@pytest.fixture(params=_PRECISIONS, scope="module")
def cases(request):
    with jax.enable_x64(_PRECISIONS[request.param]):
        yield list(_cases(request.param))


def _truth(exact):
    return np.linalg.eigvalsh(exact)[::-1]


def _norm(exact):
    return float(np.abs(_truth(exact)).max())


def _kappa(exact):
    values = _truth(exact)
    rank = int((values > 1e-10 * max(values[0], 1e-300)).sum())
    return (values[0] / values[rank - 1], rank) if rank else (math.nan, 0)


def test_products_are_those_of_the_matrix(cases):
    rng = np.random.default_rng(0)
    for name, op, exact in cases:
        error = error_of(op, _norm(exact))
        assert error.kind in KINDS, name
        slack = 1e-5 if str(op.dtype) == "float32" else 1e-12
        block = rng.standard_normal((op.shape[0], 3)).astype(op.dtype)
        expected = exact @ block.astype(float)
        scale = slack * max(_norm(exact), 1e-300) * np.linalg.norm(block)
        assert np.linalg.norm(np.asarray(op.mv(block)) - expected) <= scale, name
        column = np.asarray(op.mv(block[:, 0]))
        assert np.linalg.norm(column - expected[:, 0]) <= scale, name
        assert np.linalg.norm(np.asarray(op.as_matrix()) - exact) <= slack * 40 * _norm(exact), name


def test_numpy_has_the_matrix_of_an_operator(cases):
    """An operator of a caller that is no gnjax.Algebra has no such way."""
    for name, op, _ in cases:
        if isinstance(op, gnjax.Algebra):
            assert np.array_equal(np.asarray(op), np.asarray(op.as_matrix())), name
            assert np.array(op, dtype=np.float64).dtype == np.float64, name
            assert np.linalg.norm(op) == np.linalg.norm(op.as_matrix()), name


def test_numpy_is_refused_a_matrix_beyond_the_limits():
    op = gnjax.diagonal(np.ones(gnjax.Limits().matrix_rows + 1))
    for each in (op, 2.0 * op):
        with pytest.raises(ValueError, match="forms its 20,001 x 20,001 matrix"):
            np.asarray(each)


def test_what_is_stored_is_within_the_stated_error(cases):
    """Of the matrix that the docstring names; what nobody states is unknown, never zero."""
    for name, op, exact in cases:
        error = error_of(op, _norm(exact))
        assert (error.kind == UNKNOWN) == ("callers" in name and "error" not in name), name
        distance = np.linalg.norm(np.asarray(op.as_matrix(), float) - exact, 2)
        assert distance <= error.value + _REFERENCE * _norm(exact), name


def test_factors_ranks_and_twins_are_of_the_same_matrix(cases):
    for name, op, exact in cases:
        _, rank = _kappa(exact)
        if "definite" in name or "deficient" in name:
            assert rank_of(op).value >= rank, name
        factor = factorisation_of(op)
        if factor is not None:
            formed = factor.form()
            assert formed.shape == factor.shape, name
            error = factor.error().value
            moved = (2 * np.linalg.norm(formed, 2) + error) * error
            assert np.linalg.norm(formed @ formed.T - exact, 2) <= moved + 1e-14 * _norm(exact), (
                name
            )
        twin = twin_of(op)
        assert twin.shape[0] <= op.shape[0], name
        small = np.linalg.eigvalsh(np.asarray(twin.as_matrix(), float))[::-1]
        slack = 1e-5 if str(op.dtype) == "float32" else 1e-13
        common = min(len(small), op.shape[0])
        if "hessian" not in name and "indefinite" not in name and "negative" not in name:
            gap = np.abs(small[:common] - _truth(exact)[:common]).max()
            assert gap <= slack * max(_norm(exact), 1e-300), name


def test_every_operator_has_the_algebra(cases):
    """Class: an operator that cannot be scaled, added, damped, multiplied or shown in one line."""
    rng = np.random.default_rng(1)
    for name, op, exact in cases:
        if type(op) in (Callers, CallersWithError):  # which inherit nothing
            continue
        slack = 100 * (1e-6 if str(op.dtype) == "float32" else 1e-14) * (1 + _norm(exact))
        eye, v = np.eye(len(exact)), rng.standard_normal((len(exact), 2))
        for made, expected in (
            (2 * op, 2 * exact),
            (op / 4, exact / 4),
            (-op, -exact),
            (op + 0.5, exact + 0.5 * eye),
            (op - 0.5 * op, exact / 2),
            (1 - op, eye - exact),
            (sum([op, op]), 2 * exact),
        ):
            assert isinstance(made, gnjax.Operator), name
            assert np.abs(np.asarray(made.as_matrix()) - expected).max() <= slack, name
            assert np.abs(np.asarray(made @ v) - expected @ v).max() <= slack * 10, name
        assert np.abs(np.asarray(v.T @ op) - v.T @ exact).max() <= slack * 10, name
        for shown in (repr(op), repr(2 * op + 1)):
            assert len(shown) < 200, name
            assert "\n" not in shown, name


def test_every_fact_has_its_evidence(cases):
    """Class: a fact on which an answer rests and which no part of its certificate names."""
    for name, op, _ in cases:
        symmetry, positivity = symmetry_of(op), positivity_of(op)
        for evidence in filter(None, (rank_of(op).evidence, symmetry, positivity)):
            assert (evidence.kind in KINDS, evidence.value) == (True, 0), (name, evidence)
            assert evidence.reason, (name, evidence)
        unstated = name.split("-")[-1].startswith("callers")
        assert (symmetry.kind == MEASURED) == unstated, name
        density = gnjax.spectral_density(op, probes=2, steps=2)
        assert symmetry in density.certificate.parts, name
        kappa = _answer(op, "auto", "ritz")
        if kappa is not None and kappa.rank_source == "analytic":
            stated = {SHAPES, rank_of(op).evidence, rank_of(twin_of(op)).evidence}
            assert stated & set(kappa.certificate.parts), (name, str(kappa))
        if kappa is not None and kappa.method == "damped":
            base, _ = unshifted_of(op)
            assert positivity_of(base) in kappa.certificate.parts, name


def test_every_eigenvalue_lies_within_its_error(cases):
    for name, op, exact in cases:
        found = gnjax.eigenvalues(op)
        truth = _truth(exact)
        assert len(found) == op.shape[0], name
        assert found.certificate.kind in KINDS, name
        off = np.abs(found.values - truth) - found.errors
        assert (off <= _REFERENCE * _norm(exact)).all(), (name, off.max())


def test_every_trace_lies_within_its_error(cases):
    """Class: an operator that states another trace than that of its matrix."""
    for name, op, exact in cases:
        found = gnjax.trace(op, method="exact")
        error = sum(part.value for part in found.certificate.parts)
        size = np.linalg.norm(exact, "nuc")
        assert abs(found.value - np.trace(exact)) <= error + _REFERENCE * size, (name, str(found))


def _answer(op, method, certify):
    """The answer, or None where the method refuses in words that say why."""
    try:
        return gnjax.condition_number(op, method=method, certify=certify)
    except ValueError as refused:
        reason = str(refused)
    known = ("method=", "not positive semidefinite", "one of size")
    assert any(words in reason for words in known), reason
    return None


@pytest.mark.parametrize("certify", ["ritz", "inertia"])
@pytest.mark.parametrize("method", ["auto", *(METHODS | OF_LINEAR_NETWORKS)])
def test_every_method_encloses_kappa_or_says_why_not(cases, method, certify):
    for name, op, exact in cases:
        kappa, rank = _kappa(exact)
        k = _answer(op, method, certify)
        if k is None:
            continue
        where = (name, str(k))
        if math.isnan(kappa):
            assert math.isnan(k.value) or k.certificate.kind == UNKNOWN, where
            assert not k.resolved, where
            continue
        if math.isnan(k.value):
            assert not k.resolved, where
            continue
        slack = 1 + 1e-12
        assert k.interval[0] <= kappa * slack, where
        assert kappa <= k.interval[1] * slack, where
        assert k.interval[0] <= k.at_rank[0] * slack <= k.at_rank[1] * slack**2, where
        if k.resolved:
            assert k.rank == rank, where
            assert k.certificate.kind != UNKNOWN, where
        if k.rank_source in ("gap", "floor") or k.certificate.kind == UNKNOWN:
            assert not k.resolved, where
            assert k.interval[1] == math.inf, where
        if k.confidence == 1:
            assert k.certificate.kind == PROVED, where
        assert str(k.certificate).split(",")[0].split(" ")[0].rstrip(":") in (*KINDS, "uncertified")


def test_what_lapack_computes_is_measured_and_what_inertia_proves_is_proved():
    op = gnjax.dense(np.diag([4.0, 2.0, 1.0]))
    assert gnjax.condition_number(op, method="dense").certificate.kind == MEASURED
    proved = gnjax.condition_number(op, method="dense", certify="inertia")
    assert (proved.certificate.kind, proved.confidence, proved.resolved) == (PROVED, 1.0, True)
    assert proved.interval[0] <= 4.0 <= proved.interval[1]


def _solution(op, b, damping, least):
    """The solution; None where the matrix is refused as singular or indefinite, in words."""
    try:
        return gnjax.solve(op, b, damping=damping)
    except ValueError as refused:
        reason = str(refused)
    assert "damping" in reason, reason
    assert least < 1e-3, reason
    return None


@pytest.mark.parametrize("damping", [0.0, 0.125, 6.0])
def test_solutions_and_functions_lie_within_their_errors(cases, damping):
    """Class: x with (A + s I) x = b, the inverse's diagonal, log det, tr A^-1, tr f(A)."""
    rng = np.random.default_rng(2)
    for name, op, exact in cases:
        shifted = exact + damping * np.eye(len(exact))
        truth = np.linalg.eigvalsh(shifted)
        least, norm = truth[0], _norm(exact) + damping
        b = rng.standard_normal((len(exact), 2)).astype(np.float32).astype(float)
        of_any = gnjax.trace_of(np.exp, op, damping=damping)
        assert abs(of_any.value - np.exp(truth).sum()) <= of_any.error * (1 + 1e-9) + 1e-9, name
        x = _solution(op, b, damping, least)
        if x is None:
            continue
        slack = 40 * _REFERENCE * norm / least
        expected = np.linalg.solve(shifted, b)
        far = np.linalg.norm(x.value - expected, axis=0)
        assert (far <= x.errors + slack * np.linalg.norm(expected, axis=0)).all(), (name, str(x))
        stated = sum(part.value for part in x.certificate.parts)
        assert x.error <= stated * (1 + 1e-9), name
        d = gnjax.inverse_diagonal(op, damping=damping)
        inverse = np.diagonal(np.linalg.inv(shifted))
        assert (np.abs(d.values - inverse) <= d.errors + slack * inverse).all(), name
        for f, of_f in (("log", np.log), ("inverse", np.reciprocal), ("sqrt", np.sqrt)):
            t = gnjax.trace_of(f, op, damping=damping)
            allowed = t.error + slack * np.abs(of_f(truth)).sum() + slack
            assert abs(t.value - of_f(truth).sum()) <= allowed, (name, str(t))
        for answer in (x, d, t):
            assert (answer.certificate.kind == UNKNOWN) == (
                "callers" in name and "error" not in name
            ), name


def test_a_matrix_is_at_no_distance_from_itself_and_from_zero_at_one(cases):
    for name, op, exact in cases:
        if not np.linalg.norm(exact):
            continue
        near = gnjax.distance(op, gnjax.dense(exact))
        assert near.value <= near.error + 1e-14, (name, str(near))
        far = gnjax.distance(op, gnjax.dense(np.zeros_like(exact)))
        assert abs(far.value - 1) <= far.error + 1e-14, (name, str(far))
