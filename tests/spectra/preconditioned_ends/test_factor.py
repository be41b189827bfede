"""A factor in memory, its sketch and its preconditioner, against dense matrices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gnjax
from gnjax.operators.facts import factorisation_of
from gnjax.spectra.preconditioned_ends import certified
from gnjax.spectra.preconditioned_ends.factor import gram, gram_on_device, store
from gnjax.spectra.preconditioned_ends.plan import planned
from gnjax.spectra.preconditioned_ends.sketch import sketched
from gnjax.spectra.preconditioned_ends.triangle import cholesky
from tests.spectra.preconditioned_ends import prescribed

LAYOUTS = [(dtype, by_rows) for dtype in (np.float64, np.float32) for by_rows in (True, False)]


def _stored(j, dtype, by_rows, columns=16, on_accelerator=False):
    parts = prescribed.stated(j, by_rows=by_rows).parts()
    return store(
        parts,
        j.shape,
        by_rows=by_rows,
        dtype=np.dtype(dtype),
        columns=columns,
        on_accelerator=on_accelerator,
    )


@pytest.mark.parametrize("on_accelerator", [False, True])
@pytest.mark.parametrize(("dtype", "by_rows"), LAYOUTS)
def test_products_are_those_of_the_factor_that_is_held(dtype, by_rows, on_accelerator):
    """In float64 for what an answer rests on, whatever the precision of J."""
    rng = np.random.default_rng(0)
    j, w = rng.standard_normal((23, 61)), rng.standard_normal((3, 23))
    factor = _stored(j, dtype, by_rows, on_accelerator=on_accelerator)
    held = j.astype(dtype).astype(float)
    products = factor.products(w)
    assert_allclose(products.images, w @ held @ held.T, atol=1e-11)
    assert_allclose(products.projected, w @ held @ held.T @ w.T, atol=1e-11)
    rounding = 1e-11 if dtype == np.float64 else 1e-3
    assert_allclose(factor.light(w), products.images, atol=rounding)
    assert_allclose(gram(factor.tiles), held @ held.T, atol=rounding)
    assert_allclose(gram_on_device(factor.tiles), held @ held.T, atol=1e-11)
    assert factor.shape == j.shape
    assert factor.squared == pytest.approx(np.linalg.norm(j) ** 2)
    lost = np.linalg.norm(held - j)
    assert lost <= factor.lost <= lost * (1 + 1e-5)


@pytest.mark.parametrize(("dtype", "by_rows"), LAYOUTS)
def test_a_sketch_keeps_every_direction_to_its_distortion(dtype, by_rows):
    """Whatever kappa is, the eigenvalues of L^{-1} J J^T L^{-T} lie near 1."""
    rows, width = 40, 640
    j = prescribed.factor(np.geomspace(1.0, 1e-5, rows), 3000)
    tiles = _stored(j, dtype, by_rows, columns=20).tiles
    y = np.concatenate(sketched(tiles, width, seed=1), axis=1).astype(float)
    triangle = np.linalg.cholesky(y @ y.T)
    values = np.linalg.svd(np.linalg.solve(triangle, j), compute_uv=False) ** 2
    distortion = (rows / width) ** 0.5
    assert (1 + 1.5 * distortion) ** -2 < values.min()
    assert values.max() < (1 - 1.5 * distortion) ** -2


@pytest.mark.parametrize("kappa", [1e4, 1e9, 1e15])
@pytest.mark.parametrize(("dtype", "by_rows"), LAYOUTS)
def test_a_preconditioner_is_made_whatever_kappa_is(kappa, dtype, by_rows):
    """Where a Gram matrix is not positive definite in one precision, a better one is used."""
    j = prescribed.factor(np.geomspace(1.0, 1 / kappa, 30), 300)
    for width in (0, 120):
        made, _, _ = prescribed.ready(j, width=width, dtype=dtype, by_rows=by_rows)
        held = np.concatenate(made.factor.tiles, axis=1).astype(float)
        lower = made.triangle.matrix
        values = np.linalg.svd(np.linalg.solve(lower, held), compute_uv=False)
        assert np.isfinite(values).all()
        if kappa < 1e6:
            assert values.max() < 30 * values.min()


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("kappa", [1e3, 1e9])
def test_ends_on_a_device_are_those_on_the_host(kappa, by_rows):
    """What an accelerator does: J, its Gram matrix and L are arrays of JAX."""
    j = prescribed.factor(np.geomspace(1.0, 1 / kappa, 60), 200)
    answers = []
    for on_device in (False, True):
        made, *ends = prescribed.ready(j, width=0, by_rows=by_rows, block=8, on_device=on_device)
        assert isinstance(made.triangle.matrix, jax.Array if on_device else np.ndarray)
        assert made.least == pytest.approx(1 / kappa, rel=0.05)
        answers.append([certified(end, 1e-4, 1e-6) for end in ends])
        conditioning = np.linalg.cond(np.asarray(made.triangle.matrix), 1)
        assert conditioning / 10 < made.triangle.conditioning() < 1.01 * conditioning
    for on_host, on_device in zip(*answers, strict=True):
        assert on_device.values == pytest.approx(on_host.values, rel=1e-6)
        assert on_device.bounds == pytest.approx(on_host.bounds, rel=1e-6)


def test_a_matrix_that_is_not_positive_definite_has_no_triangle_on_a_device():
    assert cholesky(jnp.diag(jnp.array([1.0, -1.0]))) is None
    assert cholesky(np.diag([1.0, -1.0])) is None


NETWORKS = ("convolutions on the side of the outputs", "the side of the parameters", "pruned")


def _network(name):
    if name == NETWORKS[0]:
        images = jax.random.normal(jax.random.key(1), (6, 6, 6, 1))
        cnn = gnjax.models.CNN((6, 6, 1), 3, filters=(4,), key=jax.random.key(0))
        return gnjax.ntk(cnn, images)
    weights = jax.random.normal(jax.random.key(2), (5, 4)) / 2
    x = jax.random.normal(jax.random.key(3), (40, 5))
    mask = np.arange(20).reshape(5, 4) % 3 > 0 if name == "pruned" else None
    return gnjax.gauss_newton((lambda w, x: jnp.tanh(x @ w), weights), x, mask=mask)


@pytest.mark.parametrize("name", NETWORKS)
def test_kappa_of_a_network_by_products_is_that_by_singular_values(name):
    op = _network(name)
    answer = gnjax.condition_number(op, method="sketched")
    exact = gnjax.condition_number(op, method="factored")
    assert answer.method == "sketched"
    assert answer.interval[0] <= exact.interval[1]
    assert exact.interval[0] <= answer.interval[1] <= 1.0011 * exact.value
    assert 0 < answer.certificate.failure <= 1e-3


@pytest.mark.parametrize("name", NETWORKS[:2])
def test_kappa_on_an_accelerator_is_that_on_the_host(name, monkeypatch):
    """The way of a GPU from the rows of J to kappa, with JAX's arrays on a CPU."""
    op = _network(name)
    exact = gnjax.condition_number(op, method="factored")
    monkeypatch.setattr("gnjax.numerics.host.on_cpu", lambda array: isinstance(array, np.ndarray))
    for module in ("numerics.host", "spectra.preconditioned_ends.plan"):
        monkeypatch.setattr(f"gnjax.{module}.on_gpu", lambda: True)
    answer = gnjax.condition_number(op, method="sketched")
    assert answer.method == "sketched"
    assert answer.interval[0] <= exact.interval[1]
    assert exact.interval[0] <= answer.interval[1] <= 1.0011 * exact.value


