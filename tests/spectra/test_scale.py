"""Scale: kappa does not depend on the norm of a matrix, and no answer may either.

The class of mistakes: a square, a product or an error that under- or overflows where its root does
not, so that an error becomes zero, a number subnormal, or a norm infinite. Where squares have no
room, every question is refused in one sentence.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

import gnjax
from tests.contracts.questions import QUESTIONS

RNG = np.random.default_rng(3)
FACTOR = RNG.integers(-9, 10, (4, 6)).astype(float)
MATRIX = FACTOR @ FACTOR.T  # of integers: any power of two times it is exact, down to 2^-1074
KAPPA = gnjax.condition_number(MATRIX).value
FAR = (-140, -60, 60, 140)  # squares of these powers and of errors have room, also of a factor
BEYOND = (-1070, -1030, -600, -350, 350, 600, 1000)


class UsersOwn:
    """Products and a matrix, and nothing else."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.dtype = matrix, matrix.shape, np.dtype(float)

    def facts(self):
        return gnjax.operators.Facts(error=0.0)

    def mv(self, v):
        return self.matrix @ np.asarray(v)

    def as_matrix(self):
        return self.matrix


def operators(power):
    yield gnjax.dense(np.ldexp(MATRIX, power)), KAPPA
    yield UsersOwn(np.ldexp(MATRIX, power)), KAPPA
    yield gnjax.factored(np.ldexp(FACTOR, power)), KAPPA
    yield gnjax.diagonal(np.ldexp([4.0, 2.0, 1.0], power)), 4.0
    yield 3.0 * gnjax.dense(np.ldexp(MATRIX, min(power, 990))), KAPPA
    yield gnjax.dense(np.ldexp(MATRIX, power)) + float(np.ldexp(0.0, power)), KAPPA


@pytest.mark.parametrize("power", FAR)
@pytest.mark.parametrize("method", ["auto", "dense", "krylov", "inverse"])
@pytest.mark.parametrize("certify", ["ritz", "inertia"])
def test_a_power_of_two_leaves_kappa_and_its_width_as_they_are(power, method, certify):
    for (op, true), (near, _) in zip(operators(power), operators(0), strict=True):
        found = gnjax.condition_number(op, method=method, certify=certify)
        usual = gnjax.condition_number(near, method=method, certify=certify)
        low, high = found.interval
        assert found.resolved
        assert low <= true * (1 + 1e-14)  # the true value is itself rounded
        assert true * (1 - 1e-14) <= high
        assert high - low <= 1.01 * (usual.interval[1] - usual.interval[0]) + 1e-12 * true


def networks(power):
    """A network whose products underflow, and one whose parameters are far from 1."""
    x = RNG.standard_normal((3, 4))
    yield gnjax.ntk((lambda w, x: x @ w * float(np.ldexp(1.0, power)), np.ones((4, 1))), x)
    params = [np.ldexp(RNG.standard_normal(shape), power) for shape in ((4, 5), (5, 3))]
    yield gnjax.ntk((lambda p, x: x @ p[0] @ p[1], params), x)


ASK = {name: question.ask for name, question in QUESTIONS.items()}
# where the norm is stated these ask for it, and else they work at any scale
STATED = {"pairs", "trace", "exact trace", "diagonal", "all eigenvalues"}
# these are read off the eigenvalues where an operator states them, at any scale
OF_STATED_EIGENVALUES = {
    "effective dimension",
    "log determinant",
    "some eigenvalues",
    "trace of a function",
}


@pytest.mark.parametrize("power", BEYOND)
def test_squares_without_room_are_refused_in_one_sentence(power):
    for op, _ in operators(power):
        states_eigenvalues = isinstance(op, gnjax.operators.Diagonal)
        answered = STATED if isinstance(op, UsersOwn) or states_eigenvalues else set()
        answered = answered | OF_STATED_EIGENVALUES if states_eigenvalues else answered
        for question in (ask for name, ask in ASK.items() if name not in answered):
            with pytest.raises(ValueError, match="power of two: kappa stays as it is"):
                question(op)


class OfRoundedNumbers(UsersOwn):
    """A matrix whose error, of 1e-9 of its norm, is known only when its norm is."""

    def facts(self):
        return gnjax.operators.Facts(error=lambda norm: gnjax.Error(1e-9 * norm), symmetric=True)


@pytest.mark.parametrize("power", [-1000, -600, 518, 1000])
def test_the_exact_trace_of_a_users_own_operator_has_its_error_at_any_scale(power):
    def total(answer):
        return sum(part.value for part in answer.certificate.parts)

    near = gnjax.trace(OfRoundedNumbers(MATRIX), method="exact")
    far = gnjax.trace(OfRoundedNumbers(np.ldexp(MATRIX, power)), method="exact")
    assert total(near) > 1e-9 * np.linalg.norm(MATRIX)
    assert far.value == np.ldexp(near.value, power)
    assert np.ldexp(total(far), -power) == pytest.approx(total(near))


