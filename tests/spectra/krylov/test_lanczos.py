"""Block Lanczos: its defining identities, breakdown, and the chance of what it can miss."""

import mpmath
import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from gnjax.spectra.krylov import lanczos as krylov


def _matrix(eigenvalues, seed=0):
    size = len(eigenvalues)
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]
    return (q * eigenvalues) @ q.T


def _run(matrix, *, block=1, steps=20, noise=1e-13, seed=0):
    start = krylov.random_rows(len(matrix), block, seed)
    return krylov.lanczos(lambda rows: rows @ matrix, start, max_steps=steps, noise=noise)


@given(
    size=st.integers(2, 60),
    block=st.integers(1, 6),
    steps=st.integers(1, 70),
    spread=st.floats(0, 12),
    seed=st.integers(0, 1000),
)
def test_basis_is_orthonormal_and_projection_is_the_compression(size, block, steps, spread, seed):
    matrix = _matrix(np.geomspace(1, 10**-spread, size), seed)
    run = _run(matrix, block=block, steps=steps, seed=seed)
    identity = np.eye(len(run.basis))
    np.testing.assert_allclose(run.basis @ run.basis.T, identity, atol=1e-12)
    np.testing.assert_allclose(run.basis @ matrix @ run.basis.T, run.projection, atol=1e-12)


