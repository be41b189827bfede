"""Residual networks at several betas and raw data beside whitened: operators, cells and claims."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame

import gnjax
from experiments import beta_sweep, whitening_sweep
from experiments.beta_sweep import EXPERIMENT
from experiments.shared.linear_network import initial_weights
from experiments.shared.whitened import whitened
from gnjax import data, papers
from gnjax.papers.closed_form.from_weights import linear_gauss_newtons
from sweeps.claims import FAILS, HOLDS, NOT_TESTABLE, UNDECIDED, Claim
from sweeps.config import ConfigError
from sweeps.rows import where
from tests import exact, references
from tests.experiments.configs import changed

SKIPS = (0.0, -0.4, 0.5, 2.0)


def draw(seed: int, *widths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = zip(widths[1:], widths[:-1], strict=True)
    return [rng.standard_normal(shape) for shape in shapes]


# Several betas ----------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.sampled_from([1, 2, 4]),
    width=st.sampled_from([2, 5]),
    raw=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_every_beta_has_the_matrix_of_equation_7(
    seed: int, depth: int, width: int, raw: bool
) -> None:
    weights = draw(seed, 4, *[width] * (depth - 1), 3)
    rows = np.random.default_rng(seed + 1).standard_normal((9, 4))
    covariance = rows.T @ rows / 9 if raw else None
    ops = list(linear_gauss_newtons(weights, SKIPS, covariance))
    assert len(ops) == len(SKIPS)
    for skip, op in zip(SKIPS, ops, strict=True):
        expected = references.linear_gauss_newton(weights, covariance, skip)
        scale = np.linalg.norm(expected)
        np.testing.assert_allclose(op.as_matrix(), expected, rtol=0, atol=1e-13 * scale)
        alone = papers.linear_gauss_newton(weights, covariance, skip)
        assert op.factors.left_ranks == alone.factors.left_ranks
        assert op.factors.right_ranks == alone.factors.right_ranks
        assert op.factors.whitened is not raw
        np.testing.assert_allclose(op.stored_error, alone.stored_error, rtol=1e-6)


def test_a_bad_beta_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match="skip"):
        linear_gauss_newtons(draw(0, 4, 5, 3), (0.0, float("nan")))


# Data in its principal axes -----------------------------------------------------------------------


@given(logs=st.lists(st.floats(-12, 0), min_size=3, max_size=3))
@settings(max_examples=10, deadline=None)
def test_a_diagonal_covariance_loses_nothing_to_its_root(logs: list[float]) -> None:
    """Its square root is exact to rounding, so that kappa is resolved far beyond 1 / sqrt(eps)."""
    weights, sigma = draw(0, 3, 5, 4, 2), np.diag(10.0 ** np.array(logs))
    kappa = gnjax.condition_number(papers.linear_gauss_newton(weights, sigma))
    values = exact.linear_eigenvalues(weights, sigma, 0.0)
    assert kappa.resolved
    assert kappa.interval[0] <= float(max(values) / min(values)) <= kappa.interval[1]
    assert kappa.interval[1] / kappa.interval[0] < 1 + 1e-4


def test_a_zero_on_the_diagonal_is_a_missing_direction() -> None:
    first, *others = draw(0, 3, 5, 2)
    kappa = gnjax.condition_number(
        papers.linear_gauss_newton([first, *others], np.diag([2.0, 0.0, 1.0]))
    )
    without = papers.linear_gauss_newton([first[:, [0, 2]], *others], np.diag([2.0, 1.0]))
    assert kappa.rank == 2 * 2
    np.testing.assert_allclose(kappa.value, gnjax.condition_number(without).value, rtol=1e-12)
    nothing = papers.linear_gauss_newton([first, *others], np.zeros((3, 3)))
    assert nothing.factors.right_ranks == (0, 0)


def test_the_variances_are_the_eigenvalues_of_the_covariance() -> None:
    white = whitened("photo_patches", 300, 0, 3)
    dataset = data.load("photo_patches", samples=300, seed=0)
    x = data.downsample(dataset.inputs, dataset.shape, (3, 3))
    expected = np.linalg.eigvalsh(data.covariance(x))[::-1]
    np.testing.assert_allclose(white.variances, expected, rtol=1e-9)


# Cells --------------------------------------------------------------------------------------------


def with_skips(skip: float, params: list, inputs: jax.Array) -> jax.Array:
    for w in params:
        inputs = inputs @ (w + skip * np.eye(*w.shape)).T
    return inputs


def by_autodiff(weights: list, x: np.ndarray, skip: float) -> float:
    """kappa of Eq 1 for the network (W_L + beta I) .. (W_1 + beta I) x, by its Jacobian."""
    j = np.asarray(references.jacobian(jax.tree_util.Partial(with_skips, skip), weights, x))
    return references.pseudo_condition(j @ j.T, rtol=1e-12)


BETAS = tuple(beta_sweep.BETAS)


def test_a_cell_measures_the_same_weights_at_every_beta() -> None:
    cell = beta_sweep.Residual(
        "digits", 40, 0, 3, 2, 2.0, "kaiming_normal", 1e-6, depth=3, width=12, seed=1, betas=BETAS
    )
    measured = DataFrame(beta_sweep.measure(cell))
    dataset = data.load("digits", samples=40, seed=0)
    white = data.whiten(data.downsample(dataset.inputs, dataset.shape, (3, 3)))
    weights = initial_weights(white.rank, cell)
    skips = [0, 1 / 3, 1 / 2, 3**-0.5, 2**-0.5, 1, 2]  # three matrices, two hidden layers
    expected = [by_autodiff(weights, white.inputs, skip) for skip in skips]
    np.testing.assert_allclose(measured["skip"], skips)
    np.testing.assert_allclose(measured["kappa"], expected, rtol=1e-6)
    bounds = [papers.bounds.linear(weights, skip=skip).convex for skip in skips]
    np.testing.assert_allclose(measured["bound_convex"], bounds, rtol=1e-9)
    terms = [_terms(weights, skip) for skip in skips]
    worst = [max(b / a) for a, b in itertools.pairwise(terms)]
    assert np.isnan(measured["worst_term"][0])
    np.testing.assert_allclose(measured["worst_term"][1:], worst, rtol=1e-9)


def _terms(weights: list, skip: float) -> np.ndarray:
    """kappa^2(W^{L:l+1}) kappa^2(W^{1:l-1}) of three matrices, each with the skip."""
    first, second, third = (w + skip * np.eye(*w.shape) for w in map(np.asarray, weights))
    products = [[third @ second], [third, first], [second @ first]]
    return np.array([np.prod([np.linalg.cond(p) for p in each]) ** 2 for each in products])


def test_a_term_has_no_quotient_where_the_skips_are_equal_or_it_is_infinite() -> None:
    terms = [np.array([4.0, 2.0]), np.array([3.0, 3.0]), np.array([1.0, 1.0])]
    assert beta_sweep.worst_terms((0.0, 1.0, 1.0), terms) == [None, 1.5, None]
    infinite = [np.array([4.0, np.inf]), *terms[1:]]
    assert beta_sweep.worst_terms((0.0, 1.0, 2.0), infinite) == [None, None, pytest.approx(1 / 3)]


def test_small_skips_move_single_terms_up_and_down_and_one_of_strength_1_lowers_them() -> None:
    """The mechanism that the claim on the terms of Eq 7 gives, by numpy's singular values."""
    shapes, strengths, networks = [(50, 40), *[(50, 50)] * 4, (4, 50)], (0.0, 0.2, 1.0), 40

    def log_kappa(product: np.ndarray) -> float:
        sizes = np.linalg.svd(product, compute_uv=False)
        return 2 * np.log(sizes[0] / sizes[-1])

    def log_terms(matrices: Sequence[np.ndarray]) -> list[float]:
        before = [np.eye(40), *itertools.accumulate(matrices[:-1], lambda a, w: w @ a)]
        behind = [np.eye(4), *itertools.accumulate(reversed(matrices[1:]), lambda a, w: a @ w)]
        pairs = zip(before, reversed(behind), strict=True)
        return [log_kappa(left) + log_kappa(right) for right, left in pairs]

    rng = np.random.default_rng(0)
    logs = np.zeros((networks, len(strengths), len(shapes)))
    for network in logs:
        weights = [rng.normal(size=shape) / np.sqrt(shape[1]) for shape in shapes]
        for terms, beta in zip(network, strengths, strict=True):
            terms[:] = log_terms([w + beta * np.eye(*w.shape) for w in weights])
    small, large = np.moveaxis(np.diff(logs, axis=1), 1, 0)
    assert 0.3 < (small > 0).mean() < 0.7  # chance
    assert abs(small.mean()) < small.std()
    assert (large.mean(0) < 0).all()


