"""The ends of a singular matrix above its floor, without its whole spectrum."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gnjax
from gnjax.conditioning.indefinite import indefinite
from gnjax.conditioning.methods import inverse
from tests.contracts.operators import CallersWithError
from tests.held_out.matrices import rotated


def _matrix(values, seed):
    return rotated(np.random.default_rng(seed), values)


@pytest.fixture(autouse=True)
def _for_every_size(monkeypatch):
    monkeypatch.setattr(inverse, "_MANY", 1)


@settings(max_examples=40)
@given(size=st.integers(1, 40), shift=st.floats(-2.0, 2.0), seed=st.integers(0, 2**32 - 1))
def test_the_factorisation_counts_eigenvalues_and_solves(size, shift, seed):
    rng = np.random.default_rng(seed)
    matrix = _matrix(rng.standard_normal(size), seed)
    factor = indefinite(matrix, shift)
    shifted = matrix - shift * np.eye(size)
    assert factor.above == (np.linalg.eigvalsh(shifted) > 0).sum()
    rows = rng.standard_normal((3, size))
    np.testing.assert_allclose(
        factor.solve(rows) @ shifted, rows, atol=1e-9 * np.linalg.cond(shifted)
    )


def test_blocks_of_two_rows_count_one_eigenvalue():
    factor = indefinite(np.array([[0.0, 3.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), 0.0)
    assert (factor.pivots < 0).sum() == 2
    assert factor.above == 2


def test_a_zero_pivot_is_no_factorisation():
    assert indefinite(np.diag([2.0, 0.0]), 0.0) is None


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    size=st.integers(6, 60),
    share=st.sampled_from([0.3, 0.5, 0.9]),
    decades=st.sampled_from([1, 4, 9, 13, 16]),
    below=st.sampled_from([0.0, 1e-17, 1e-15]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_answer_is_that_of_all_eigenvalues(size, share, decades, below, seed):
    count = max(1, int(share * size))
    values = np.r_[np.geomspace(1, 10.0**-decades, count), np.full(size - count, below)]
    op = gnjax.dense(_matrix(values, seed))
    answer = gnjax.condition_number(op, method="inverse", seed=seed % 1000)
    every = gnjax.condition_number(op, method="dense")
    spectrum = gnjax.eigenvalues(op)
    within = np.abs(spectrum.values - every.floor) < every.floor / 3
    assert abs(answer.rank - every.rank) <= within.sum()
    assert answer.method == "inverse"
    assert not answer.resolved
    assert answer.lambda_min == pytest.approx(
        float(spectrum.values[answer.rank - 1]), rel=1e-3, abs=every.floor / 3
    )
    assert answer.lambda_max == pytest.approx(every.lambda_max, rel=1e-3)
    truth = values[0] / values[answer.rank - 1] if values[answer.rank - 1] else np.inf
    assert answer.at_rank[0] <= truth <= answer.at_rank[1]
    if answer.rank == every.rank:
        assert answer.rank_source == every.rank_source


def test_it_is_taken_where_the_matrix_is_singular_and_nowhere_else():
    rng = np.random.default_rng(0)
    for values, rank, method in (
        (np.geomspace(1, 1e-6, 20), None, "inverse"),
        (np.geomspace(1, 1e-30, 20), None, "inverse"),
        (np.geomspace(1, 1e-30, 20), 20, "dense"),
        (np.r_[np.geomspace(1, 1e-3, 19), -1e-15], None, "inverse"),
    ):
        op = gnjax.dense(_matrix(values, int(rng.integers(100))))
        assert gnjax.condition_number(op, method="inverse", rank=rank).method == method


def test_an_indefinite_matrix_is_refused():
    op = gnjax.dense(_matrix(np.r_[np.geomspace(1, 1e-3, 19), -1e-3], 1))
    with pytest.raises(ValueError, match="not positive semidefinite"):
        gnjax.condition_number(op, method="inverse")


@dataclass(frozen=True)
class _OfBoundedRank(CallersWithError):
    """A symmetric matrix with a bound on its rank, and no basis of its range."""

    rank: int = 0

    def facts(self):
        return replace(super().facts(), rank=self.rank, symmetric=True)


@pytest.mark.parametrize("bound", [4, 5, 6, 10])
def test_a_rank_that_structure_proves_stays_proved(bound):
    """Five of ten eigenvalues are above the floor: a bound of five proves them to be all."""
    matrix = _matrix(np.r_[np.geomspace(1, 1e-2, 5), np.zeros(5)], 4)
    op = _OfBoundedRank(matrix, 1e-14, bound)
    answer = gnjax.condition_number(op, method="inverse")
    every = gnjax.condition_number(op, method="dense")
    assert (answer.rank, answer.rank_source) == (every.rank, every.rank_source)
    assert answer.resolved == every.resolved == (bound == 5)


def test_a_small_matrix_keeps_the_whole_spectrum(monkeypatch):
    monkeypatch.setattr(inverse, "_MANY", 1000)
    op = gnjax.dense(_matrix(np.geomspace(1, 1e-30, 20), 3))
    assert gnjax.condition_number(op, method="inverse").method == "dense"
