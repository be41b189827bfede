"""Traces: exact ones against numpy, random ones by their mean, their error and their definition."""

import math
from fractions import Fraction

import jax
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import gnjax
from gnjax import papers
from gnjax.operators.protocol import Operator
from gnjax.spectra.stochastic.probes import student
from gnjax.spectra.stochastic.tolerance import looks
from gnjax.spectra.trace import probe_stream, trace
from tests.held_out.matrices import rotated

_RANDOM = ("hutchinson", "hutch++", "xtrace")


class Products:
    """A symmetric matrix behind the protocol, which counts its products."""

    def __init__(self, matrix):
        self.matrix, self.count = jax.device_put(matrix), 0
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    def facts(self):
        return gnjax.operators.Facts(symmetric=True)  # so that no product is spent on a test of it

    def mv(self, v):
        self.count += 1 if v.ndim == 1 else v.shape[1]
        return self.matrix @ v

    def as_matrix(self):
        return self.matrix


def _matrix(eigenvalues, seed=0):
    return rotated(np.random.default_rng(seed), np.asarray(eigenvalues))


def _slow_xtrace(matrix, probes, seed):
    """Each t_i from a basis of its own, and the jackknife from estimates without each vector."""
    size = len(matrix)
    tests = probe_stream(seed).standard_normal((min(probes // 2, size), size)).T
    value, count = _slow_mean(matrix, tests), tests.shape[1]
    fewer = [_slow_mean(matrix, np.delete(tests, i, axis=1)) for i in range(count)]
    return value, math.sqrt(sum((value - less) ** 2 for less in fewer))


def _slow_mean(matrix, tests):
    (size, count), estimates = tests.shape, []
    for i in range(count):
        basis = np.linalg.qr(matrix @ np.delete(tests, i, axis=1))[0]
        rest = tests[:, i] - basis @ (basis.T @ tests[:, i])
        quotient = rest @ matrix @ rest / (rest @ rest)
        estimates.append(np.trace(basis.T @ matrix @ basis) + (size - count + 1) * quotient)
    return np.mean(estimates)


@given(size=st.sampled_from([1, 2, 5, 30]), seed=st.integers(0, 2**32 - 1))
def test_exact_is_the_sum_of_the_diagonal(size, seed):
    rng = np.random.default_rng(seed)
    a, j = rng.standard_normal((size, size)), rng.standard_normal((size, 3))
    for op in (gnjax.dense(a + a.T), gnjax.factored(j), Products(a + a.T)):
        t = trace(op, method="exact")
        np.testing.assert_allclose(t.value, np.trace(op.as_matrix()), rtol=1e-12, atol=1e-12)
        assert (t.standard_error, t.products) == (0.0, 0)


def test_exact_of_a_network_multiplies_traces():
    rng = np.random.default_rng(0)
    op = papers.linear_gauss_newton([rng.standard_normal(s) for s in ((9, 5), (8, 9), (4, 8))])
    t = trace(op, method="exact")
    np.testing.assert_allclose(t.value, np.trace(op.as_matrix()), rtol=1e-13)


def test_exact_of_a_large_unknown_operator_takes_n_products():
    diagonal = np.random.default_rng(0).standard_normal(1003)
    op = Products(np.diag(diagonal))
    t = trace(op, method="exact")
    np.testing.assert_allclose(t.value, diagonal.sum(), rtol=1e-12)
    assert t.products == op.count == 1003


@settings(max_examples=60)
@given(
    size=st.sampled_from([2, 3, 10, 40]),
    probes=st.integers(4, 60),
    spread=st.floats(0, 6),
    signs=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_xtrace_is_its_definition(size, probes, spread, signs, seed):
    """The two roads differ by rounding times the condition of A W, about that of A."""
    eigenvalues = np.geomspace(1, 10**-spread, size)
    eigenvalues[::2] *= -1 if signs else 1
    matrix = _matrix(eigenvalues, seed)
    t = trace(gnjax.dense(matrix), method="xtrace", probes=probes, seed=seed)
    value, error = _slow_xtrace(matrix, probes, seed)
    np.testing.assert_allclose(t.value, value, atol=1e-9 * size)
    expected = 0.0 if probes // 2 >= size else error
    np.testing.assert_allclose(t.standard_error, expected, atol=1e-8 * size)


@pytest.mark.parametrize("method", _RANDOM)
@pytest.mark.parametrize("signs", [1, -1])
def test_random_methods_are_unbiased(method, signs):
    """The mean of 400 runs is within 5 of its own standard errors."""
    eigenvalues = np.geomspace(3, 0.1, 30)
    eigenvalues[::2] *= signs
    op = gnjax.dense(_matrix(eigenvalues))
    values = [trace(op, method=method, probes=12, seed=seed).value for seed in range(400)]
    assert abs(np.mean(values) - eigenvalues.sum()) <= 5 * np.std(values) / 20


@pytest.mark.parametrize("method", _RANDOM)
def test_the_standard_error_is_that_of_the_value(method):
    """Over 200 runs: 5 errors cover nearly always, and the errors match the spread of values.

    XTrace's are an upper bound in the mean of squares, by 1.2 to 4 on spectra like this one.
    """
    eigenvalues = np.geomspace(1, 0.05, 80)
    op = gnjax.dense(_matrix(eigenvalues))
    runs = [trace(op, method=method, probes=30, seed=seed) for seed in range(200)]
    values, errors = (np.array([getattr(t, n) for t in runs]) for n in ("value", "standard_error"))
    assert (np.abs(values - eigenvalues.sum()) <= 5 * errors).mean() >= 0.97
    assert 0.7 <= np.sqrt((errors**2).mean()) / values.std() <= (4 if method == "xtrace" else 1.4)


_SPECTRA = {
    "flat": np.linspace(0.9, 1.1, 80),
    "geometric": 0.8 ** np.arange(80),
    "algebraic": 1 / (1 + np.arange(80.0)),
    "low rank": np.where(np.arange(80) < 8, 1.0, 0.0),
    "low rank and noise": np.where(np.arange(80) < 8, 1.0, 1e-3),
    "as many as vectors": np.where(np.arange(80) < 12, 1.0, 1e-4),
    "half rank": np.where(np.arange(80) < 30, 1.0, 1e-4),
    "outlier": np.where(np.arange(80) < 1, 100.0, 1.0),
    "indefinite": (-1.0) ** np.arange(80) / (1 + np.arange(80)) ** 0.5,
    "identity": np.ones(80),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_SPECTRA))
@pytest.mark.parametrize("method", _RANDOM)
def test_stated_errors_cover_as_often_as_documented(method, name):
    """80% within two standard errors or Student's half-width, less 3 sigma of 80 draws (0.134)."""
    eigenvalues = _SPECTRA[name]
    matrix = _matrix(eigenvalues)
    op, truth = gnjax.dense(matrix), np.trace(matrix)
    for probes in (24, 60):
        runs = [trace(op, method=method, probes=probes, seed=seed) for seed in range(80)]
        distances = np.array([abs(t.value - truth) for t in runs])
        rounding = np.array([_parts(t, random=False) for t in runs])
        spread = np.array([_parts(t, random=True) for t in runs])
        # 24 samples of the identity are equal, which may be chance
        kinds = ["unknown" if np.isinf(t.standard_error) else "measured" for t in runs]
        assert [t.certificate.kind for t in runs] == kinds
        twice = np.array([2 * t.standard_error for t in runs])
        assert rounding.max() <= 1e-12 * np.abs(eigenvalues).sum()
        assert (distances <= twice + rounding).mean() >= 0.8 - 0.134
        assert (distances <= spread + rounding).mean() >= 0.8 - 0.134


def _parts(t, *, random):
    """The sum of the parts of a certificate that are, or are not, the spread of samples."""
    return sum(p.value for p in t.certificate.parts if ("spread" in p.reason) == random)


@pytest.mark.parametrize("seed", range(5))
def test_exact_traces_of_what_is_stored_are_proved(seed):
    """Against many digits: the stored numbers, graded over 12 decades and of both signs."""
    rng = np.random.default_rng(seed)
    scales = 10 ** rng.uniform(-6, 6, 60)
    a = rng.standard_normal((60, 60)) * np.sqrt(np.outer(scales, scales))
    factor = a[:, :7]
    cases = [
        (gnjax.dense(a + a.T), math.fsum(2 * np.diag(a))),
        (gnjax.factored(factor), float(sum(Fraction(float(x)) ** 2 for x in factor.ravel()))),
    ]
    lefts, rights = [x @ x.T for x in rng.standard_normal((2, 4, 4))], [a[:5, :5] + a[:5, :5].T] * 2
    terms = zip(lefts, rights, strict=True)
    exact = sum(_fractions(left) * _fractions(right) for left, right in terms)
    cases.append((papers.sum_of_kroneckers(lefts, rights), float(exact)))
    for op, truth in cases:
        t = trace(op, method="exact")
        assert t.certificate.kind == "proved"
        assert t.certificate.confidence == 1.0
        bound = sum(part.value for part in t.certificate.parts)
        assert abs(t.value - truth) <= bound * (1 + 1e-6) + np.spacing(abs(truth))
        assert bound <= 1e-11 * float(np.abs(np.diag(op.as_matrix())).sum())


def _fractions(matrix):
    return sum(Fraction(float(x)) for x in np.diag(matrix))


def test_what_an_operator_states_of_itself_is_in_the_certificate():
    """n ||E|| for a matrix; for a factor (2 ||J||_F + ||E||_F) ||E||_F; else uncertified."""
    j = np.arange(12.0).reshape(4, 3)
    matrix = gnjax.operators.Dense(jax.device_put(j @ j.T), jax.device_put(1e-3))
    factor = gnjax.operators.Factored(jax.device_put(j), jax.device_put(1e-3))
    moved = 1e-3 * 3**0.5
    for op, bound in ((matrix, 4e-3), (factor, (2 * np.linalg.norm(j) + moved) * moved)):
        stated = trace(op, method="exact").certificate.parts[1]
        assert stated.kind == "proved"
        np.testing.assert_allclose(stated.value, bound)
    for method in ("exact", *_RANDOM):
        found = trace(Products(j @ j.T), method=method)
        assert found.certificate.kind == "unknown"
        assert "uncertified" in str(found)


@pytest.mark.parametrize("method", ["hutch++", "xtrace"])
def test_with_as_many_vectors_as_rows_only_rounding_is_left(method):
    for seed in range(20):
        eigenvalues = np.geomspace(1, 1e-8, 15) * (-1.0) ** np.arange(15)
        matrix = _matrix(eigenvalues, seed)
        t = trace(gnjax.dense(matrix), method=method, probes=50, seed=seed)
        assert t.standard_error == 0.0
        assert 0 < _parts(t, random=False) < 1e-12
        assert abs(t.value - math.fsum(np.diag(matrix))) <= _parts(t, random=False)


def test_decaying_spectra_favour_hutch_plus_plus_and_xtrace():
    """lambda_i = 0.8^i, 60 products: the tails start at 0.8^20 and 0.8^29."""
    eigenvalues = 0.8 ** np.arange(200)
    op, truth = gnjax.dense(_matrix(eigenvalues)), eigenvalues.sum()
    rms = {}
    for method in _RANDOM:
        values = [trace(op, method=method, probes=60, seed=seed).value for seed in range(20)]
        rms[method] = np.sqrt(np.mean((np.array(values) - truth) ** 2))
    assert rms["hutch++"] < rms["hutchinson"] / 20
    assert rms["xtrace"] < rms["hutch++"] / 3


@pytest.mark.parametrize("base", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("probes", [20, 100, 200])
def test_xtrace_past_the_numerical_rank(base, probes):
    """base^i falls below rounding before the products end: within 5 errors, or rounding."""
    eigenvalues = base ** np.arange(300)
    t = trace(gnjax.dense(_matrix(eigenvalues)), method="xtrace", probes=probes)
    assert abs(t.value - eigenvalues.sum()) <= 5 * t.standard_error + 1e-13
    assert t.products <= probes


@pytest.mark.parametrize("method", ["hutch++", "xtrace"])
@pytest.mark.parametrize("rank", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("size", [10, 40])
def test_low_rank_is_exact(method, rank, size):
    eigenvalues = np.zeros(size)
    eigenvalues[:rank] = np.linspace(1, 2, rank) * (-1) ** np.arange(rank)
    t = trace(gnjax.dense(_matrix(eigenvalues)), method=method, probes=60)
    np.testing.assert_allclose(t.value, eigenvalues.sum(), atol=1e-12)
    assert 0 <= t.standard_error <= 1e-12


@pytest.mark.parametrize("method", _RANDOM)
@pytest.mark.parametrize("probes", [3, 4, 100])
def test_one_by_one_and_zero(method, probes):
    one = trace(gnjax.dense([[-2.5]]), method=method, probes=probes)
    np.testing.assert_allclose(one.value, -2.5, rtol=1e-15)
    few = method == "hutchinson" and probes < 47  # which may be equal by chance
    assert one.standard_error == np.inf if few else one.standard_error <= 1e-15
    zero = trace(gnjax.dense(np.zeros((7, 7))), method=method, probes=probes)
    assert zero.value == 0
    assert not math.isnan(zero.standard_error)


@settings(max_examples=40)
@given(
    method=st.sampled_from(_RANDOM),
    size=st.sampled_from([1, 2, 10, 40]),
    probes=st.integers(3, 90),
)
def test_the_budget_is_kept_and_reported(method, size, probes):
    op = Products(_matrix(np.linspace(1, 2, size)))
    assert isinstance(op, Operator)
    t = trace(op, method=method, probes=probes)
    assert t.products == op.count <= probes
    assert math.isfinite(t.value)
    assert t.standard_error >= 0


@pytest.mark.parametrize("method", _RANDOM)
def test_seeds_decide(method):
    op = gnjax.dense(_matrix(np.linspace(1, 2, 50)))
    first, again, other = (trace(op, method=method, probes=20, seed=s) for s in (3, 3, 4))
    assert first == again
    assert first.value != other.value


def test_a_single_sample_has_no_error_estimate():
    op = gnjax.dense(_matrix(np.linspace(1, 2, 50)))
    for method, probes in (("hutchinson", 1), ("hutch++", 3), ("xtrace", 2)):
        assert trace(op, method=method, probes=probes).standard_error == math.inf


@pytest.mark.parametrize("method", [*_RANDOM, "exact"])
def test_single_precision_and_plain_arrays(method):
    matrix = _matrix(np.linspace(-1, 2, 20))
    single = trace(Products(matrix.astype(np.float32)), method=method, probes=30)
    double = trace(matrix, method=method, probes=30)
    np.testing.assert_allclose(single.value, double.value, atol=1e-4)
    assert method in str(double)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "magic"}, "hutch++"),
        ({"probes": 0}, "at least 1"),
        ({"probes": 2.5}, "at least 1"),
        ({"method": "hutch++", "probes": 2}, "at least 3"),
        ({"method": "xtrace", "probes": 1}, "at least 2"),
        ({"method": "xtrace", "rtol": 0.1}, "takes a number of probes"),
        ({"rtol": 0.0}, "between 0 and 1"),
        ({"rtol": "0.1"}, "between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words.replace("+", r"\+")):
        trace(gnjax.dense(np.eye(3)), **arguments)


@pytest.mark.parametrize("method", [*_RANDOM, "exact"])
def test_products_that_are_not_finite_are_refused(method):
    with pytest.raises(ValueError, match="NaN or Inf"):
        trace(Products(np.full((4, 4), np.nan)), method=method)


@pytest.mark.parametrize("method", ["exact", *_RANDOM])
@pytest.mark.parametrize("form", ["products", "sparse", "dense"])
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_the_error_of_the_matrix_does_not_cancel_with_the_trace(form, method):
    """Narrowed to 32 bits, entries of both signs lose as much as entries of one."""
    diagonal = np.r_[np.full(50, 0.1), np.full(50, -0.1) * (1 + 3e-8)]
    matrix = scipy.sparse.diags_array(diagonal)
    forms = {"products": aslinearoperator(matrix), "sparse": matrix.tocsr()}
    with jax.enable_x64(False):
        if form == "dense":
            op = gnjax.dense(matrix.toarray())
        else:
            op = gnjax.as_operator(forms[form], error=0.0)
        t = trace(op, method=method)
    assert abs(t.value - diagonal.sum()) <= sum(part.value for part in t.certificate.parts)


def test_the_chance_that_a_stated_trace_is_wrong_is_that_of_the_answer():
    class Stated(Products):
        def facts(self):
            error = gnjax.Error(1e-3, "probable", failure=0.25)
            return gnjax.operators.Facts(symmetric=True, error=0.0, trace=lambda: (3.0, error))

    t = trace(Stated(np.diag([2.0, 1.0])), method="exact")
    assert (t.certificate.kind, t.certificate.failure) == ("probable", 0.25)
    assert t.certificate.confidence == 0.75


def test_two_samples_that_happen_to_be_equal_are_not_called_exact():
    swapped = np.array([[0.0, 1.0], [1.0, 0.0]])
    for scale, probes in ((1.0, 2), (0.1, 3)):  # the mean of three equal samples is rounded
        runs = [trace(scale * swapped, probes=probes, seed=seed) for seed in range(20)]
        assert any(np.isinf(t.standard_error) for t in runs)
        assert all(sum(part.value for part in t.certificate.parts) >= abs(t.value) for t in runs)
    diagonal = trace(np.diag([2.0, 1.0]))  # a hundred equal samples
    assert diagonal.certificate.kind == "measured"
    assert "100 samples" in str(diagonal.certificate)
    for method in ("hutch++", "xtrace"):  # nothing is random
        assert "samples" not in str(trace(swapped, method=method, probes=100).certificate)


def test_samples_that_take_one_value_three_times_of_four_are_not_called_exact():
    """A form of the second degree: 2 (g_1 g_2 + g_1 g_3 + g_2 g_3) is -2, or 6 for equal signs.

    Twenty samples are equal in one draw of 300, and the trace is zero.
    """
    triangle = np.ones((3, 3)) - np.eye(3)
    runs = [trace(triangle, probes=20, seed=seed) for seed in range(600)]
    equal = [t for t in runs if np.ptp([t.value, -2.0]) < 1e-12]
    assert equal
    assert all(np.isinf(t.standard_error) for t in equal)
    assert all(t.certificate.kind == "unknown" for t in equal)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(_SPECTRA))
def test_a_trace_to_a_tolerance_is_as_often_right_as_stated(name):
    """The error that a sequence of looks states covers 95% of 150 draws, less 3 sigma (0.053).

    The samples are not normal, so that Student's half-width of a fixed number covers less often on
    some of these spectra; that of all looks together does not.
    """
    matrix = _matrix(_SPECTRA[name])
    op, truth = gnjax.dense(matrix), np.trace(matrix)
    for rtol in (0.3, 0.1):
        runs = [trace(op, rtol=rtol, probes=1000, seed=seed) for seed in range(150)]
        reached = [t for t in runs if t.converged]
        covered = [abs(t.value - truth) <= _error(t) for t in runs]
        assert np.mean(covered) >= 0.95 - 0.053
        assert all(_error(t) <= rtol * abs(t.value) for t in reached)
        # of all draws; of those few that end early by chance a larger share may be beside
        wrong = [t for t in reached if abs(t.value - truth) > rtol * abs(t.value)]
        assert len(wrong) <= (0.05 + 0.053) * len(runs)
        if name != "indefinite":  # its trace is small beside its norm
            assert len(reached) == len(runs)


def _error(t):
    """The whole error that a trace states."""
    return _parts(t, random=True) + _parts(t, random=False)


def test_a_tolerance_takes_as_many_vectors_as_it_needs():
    matrix = _matrix(0.9 ** np.arange(60))
    counts = []
    for rtol in (0.5, 0.1, 0.02):
        op = Products(matrix)
        answer = trace(op, rtol=rtol)
        assert answer.converged
        assert _parts(answer, random=True) <= rtol * answer.value
        assert op.count == answer.products
        counts.append(answer.products)
    assert counts[0] < counts[1] < counts[2] < 10_000
    assert counts[0] in (16, 32)
    short = trace(gnjax.dense(matrix), rtol=0.02, probes=20)
    assert (short.products, short.converged) == (20, False)
    assert "NOT CONVERGED" in str(short)
    assert _error(short) > 0.02 * short.value
    # the half-width of three looks at 20 samples is wider than that of 20 samples fixed beforehand
    fixed = trace(gnjax.dense(matrix), probes=20)
    assert fixed.value == short.value
    assert _parts(short, random=True) > 1.1 * _parts(fixed, random=True)
    assert trace(gnjax.dense(matrix), method="exact", rtol=1e-6).converged


def test_the_looks_double_and_share_the_chance():
    assert looks(100, 0.1) == [16, 32, 64, 100]
    assert looks(16, 0.1) == [16]
    assert looks(5, 0.1) == [5]
    assert looks(100, None) == [100]
    for samples, number in ((16, 4), (200, 7)):
        chance = 2 * scipy.stats.t.sf(student(samples, number), samples - 1)
        assert chance == pytest.approx(0.05 / number)