def test_without_a_hidden_layer_beta_changes_nothing() -> None:
    cell = beta_sweep.Residual(
        "digits", 40, 0, 3, 2, 2.0, "kaiming_normal", 1e-3, depth=1, width=12, seed=0, betas=BETAS
    )
    assert [row["kappa"] for row in beta_sweep.measure(cell)] == [1.0] * len(BETAS)


def test_raw_and_whitened_inputs_go_through_the_same_weights() -> None:
    cell = whitening_sweep.Cell(
        *("digits", 40, 0, 3, 2, 2.0, "kaiming_normal", 1e-6),
        **{"depth": 3, "width": 12, "seed": 1, "powers": (0.5,), "step": 0},
    )
    measured = DataFrame(whitening_sweep.measure(cell))
    dataset = data.load("digits", samples=40, seed=0)
    raw = data.downsample(dataset.inputs, dataset.shape, (3, 3))
    white = data.whiten(raw)
    first, *others = initial_weights(white.rank, cell)
    axes = white.transform / np.linalg.norm(white.transform, axis=0)  # V
    variances = 1 / (white.transform**2).sum(axis=0)
    expected = [
        by_autodiff([first, *others], white.inputs, 0.0),
        by_autodiff([first @ axes.T, *others], raw, 0.0),  # the same weights, seen from the pixels
        by_autodiff([first, *others], white.inputs * variances**0.25, 0.0),  # Sigma^(1/2)
    ]
    np.testing.assert_allclose(measured["kappa"], expected, rtol=1e-6)
    values = np.linalg.eigvalsh(data.covariance(raw))
    condition = values[-1] / values[-white.rank]
    np.testing.assert_allclose(
        measured["covariance_condition"], [1, condition, condition**0.5], rtol=1e-6
    )
    low, high, _ = measured["bound_convex"]
    np.testing.assert_allclose(high / low, condition, rtol=1e-6)


