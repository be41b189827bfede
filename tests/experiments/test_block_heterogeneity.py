"""Blocks of four networks: a row by dense Hessians, and the figure."""

import dataclasses
import itertools

import jax
import numpy as np
import optax
import scipy.spatial.distance

import gnjax
from experiments import block_heterogeneity as experiment
from figures import t2
from gnjax.networks.network import parameter_names
from tests.drawn import line, mean_and_interval
from tests.experiments.configs import records
from tests.figures.drawing import drawn, published


def _distance(one, other, floor):
    """By SciPy, of histograms with four bins to a decade, negative eigenvalues in their own."""
    bins = [
        np.sign(v[np.abs(v) > floor])
        * (1000 + np.floor(4 * np.log10(np.abs(v[np.abs(v) > floor]))))
        for v in (one, other)
    ]
    places = np.unique(np.concatenate(bins))
    shares = [[np.mean(found == place) for place in places] for found in bins]
    return scipy.spatial.distance.jensenshannon(*shares, base=2)


def test_a_row_is_that_of_dense_blocks():
    cell = next(c for c in records(experiment.EXPERIMENT, "smoke") if c.network == "mlp")
    cell = dataclasses.replace(cell, depth=3)
    found, *rows = experiment.measure(cell)
    model, x, y = experiment.made(cell)
    kernels = {f"dense{i}": np.asarray(getattr(model, f"dense{i}").kernel[...]) for i in (1, 2, 3)}

    def loss(name, flat):
        changed = {**kernels, name: flat.reshape(kernels[name].shape)}
        h = jax.nn.relu(x @ changed["dense1"])
        logits = jax.nn.relu(h @ changed["dense2"]) @ changed["dense3"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    spectra = {
        name: np.linalg.eigvalsh(jax.jit(jax.hessian(lambda v, n=name: loss(n, v)))(kernel.ravel()))
        for name, kernel in kernels.items()
    }
    largest = max(np.abs(values).max() for values in spectra.values())
    pairs = list(itertools.combinations(spectra.values(), 2))
    expected = np.mean([_distance(a, b, 1e-12 * largest) for a, b in pairs])
    np.testing.assert_allclose(found["distance"], expected, atol=1e-9)
    shapes = [_distance(a / abs(a).max(), b / abs(b).max(), 1e-12) for a, b in pairs]
    np.testing.assert_allclose(found["distance_shape"], np.mean(shapes), atol=1e-9)
    assert found["parameters"] == sum(kernel.size for kernel in kernels.values())
    for name, values in spectra.items():
        sizes = np.sort(np.abs(values))[::-1]
        first = next(row for row in rows if row["block"] == name)
        np.testing.assert_allclose(first["size"], sizes[0], rtol=1e-9)


def test_every_network_has_its_matrices_as_blocks():
    for cell in records(experiment.EXPERIMENT, "laptop"):
        if cell.seed:
            continue
        model, x, _ = experiment.made(cell)
        op = gnjax.gauss_newton(model, x, only=experiment.matrices, side="parameters")
        names = {"/".join(name.split("/")[:-1]) or name for name in _paths(op)}
        assert {t2.part(name) for name in names} <= set(t2.KINDS)


def _paths(op):
    return parameter_names(op.net)


def test_figure_t2_draws_spectra_and_distances():
    table, figure = published("t2"), drawn("t2")
    *panels, distances = figure.axes
    for axes, (network, title) in zip(panels, t2.NAMES.items(), strict=True):
        shown = (table["network"] == network) & (table["panel"] == "spectrum")
        assert axes.get_title(loc="left") == title
        for block, picked in table[shown].groupby("block"):
            expected = mean_and_interval(picked, "share", picked["size"])
            np.testing.assert_allclose(line(axes, block).get_ydata(), expected[1])
    for container, column in zip(distances.containers, t2.MEASURES, strict=True):
        shown = table["panel"] == "distance"
        place = {name: index for index, name in enumerate(t2.NAMES)}
        picked = {"x": np.array([place[name] for name in table["network"][shown]])}
        expected = mean_and_interval(picked, "x", table[column][shown])
        np.testing.assert_allclose(container.lines[0].get_ydata(), expected[1])
    assert "beyond the papers" in t2.caption(table, {"precision": "float64"})
