"""The stages of a diagnosis: what comes first, and what time or Ctrl-C leaves out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import gnjax
from gnjax.conditioning.condition_number import condition_of_spectrum
from gnjax.diagnosis import diagnose as module
from gnjax.diagnosis import layer_shares
from gnjax.diagnosis.course import NO_TIME, STOPPED, Course
from gnjax.diagnosis.layer_grams import Gram, condition_by_gram, gram_of
from gnjax.diagnosis.remedies import tried
from gnjax.networks.null_space import ranks
from gnjax.numerics.certificate import certificate
from gnjax.numerics.rank_bound import RankBound
from gnjax.spectra.spectrum import Spectrum
from gnjax.spectra.watch import Watch

_N = 12


def _problem():
    rng = np.random.default_rng(0)
    model = gnjax.models.MLP((4, 6, 6, 3), activation="tanh", key=jax.random.key(1))
    return model, rng.standard_normal((_N, 4)), rng.standard_normal((_N, 3))


@pytest.fixture
def large(monkeypatch):
    """Diagnoses as of a large Jacobian, whose largest eigenvalues come first."""
    monkeypatch.setattr(module, "_SMALL_WORK", 0)


class _Clock:
    """A clock that stands still until a test sets it."""

    now = 0.0

    def __call__(self):
        return self.now


def test_a_stage_is_left_out_if_its_forecast_is_longer_than_what_is_left():
    clock = _Clock()
    course = Course(Watch(), 60.0, clock)

    def work(seconds):
        clock.now += seconds
        return seconds

    assert course.first("first", lambda: work(25.0), 100.0) == 25.0  # whatever it takes
    assert course.last == course.elapsed == 25.0
    assert course.stage("too long", lambda: work(1.0), 36.0) is None
    assert course.stage("short enough", lambda: work(30.0), 35.0) == 30.0
    assert course.stage("nobody can tell how long", lambda: work(10.0)) == 10.0
    assert course.stage("needed", lambda: 1, 100.0, always=True) == 1
    assert course.stage("late", lambda: work(1.0)) is None  # 65 of 60 seconds are gone
    assert [(part.name, part.reason, part.seconds) for part in course.left_out] == [
        ("too long", NO_TIME, 36.0),
        ("late", NO_TIME, None),
    ]
    assert clock.now == 65.0


def test_after_ctrl_c_all_other_stages_are_left_out():
    course = Course(Watch(), math.inf, _Clock())

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        course.first("needed", interrupted)
    assert course.stage("kappa", interrupted) is None
    assert course.stage("remedies", lambda: 1) is None
    assert {part.reason for part in course.left_out} == {STOPPED}


def test_a_large_jacobian_gives_the_same_numbers_by_other_roads(monkeypatch):
    """Products, J J^T and its terms, beside the singular values of J and of its parts."""
    model, x, y = _problem()
    small = gnjax.diagnose(model, x, y)
    monkeypatch.setattr(module, "_SMALL_WORK", 0)
    large = gnjax.diagnose(model, x, y)
    assert large.condition.value == pytest.approx(small.condition.value, rel=1e-6)
    assert large.condition.rank == small.condition.rank
    assert large.learning_rate == pytest.approx(small.learning_rate, rel=1e-9)
    assert large.sharpness == pytest.approx(small.sharpness, rel=1e-9)
    np.testing.assert_allclose(large.eigenvalues[:30], small.eigenvalues[:30], rtol=1e-6)
    for one, other in zip(large.layers, small.layers, strict=True):
        assert (one.top, one.bottom) == pytest.approx((other.top, other.bottom), abs=1e-7)
        assert one.block.value == pytest.approx(other.block.value, rel=1e-5)
        assert one.block.rank == other.block.rank
    assert [s.name for s in large.suggestions] == [s.name for s in small.suggestions]
    for one, other in zip(large.suggestions, small.suggestions, strict=True):
        assert one.after.value == pytest.approx(other.after.value, rel=1e-5)
    assert large.left_out == small.left_out


def test_without_time_there_are_learning_rates_and_shares_and_what_the_rest_takes(large, tmp_path):
    model, x, y = _problem()
    whole = gnjax.gauss_newton(model, x)
    found = gnjax.diagnose(model, x, y, seconds=1e-6)
    largest = float(gnjax.eigenvalues(whole, k=1).values[0])
    assert found.learning_rate == pytest.approx(2 / largest, rel=1e-9)
    assert sum(layer.top for layer in found.layers) == pytest.approx(1)
    assert (found.condition, found.best_learning_rate, found.rate) == (None, None, None)
    assert found.sharpness is not None
    assert (found.steps_per_decade, found.eigenvalues, found.culprit) == (None, None, None)
    names = [part.name for part in found.left_out]
    assert names == [
        "kappa of all samples",
        "kappa of each layer by itself",
        "all remedies",
    ]
    assert found.left_out[0].seconds > 0
    text = str(found)
    assert "kappa was not measured" in text
    assert "needs targets y" not in text
    assert "not measured: kappa of all samples (about" in text
    assert "seconds=math.inf" in text
    again = gnjax.Diagnosis.from_json(found.to_json())
    assert again.left_out == found.left_out
    gnjax.plot(found).savefig(tmp_path / "without.png")
    for wrong in (0, -1.0, math.nan, True, "60"):
        with pytest.raises(ValueError, match=r"seconds=.* is not a positive number"):
            gnjax.diagnose(model, x, seconds=wrong)


@pytest.mark.parametrize("name", ["_decomposed", "_kappa"])
def test_ctrl_c_gives_the_report_of_what_is_known(name, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    model, x, y = _problem()
    monkeypatch.setattr(module._Stages, name, interrupted)
    if name == "_kappa":  # of a small Jacobian, where it is the first stage
        with pytest.raises(KeyboardInterrupt, match="during kappa, before there was an answer"):
            gnjax.diagnose(model, x, y)
        return
    monkeypatch.setattr(module, "_SMALL_WORK", 0)
    found = gnjax.diagnose(model, x, y)
    assert found.condition is None
    assert found.sharpness is not None
    assert "interrupted" in str(found)


def test_ctrl_c_in_a_remedy_keeps_kappa_and_the_remedies_before_it(monkeypatch):
    def interrupted(problem, baseline):
        def kappa():
            raise KeyboardInterrupt

        return tried.Remedy("interrupted", "", (("", kappa),))

    model, x, _ = _problem()
    first, second, *_ = tried.REMEDIES
    monkeypatch.setitem(tried.REMEDIES, second, interrupted)
    found = gnjax.diagnose(model, x)
    assert found.condition.rank == 36
    assert [remedy.name for remedy in found.suggestions] == [first]
    reasons = {part.name: part.reason for part in found.left_out}
    assert reasons["interrupted"] == reasons["the metric diag(G)"] == STOPPED


def test_a_log_has_each_result_when_it_is_known(large, capfd):
    model, x, y = _problem()
    found = gnjax.diagnose(model, x, y, progress=True)
    lines = [line[16:] for line in capfd.readouterr().err.splitlines()]
    starts = [
        "reading the equations of the model",
        "lambda_max of G, with a network of 93 parameters",
        f"lambda_max(G) = {found.whole_lambda_max:.4g}: gradient descent",
        "shares of lambda_max: ",
        "lambda_max of the Hessian, about ",
        f"lambda_max(H) = {found.sharpness:.4g}: stable below",
        "kappa of all samples, about ",
        f"kappa = {found.condition.value:.6g} in ",
        "shares of lambda_min: ",
        "kappa of each layer by itself, about ",
        "standardised inputs, about ",
        "standardised inputs: ",
    ]
    places = [next(i for i, line in enumerate(lines) if line.startswith(start)) for start in starts]
    assert places == sorted(places)


@pytest.mark.parametrize("seconds", [math.inf, 1e-6])
def test_a_callers_function_counts_the_stages_of_any_jacobian(seconds, large):
    model, x, y = _problem()
    seen = []
    gnjax.diagnose(model, x, y, seconds=seconds, progress=lambda *stage: seen.append(stage))
    assert seen[-1] == (10, 10)


def test_the_rounding_of_a_gram_matrix_is_bounded():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20, 5000)) * np.logspace(0, -6, 20)[:, None] + 1.0
    gram = gram_of(rows)
    exact = rows.astype(np.longdouble) @ rows.astype(np.longdouble).T
    error = np.linalg.norm((gram.matrix - exact).astype(float), 2)
    assert 0 < error <= gram.rounding < 1e-9 * np.linalg.norm(gram.matrix, 2)
    double = gram + gram
    np.testing.assert_array_equal(double.matrix, 2 * gram.matrix)
    assert double.rounding >= 2 * gram.rounding
    np.testing.assert_allclose(double.less(gram, 0.75).matrix, 1.25 * gram.matrix, rtol=1e-14)


@pytest.mark.parametrize(("decades", "by_gram"), [(2, True), (9, False)])
def test_kappa_is_that_of_singular_values_where_a_gram_matrix_has_lost_digits(
    decades, by_gram, monkeypatch
):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n, 20)))[0] for n in (20, 300))
    rows = (left * np.logspace(0, -decades, 20)) @ right.T
    op = SimpleNamespace(factor_error=lambda: gnjax.Error(1e-15, "measured"))
    asked = []
    kappa = condition_by_gram(
        op, gram_of(rows), lambda: asked.append(rows) or rows, lambda: RankBound(20)
    )
    assert bool(asked) != by_gram
    assert kappa.value == pytest.approx(10.0 ** (2 * decades), rel=1e-5)
    assert kappa.interval[0] <= 10.0 ** (2 * decades) <= kappa.interval[1]
    assert kappa.resolved


def test_a_gram_matrix_beyond_its_rank_need_not_have_digits():
    """A rank that structure gives; the other singular values are rounding."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 10)) @ rng.standard_normal((10, 200))
    op = SimpleNamespace(factor_error=lambda: gnjax.Error(1e-15, "measured"))
    kappa = condition_by_gram(op, gram_of(rows), pytest.fail, lambda: RankBound(10))
    sigma = np.linalg.svd(rows, compute_uv=False)
    assert kappa.rank == 10
    assert kappa.value == pytest.approx((sigma[0] / sigma[9]) ** 2, rel=1e-9)
    assert isinstance(gram_of(rows), Gram)