def test_small_networks_are_measured_on_strided_pixels_and_by_one_triangle() -> None:
    cell = whitening_sweep.Cell(
        *("photo_patches", 60, 0, 0, 2, 1.0, "kaiming_normal", 1e-6),
        **{"depth": 3, "width": 55, "seed": 1, "powers": (), "step": 8},
    )
    measured = DataFrame(whitening_sweep.measure(cell))
    images = data.load("photo_patches", samples=60, seed=0).inputs.reshape(60, 32, 32, 3)
    x = images[:, ::8, ::8].reshape(60, 48)
    weights = initial_weights(48, cell)
    expected = [by_autodiff(weights, np.linalg.qr(x)[0], 0.0), by_autodiff(weights, x, 0.0)]
    np.testing.assert_allclose(measured["kappa"], expected, rtol=1e-6)
    plain = references.linear_gauss_newton(weights, None, 0.0)
    product = plain @ np.kron(np.eye(2), x.T @ x / 60)
    read = np.abs(np.linalg.eigvalsh(np.tril(product) + np.tril(product, -1).T))
    assert np.isnan(measured["one_triangle"][0])
    assert measured["one_triangle"][1] == pytest.approx(read.max() / read.min(), rel=1e-6)


def test_one_triangle_is_enough_of_a_symmetric_matrix_alone() -> None:
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((6, 4))
    symmetric = roots @ roots.T  # of rank 4
    values = np.linalg.eigvalsh(symmetric)
    found = whitening_sweep.from_one_triangle(symmetric)
    assert found == pytest.approx(values[-1] / values[2], rel=1e-9)
    product = symmetric @ np.diag([1.0, 2, 3, 4, 5, 6])  # similar to a symmetric one, of rank 4
    right = np.sort(np.linalg.eigvals(product).real)[::-1]
    assert whitening_sweep.from_one_triangle(product) != pytest.approx(right[0] / right[3], rel=0.1)


