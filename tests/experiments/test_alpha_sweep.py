"""Leaky-ReLU networks at several slopes: one network's matrices, the cells and the claims."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame

import gnjax
from experiments import alpha_sweep
from experiments.claims.alpha_sweep import COMPUTED, TRUE
from experiments.shared import orthonormal_samples
from experiments.shared.linear_network import weights
from experiments.shared.published_data import orthonormal
from experiments.shared.whitened import drawn
from gnjax import data, papers
from sweeps import command_line
from sweeps.claims import AS_COMPUTED, CERTIFIED, FAILS, HOLDS, NOT_TESTABLE, OTHER, UNDECIDED
from sweeps.config import ConfigError
from sweeps.effects import crossovers, trend


def smoke(*overrides: str):
    return command_line.load("configs/alpha_sweep.py:smoke", overrides)[0]


# Samples with X X^T = I -------------------------------------------------------------------------


def _network(seed: int, n: int, d: int, m: int, k: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x = orthonormal(rng.standard_normal((n, d)))
    return rng.standard_normal((m, d)), rng.standard_normal((k, m)), x


@settings(max_examples=10, deadline=None)
@given(
    slope=st.sampled_from([-1.0, -0.3, 0.0, 0.01, 0.7, 1.0]),
    m=st.sampled_from([2, 5, 12]),
    k=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**16),
)
def test_the_matrix_is_the_kernel_of_the_network_by_autodiff(
    slope: float, m: int, k: int, seed: int
) -> None:
    """With a negative slope that of a network whose negative side is mirrored; every entry."""
    inner, outer, x = _network(seed, 5, 8, m, k)

    def apply(params: list, rows: jax.Array) -> jax.Array:
        z = rows @ params[0].T
        return jnp.where(z >= 0, z, slope * z) @ params[1].T

    net = orthonormal_samples.layer(inner, outer, x, slope)
    ours = orthonormal_samples.gauss_newton(net)
    kernel = np.asarray(gnjax.ntk((apply, [inner, outer]), x).as_matrix())
    assert np.linalg.norm(ours.matrix - kernel, 2) <= float(ours.stored_error) < 1e-11
    np.testing.assert_allclose(ours.matrix, kernel, rtol=0, atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(
    slope=st.sampled_from([-1.0, -0.3, 0.0, 0.1, 1.0]),
    m=st.sampled_from([3, 5, 12]),
    seed=st.integers(0, 2**16),
)
def test_the_bounds_are_those_of_eq_11_and_hold_for_either_sign(
    slope: float, m: int, seed: int
) -> None:
    inner, outer, x = _network(seed, 5, 8, m, 3)
    net = orthonormal_samples.layer(inner, outer, x, slope)
    bounds = orthonormal_samples.bounds(net)
    kappa = gnjax.condition_number(orthonormal_samples.gauss_newton(net))
    if slope >= 0:
        library = papers.bounds.leaky_relu(inner, outer, x.T, slope)
        assert (bounds.sharp is None) == (library.value is None)
        if library.value is not None:
            assert bounds.sharp == pytest.approx(library.value, rel=1e-6)
    if bounds.sharp is None:
        assert m < 5  # Gamma is singular, and nothing else is left
        assert slope == 0
    else:
        assert kappa.interval[0] <= bounds.sharp * (1 + 1e-9) <= bounds.trace * (1 + 1e-9)


def test_kappa_does_not_depend_on_the_images() -> None:
    """A rotation of the inputs changes V X, whose entries are independent and normal either way."""
    inner, outer, x = _network(0, 5, 8, 200, 3)
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))
    rotated = x @ rotation
    matrices = [
        orthonormal_samples.gauss_newton(orthonormal_samples.layer(v, outer, rows, 0.3)).matrix
        for v, rows in ((inner, x), (inner @ rotation, rotated))
    ]
    np.testing.assert_allclose(*matrices, atol=1e-12)


# Cells ------------------------------------------------------------------------------------------


def test_samples_are_drawn_from_data_whitened_whole() -> None:
    """All of them have the identity as covariance, the drawn ones do not."""
    part = drawn("fashion_mnist_5000", 500, 0, 8, 40)
    whole = drawn("fashion_mnist_5000", 500, 0, 8, 500).inputs
    np.testing.assert_allclose(data.covariance(whole), np.eye(whole.shape[1]), atol=1e-10)
    assert {tuple(row) for row in part.inputs} <= {tuple(row) for row in whole}
    assert "40 of 500 samples drawn" in part.source
    assert f"rank {whole.shape[1]}" in part.source


def test_a_wide_linear_network_has_the_kappa_of_the_samples_gram_matrix() -> None:
    """What makes it the worse of the two where the samples are not orthonormal."""
    for seed in (0, 1):
        x = alpha_sweep._samples("fashion_mnist_5000", 8, 40, "all", seed)
        values = np.linalg.eigvalsh(x @ x.T)
        sizes = {**SIZES, "samples": 40, "outputs": 3, "slopes": (1.0,), "seed": seed}
        (row,) = alpha_sweep.measure(**sizes, whitening="all", depth=2, width=4000)
        assert row["kappa"] == pytest.approx(values[-1] / values[0], rel=0.15)


SIZES = {"data": "fashion_mnist_5000", "side": 8, "samples": 12, "outputs": 2, "gain": 2.0}
SIZES |= {"initializer": "kaiming_normal", "rtol": 1e-4, "slopes": (0.0, 0.3), "seed": 1}


@pytest.mark.parametrize(
    ("whitening", "depth", "signs"),
    [
        ("samples", 2, {TRUE: 1, COMPUTED: -1}),
        ("samples", 3, {TRUE: 1}),
        ("all", 2, {TRUE: 1}),
    ],
)
def test_a_cell_is_what_dense_eigenvalues_say(
    whitening: str, depth: int, signs: dict[str, int]
) -> None:
    """Every slope, by the Jacobian of the network rather than by Eq 10."""
    rows = alpha_sweep.measure(**SIZES, whitening=whitening, depth=depth, width=20)
    x = alpha_sweep._samples("fashion_mnist_5000", 8, 12, whitening, 1)
    params = weights((x.shape[1], *[20] * (depth - 1), 2), "kaiming_normal", 2.0, 1)
    assert {(row["slope"], row["sign"]) for row in rows} == {
        (a, s) for a in (0, 0.3) for s in signs
    }
    for row in rows:
        slope = row["slope"] * signs[row["sign"]]

        def apply(params: list, inputs: jax.Array, slope: float = slope) -> jax.Array:
            for w in params[:-1]:
                z = inputs @ w.T
                inputs = jnp.where(z >= 0, z, slope * z)
            return inputs @ params[-1].T

        values = np.linalg.eigvalsh(np.asarray(gnjax.ntk((apply, params), x).as_matrix()))
        assert row["kappa"] == pytest.approx(values[-1] / values[0], rel=1e-3)
        assert row["bound_applicable"] == (depth == 2)


def test_more_samples_than_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="take fewer"):
        alpha_sweep.measure(**{**SIZES, "samples": 65}, whitening="samples", depth=2, width=9)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("panels.one.slopes=(0.1, 1.0)", "slope 0"),
        ("panels.one.seeds=0", "at least 1"),
        ("panels.two.widths=(0,)", "two needs widths"),
    ],
)
def test_a_config_that_makes_no_figure_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        alpha_sweep.EXPERIMENT.cells(smoke(override))


# Claims -----------------------------------------------------------------------------------------


def made(kappa: Callable[[int, float, int], float], bound: float = 2.0) -> DataFrame:
    """Every panel at three widths and slopes, two seeds."""
    rows = []
    for panel in ("one", "two", "colours", "drawn"):
        for m in (100, 200, 400):
            for slope in (0.0, 0.01, 1.0):
                for seed in (0, 1):
                    for sign in (TRUE, COMPUTED) if panel == "one" else (TRUE,):
                        value = kappa(m, slope, seed)
                        rows.append(
                            {
                                "panel": panel,
                                "sign": sign,
                                "width": m,
                                "slope": slope,
                                "seed": seed,
                                "samples": 150,
                                "kappa": value,
                                "kappa_low": value,
                                "resolved": True,
                                "bound": value * bound,
                                "bound_applicable": panel != "two",
                            }
                        )
    return DataFrame(rows)


def checked(statement: str, frame: DataFrame, column: str = "") -> tuple[str, float, str]:
    """The verdict of the one claim whose statement ends so, in a column of readings."""
    (claim,) = [
        c
        for c in alpha_sweep.CLAIMS
        if statement in c.statement and (not column or c.column == column)
    ]
    found = claim.check(frame)
    return found.status, found.number, found.text


INCREASES = "kappa increases with m, for m >= n"


def test_claims_of_figure_6_can_hold_and_fail() -> None:
    """n = 150, so that widths 200 and 400 are the wide ones."""
    rising = made(lambda m, a, s: m + a)
    for column in (CERTIFIED, AS_COMPUTED):
        assert checked(INCREASES, rising, column)[0] == HOLDS
    assert checked("two hidden", rising)[0] == HOLDS
    falling = made(lambda m, a, s: 1000 / m)
    status, number, _ = checked(INCREASES, falling, CERTIFIED)
    assert (status, number) == (FAILS, pytest.approx(-1))
    noisy = made(lambda m, a, s: m if s else 1000 / m)
    assert checked(INCREASES, noisy, CERTIFIED)[0] == UNDECIDED
    assert checked("kappa <= bound", rising)[0] == HOLDS
    low = made(lambda m, a, s: m, bound=0.99)
    assert checked("kappa <= bound", low)[:2] == (FAILS, pytest.approx(0.99))
    looser = rising.assign(bound=rising["kappa"] * (1 + rising["width"]))
    assert checked("bound becomes tighter", looser, CERTIFIED)[0] == FAILS
    tighter = rising.assign(bound=rising["kappa"] * (1 + 100 / rising["width"]))
    assert checked("bound becomes tighter", tighter, CERTIFIED)[0] == HOLDS


def test_a_bound_becomes_more_predictive_where_its_slope_comes_nearer() -> None:
    """Bounds kappa (1 + m^p): the slope of bound / kappa over m goes to 0 for p < 0 alone."""
    frame = made(lambda m, a, s: m * (1 + 0.01 * s))
    wide = frame.assign(samples=100)
    for power, status in ((-2.0, HOLDS), (2.0, FAILS)):
        gap = 1 + (wide["width"] / 100) ** power + 1e-3 * wide["seed"]
        found = checked("more predictive", wide.assign(bound=wide["kappa"] * gap), CERTIFIED)
        assert found[0] == status
    assert checked("more predictive", frame, CERTIFIED)[0] == NOT_TESTABLE  # 2 widths of at least n


def test_below_n_the_valley_is_found() -> None:
    frame = made(lambda m, a, s: m)
    narrow = frame.assign(samples=400)
    assert checked("below m = n", narrow)[0] == FAILS
    valley = narrow.assign(kappa=1e4 / narrow["width"])
    assert checked("below m = n", valley)[:2] == (HOLDS, pytest.approx(4))
    assert checked("below m = n", frame)[0] == NOT_TESTABLE  # one width of at most n


REDUCING = "every smaller alpha has a lower kappa"


def test_every_step_to_a_smaller_slope_has_to_help() -> None:
    """One step that hurts at one width is enough, whatever alpha = 1 is."""
    better = made(lambda m, a, s: 100 * np.exp(a))
    assert checked(REDUCING, better, CERTIFIED)[:2] == (HOLDS, pytest.approx(np.exp(0.01)))
    rises_first = made(lambda m, a, s: 1000.0 if a == 1 else 48.0 - (m == 400) * 100 * a)
    found = checked(REDUCING, rises_first, CERTIFIED)
    assert found[:2] == (FAILS, pytest.approx(47 / 48))
    assert "at m=400: 48 at 0, 47 at 0.01, 1000 at 1" in found[2]
    mirrored = rises_first.assign(kappa=np.where(better["sign"] == COMPUTED, better["kappa"], 48))
    assert checked(REDUCING, mirrored, AS_COMPUTED)[0] == HOLDS
    assert [c.mended != "" for c in alpha_sweep.CLAIMS if REDUCING in c.statement] == [
        c.column == AS_COMPUTED for c in alpha_sweep.CLAIMS if REDUCING in c.statement
    ]
    assert [c.column for c in alpha_sweep.CLAIMS if REDUCING in c.statement] == [
        *(CERTIFIED, AS_COMPUTED, OTHER, OTHER),
        *(OTHER, OTHER),  # from m = n on
    ]


def test_widths_below_two_n_do_not_decide_figure_23() -> None:
    """The published widths are from 2 n on; what happens at m = n is shown as another setting."""
    frame = made(lambda m, a, s: 100 * np.exp(a if m > 200 else -a)).assign(samples=200)
    for statement in (REDUCING, "ReLU improves"):
        by_widths = [
            (c.column, c.check(frame).status)
            for c in alpha_sweep.CLAIMS
            if statement in c.statement and dict(c.panel) == {"panel": "one", "sign": TRUE}
        ]
        assert by_widths == [(CERTIFIED, HOLDS), (OTHER, FAILS)]


def test_relu_and_the_linear_network_meet_at_the_crossover() -> None:
    """kappa(0) = m^2 / m* and kappa(1) = m meet at m*, exactly so on log-log axes."""
    better = made(lambda m, a, s: 100 * np.exp(a))
    assert checked("ReLU improves", better, CERTIFIED)[0] == HOLDS
    crossing = made(lambda m, a, s: m if a == 1 else m**2 / (259 + 2 * s) * (1 + a))
    status, number, text = checked("ReLU improves", crossing.assign(samples=100), CERTIFIED)
    assert (status, number) == (FAILS, pytest.approx(400 / np.sqrt(259 * 261)))
    assert f"from m={np.sqrt(259 * 261):.3g} (" in text


def test_a_crossover_is_a_rise() -> None:
    widths = DataFrame({"seed": 0, "width": [1, 2, 4]})
    linear = widths.assign(kappa=8.0)
    for kappa, place in (([2, 4, 16], 2**1.5), ([16, 4, 2], np.nan), ([8, 16, 16], 1.0)):
        relu = widths.assign(kappa=np.array(kappa, float))
        np.testing.assert_allclose(crossovers(relu, linear, "width", "kappa"), [place])


def test_claims_on_too_little_are_not_testable() -> None:
    frame = made(lambda m, a, s: m)
    unresolved = frame.assign(resolved=False)
    assert trend(unresolved, "width", "m", rises=True).status == NOT_TESTABLE
    assert checked(REDUCING, unresolved, CERTIFIED)[0] == NOT_TESTABLE