@pytest.mark.parametrize("power", [-1000, -530, -510, 400])
def test_networks_without_room_are_refused_in_one_sentence(power):
    for op in networks(power):
        for question in ASK.values():
            with pytest.raises(ValueError, match="power of two: kappa stays as it is"):
                question(op)


def test_the_sentence_says_how_far_away_the_norm_is():
    with pytest.raises(ValueError, match=r"about 1e\+183, and in float64 .* 1e-92 to 1e\+92"):
        gnjax.condition_number(gnjax.dense(np.ldexp(MATRIX, 600)))


def test_parts_that_undo_each_other_are_refused():
    lefts, rights = [np.ldexp(np.eye(2), 600)], [np.ldexp(np.eye(3), -600)]
    for op in (
        np.ldexp(1.0, 600) * gnjax.dense(np.ldexp(MATRIX, -600)),
        2.0 * gnjax.papers.sum_of_kroneckers(lefts, rights),
        gnjax.papers.sum_of_kroneckers(lefts, rights),
    ):
        with pytest.raises(ValueError, match="made of numbers beyond"):
            gnjax.condition_number(op)


def test_products_that_are_zero_are_so_up_to_underflow():
    """Who states no norm may have a matrix of zeros, or one that is too small."""
    for matrix in (np.zeros((3, 3)), np.ldexp(MATRIX, -1074) / 2.0**20):
        found = gnjax.eigenvalues(UsersOwn(matrix))
        assert (found.values == 0).all()
        assert (found.errors > 0).all()
        assert not gnjax.condition_number(UsersOwn(matrix)).resolved


@pytest.mark.parametrize("power", [-150, 150])
def test_singular_values_resolve_kappa_at_every_scale(power):
    graded = np.ldexp(np.diag([1.0, 1e-5, 1e-10]), power)
    found = gnjax.condition_number(gnjax.factored(graded))
    low, high = found.interval
    assert found.resolved
    assert low <= 1e20 * (1 + 1e-14)
    assert high >= 1e20 * (1 - 1e-14)  # 1e-10 is rounded


@pytest.mark.parametrize("power", [-290, -70, 70, 290])
def test_a_density_has_the_scale_of_the_matrix(power):
    near = gnjax.spectral_density(MATRIX, probes=3, steps=4)
    found = gnjax.spectral_density(np.ldexp(MATRIX, power), probes=3, steps=4)
    assert np.ldexp(found.nodes, -power) == pytest.approx(near.nodes, rel=1e-9)
    assert found.floor > 0
    moments = near.moment(1), found.moment(1)
    for name in ("value", "standard_error"):
        one, other = (float(getattr(moment, name)) for moment in moments)
        assert np.ldexp(other, -power) == pytest.approx(one, rel=1e-9)
    middle = float(np.median(near.nodes))
    shares = near.pdf([middle], log=True), found.pdf([float(np.ldexp(middle, power))], log=True)
    assert shares[1].standard_error == pytest.approx(shares[0].standard_error, rel=1e-6)
    heights = near.pdf([middle]), found.pdf([float(np.ldexp(middle, power))])
    for name in ("value", "standard_error"):
        one, other = (getattr(height, name) for height in heights)
        assert np.ldexp(other, power) == pytest.approx(one, rel=1e-9)
    assert np.isfinite([part.value for part in heights[1].certificate.parts]).all()


@pytest.mark.parametrize("powers", [(120, -110, -100), (280, -280, -20), (0, 0, -250)])
def test_a_multiple_of_kroneckers_loses_no_digits_where_only_one_side_is_small(powers):
    """What underflows on one side of A (x) B is multiplied by the norm of the other side."""
    rng = np.random.default_rng(5)
    lefts, rights = ([f @ f.T for f in rng.standard_normal((2, n, n + 2))] for n in (2, 3))
    near = gnjax.papers.sum_of_kroneckers(lefts, rights)
    true = gnjax.condition_number(near)
    left, right, weight = powers
    sides = [np.ldexp(a, left) for a in lefts], [np.ldexp(b, right) for b in rights]
    op = 2.0**weight * gnjax.papers.sum_of_kroneckers(*sides)
    for method in ("auto", "dense", "krylov"):
        found = gnjax.condition_number(op, method=method)
        assert found.interval[0] <= true.interval[1]
        assert true.interval[0] <= found.interval[1]
        assert found.interval[1] - found.interval[0] <= 1e-9 * true.value  # as at the usual scale
    found, usual = gnjax.eigenvalues(op), gnjax.eigenvalues(near)
    apart = np.abs(np.ldexp(found.values, -sum(powers)) - usual.values)
    assert (apart <= np.ldexp(found.errors, -sum(powers)) + usual.errors).all()