def test_rows_pick_each_beta_of_the_figures_that_draw_it() -> None:
    chosen = changed(EXPERIMENT, "smoke")
    cells = EXPERIMENT.cells(chosen)
    named = dict.fromkeys(EXPERIMENT.columns[10:])
    measured = {
        cell: {
            "rows": [
                {**named, "beta": beta, "kappa": f"kappa {beta}", "inputs": cell.keywords["depth"]}
                | {"skip": 0.0}
                for beta in cell.keywords["betas"]
            ]
        }
        for cell in cells
    }
    rows = DataFrame(EXPERIMENT.rows(chosen, measured))
    assert (rows["kappa"] == "kappa " + rows["beta"]).all()
    assert (rows["inputs"] == rows["depth"]).all()
    assert not rows.duplicated(["figure", "depth", "width", "beta", "seed"]).any()
    shown = ("5-left", "20", "22")
    drawn = {figure: set(rows["beta"][rows["figure"] == figure]) for figure in shown}
    published = {"0", "1/H", "1/sqrt(H)", "1"}
    assert drawn == {"5-left": {"0", "1"}, "20": set(beta_sweep.BETAS), "22": published}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"depths": ()}, "at least 1"),
        ({"depths": (0,)}, "at least 1"),
        ({"seeds": 0}, "at least 1"),
        ({"betas": ("0", "1", "1/l")}, "1/H"),
        ({"betas": ("0", "2")}, "0 and 1 among them"),
    ],
)
def test_an_empty_or_misspelt_panel_is_refused(field: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EXPERIMENT.cells(changed(EXPERIMENT, "smoke", grey=field))


# Claims -------------------------------------------------------------------------------------------

Kappa = Callable[[int, float], float]
STRENGTH = {
    "0": 0.0, "1/L": 0.2, "1/H": 0.3, "1/sqrt(L)": 0.4, "1/sqrt(H)": 0.5, "1": 1.0, "2": 2.0,
}  # fmt: skip


def beta_table(kappa: Kappa) -> DataFrame:
    """Rows of every figure at L = 1, 2, 3, two seeds."""
    keys = [
        (figure, depth, beta, seed)
        for figure in ("5-left", "5-right", "20", "21", "22")
        for depth in (1, 2, 3)
        for beta in STRENGTH
        for seed in (0, 1)
    ]
    values = np.array([1.0 if L == 1 else kappa(L, STRENGTH[b]) for _, L, b, _ in keys])
    return DataFrame(
        {
            "figure": np.array([key[0] for key in keys]),
            "data": np.array([f"data of {key[0]}" for key in keys]),
            "depth": np.array([key[1] for key in keys]),
            "beta": np.array([key[2] for key in keys]),
            "skip": np.array([STRENGTH[key[2]] for key in keys]),
            "worst_term": np.array([np.nan if L == 1 or b == "0" else 0.9 for _, L, b, _ in keys]),
            "seed": np.array([key[3] for key in keys]),
            "kappa": values,
            "kappa_low": values,
            "resolved": np.ones(len(keys), bool),
            "bound_applicable": np.ones(len(keys), bool),
            "bound_convex": 1.1 * values,
            "bound_maximum": 1.2 * values,
        }
    )


def statuses(claims: Sequence[Claim], table: Mapping[str, np.ndarray]) -> set[str]:
    return {claim.check(table).status for claim in claims}


def test_claims_on_beta_can_hold_and_fail() -> None:
    helps = beta_table(lambda depth, beta: depth**2 / (1 + beta))
    assert statuses(beta_sweep.CLAIMS, helps) == {HOLDS}
    hurts = beta_table(lambda depth, beta: depth**2 * (1 + beta))
    hurts["bound_convex"] = 0.9 * hurts["kappa"]
    hurts["worst_term"] = 1 / hurts["worst_term"]
    tight = [claim for claim in beta_sweep.CLAIMS if "at most twice kappa" in claim.statement]
    assert statuses(tight, hurts) == {HOLDS}
    loose = hurts.assign(bound_convex=2.1 * hurts["kappa"])
    assert statuses(tight, loose) == {FAILS}
    assert [claim.check(loose).number for claim in tight] == [pytest.approx(2.1)] * 2
    assert statuses([c for c in beta_sweep.CLAIMS if c not in tight], hurts) == {FAILS}
    assert statuses(beta_sweep.CLAIMS, helps[helps["depth"] == 1]) == {
        NOT_TESTABLE,
        HOLDS,  # the bound, and that it is tight, also at L = 1
    }


def test_verdicts_on_figure_5_say_the_data_of_their_side() -> None:
    table = beta_table(lambda depth, beta: depth**2 / (1 + beta))
    for claim in beta_sweep.CLAIMS[:10]:
        side = claim.statement.partition(": ")[0]
        assert claim.check(table).text.startswith(f"data of 5-{side}: ")


def test_the_mean_over_depths_decides() -> None:
    """The mean over L > 1 decides: 10 / 9.2 at L = 3 beside 8 / 8.8 at L = 2."""
    table = beta_table(lambda depth, beta: 9 - beta if depth == 2 else 9 + beta)
    lowest = next(c for c in beta_sweep.CLAIMS if "lowest" in c.statement).check(table)
    assert lowest.number == pytest.approx(np.sqrt(8 / 8.5 * 10 / 9.5))  # over 1/sqrt(H)
    assert lowest.status == HOLDS
    assert "at L=2" in lowest.text
    assert "at L=1" not in lowest.text


def test_depths_at_which_two_betas_are_one_number_do_not_count() -> None:
    """1/sqrt(H) is 1 at one hidden layer: kappa is the same there whatever the others say."""
    table = beta_table(lambda depth, beta: 9 - beta if depth == 3 else 9.0)
    one = (table["depth"] == 2) & np.isin(table["beta"], ("1/H", "1/sqrt(H)"))
    table["skip"] = np.where(one, 1.0, table["skip"])
    larger = [c for c in beta_sweep.CLAIMS if "1/sqrt(H)" in c.statement and "= 1 " in c.statement]
    (found,) = (claim.check(table) for claim in larger)
    assert found.number == pytest.approx(8 / 8.5)
    assert "at L=2" not in found.text
    same = table.assign(skip=np.where(table["beta"] == "1/sqrt(H)", 1.0, table["skip"]))
    assert larger[0].check(same).status == NOT_TESTABLE


def whitening_table(ratio: Callable[[int], float], condition: float) -> DataFrame:
    """``ratio(L)`` is kappa(raw) / kappa(whitened); in between kappa is a power of it."""
    power = {"whitened": 0.0, "raw": 1.0, "Sigma^0.5": 0.5}
    keys = [(L, kind, seed) for L in (2, 3, 4) for kind in power for seed in (0, 1)]
    small = [(L, kind, seed) for L, kind, seed in keys if kind in ("whitened", "raw")]
    figure = np.repeat(["19", "19-triangle"], [len(keys), len(small)])
    keys += small
    kappa = np.array([L * ratio(L) ** power[kind] for L, kind, _ in keys])
    return DataFrame(
        {
            "figure": figure,
            "one_triangle": kappa.copy(),
            "depth": np.array([key[0] for key in keys]),
            "whitening": np.array([key[1] for key in keys]),
            "seed": np.array([key[2] for key in keys]),
            "kappa": kappa,
            "kappa_low": kappa,
            "kappa_high": kappa,
            "resolved": np.ones(len(keys), bool),
            "covariance_condition": np.array([condition ** power[k] for _, k, _ in keys]),
            "bound_applicable": np.ones(len(keys), bool),
            "bound_convex": 1.1 * kappa,
            "bound_maximum": 1.2 * kappa,
        }
    )


def test_claims_on_whitening_can_hold_and_fail() -> None:
    near = whitening_table(lambda depth: 60.0, 100.0)
    assert statuses(whitening_sweep.CLAIMS, near) == {HOLDS}
    lowers, triangle, whole, proportional, bound = whitening_sweep.CLAIMS
    for exponent in (0.4, 2.0):  # a square root and a square are not nearly proportional
        found = proportional.check(whitening_table(lambda depth, e=exponent: 100.0**e, 100.0))
        assert (found.status, found.number) == (FAILS, pytest.approx(exponent))
        table = whitening_table(lambda depth: 100.0, 100.0)
        of_raw = np.where(table["whitening"] == "raw", table["kappa"] * 100.0 ** (exponent - 1), 1)
        found = triangle.check(table.assign(one_triangle=of_raw))
        assert (found.status, found.number) == (FAILS, pytest.approx(exponent))
        assert whole.check(table).number == pytest.approx(1)
        squared = whitening_table(lambda depth, e=exponent: 100.0**e, 100.0)
        assert (whole.check(squared).status, triangle.check(squared).status) == (FAILS, FAILS)
    large = where(near, figure="19")
    assert triangle.check(large).status == NOT_TESTABLE
    assert lowers.check(whitening_table(lambda depth: depth - 1.5, 1.0)).status == FAILS
    wide = near.assign(kappa_high=np.where(near["whitening"] == "raw", 1e9, near["kappa"]))
    found = proportional.check(wide)  # a kappa that is known to a wide interval alone decides less
    assert (found.status, found.low) == (UNDECIDED, pytest.approx(np.log(60) / np.log(100)))
    assert found.high > 2
    near.loc[0, "bound_convex"] = 0.5
    assert bound.check(near).status == FAILS
    near.loc[0, "resolved"] = False
    # 2 covariances are too few for a slope
    near.loc[near["whitening"] == "raw", "resolved"] = False
    assert proportional.check(near).status == NOT_TESTABLE