def test_rows_of_a_stored_factor_stay_on_the_accelerator_that_holds_them(monkeypatch):
    """2,000 rows are read in two parts, and ``form``, which copies J to the host, is not used."""
    j = np.random.default_rng(0).standard_normal((2000, 3))
    op = gnjax.factored(j)
    assert factorisation_of(op).blocks is None
    monkeypatch.setattr("gnjax.operators.stored.matrices.on_cpu", lambda array: False)
    parts = list(factorisation_of(op).parts())
    assert [type(part) for part in parts] == [type(op.factor)] * 2
    np.testing.assert_array_equal(np.concatenate(parts), j)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_mask_reduces_what_is_held_and_multiplied_in_proportion(share):
    """Columns of pruned weights are neither yielded nor held, and count in no product."""
    images = jax.random.normal(jax.random.key(1), (4, 8, 8, 3))
    model = gnjax.models.CNN((8, 8, 3), 3, filters=(16, 24), key=jax.random.key(0))
    rng, (_, params) = np.random.default_rng(0), gnjax.functional(model)
    mask = jax.tree.map(lambda w: rng.random(w.shape) >= share, params)
    left = sum(int(m.sum()) for m in jax.tree.leaves(mask))
    whole, pruned = (factorisation_of(gnjax.ntk(model, images, mask=m)) for m in (None, mask))
    assert pruned.shape == (12, left)
    assert all(block.shape[1] == left for block in pruned.parts())
    held = store(pruned.parts(), pruned.shape, by_rows=True, dtype=np.dtype(float), columns=16)
    assert sum(tile.nbytes for tile in held.tiles) <= 8 * 12 * (left + 15)
    factorised = 12**3 / 3
    work = [planned(factor, gnjax.Limits()).work - factorised for factor in (pruned, whole)]
    assert work[0] / work[1] == pytest.approx(left / whole.shape[1])


