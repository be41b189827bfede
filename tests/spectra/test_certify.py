"""Eigenpairs of anyone: intervals hold, copies and gaps show, the unknown is not claimed."""

import itertools

import jax
import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import aslinearoperator, eigsh

import gnjax
from gnjax.numerics.certificate import UNKNOWN
from tests.held_out.matrices import rotated

_N = 40


def _spectrum(kind):
    rng = np.random.default_rng(3)
    return {
        "spread": np.linspace(-1.0, 2.0, _N),
        "decaying": 10.0 ** -np.linspace(0, 9, _N),
        "repeated": np.repeat([3.0, 2.0, 1.0, -1.0], _N // 4),
        "deficient": np.concatenate([[5.0, 4.0, 4.0], np.zeros(_N - 3)]),
        "normal": rng.standard_normal(_N),
        "close": np.concatenate([[1.0, 1.0 - 1e-9, 1.0 - 2e-9], np.zeros(_N - 3) + 0.5]),
    }[kind]


_KINDS = ("spread", "decaying", "repeated", "deficient", "normal", "close")


def _matrix(kind, seed=0):
    return rotated(np.random.default_rng(seed), np.sort(_spectrum(kind))[::-1])


def _one_to_one(intervals, truth, slack):
    """Whether each interval can have an eigenvalue of its own: greedily, by their upper ends."""
    left = list(np.sort(truth))
    for low, high in sorted(intervals, key=lambda ends: ends[1]):
        inside = next((value for value in left if low - slack <= value <= high + slack), None)
        if inside is None:
            return None
        left.remove(inside)
    return left


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-3, 0.3])
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_intervals_rest_and_angles_hold_for_vectors_of_any_quality(kind, noise, single):
    """Against LAPACK's spectrum: every eigenvalue is in an interval of its own or in the rest."""
    rng = np.random.default_rng(7)
    matrix = _matrix(kind)
    truth, columns = np.linalg.eigh(matrix)
    slack = 1e-14 * np.abs(truth).max()  # LAPACK's own error
    for chosen in ([39, 38, 37], [0, 1], [39, 0, 20], [5], [10, 30, 31, 32, 33]):
        rows = columns[:, chosen].T
        rows = rows + noise * rng.standard_normal(rows.shape) / _N**0.5
        with jax.enable_x64(not single):
            pairs = gnjax.certify(matrix, rows)
        assert pairs.independent == len(chosen)
        left = _one_to_one(pairs.intervals, truth, slack)
        assert left is not None
        low, high = pairs.rest
        spare = sum(not low - slack <= value <= high + slack for value in truth)
        assert spare <= len(chosen)
        least, most = pairs.intervals.min(), pairs.intervals.max()
        assert pairs.missed_above <= max(0, (truth >= least - slack).sum() - len(chosen))
        assert pairs.missed_below <= max(0, (truth <= most + slack).sum() - len(chosen))
        if noise <= 1e-3 and pairs.are_largest:
            assert sorted(chosen) == list(range(_N - len(chosen), _N)) or kind in (
                "repeated",
                "deficient",
            )
        for index, (row, angle) in enumerate(zip(rows, pairs.angles, strict=True)):
            if np.isfinite(angle):
                cosine = np.abs(columns.T @ row).max() / np.linalg.norm(row)
                sine = np.sqrt(max(0.0, 1 - cosine**2))
                assert sine <= np.sin(angle) + 1e-7, index  # the root of a rounding error


def _others_outside(pairs, truth):
    """How many eigenvalues are outside of the rest if the pairs take as many of those as they can.

    Each pair takes one eigenvalue in its interval.
    """
    low, high = pairs.rest
    is_outside = (truth < low - 1e-13) | (truth > high + 1e-13)
    distances = np.abs(pairs.values[:, None] - truth)
    costs = np.where(distances <= pairs.errors[:, None] + 1e-13, 1.0 - is_outside, 1e3)
    taken = linear_sum_assignment(costs)
    assert costs[taken].max() <= 1
    return is_outside.sum() - is_outside[taken[1]].sum()


