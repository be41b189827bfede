"""The law of depth: exact kappas by two roads, their limit, where a power passes 2."""

import mpmath
import numpy as np
import pandas
import pytest

import gnjax
from experiments.claims.depth_law import growth, local_powers, passing
from experiments.depth_law import measure
from experiments.shared.depth_law import ends, rate
from experiments.shared.linear_network import layer_widths, reduced_weights
from gnjax import papers


def _weights(depth, width, seed=0, inputs=5, outputs=3):
    widths = layer_widths(inputs, depth, width, outputs)
    return reduced_weights(widths, "kaiming_normal", 1.0, seed)


@pytest.mark.parametrize("depth", [2, 3, 8])
@pytest.mark.parametrize("width", [5, 40])
def test_kappa_is_that_of_the_library(depth, width):
    weights = _weights(depth, width)
    found = ends(weights)
    low, high = gnjax.condition_number(papers.linear_gauss_newton(weights)).interval
    assert low * (1 - found.off) <= found.kappa <= high * (1 + found.off)
    assert found.off < 1e-9


def test_a_large_kappa_of_many_layers_is_right_to_the_error_that_is_told():
    """Beside 60 digits; every layer is as wide as there are inputs."""
    inputs, outputs = 4, 2
    weights = [np.asarray(w) for w in _weights(40, 4, 3, inputs, outputs)]
    found = ends(weights)
    with mpmath.workdps(60):
        exact = [mpmath.matrix(w.tolist()) for w in weights]
        before, after = [mpmath.eye(inputs)], [mpmath.eye(outputs)]
        for weight in exact[:-1]:
            before.append(weight * before[-1])
        for weight in exact[:0:-1]:
            after.append(weight.T * after[-1])
        total = mpmath.zeros(inputs * outputs)
        for left, right in zip(after[::-1], before, strict=True):
            a, b = left.T * left, right.T * right
            for i in range(outputs):
                for j in range(outputs):
                    for p in range(inputs):
                        for q in range(inputs):
                            total[i * inputs + p, j * inputs + q] += a[i, j] * b[p, q]
        values = mpmath.eigsy(total, eigvals_only=True)
        kappa = float(values[len(values) - 1] / values[0])
    assert kappa > 1e6
    assert abs(found.kappa / kappa - 1) <= found.off < 1e-3


def test_the_limit_is_zero_for_one_output_and_about_r_over_m():
    assert rate(50, 12, 1) == 0
    assert rate(10_000, 784, 10) == pytest.approx(9 / 10_000, rel=1e-2)
    assert rate(16, 12, 3) == pytest.approx(1 / 7)  # psi(8) - psi(7)


@pytest.mark.slow
def test_the_growth_by_a_layer_comes_near_to_its_limit():
    """To 300 layers; with one output nothing grows by a layer."""
    found = {}
    for outputs in (1, 2):
        rows = [
            {**row, "seed": seed}
            for seed in range(12)
            for row in measure(3, outputs, 8, (60, 300), 1.0, seed)
        ]
        found[outputs] = growth(pandas.DataFrame(rows))
    limit = rate(8, 3, 2)
    assert found[2].low < limit < found[2].high
    assert found[2].value == pytest.approx(limit, rel=0.25)
    assert found[1].value < 0.2 * limit


def test_where_a_power_passes_two():
    """Of kappa = exp(L / 10), whose power is L / 10, and of one that never gets there."""
    depths = np.arange(2, 60)
    steep = pandas.DataFrame({"depth": depths, "seed": 0, "kappa": np.exp(depths / 10)})
    assert passing(steep) == pytest.approx(20, rel=0.01)
    assert np.isnan(passing(steep.assign(kappa=depths**1.5)))


def test_a_local_power_is_of_depths_that_every_start_has():
    """Of L^3 in two starts, of which the second one has no 20 layers."""
    depths = np.array([2, 5, 10, 20])
    one = pandas.DataFrame({"depth": depths, "seed": 0, "kappa": 7.0 * depths**3})
    other = one[one["depth"] < 20].assign(seed=1, kappa=lambda rows: 2 * rows["kappa"])
    found = local_powers(pandas.concat([one, other], ignore_index=True))
    assert list(found["seed"]) == [0, 1]
    assert found["depth"].to_numpy() == pytest.approx([20**0.5] * 2)
    assert found["power"].to_numpy() == pytest.approx([3.0, 3.0])
