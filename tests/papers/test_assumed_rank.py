"""kappa for every assumed rank: against its definition, with intervals that enclose the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gnjax
from gnjax.papers.assumed_rank import rank_sensitivity
from gnjax.spectra.eigenvalues import Spectrum


def _spectrum(values, error=0.0):
    values = np.asarray(values, float)
    return Spectrum(values, np.broadcast_to(np.asarray(error, float), values.shape), "dense")


def test_definitions_on_a_small_spectrum():
    s = rank_sensitivity(_spectrum([8.0, 4.0, 0.5, 1e-9], error=1e-3))
    np.testing.assert_allclose(s.kappa[:3], [1.0, 2.0, 16.0])
    np.testing.assert_allclose(s.gaps, [2.0, 8.0, 500.0])
    np.testing.assert_allclose(s.low[1:], 7.999 / np.array([4.001, 0.501, 0.001 + 1e-9]))
    np.testing.assert_allclose(s.high[1:3], 8.001 / np.array([3.999, 0.499]))
    assert (s.low[0], s.high[0], s.high[3]) == (1.0, 1.0, np.inf)
    assert s.kappa[3] == s.low[3]
    assert (s.floor_rank, s.largest_gap) == (3, 3)
    assert s.ranks.tolist() == [1, 2, 3, 4]


@given(
    exponents=st.lists(st.floats(-12, 3), min_size=1, max_size=30),
    error=st.floats(-14, 0),
    seed=st.integers(0, 2**32 - 1),
)
def test_intervals_enclose_the_true_kappa_of_every_rank(exponents, error, seed):
    """True eigenvalues anywhere within the errors of the given ones."""
    true = np.sort(10.0 ** np.array(exponents))[::-1]
    bound = 10.0**error * true[0]
    shifts = np.random.default_rng(seed).uniform(-bound, bound, len(true))
    # Sorting moves no value by more than the largest shift (Weyl).
    s = rank_sensitivity(_spectrum(np.sort(true + shifts)[::-1], error=bound))
    if s.floor_rank == 0:
        assert np.isnan(s.kappa).all()
        return
    kappa = true[0] / true
    assert (s.low <= kappa * (1 + 1e-12)).all()
    assert (kappa <= s.high * (1 + 1e-12)).all()
    assert (np.isfinite(s.high) == (s.ranks <= s.floor_rank)).all()
    assert ((s.low <= s.kappa) & (s.kappa <= s.high)).all()
    assert (np.diff(s.high[: s.floor_rank]) >= 0).all()
    assert (s.gaps >= 1).all()
    if len(true) > 1:
        assert s.gaps[s.largest_gap - 1] == s.gaps[: s.floor_rank].max()
    assert 1 <= s.largest_gap <= s.floor_rank


def test_the_gap_is_the_rank_of_a_rank_deficient_matrix():
    j = np.random.default_rng(0).standard_normal((136, 60)) * np.geomspace(1, 1e-2, 60)
    s = rank_sensitivity(gnjax.eigenvalues(gnjax.dense(j @ j.T)))
    assert s.largest_gap == s.floor_rank == 60
    assert s.gaps[59] > 1e6
    sigma = np.linalg.svd(j, compute_uv=False)
    np.testing.assert_allclose(s.kappa[59], (sigma[0] / sigma[-1]) ** 2, rtol=1e-6)


def test_agrees_with_the_condition_number_at_its_rank():
    j = np.random.default_rng(1).standard_normal((12, 7))
    op = gnjax.factored(j)
    k = gnjax.condition_number(op)
    s = rank_sensitivity(gnjax.eigenvalues(op))
    np.testing.assert_allclose(s.kappa[k.rank - 1], k.value, rtol=1e-12)
    np.testing.assert_allclose((s.low[6], s.high[6]), k.interval, rtol=1e-12)


def test_exact_zeros_without_errors():
    s = rank_sensitivity(_spectrum([3.0, 1.0, 0.0, 0.0]))
    np.testing.assert_array_equal(s.kappa, [1.0, 3.0, np.inf, np.inf])
    np.testing.assert_array_equal(s.gaps, [3.0, np.inf, 1.0])
    assert (s.floor_rank, s.largest_gap) == (2, 2)


def test_zero_spectrum_is_announced():
    s = rank_sensitivity(_spectrum([0.0, 0.0]))
    assert np.isnan([s.kappa, s.low, s.high]).all()
    assert (s.floor_rank, s.largest_gap) == (0, 0)
    assert "nan" in str(s)


def test_one_eigenvalue():
    s = rank_sensitivity(_spectrum([2.0], error=0.1))
    assert (s.kappa.tolist(), s.floor_rank, s.largest_gap, len(s.gaps)) == ([1.0], 1, 1, 0)


def test_table_shows_the_gap_the_floor_and_both_ends():
    values = np.concatenate([np.geomspace(1, 0.1, 20), np.geomspace(1e-3, 1e-4, 10), np.zeros(70)])
    lines = str(rank_sensitivity(_spectrum(values, error=1e-8))).splitlines()
    assert lines[0].split() == ["rank", "eigenvalue", "gap", "kappa", "interval"]
    ranks = [int(line.split()[0]) for line in lines[1:]]
    assert ranks == [1, 27, 28, 29, 30, 31, 32, 33, 100]
    assert [line.split()[0] for line in lines if "largest gap" in line] == ["30"]
    values[-70:] = 5e-5
    lines = str(rank_sensitivity(_spectrum(values, error=1e-8))).splitlines()
    assert [line.split()[0] for line in lines if "largest gap" in line] == ["20"]
    assert [line.split()[0] for line in lines if "above the floor" in line] == ["100"]


def test_an_operator_is_no_spectrum():
    with pytest.raises(ValueError, match=r"got a Dense; pass gnjax.eigenvalues\(op\)"):
        rank_sensitivity(gnjax.dense(np.eye(2)))


@pytest.mark.parametrize(
    ("values", "errors", "words"),
    [
        ([], [], "one error for each"),
        ([1.0], [0.1, 0.1], "one error for each"),
        ([1.0, np.nan], [0.0, 0.0], "finite"),
        ([1.0, 0.5], [0.0, -1.0], "not negative"),
        ([1.0, 2.0], [0.0, 0.0], "descend"),
        ([1.0, -0.5], [1e-3, 1e-3], "semidefinite"),
        ([-1.0], [1e-3], "semidefinite"),
    ],
)
def test_bad_input_is_refused(values, errors, words):
    with pytest.raises(ValueError, match=words):
        rank_sensitivity(Spectrum(np.array(values), np.array(errors), "dense"))