def test_an_eigenvalue_of_no_pair_is_in_the_rest_however_bad_the_vectors_are():
    """Eigenvalues near those on the space of the vectors need not be in intervals of the pairs."""
    cases = [
        (np.diag([1.0, 0, 0, 0]), [[-1.0, 3, -2, -1], [-1, -2, 2, 2]], None),
        (np.diag([0.0, 1.0]), [[0.98, 0.199]], [2.0]),
    ]
    rng = np.random.default_rng(0)
    for _ in range(100):
        count = rng.integers(1, 4)
        diagonal = rng.choice([0.0, 1.0, 2.0, -1.0], 5) * rng.uniform(0.9, 1.1)
        rows = rng.standard_normal((count, 5)) * 10.0 ** rng.integers(-3, 1, 5)
        cases.append(
            (np.diag(diagonal), rows, None if rng.integers(2) else rng.uniform(-1, 2, count))
        )
    for matrix, rows, values in cases:
        pairs = gnjax.certify(matrix, rows, values=values)
        assert _others_outside(pairs, np.linalg.eigvalsh(matrix)) == 0


def test_the_rest_stays_apart_from_pairs_that_are_known_to_be_their_eigenvalues():
    """Three largest eigenpairs, to different accuracy, with and without others inside."""
    matrix = _matrix("spread")
    truth, columns = np.linalg.eigh(matrix)
    rows = columns[:, [39, 38, 37]].T + np.diag([1e-9, 1e-6, 1e-3]) @ columns[:, :3].T
    for more in ([], [20], [20, 25]):
        pairs = gnjax.certify(matrix, np.concatenate([rows, columns[:, more].T]))
        assert truth[36] <= pairs.rest[1] < truth[37]
        assert pairs.are_largest == (not more)


@pytest.mark.parametrize("which", ["LA", "SA"])
def test_pairs_from_arpack_are_the_outermost_where_nothing_is_missing(which):
    matrix = scipy.sparse.diags_array(np.arange(1.0, 501.0))
    values, columns = eigsh(matrix, k=4, which=which, v0=np.ones(500))
    pairs = gnjax.certify(matrix, columns.T, values)
    assert (pairs.are_largest, pairs.are_smallest) == (which == "LA", which == "SA")
    assert pairs.errors.max() < 1e-9
    assert pairs.angles.max() < 1e-9
    assert 0 < pairs.certificate.failure <= 1e-3


def test_ritz_values_that_are_in_no_spectrum_have_errors_as_large_as_their_distance():
    """Four steps of Lanczos, as partial decompositions of other libraries return them."""
    draw = np.random.default_rng(1).standard_normal((10, 10))
    matrix, start = draw + draw.T, np.random.default_rng(2).standard_normal(10)
    powers = np.stack([np.linalg.matrix_power(matrix, i) @ start for i in range(4)])
    basis = np.linalg.qr(powers.T)[0].T
    values, columns = np.linalg.eigh(basis @ matrix @ basis.T)
    pairs = gnjax.certify(matrix, columns.T @ basis, values)
    truth = np.linalg.eigvalsh(matrix)
    distances = np.abs(np.subtract.outer(values, truth)).min(axis=1)
    assert distances.max() > 0.1  # such as matter
    assert (pairs.errors >= distances).all()
    assert pairs.errors.max() < 2 * np.abs(truth).max()


def test_a_copy_of_a_repeated_eigenvalue_that_is_missing_is_counted():
    """The Laplacian of a cycle has almost all of its eigenvalues twice."""
    n = 60
    matrix = scipy.sparse.diags_array(
        [-np.ones(1), -np.ones(n - 1), 2 * np.ones(n), -np.ones(n - 1), -np.ones(1)],
        offsets=[1 - n, -1, 0, 1, n - 1],
    )
    columns = np.linalg.eigh(matrix.toarray())[1][:, ::-1]
    all_of_them = gnjax.certify(matrix, columns[:, :5].T)
    assert all_of_them.are_largest
    assert all_of_them.missed_above == 0
    once = gnjax.certify(matrix, columns[:, [0, 1, 3]].T)
    assert once.are_largest is False
    assert once.missed_above == 1
    assert "MISSED" in str(once)


def test_copies_of_one_vector_are_no_eigenpairs_of_their_own():
    matrix = _matrix("spread")
    vector = np.linalg.eigh(matrix)[1][:, -1]
    pairs = gnjax.certify(matrix, [vector, -2 * vector, vector + 1e-12])
    assert pairs.independent == 1
    assert pairs.are_largest is False
    assert "COPIES" in str(pairs)