@given(size=st.integers(3, 40), block=st.integers(1, 4), seed=st.integers(0, 1000))
def test_residuals_are_the_distance_to_an_eigenpair(size, block, seed):
    eigenvalues = np.linspace(1, 5, size)
    matrix = _matrix(eigenvalues, seed)
    run = _run(matrix, block=block, steps=max(1, size // (2 * block)), seed=seed)
    values, residuals, vectors = krylov.ritz(run)
    ritz_vectors = vectors.T @ run.basis
    true = np.linalg.norm(ritz_vectors @ matrix - values[:, None] * ritz_vectors, axis=1)
    np.testing.assert_allclose(residuals, true, atol=1e-11)
    nearest = np.abs(values[:, None] - eigenvalues).min(axis=1)
    assert (nearest <= residuals + 1e-11).all()


@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("steps", [100, 300])
def test_running_past_the_rank_is_harmless(block, steps):
    eigenvalues = np.zeros(136)
    eigenvalues[:60] = np.geomspace(6e-5, 1.44, 60)
    run = _run(_matrix(eigenvalues), block=block, steps=steps)
    values, residuals, _ = krylov.ritz(run)
    assert run.complete
    nonzero = np.abs(values) > 1e-12
    np.testing.assert_allclose(values[nonzero], eigenvalues[:60], rtol=1e-10)
    assert (residuals <= 1e-12).all()


def test_multiplicities_are_found_after_breakdown():
    eigenvalues = np.concatenate([np.repeat([1.0, 2.0, 3.0], 20), np.zeros(40)])
    run = _run(_matrix(eigenvalues), block=4, steps=50)
    values = np.linalg.eigvalsh(run.projection)
    assert run.complete
    np.testing.assert_allclose(values[values > 1e-12], np.sort(eigenvalues[:60]), rtol=1e-12)


def test_zero_operator_is_complete_at_once():
    run = _run(np.zeros((30, 30)), block=2)
    assert run.complete
    assert len(run.basis) <= 6


@pytest.mark.parametrize("block", [1, 2, 4])
def test_missed_eigenvalues_are_as_rare_as_claimed(block):
    """Over random starts the bound fails at most as often as asked: 10% of 400 plus 4 sigma."""
    eigenvalues = np.concatenate([[0.5], np.linspace(1, 100, 120)])
    matrix = _matrix(eigenvalues)
    probability, trials = 0.1, 400
    misses = 0
    for seed in range(trials):
        run = _run(matrix, block=block, steps=24 // block, seed=seed)
        bottom = np.linalg.eigvalsh(run.projection)[0]
        misses += krylov.none_missed_beyond(run, bottom, -200.0, probability) > eigenvalues[0]
    assert misses / trials <= probability + 4 * (probability * 0.9 / trials) ** 0.5


def test_missed_probability_falls_outwards_and_with_steps():
    matrix = _matrix(np.linspace(1, 100, 200))
    short, long = _run(matrix, steps=10), _run(matrix, steps=40)
    points = np.linspace(krylov.ritz(short)[0][0], -100, 20)[1:]
    chances = krylov.missed_probability(short, points)
    assert (np.diff(chances) <= 0).all()
    assert (krylov.missed_probability(long, points) <= chances).all()


def test_unreachable_certainty_is_infinite():
    run = _run(_matrix(np.linspace(1, 100, 200)), steps=3)
    assert krylov.none_missed_beyond(run, 50.0, -1e-3, 1e-9) == -np.inf


@pytest.mark.parametrize("large", [(3.9e6, 3.8e6), (2.0, 1.0)])
@pytest.mark.parametrize("block", [2, 3, 4])
def test_the_chance_is_right_where_couplings_nearly_vanish(large, block):
    """Two large eigenvalues and noise: the couplings span 12 decades, and so do the M_i of

    |x_1|^2 <= 1 / lambda_min(sum_i M_i^T M_i), which many-digit arithmetic sums as it stands.
    """
    small = 10 ** np.random.default_rng(block).uniform(-6, -2, 38)
    run = _run(_matrix(np.concatenate([large, small])), block=block, steps=5, noise=0.0)
    top = np.linalg.eigvalsh(run.projection)[-1]
    points = top * (1 + np.array([1e-6, 1e-3, 1e-1]))
    with mpmath.workdps(200):
        weights = [float(_christoffel(run, mpmath.mpf(t))) for t in points]
    exact = scipy.special.betainc(block / 2, (40 - block) / 2, weights)
    np.testing.assert_allclose(krylov.missed_probability(run, points), exact, rtol=1e-5)


def _christoffel(run, t):
    block = len(run.diagonals[0])
    now, before = mpmath.eye(block), mpmath.zeros(block)
    total, previous = mpmath.eye(block), mpmath.zeros(block)
    for alpha, beta in zip(run.diagonals, run.couplings, strict=False):
        alpha, beta = mpmath.matrix(alpha.tolist()), mpmath.matrix(beta.tolist())
        image = t * now - alpha * now - previous * before
        before, now, previous = now, (beta.T) ** -1 * image, beta
        total += now.T * now
    return 1 / min(mpmath.eigsy(total, eigvals_only=True))


def test_runs_side_by_side_are_those_taken_alone():
    """Also where one ends long before the others: the second start is in an invariant space."""
    rng = np.random.default_rng(3)
    matrix = np.diag(np.linspace(1, 2, 40))
    starts = [rng.standard_normal((1, 40)), np.eye(40)[[7]], rng.standard_normal((2, 40))]
    starts = [np.linalg.qr(start.T)[0].T for start in starts]
    blocks = []

    def apply(rows):
        blocks.append(len(rows))
        return rows @ matrix

    options = {"max_steps": 12, "noise": 1e-12, "stop_when": lambda run: not len(run.remainder)}
    together = krylov.side_by_side(apply, starts, check_every=1, **options)
    assert blocks == [4, *[3] * 11]
    for start, run in zip(starts, together, strict=True):
        alone = krylov.lanczos(lambda rows: rows @ matrix, start, check_every=1, **options)
        assert run.products == alone.products
        np.testing.assert_allclose(run.projection, alone.projection, atol=1e-12)
        np.testing.assert_allclose(run.basis, alone.basis, atol=1e-10)


@pytest.mark.parametrize("block", [1, 3])
def test_apart_from_some_rows_a_run_is_that_of_the_compression(block):
    """P A P on the complement, its size included, and it ends where the complement does."""
    rng = np.random.default_rng(5)
    matrix = _matrix(np.linspace(-1, 4, 30))
    whole = np.linalg.qr(rng.standard_normal((30, 30)))[0].T
    apart, rest = whole[:6], whole[6:]
    start = np.linalg.qr(rng.standard_normal((24, block)))[0].T
    options = {"max_steps": 40, "noise": 1e-12}
    run = krylov.lanczos(lambda rows: rows @ matrix, start @ rest, orthogonal_to=apart, **options)
    alone = krylov.lanczos(lambda rows: rows @ (rest @ matrix @ rest.T), start, **options)
    assert run.complete
    assert (run.size, len(run.basis)) == (24, 24)
    np.testing.assert_allclose(run.basis @ apart.T, 0, atol=1e-14)
    assert run.products == alone.products
    found, expected = krylov.ritz(run)[0], krylov.ritz(alone)[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("block", [1, 4])
def test_what_follows_closes_the_recurrence(block):
    """A V^T = V^T T + Q^T R, with R in the last columns."""
    matrix = _matrix(np.geomspace(1, 1e-3, 50))
    run = _run(matrix, block=block, steps=5)
    closing = run.following.T @ run.remainder
    image = matrix @ run.basis.T - run.basis.T @ run.projection
    np.testing.assert_allclose(image[:, -block:], closing, atol=1e-14)
    np.testing.assert_allclose(image[:, :-block], 0, atol=1e-14)


@pytest.mark.parametrize(("block", "rows"), [(1, 1), (4, 4), (9, 6)])
def test_random_rows_apart_from_others(block, rows):
    """As many as there is room for."""
    apart = krylov.random_rows(20, 14, 0)
    found = krylov.random_rows(20, block, 1, orthogonal_to=apart)
    np.testing.assert_allclose(found @ found.T, np.eye(rows), atol=1e-14)
    np.testing.assert_allclose(found @ apart.T, 0, atol=1e-14)


@pytest.mark.parametrize("block", [1, 3])
@pytest.mark.parametrize("steps", [4, 12, 60])
@pytest.mark.parametrize("noise", [1e-1, 1e-2, 1e-4])
def test_a_run_is_that_of_a_matrix_as_near_as_what_it_dropped(noise, steps, block):
    """Against A itself: the recurrence, every Ritz value, and the count of a whole basis."""
    seen = []
    for seed in range(10):
        values = np.concatenate([np.geomspace(1, 1e-5, 25), -np.geomspace(0.5, 1e-6, 15)])
        matrix = _matrix(values, seed)
        run = _run(matrix, block=block, steps=steps, noise=noise, seed=seed)
        closing = matrix @ run.basis.T - run.basis.T @ run.projection
        closing[:, -run.block :] -= run.following.T @ run.remainder
        assert np.linalg.norm(closing, 2) <= run.dropped + 1e-14
        found, residuals, _ = krylov.ritz(run)
        nearest = np.abs(np.subtract.outer(found, values)).min(axis=1)
        assert (nearest <= residuals + run.dropped + 1e-14).all()
        if len(run.basis) == len(matrix):
            assert np.abs(found - np.sort(values)).max() <= run.dropped + 1e-14
        seen.append(np.linalg.norm(closing, 2) / max(run.dropped, 1e-300))
    if run.dropped:
        assert max(seen) > 0.1  # the bound is not had by width


def test_the_null_space_is_no_smaller_than_claimed_at_the_stated_rate():
    """Below the noise: 0.1 of 400 runs, and four standard deviations, may exceed the bound."""
    missed = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        tail = np.zeros(56)
        tail[: rng.integers(1, 5)] = 1e-6
        values = np.concatenate([[1.0, 0.7, 0.5, 0.2], tail])
        matrix = _matrix(values, seed)
        run = _run(matrix, block=2, steps=30, noise=1e-5, seed=seed)
        assert run.complete
        outside = np.eye(60) - run.basis.T @ run.basis
        norm = np.linalg.norm(outside @ matrix @ outside, 2)
        missed.append(norm > krylov.null_bound(run, 0.1))
        assert norm <= run.null_error + 1e-15
        padded = np.sort(np.pad(krylov.ritz(run)[0], (0, 60 - len(run.basis))))
        assert np.abs(padded - np.sort(values)).max() <= run.dropped + run.null_error + 1e-14
    assert 0 < np.mean(missed) <= 0.1 + 4 * (0.1 * 0.9 / 400) ** 0.5


def test_a_whole_basis_leaves_nothing_outside():
    run = _run(_matrix(np.linspace(1, 2, 12)), block=3, steps=9)
    assert run.complete
    assert (run.null_error, run.null_chance) == (0.0, 0.0)
    assert _run(_matrix(np.linspace(1, 2, 12)), block=3, steps=2).null_error == np.inf


@pytest.mark.parametrize("block", [1, 2])
def test_a_restarted_run_closes_its_recurrence_and_keeps_what_its_start_proves(block):
    matrix = _matrix(np.linspace(-1, 3, 90))
    options = {"noise": 0.0, "check_every": 1}
    run = _run(matrix, block=block, steps=20 // block, noise=0.0)
    before = krylov.missed_probability(run, [3.5, 5.0])
    for _ in range(3):
        chosen = krylov.ritz(run)[2][:, -10:]
        run = krylov.extended(
            lambda rows: rows @ matrix, krylov.restarted(run, chosen), rows=20, **options
        )
        closing = matrix @ run.basis.T - run.basis.T @ run.projection
        closing[:, -run.block :] -= run.following.T @ run.remainder
        np.testing.assert_allclose(closing, 0, atol=1e-13)
        np.testing.assert_allclose(run.basis @ run.basis.T, np.eye(20), atol=1e-13)
    np.testing.assert_array_equal(krylov.missed_probability(run, [3.5, 5.0]), before)
    assert run.products == 50
    assert (krylov.missed_probability(run, [0.0, 1.5]) == 1).all()


@pytest.mark.parametrize("block", [1, 2])
def test_an_invariant_space_hides_what_its_start_hardly_sees(block):
    """Starts that see an eigenvalue by less than what is dropped: as often as claimed."""
    values = np.repeat([1.0, 2.0, 2.01], [20, 20, 1])
    missed = []
    for seed in range(300):
        run = krylov.lanczos(
            lambda rows: rows @ np.diag(values),
            krylov.random_rows(41, block, seed),
            max_steps=30,
            noise=1e-3,
            stop_when=lambda run: not len(run.following),
            check_every=1,
        )
        top = krylov.ritz(run)[0][-1]
        sure = krylov.missed_probability(run, 2.009)[0] <= 0.2
        missed.append(sure and top < 2.005)
    assert np.mean(missed) <= 0.2 + 4 * (0.2 * 0.8 / 300) ** 0.5
