"""Pictures of results: the numbers with their errors, and nothing that is not known."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import gnjax
from gnjax import papers
from gnjax.pictures.plot import _DRAWN


def _axes(result):
    figure = gnjax.plot(result)
    figure.canvas.draw()
    return figure.axes[0]


def test_eigenvalues_are_drawn_with_their_errors():
    values, errors = np.array([3.0, 2.0, 1.5]), np.array([0.5, 0.25, 0.125])
    axes = _axes(gnjax.answers.Spectrum(values, errors, "dense"))
    (container,) = axes.containers
    points, _, (bars,) = container.lines
    np.testing.assert_array_equal(points.get_ydata(), values)
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.stack([values - errors, values + errors], axis=1))
    assert axes.get_yscale() == "linear"
    assert "3 eigenvalues" in axes.get_title(loc="left")


def test_what_cannot_be_told_from_zero_is_an_upper_bound_on_a_logarithmic_axis():
    values, errors = np.array([1.0, 1e-3, 1e-9, 0.0, 0.0]), np.array([1e-6, 1e-6, 1e-6, 1e-6, 0.0])
    axes = _axes(gnjax.answers.Spectrum(values, errors, "dense"))
    assert axes.get_yscale() == "log"
    np.testing.assert_array_equal(axes.containers[0].lines[0].get_ydata(), [1.0, 1e-3])
    bounds = next(line for line in axes.lines if line.get_label() == "upper bound")
    np.testing.assert_allclose(bounds.get_ydata(), [1e-9 + 1e-6, 1e-6])
    assert [text.get_text() for text in axes.texts] == ["1 more are zero"]


def test_signs_and_unknown_errors_are_shown():
    matrix = np.diag([2.0, 1e-3, -1e-3, -5.0])
    axes = _axes(gnjax.eigenvalues(matrix))
    assert axes.get_yscale() == "symlog"
    axes = _axes(
        gnjax.answers.Spectrum(np.array([2.0, 1.0]), np.full(2, np.inf), "krylov", converged=False)
    )
    assert "errors unknown, not converged" in axes.get_title(loc="left")


def test_a_density_is_drawn_over_its_grid_in_a_band():
    rng = np.random.default_rng(0)
    for values, scale in ((rng.standard_normal(60), "linear"), (np.logspace(-6, 0, 60), "log")):
        density = gnjax.spectral_density(np.diag(values), probes=4, steps=20)
        axes = _axes(density)
        assert axes.get_xscale() == scale
        points, drawn = axes.lines[0].get_data()
        expected = density.pdf(points, log=scale == "log")
        np.testing.assert_array_equal(drawn, expected.value)
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        top = (expected.value + 2 * expected.standard_error).max()
        assert band.max() == pytest.approx(top)


def test_kappa_ranks_and_diagnoses_have_pictures():
    spectrum = gnjax.eigenvalues(np.diag([4.0, 2.0, 1e-20]))
    kappa = gnjax.condition_number(np.diag([4.0, 2.0, 1.0]))
    axes = _axes(kappa)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [4.0, 1.0])
    assert axes.get_title(loc="left").startswith("kappa = 4 in [4, 4]")
    assert not len(_axes(gnjax.condition_number(np.zeros((2, 2)))).lines[0].get_ydata())
    ranks = _axes(papers.rank_sensitivity(spectrum))
    np.testing.assert_allclose(ranks.lines[0].get_ydata()[:2], [1, 2])
    model = gnjax.models.LinearNet(3, 2, depth=1, width=(), key=jax.random.key(0))
    x = np.random.default_rng(1).standard_normal((5, 3))
    assert len(gnjax.plot(gnjax.diagnose(model, x)).axes) == 2


@pytest.mark.parametrize(("least", "is_drawn"), [(1e-26, True), (1e-3, False)])
def test_a_floor_far_below_the_spectrum_is_told_and_not_drawn(least, is_drawn):
    """Class: an axis that reaches down to the floor and leaves the spectrum a narrow band."""
    x = np.diag(np.sqrt([1.0, 0.1, least]))
    model = (lambda w, x: x @ w, np.ones((3, 1)))
    diagnosis = gnjax.diagnose(model, x)
    axes = gnjax.plot(diagnosis).axes[0]
    (text,) = (text.get_text() for text in axes.texts)
    floor = diagnosis.condition.floor
    assert 0 < floor < diagnosis.condition.lambda_min
    assert (axes.get_ylim()[0] < floor) == is_drawn
    assert text.strip() == ("floor" if is_drawn else f"floor {floor:.0e} ↓")


def test_other_results_are_refused():
    with pytest.raises(ValueError, match=r"draws a Spectrum, .* got a Trace; print shows"):
        gnjax.plot(gnjax.trace(np.eye(2), method="exact"))


def test_a_picture_goes_onto_axes_of_the_callers():
    figure = Figure()
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    spectrum = gnjax.answers.Spectrum(np.array([3.0, 2.0]), np.zeros(2), "dense")
    assert gnjax.plot(spectrum, ax=left) is figure
    assert left.get_title(loc="left")
    assert not right.get_title(loc="left")
    model = gnjax.models.LinearNet(3, 2, depth=1, width=(), key=jax.random.key(0))
    diagnosis = gnjax.diagnose(model, np.random.default_rng(1).standard_normal((5, 3)))
    assert gnjax.plot(diagnosis, ax=(left, right)) is figure
    assert right.get_title(loc="left") == "share of each layer"
    for result, ax, said in (
        (spectrum, (left, right), "a Spectrum is drawn on one pair of axes"),
        (spectrum, "left", "one pair of axes; ax='left' is something else"),
        (diagnosis, left, "a Diagnosis is drawn on two pairs of axes, ax=\\(left, right\\)"),
    ):
        with pytest.raises(ValueError, match=said):
            gnjax.plot(result, ax=ax)


def test_layers_are_drawn_with_their_kappa():
    model = gnjax.models.MLP((3, 4, 2), activation="tanh", key=jax.random.key(0))
    spectra = gnjax.block_spectra(model, np.random.default_rng(1).standard_normal((5, 3)))
    labels = [text.get_text() for text in _axes(spectra).get_xticklabels()]
    expected = [f"{b.name}\nkappa {b.condition.value:.3g}" for b in spectra.blocks]
    assert labels == expected


@pytest.mark.parametrize("largest", [5.0, 5e4])
def test_a_series_has_ticks_that_can_be_read(largest):
    """Class: a logarithmic axis over less than a decade, whose only ticks say 2x10^0."""
    monitor = gnjax.Monitor(np.ones((1, 2)), np.zeros((1, 2)))
    first = monitor(0, (lambda w, x: x * w, np.ones((1, 2))))
    monitor.history = [
        dataclasses.replace(first, step=step, sharpness=value)
        for step, value in ((0, 4.0), (1, 4.5), (7, largest))
    ]
    axes = _axes(monitor)
    low, high = axes.get_ylim()
    ticks = [text.get_text() for text in axes.get_yticklabels()]
    shown = [float(text) for text in ticks if text]
    assert 3 <= sum(low <= value <= high for value in shown) <= 15
    assert all(float(place).is_integer() for place in axes.get_xticks())


_LONG = "transformer/encoder/block_{}/self_attention/query_projection/kernel"


def _network(layers):
    """A network whose layers have long names, and inputs."""

    def apply(params, x):
        for index in range(layers):
            x = jax.numpy.tanh(x @ params[_LONG.format(index)])
        return x

    keys = jax.random.split(jax.random.key(0), layers)
    params = {_LONG.format(i): jax.random.normal(key, (4, 4)) for i, key in enumerate(keys)}
    return (apply, params), np.random.default_rng(1).standard_normal((8, 4))


def _results():
    """A result of every class that has a picture, with titles and notes as long as they become."""
    zeros = np.array([1.0, 1e-3, 1e-9, 0.0, 0.0])
    yield gnjax.answers.Spectrum(zeros, np.array([1e-6] * 4 + [0.0]), "krylov", converged=False)
    yield gnjax.answers.Spectrum(
        np.array([2.0, 1.0]), np.full(2, np.inf), "krylov", converged=False
    )
    yield gnjax.spectral_density(np.diag(np.logspace(-6, 0, 60)), probes=4, steps=20)
    yield gnjax.condition_number(np.diag(np.logspace(-6.123, 0.1, 60)))
    yield papers.rank_sensitivity(gnjax.eigenvalues(np.diag(np.linspace(1.0, 2.0, 120))))
    for layers in (3, 12):
        yield gnjax.block_spectra(*_network(layers))
        yield gnjax.diagnose(*_network(layers))
    monitor = gnjax.Monitor(np.ones((1, 2)), np.zeros((1, 2)))
    first = monitor(0, (lambda w, x: x * w, np.ones((1, 2))))
    monitor.history = [dataclasses.replace(first, step=step) for step in (0, 70000)]
    yield monitor


@pytest.fixture(scope="module")
def results():
    return list(_results())


@pytest.mark.parametrize("inches", [None, (4.0, 3.0)])
def test_every_text_lies_inside_the_picture(results, inches):
    """Class: titles, names of layers and notes that the picture's edge cuts off."""
    assert set(_DRAWN) <= {type(result) for result in results}
    for result in results:
        ax = None
        if inches is not None:
            narrow = Figure(figsize=inches, layout="constrained")
            columns = 2 if isinstance(result, gnjax.answers.Diagnosis) else 1
            ax = narrow.subplots(1, columns)
        figure = gnjax.plot(result, ax=ax)
        figure.draw_without_rendering()
        page, beyond = figure.bbox, set(_ticks_beyond(figure))
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text() and text not in beyond:
                box = Text.get_window_extent(text)
                assert page.x0 <= box.x0 <= box.x1 <= page.x1, (result, text.get_text())
                assert page.y0 <= box.y0 <= box.y1 <= page.y1, (result, text.get_text())


def _ticks_beyond(figure):
    """The labels of ticks beyond the limits of their axis, which are not drawn."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def test_names_of_many_layers_do_not_touch():
    """Class: names of layers over each other, where there is no room for all."""
    figure = gnjax.plot(gnjax.diagnose(*_network(20)))
    figure.draw_without_rendering()
    _, shares = figure.axes
    boxes = [label.get_window_extent() for label in shares.get_yticklabels() if label.get_text()]
    assert len(boxes) > 5
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