@pytest.mark.parametrize("power", [-511, -515, -530])
def test_underflow_inside_of_a_network_is_no_relative_rounding(power):
    """Features h^2 are subnormal, so that XLA takes them for zeros, and are multiplied back."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))

    def network(params, x):
        h = x @ np.ldexp(w, power)
        return (h * h) * 2.0**1020 @ params

    features = (x @ w) ** 2
    op = gnjax.ntk((network, np.ones((5, 1))), x)
    found = gnjax.eigenvalues(op)
    true = np.ldexp(np.linalg.svd(features, compute_uv=False), 2 * power + 1020) ** 2 / len(x)
    assert (np.abs(found.values - true) <= found.errors).all()
    assert not gnjax.condition_number(op).resolved


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("powers", [(-550, -555, 470, 480), (-530, -520, 500, 400), (-3, 2, 5, -4)])
def test_underflow_in_a_large_network_is_no_relative_rounding_either(powers, inside):
    """A large one, with parameters or constants inside of the model, is measured in one program.

    There, what underflows is zero with and without noise. The inputs of the last layer go through
    tiny numbers, and large weights bring them back.
    """
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal(shape) for shape in ((3, 5), (5, 5), (5, 3), (3, 3), (3, 1))]
    x, total = rng.standard_normal((3, 3)), sum(powers)
    unused = np.zeros(2_100_000)  # makes it a large one

    def model(params, x):
        for w in params[:5]:
            x = x @ w
        return x

    def spectrum(powers):
        *far, last = [np.ldexp(w, power) for w, power in zip(weights, (*powers, 0), strict=True)]
        if inside:
            constant = (lambda p, x: model([*far, p[4]], x)), {4: last, 5: unused}
            return gnjax.eigenvalues(gnjax.ntk(constant, x, only="4"))
        return gnjax.eigenvalues(gnjax.ntk((model, [*far, last, unused]), x, only="4"))

    near, far = spectrum((0, 0, 0, 0)), spectrum(powers)
    expected, errors = np.ldexp(near.values, 2 * total), np.ldexp(near.errors, 2 * total)
    assert (np.abs(far.values - expected) <= far.errors + errors).all()


@pytest.mark.parametrize("method", ["auto", "dense", "krylov"])
def test_nothing_is_resolved_where_kappa_is_not_a_number(method):
    zero, graded = np.zeros((3, 3)), np.diag([1e90, 1e-90])
    for op in (gnjax.dense(zero), gnjax.diagonal(np.diagonal(zero)), gnjax.dense(graded)):
        found = gnjax.condition_number(op, method=method)
        assert not found.resolved
        assert np.isnan(found.value) or found.interval[1] == np.inf


def test_exact_zeros_come_after_eigenvalues_that_rounding_has_made_negative():
    """J^T J of nearly equal rows has a smallest eigenvalue far below the rounding of the matrix."""
    rows = np.ones((1, 8)) + np.array([[0.0], [1e-9], [3e-9]]) * np.arange(8.0)
    few = gnjax.Limits(whole_rows=1)
    true = np.sort(np.linalg.svd(rows, compute_uv=False) ** 2)[::-1]
    for scale in (1.0, 2.0**-140):
        found = gnjax.eigenvalues(gnjax.factored(scale * rows.T), k=8, limits=few)
        wanted = np.pad(true, (0, 5))
        assert (np.abs(found.values / scale**2 - wanted) <= found.errors / scale**2 + 1e-18).all()


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("power", [-35, -20, 20, 25])
def test_float32_has_the_same_answers_at_its_own_ends(power):
    """Its squares under- and overflow from 2^-63 and 2^64 on."""
    with jax.enable_x64(False):
        factor = np.ldexp(FACTOR, power).astype(np.float32)
        near = gnjax.condition_number(gnjax.factored(FACTOR.astype(np.float32)))
        found = gnjax.condition_number(gnjax.factored(factor))
        matrix = gnjax.condition_number(gnjax.dense(np.ldexp(MATRIX, power).astype(np.float32)))
    for each in (near, found, matrix):
        assert each.resolved
        assert each.interval[0] <= KAPPA <= each.interval[1]
    assert found.interval == near.interval


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
@pytest.mark.parametrize("scale", [1e-60, 1e-39, 1e25, 1e60])
def test_numbers_that_float32_cannot_hold_are_refused_or_not_resolved(scale):
    with jax.enable_x64(False):
        if scale > 1e38:
            with pytest.raises(ValueError, match="beyond the largest float32"):
                gnjax.dense(scale * MATRIX)
        elif scale < 1e-45:  # all of its numbers are zero
            assert not gnjax.condition_number(gnjax.dense(scale * MATRIX)).resolved
        else:
            with pytest.raises(ValueError, match=r"in float32 .* 1e-19 .*enable_x64"):
                gnjax.condition_number(gnjax.dense(scale * MATRIX))


@pytest.mark.filterwarnings("ignore:JAX is in 32-bit mode")
def test_a_matrix_that_underflows_in_float32_is_not_known_exactly():
    """Every curvature of this cross-entropy is below float32's range, and none is zero."""
    with jax.enable_x64(False):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((6, 4)).astype(np.float32)
        weights = 2000 * rng.standard_normal((4, 3)).astype(np.float32)
        y = (x @ weights).argmax(1)
        op = gnjax.gauss_newton((lambda w, x: x @ w, weights), x, y, loss="cross_entropy")
        found = gnjax.eigenvalues(op, k=3, which="largest")
    assert not found.values.any()
    assert (found.errors > 0).all()