@pytest.mark.parametrize("seed", range(3))
def test_the_matrix_of_the_caller_preconditions_any_operator(seed):
    """A good one, a bad one and none: the same kappa, and only the products differ."""
    rng = np.random.default_rng(seed)
    j = prescribed.factor(np.geomspace(1.0, 1e-6, 60), 80, seed)
    matrix = j @ j.T
    noise = rng.standard_normal((60, 60))
    good = matrix + 1e-9 * noise @ noise.T
    answers = [
        gnjax.condition_number(matrix, preconditioner=near, certify="ritz")
        for near in (good, np.eye(60))
    ]
    exact = np.linalg.cond(j) ** 2
    for answer in answers:
        assert answer.interval[0] * (1 - 1e-9) <= exact <= answer.interval[1] * (1 + 1e-9)
    assert answers[0].method == "sketched"
    assert answers[0].products <= answers[1].products


@pytest.mark.parametrize("multiple", [1e-290, 1e-9, 1e9, 1e300])
def test_any_multiple_of_a_preconditioner_takes_as_many_products(multiple):
    values = np.geomspace(1.0, 1e-8, 60)
    answers = [
        gnjax.condition_number(np.diag(values), preconditioner=np.diag(near))
        for near in (1.01 * values, multiple * values)
    ]
    assert [answer.method for answer in answers] == ["sketched"] * 2
    assert answers[0].products == answers[1].products
    assert answers[1].interval[0] <= 1e8 * (1 + 1e-9)
    assert answers[1].interval[1] >= 1e8 * (1 - 1e-9)


def test_a_preconditioner_that_cannot_be_one_is_refused():
    with pytest.raises(ValueError, match="not positive definite"):
        gnjax.condition_number(np.eye(3), preconditioner=-np.eye(3))
    with pytest.raises(ValueError, match=r"pass a matrix of shape \(3, 3\)"):
        gnjax.condition_number(np.eye(3), preconditioner=np.eye(2))
    with pytest.raises(ValueError, match="method='dense'"):
        gnjax.condition_number(np.eye(3), preconditioner=np.eye(3), method="dense")


def test_a_factor_with_no_room_is_refused_before_it_is_formed():
    def fail():
        raise AssertionError

    factor = prescribed.stated(np.ones((2, 3)))
    large = type(factor)((1000, 10**8), fail, factor.error, fail)
    assert "rows_bytes=4e+11" in planned(large, gnjax.Limits()).refused


def test_rows_on_a_gpu_may_take_what_it_has_free_where_the_caller_says_nothing(monkeypatch):
    """10,000 rows by a million columns: 80 GB in float64, which no host gives unasked."""
    factor = prescribed.stated(np.ones((2, 3)))
    large = replace(factor, shape=(10_000, 10**6))
    monkeypatch.setattr("gnjax.spectra.preconditioned_ends.plan.free_memory", lambda: (64e9, ""))
    assert "limits allow 12 GB" in planned(large, gnjax.Limits()).refused
    monkeypatch.setattr("gnjax.spectra.preconditioned_ends.plan.on_gpu", lambda: True)
    monkeypatch.setattr("gnjax.spectra.preconditioned_ends.plan.free_device_memory", lambda: 140e9)
    assert not planned(large, gnjax.Limits()).refused
    assert planned(large, gnjax.Limits()).dtype == np.float64
    assert planned(large, gnjax.Limits(rows_bytes=4e10)).dtype == np.float32
    assert "limits allow 1 GB" in planned(large, gnjax.Limits(rows_bytes=1e9)).refused


@pytest.mark.parametrize("unknown", [1e153, 1e155, 1e300])
def test_an_error_whose_square_overflows_leaves_kappa_open(unknown):
    j = prescribed.factor(np.geomspace(1.0, 0.1, 12), 40)
    op = replace(gnjax.factored(j), stored_error=jnp.asarray(unknown))
    answer = gnjax.condition_number(op, method="sketched")
    assert not answer.resolved
    assert not np.isfinite(answer.interval[1])
    smallest = gnjax.eigenvalues(op, k=2, which="smallest", limits=gnjax.Limits(whole_rows=4))
    assert (smallest.errors >= unknown).all()


def test_work_that_is_stopped_returns_what_it_has():
    """Ctrl-C in the first products: the best values so far, marked unfinished."""
    j = prescribed.factor(np.geomspace(1.0, 1e-6, 200), 2000)
    seen = []

    def progress(done, expected):
        seen.append(done)
        if done > 230:  # after the rows of J
            raise KeyboardInterrupt

    k = gnjax.condition_number(gnjax.factored(j), method="sketched", progress=progress)
    assert not k.finished
    assert not k.resolved
    assert k.interval[0] <= 1e6 * (1 + 1e-9)
    assert seen[-1] < 400


@pytest.mark.filterwarnings("error")
def test_a_preconditioner_says_nothing_about_the_matrix():
    """Negative definite and zero matrices are what they are beside a good preconditioner."""
    with pytest.raises(ValueError, match="the operator is not positive semidefinite"):
        gnjax.condition_number(gnjax.dense(-np.diag([1.0, 2.0, 3.0])), preconditioner=np.eye(3))
    zero = gnjax.condition_number(gnjax.dense(np.zeros((4, 4))), preconditioner=np.eye(4))
    assert np.isnan(zero.value)
    assert not zero.resolved