@pytest.mark.parametrize(
    ("after", "asked"),
    [(3e-13, 0), (1e-17, 1), (-1e-17, 1)],  # a fall through the errors, and zeros with rounding
)
def test_a_bound_on_the_rank_is_asked_only_where_eigenvalues_end_above_their_errors(after, asked):
    """Class: minutes for a rank modulo a prime that told nothing about an unresolved kappa."""
    values = np.array([1.0, 1e-6, 1e-12, after])
    spectrum = Spectrum(values, np.full(4, 4e-13), "factored", certificate(gnjax.Error(4e-13)))
    bounds = []

    def limit():
        bounds.append(RankBound(3))
        return bounds[-1]

    kappa = condition_of_spectrum(gnjax.dense(np.eye(4)), spectrum, 4, limit)
    assert bool(bounds) == bool(asked)
    assert kappa.resolved == bool(asked)
    assert kappa.rank == 3


def test_layers_of_a_large_network_are_not_followed_modulo_a_prime(monkeypatch):
    """What it takes is out of proportion there, unless all evidence is asked for."""
    followed = []
    monkeypatch.setattr(ranks, "_bounds", lambda *args: followed.append(args) or [RankBound(0)] * 2)
    monkeypatch.setattr(ranks, "_bound_by_rows", lambda net, part, bound: bound)
    model = gnjax.models.MLP((4, 16, 3), activation="tanh", key=jax.random.key(0))
    op = gnjax.ntk(model, np.random.default_rng(0).standard_normal((5, 4)))
    parts = layer_shares.layer_columns(op)
    assert [b.value for b in ranks.entry_rank_bounds(op.net, parts, only_quickly=True)] == [0, 0]
    monkeypatch.setattr(ranks, "_A_SECOND", 10.0)
    assert [b.value for b in ranks.entry_rank_bounds(op.net, parts, only_quickly=True)] == [15, 15]
    assert len(followed) == 1
    assert [b.value for b in ranks.entry_rank_bounds(op.net, parts)] == [0, 0]
