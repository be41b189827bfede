"""Stochastic Lanczos quadrature: exact moments, enclosed distribution, errors that cover."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnjax
from gnjax import papers
from gnjax.spectra.density import SpectralDensity, spectral_density
from gnjax.spectra.stochastic.quadratures import quadratures
from gnjax.spectra.trace import probe_stream
from tests.held_out.matrices import rotated


def _matrix(eigenvalues, seed=0):
    return rotated(np.random.default_rng(seed), np.asarray(eigenvalues))


def _starts(size, probes, seed):
    """The unit vectors behind the probes."""
    rng = probe_stream(seed)
    rows = [rng.standard_normal(size) for _ in range(probes)]
    return [row / np.linalg.norm(row) for row in rows]


@settings(max_examples=40)
@given(
    size=st.sampled_from([1, 2, 5, 12, 40]),
    steps=st.integers(1, 50),
    rank=st.integers(0, 40),
    distinct=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_quadrature_has_the_moments_of_each_probe(size, steps, rank, distinct, seed):
    """sum w theta^q = v^T A^q v up to 2 m - 1, for clusters, zeros and past the breakdown."""
    eigenvalues = np.linspace(-1, 1, distinct)[np.arange(size) % distinct]
    eigenvalues[rank:] = 0.0
    matrix = _matrix(eigenvalues, seed)
    density = spectral_density(gnjax.dense(matrix), probes=2, steps=steps, seed=seed)
    for v, nodes, weights in zip(
        _starts(size, 2, seed), density.nodes, density.weights, strict=True
    ):
        image = v
        for q in range(2 * steps):
            np.testing.assert_allclose(weights @ nodes**q, v @ image, atol=1e-12)
            image = matrix @ image
    assert density.nodes.shape[1] <= min(steps, size)


@settings(max_examples=40)
@given(size=st.sampled_from([2, 9, 40]), steps=st.integers(1, 20), seed=st.integers(0, 1000))
def test_distribution_is_enclosed(size, steps, seed):
    """Chebyshev, Markov, Stieltjes: the error at t is at most the weights next to t."""
    rng = np.random.default_rng(seed)
    eigenvalues = np.sort(rng.standard_normal(size))
    q = np.linalg.qr(rng.standard_normal((size, size)))[0]
    density = spectral_density(gnjax.dense((q * eigenvalues) @ q.T), probes=1, steps=steps)
    (v,), (nodes,), (weights,) = _starts(size, 1, 0), density.nodes, density.weights
    masses = (q.T @ v) ** 2
    for t in rng.uniform(-3, 3, 20):
        true = masses[eigenvalues <= t].sum()
        right = np.searchsorted(nodes, t)
        allowed = weights[max(0, right - 1) : right + 1].max()
        assert abs(float(density.cdf(t).value) - true) <= allowed + 1e-12


@pytest.mark.parametrize("steps", [5, 60, 100, 300])
def test_running_past_the_rank_is_harmless(steps):
    """Rank 60 of 136: clusters of zeros are found with their weight, whatever the steps."""
    eigenvalues = np.zeros(136)
    eigenvalues[:60] = np.geomspace(6e-5, 1.44, 60)
    density = spectral_density(gnjax.dense(_matrix(eigenvalues)), probes=20, steps=steps)
    np.testing.assert_allclose(density.weights.sum(axis=1), 1.0, rtol=1e-13)
    assert density.nodes.min() >= -1e-13
    assert density.nodes.max() <= 1.44 * (1 + 1e-12)
    for q in (1, 2, 3):
        moment = density.moment(q)
        truth = (eigenvalues**q).mean()
        assert abs(moment.value - truth) <= 5 * moment.standard_error
    if steps > 60:
        nearest = np.abs(np.subtract.outer(density.nodes, eigenvalues)).min(axis=-1)
        assert (density.weights * nearest).max() <= 1e-14
        zeros = density.count(0, 0)
        assert abs(zeros.value - 76) <= 5 * zeros.standard_error


@settings(max_examples=40)
@given(
    size=st.sampled_from([2, 9, 40]),
    steps=st.integers(1, 20),
    seed=st.integers(0, 1000),
    log=st.booleans(),
)
def test_the_quadrature_of_each_probe_is_as_near_as_stated(size, steps, seed, log):
    """Of one probe, against mu_v itself: distribution, counts and smoothed density."""
    rng = np.random.default_rng(seed)
    eigenvalues = np.sort(rng.standard_normal(size))
    q = np.linalg.qr(rng.standard_normal((size, size)))[0]
    density = spectral_density(gnjax.dense((q * eigenvalues) @ q.T), probes=1, steps=steps)
    (v,) = _starts(size, 1, 0)
    masses = (q.T @ v) ** 2
    points = rng.uniform(-3, 3, 20)
    cdf = density.cdf(points)
    true = masses @ (eigenvalues[:, None] <= points)
    assert (np.abs(cdf.value - true) <= cdf.quadrature + 1e-12).all()
    low, high = np.sort(points[:2])
    count = density.count(low, high)
    true = size * masses[(eigenvalues >= low) & (eigenvalues <= high)].sum()
    assert abs(count.value - true) <= count.quadrature + 1e-11
    at, shown = np.abs(points) if log else points, eigenvalues > (0 if log else -np.inf)
    axis, centres = (np.log10(at), np.log10(eigenvalues[shown])) if log else (at, eigenvalues)
    pdf = density.pdf(at, 0.3, log=log)
    bumps = np.exp(-((np.subtract.outer(axis, centres) / 0.3) ** 2) / 2)
    true = bumps @ masses[shown] / (0.3 * np.sqrt(2 * np.pi))
    assert (np.abs(pdf.value - true) <= pdf.quadrature + 1e-11).all()
    if steps >= size:
        assert not pdf.quadrature.any()


def test_every_estimate_says_what_it_rests_on():
    matrix = _matrix(np.linspace(0.1, 1, 40))
    density = spectral_density(gnjax.dense(matrix), probes=6, steps=5)
    assert not density.exact.any()
    for estimate in (density.cdf([0.3, 0.6]), density.count(0, 0.5), density.moment(2)):
        parts = estimate.certificate.parts
        assert estimate.certificate.kind == "measured"
        assert np.isnan(estimate.certificate.confidence)
        assert parts[0].value == estimate.quadrature.max()
        assert parts[1].value >= 2 * estimate.standard_error.max()
        assert "6 probes" in str(estimate.certificate)
    assert density.moment(9).certificate.kind == "measured"
    assert density.moment(10).certificate.kind == "unknown"
    assert density.moment(10).quadrature == np.inf
    whole = spectral_density(gnjax.dense(matrix), probes=2, steps=40)
    assert whole.exact.all()
    assert not whole.cdf([0.3, 0.6]).quadrature.any()
    assert spectral_density(gnjax.dense(matrix), probes=1).moment(1).certificate.kind == "unknown"


def test_the_half_width_covers_as_often_as_a_sample_can():
    """95% of a normal sample; within 4 standard deviations of 100 draws, 8.7%."""
    eigenvalues = np.linspace(0.1, 1, 30) ** 2
    op, covered = gnjax.dense(_matrix(eigenvalues)), []
    for seed in range(100):
        count = spectral_density(op, probes=5, steps=30, seed=seed).count(0, 0.25)
        covered.append(
            abs(count.value - (eigenvalues <= 0.25).sum()) <= count.certificate.parts[1].value
        )
    assert np.mean(covered) >= 0.95 - 0.087


class Plain:
    """A matrix behind the protocol, that states no error."""

    def __init__(self, matrix):
        self.matrix = jnp.asarray(matrix)
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    def mv(self, v):
        return self.matrix @ v

    def as_matrix(self):
        return self.matrix


def test_an_operator_that_states_no_error_is_uncertified():
    density = spectral_density(Plain(_matrix(np.linspace(0.1, 1, 20))), probes=3)
    for found in (density, density.moment(1), density.count(0, 1), density.pdf([0.5])):
        assert found.certificate.kind == "unknown"


def test_clusters_are_found_with_their_sizes():
    eigenvalues = np.repeat([-2.0, 0.0, 1.0, 5.0], [10, 60, 20, 10])
    density = spectral_density(gnjax.dense(_matrix(eigenvalues)), probes=30)
    nearest = np.abs(np.subtract.outer(density.nodes, eigenvalues)).min(axis=-1)
    assert (density.weights * nearest).max() <= 1e-14
    for low, high, truth in ((-2, -2, 10), (0, 0, 60), (-2, 0, 70), (1, 5, 30), (2, 4, 0)):
        count = density.count(low, high)
        assert abs(count.value - truth) <= 5 * count.standard_error
    np.testing.assert_allclose(density.cdf([-3.0, 5.0, 6.0]).value, [0, 1, 1], atol=1e-13)
    np.testing.assert_allclose(density.count(-np.inf, np.inf).value, 100, rtol=1e-13)


def test_standard_errors_are_those_of_the_values():
    """Over 60 seeds: 5 errors cover nearly always, and the errors match the spread."""
    eigenvalues = np.linspace(0.1, 1, 16)
    op, median = gnjax.dense(_matrix(eigenvalues)), float(np.median(eigenvalues))
    densities = [spectral_density(op, probes=10, steps=16, seed=s) for s in range(60)]
    for estimates, truth in (
        ([d.count(0, median) for d in densities], 8),
        ([d.moment(2) for d in densities], (eigenvalues**2).mean()),
    ):
        values, errors = np.array([(e.value, e.standard_error) for e in estimates]).T
        assert (np.abs(values - truth) <= 5 * errors).mean() >= 0.95
        assert abs(values.mean() - truth) <= 5 * values.std() / 60**0.5
        assert 0.7 <= np.sqrt((errors**2).mean()) / values.std() <= 1.4


@pytest.mark.parametrize("log", [False, True])
def test_pdf_integrates_to_the_share_of_the_eigenvalues_it_shows(log):
    eigenvalues = np.concatenate([-np.geomspace(0.1, 1, 10), np.geomspace(1e-6, 2, 40)])
    density = spectral_density(gnjax.dense(_matrix(eigenvalues)), probes=8, steps=100)
    grid = density.grid(2000, log=log)
    axis = np.log10(grid) if log else grid
    shown = density.pdf(grid, log=log)
    share = density.count(density.floor * 3, np.inf).value / 50 if log else 1.0
    np.testing.assert_allclose(np.trapezoid(shown.value, axis), share, rtol=1e-3)
    assert (shown.value >= 0).all()
    assert (shown.standard_error >= 0).all()
    assert shown.value.shape == grid.shape


@pytest.mark.parametrize("log", [False, True])
def test_pdf_is_the_smoothed_spectrum(log):
    """With every eigenvalue a node and many probes, within 5 errors of the dense answer."""
    eigenvalues = np.geomspace(1e-4, 1, 30)
    density = spectral_density(gnjax.dense(_matrix(eigenvalues)), probes=60)
    points, width = np.geomspace(1e-3, 0.5, 15), 0.2
    away = np.subtract.outer(*(np.log10(x) if log else x for x in (points, eigenvalues)))
    truth = np.exp(-((away / width) ** 2) / 2).mean(axis=1) / (width * np.sqrt(2 * np.pi))
    shown = density.pdf(points, width, log)
    assert (np.abs(shown.value - truth) <= 5 * shown.standard_error).all()
    assert (shown.standard_error <= 0.2 * truth).all()


def test_semicircle():
    """The Gaussian orthogonal ensemble at n = 400 has the density sqrt(4 - t^2) / (2 pi).

    Drawn with the seed of the probes, which must not make the probes rows of the matrix.
    """
    a = np.random.default_rng(0).standard_normal((400, 400))
    density = spectral_density(gnjax.dense((a + a.T) / 800**0.5), probes=10, steps=40)
    points = np.linspace(-1.7, 1.7, 30)
    truth = np.sqrt(4 - points**2) / (2 * np.pi)
    # Smoothing by 0.15 moves the curve by about 0.15^2 f''/2 < 0.01, the finite n by 1/n.
    shown = density.pdf(points, 0.15)
    assert (np.abs(shown.value - truth) <= 5 * shown.standard_error + 0.015).all()


@pytest.mark.parametrize("matrix", [[[3.0]], [[-3.0]], [[0.0]], np.zeros((6, 6)), 2 * np.eye(5)])
def test_one_point_spectra(matrix):
    point = float(np.asarray(matrix)[0, 0])
    density = spectral_density(gnjax.dense(matrix), probes=3)
    np.testing.assert_allclose(density.nodes, point, atol=1e-14)
    np.testing.assert_allclose(density.weights, 1.0, atol=1e-14)
    assert density.nodes.shape == (3, 1)
    np.testing.assert_allclose(density.count(point, point).value, len(matrix))
    grid = density.grid(500)
    np.testing.assert_allclose(np.trapezoid(density.pdf(grid).value, grid), 1.0, rtol=1e-3)
    if point > 0:
        grid = density.grid(500, log=True)
        shown = density.pdf(grid, log=True).value
        np.testing.assert_allclose(np.trapezoid(shown, np.log10(grid)), 1.0, rtol=1e-3)


@pytest.mark.parametrize("width", [0.02, 0.3, 2.0])
def test_an_error_of_the_matrix_is_in_the_density_of_logarithms(width):
    """Every eigenvalue moved by the error at most: the density moves by less than is stated."""
    rng = np.random.default_rng(3)
    eigenvalues, error = 10.0 ** rng.uniform(-3, 2, 30), 1e-5
    points = np.geomspace(1e-3, 1e2, 40)
    grid = np.log10(points)[:, None]

    def exact(values):
        t = (np.log10(values) - grid) / width
        return np.exp(-(t**2) / 2).mean(axis=1) / (width * np.sqrt(2 * np.pi))

    op = gnjax.dense(np.diag(eigenvalues), error=gnjax.Error(error))
    shown = spectral_density(op, steps=30).pdf(points, width, log=True)
    stated = max(part.value for part in shown.certificate.parts[2:])
    moves = [
        np.abs(exact(eigenvalues + error * signs) - exact(eigenvalues)).max()
        for signs in rng.choice([-1.0, 1.0], (20, 30))
    ]
    assert 0 < max(moves) <= stated


def test_nothing_positive_has_no_log_scale():
    density = spectral_density(gnjax.dense(-np.eye(4)), probes=2)
    assert not density.pdf([0.1, 1.0], log=True).value.any()
    with pytest.raises(ValueError, match="log=False"):
        density.grid(log=True)


def test_seeds_decide_and_more_probes_extend_fewer():
    op = gnjax.dense(_matrix(np.linspace(0, 1, 50)))
    few, many, other = (
        spectral_density(op, probes=p, steps=9, seed=s) for p, s in ((3, 1), (5, 1), (3, 2))
    )
    np.testing.assert_array_equal(few.nodes, many.nodes[:3])
    np.testing.assert_array_equal(few.weights, many.weights[:3])
    assert not np.allclose(few.nodes, other.nodes)


def test_one_probe_has_no_error_estimate():
    density = spectral_density(gnjax.dense(_matrix(np.linspace(0, 1, 9))), probes=1)
    assert density.moment(1).standard_error == np.inf
    assert np.isinf(density.pdf([0.1, 0.2]).standard_error).all()


def test_other_operators_and_single_precision():
    rng = np.random.default_rng(0)
    network = papers.linear_gauss_newton([rng.standard_normal(s) for s in ((9, 5), (4, 9))])
    j = rng.standard_normal((20, 8))
    single = gnjax.operators.Dense(jnp.asarray(j @ j.T, jnp.float32), jnp.zeros((), jnp.float32))
    for op in (network, gnjax.factored(j), single, np.asarray(j @ j.T)):
        matrix = np.asarray(op if isinstance(op, np.ndarray) else op.as_matrix(), float)
        mean = spectral_density(op, probes=20).moment(1)
        truth = np.trace(matrix) / len(matrix)
        assert abs(mean.value - truth) <= 5 * mean.standard_error
    zeros = spectral_density(single, probes=20).count(0, 0)
    assert abs(zeros.value - 12) <= 5 * zeros.standard_error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda op: spectral_density(op, probes=0), "probes=0"),
        (lambda op: spectral_density(op, steps=0), "steps=0"),
        (lambda op: spectral_density(op, steps=2.5), "steps=2.5"),
        (lambda op: spectral_density(op).pdf([0.0, 1.0], log=True), "positive points"),
        (lambda op: spectral_density(op).pdf([1.0], 0.0), "width=0"),
        (lambda op: spectral_density(op).pdf([1.0], np.nan), "width=nan"),
        (lambda op: spectral_density(op).count(2, 1), "low=2"),
        (lambda op: spectral_density(op).moment(-1), "q=-1"),
        (lambda op: spectral_density(op).moment(0.5), "q=0.5"),
        (lambda op: spectral_density(op).grid(1), "at least 2"),
    ],
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(gnjax.dense(np.diag([1.0, 2.0])))


class Endless:
    """The protocol of an operator too large for its basis, which must never be multiplied."""

    shape, dtype = (10**9, 10**9), jnp.dtype(jnp.float64)

    def mv(self, v):
        raise AssertionError

    def as_matrix(self):
        raise AssertionError


def test_a_basis_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="use steps=2 or fewer"):
        spectral_density(Endless())


def test_products_that_are_not_finite_are_refused():
    broken = gnjax.operators.Dense(jnp.full((5, 5), jnp.nan), jnp.zeros(()))
    with pytest.raises(ValueError, match="NaN or Inf"):
        spectral_density(broken)


def test_density_is_frozen():
    density = spectral_density(gnjax.dense(np.eye(2)), probes=2)
    assert isinstance(density, SpectralDensity)
    with pytest.raises(AttributeError, match="n"):
        density.n = 3


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_the_floor_has_what_lanczos_set_to_zero(single):
    """Steps beyond the rank end in entries of T that are rounding, up to 16 times the floor."""
    eigenvalues = np.where(np.arange(60) < 10, np.geomspace(1, 1e-2, 60), 0.0)
    with jax.enable_x64(not single):
        density = spectral_density(gnjax.dense(_matrix(eigenvalues)), probes=3, steps=30)
    error, _, dropped = density.certificate.parts
    assert dropped.value > 0
    assert density.floor >= error.value + dropped.value


def test_quadratures_come_in_batches_that_hold_nothing_else():
    """They are those of the density. Who stops asking makes no more products; no run is kept."""
    size, steps, made = 60, 40, []
    matrix = _matrix(np.linspace(-1, 2, size))

    def product(rows):
        made.append(len(rows))
        return rows @ matrix

    density = spectral_density(gnjax.dense(matrix), probes=23, steps=steps)
    batches = quadratures(product, size, probes=23, steps=steps, noise=1e-13)
    assert not made  # nothing is multiplied before a batch is asked for
    first = next(batches)
    assert len(first) == 10
    assert sum(made) == 10 * steps == sum(rule.products for rule in first)
    rules = [*first, *(rule for batch in batches for rule in batch)]
    assert len(rules) == 23
    for rule, nodes, weights in zip(rules, density.nodes, density.weights, strict=True):
        np.testing.assert_allclose(rule.nodes, nodes, atol=1e-13)
        np.testing.assert_allclose(rule.weights, weights, atol=1e-11)
        held = [getattr(rule, name) for name in vars(rule)]
        arrays = [value for value in held if isinstance(value, np.ndarray)]
        assert len(arrays) == 4  # nodes, weights, and both diagonals of T
        # an array may be a view of one that is larger
        assert all((a if a.base is None else a.base).nbytes <= 8 * steps for a in arrays)


@pytest.mark.slow
def test_a_density_to_a_tolerance_is_as_near_as_often_as_stated():
    """Each of the mean, the second moment and a share is within its error in 95% of 30 draws.

    Less 3 sigma, that is 0.12. With 30 steps for 30 eigenvalues the quadratures are exact.
    """
    eigenvalues = np.concatenate([np.linspace(0, 1, 25), [3.0, 3.5, 4.0, 6.0, 10.0]])
    op = gnjax.dense(_matrix(eigenvalues))
    truths = {
        "mean": eigenvalues.mean(),
        "square": np.square(eigenvalues).mean(),
        "share": np.mean(eigenvalues <= 2.0),
    }
    covered = {name: [] for name in truths}
    for seed in range(30):
        density = spectral_density(op, steps=30, rtol=0.3, seed=seed)
        assert density.converged
        assert density.finished
        estimates = density.moment(1), density.moment(2), density.cdf(2.0)
        root = truths["square"] ** 0.5
        for (name, truth), estimate in zip(truths.items(), estimates, strict=True):
            half = sum(p.value for p in estimate.certificate.parts if "spread" in p.reason)
            allowed = {"mean": 1.2 * root, "square": 1.2 * truth, "share": 1.0}[name]
            assert half <= 0.3 * allowed
            covered[name].append(abs(float(estimate.value) - truth) <= half + 1e-9)
    assert all(np.mean(inside) >= 0.95 - 0.12 for inside in covered.values())


def test_a_density_takes_as_many_probes_as_its_tolerance_needs():
    op = gnjax.dense(_matrix(np.linspace(-1, 1, 40)))
    few, more = (spectral_density(op, steps=20, rtol=rtol) for rtol in (0.5, 0.15))
    assert few.looks == more.looks == 8
    assert 10 <= len(few.nodes) < len(more.nodes) < 1000
    assert few.converged
    assert more.converged
    short = spectral_density(op, steps=20, rtol=0.01, probes=23)
    assert (len(short.nodes), short.converged, short.finished) == (23, False, True)
    assert "NOT CONVERGED" in str(short)
    # the interval of three looks is wider than that of 23 probes fixed beforehand
    fixed = spectral_density(op, steps=20, probes=23)
    np.testing.assert_array_equal(fixed.nodes, short.nodes)
    halves = [
        sum(p.value for p in d.moment(1).certificate.parts if "spread" in p.reason)
        for d in (short, fixed)
    ]
    assert halves[0] > 1.1 * halves[1]
    with pytest.raises(ValueError, match="between 0 and 1"):
        spectral_density(op, rtol=2.0)