@pytest.mark.parametrize("error", [None, 1e-4])
def test_an_error_of_the_products_is_in_every_interval_and_an_unknown_one_leaves_none(error):
    matrix = _matrix("spread")
    columns = np.linalg.eigh(matrix)[1][:, ::-1]
    box = gnjax.as_operator(aslinearoperator(matrix), error=error)
    pairs = gnjax.certify(box, columns[:, :2].T)
    assert pairs.residuals.max() < 1e-13
    if error is None:
        assert pairs.certificate.kind == UNKNOWN
        assert (pairs.errors == np.inf).all()
        assert pairs.rest == (-np.inf, np.inf)
        assert pairs.are_largest is None
        assert pairs.reached[1] < pairs.values.min()  # what the products say is said
    else:
        assert (pairs.errors >= error).all()
        assert pairs.errors.max() < 1.01 * error
        assert pairs.are_largest


def test_values_that_are_not_those_of_the_vectors_are_that_far_off():
    pairs = gnjax.certify(np.diag([3.0, 2.0, 1.0]), np.eye(3)[:2], [3.5, 2.0])
    np.testing.assert_allclose(pairs.residuals, [0.5, 0.0], atol=1e-15)
    assert pairs.errors[0] >= 0.5


def test_scaled_problems_have_scaled_answers():
    """Vectors of any length, matrices of any size: nothing under- or overflows."""
    matrix = _matrix("spread")
    rows = np.linalg.eigh(matrix)[1][:, -2:].T
    usual = gnjax.certify(matrix, rows)
    for power, length in itertools.product((-300, 300), (1e-200, 1e200)):
        pairs = gnjax.certify(np.ldexp(matrix, power), length * rows)
        np.testing.assert_allclose(np.ldexp(pairs.values, -power), usual.values, rtol=1e-13)
        assert pairs.are_largest == usual.are_largest


def test_the_whole_space_leaves_no_others_and_a_saved_answer_is_the_same():
    matrix = _matrix("normal")
    pairs = gnjax.certify(matrix, np.linalg.eigh(matrix)[1].T)
    assert pairs.are_largest
    assert pairs.are_smallest
    assert "no others" in str(pairs)
    again = gnjax.answers.CertifiedPairs.from_json(pairs.to_json())
    assert again.rest == pairs.rest
    np.testing.assert_array_equal(again.errors, pairs.errors)
    one = gnjax.certify(np.array([[2.0]]), [1.0])
    assert (one.values.tolist(), one.are_largest) == ([2.0], True)


def test_it_says_how_far_it_is_and_can_be_stopped():
    done = []

    def report(products, expected):
        done.append(products)
        if products > 20:
            raise KeyboardInterrupt

    matrix = scipy.sparse.diags_array(np.linspace(1.0, 2.0, 2000))
    pairs = gnjax.certify(matrix, np.eye(2000)[-1], progress=report)
    assert not pairs.finished
    assert pairs.products == done[-1] < 200
    assert pairs.errors[0] < 1e-12
    assert "INTERRUPTED" in str(pairs)


@pytest.mark.parametrize(
    ("vectors", "values", "message"),
    [
        (np.ones((3, 2)), None, "pass vectors.T"),
        (np.ones((4, 3)), None, r"rows \(k, 3\)"),
        (np.ones((1, 1, 3)), None, r"rows \(k, 3\)"),
        (np.zeros(3), None, "vector of zeros"),
        ([1.0, np.nan, 0.0], None, "NaN"),
        (np.ones(3) * 1j, None, "real numbers"),
        (np.eye(3)[:2], [1.0], "each of the 2 vectors"),
        (np.eye(3)[0], [np.inf], "leave values out"),
    ],
)
def test_bad_vectors_and_values_are_refused_in_a_sentence(vectors, values, message):
    with pytest.raises(ValueError, match=message):
        gnjax.certify(np.diag([3.0, 2.0, 1.0]), vectors, values)


def test_a_basis_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="Krylov basis"):
        gnjax.certify(np.eye(50), np.eye(50)[0], limits=gnjax.Limits(vectors=5))
