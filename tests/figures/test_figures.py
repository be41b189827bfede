"""Figures show what their table says: means, bands, bounds, and lower bounds as lower bounds."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from pandas import DataFrame, concat

from figures import __main__ as cli
from figures import catalogue, fig02, fig03, fig04
from figures.shared import captions, labels, points, style
from figures.shared.series import kappa_over_seeds, over_seeds
from sweeps.rows import where
from sweeps.storage.files import replacing
from sweeps.table import TableError, read, typed
from tests.drawn import band_edges, line
from tests.figures.drawing import published


@pytest.fixture
def depth_table() -> DataFrame:
    return published("fig02")


def test_a_bound_that_does_not_apply_is_absent(depth_table: DataFrame) -> None:
    applies = depth_table["depth"] <= 4
    narrow = depth_table.assign(bound_convex=depth_table["bound_convex"].where(applies))
    axes = fig02.draw(narrow).axes[0]
    for bound in (drawn for drawn in axes.lines if drawn.is_dashed()):
        assert max(bound.get_xdata()) == 4


def test_figure_3_refuses_to_average_over_widths(depth_table: DataFrame) -> None:
    mixed = depth_table.assign(width=depth_table["width"] + depth_table["seed"])
    with pytest.raises(TableError, match="one width"):
        fig03.draw(mixed)


def test_an_unresolved_cell_is_an_open_marker_under_an_arrow(depth_table: DataFrame) -> None:
    shown = where(depth_table, figure="3")
    depth = int(shown["depth"].max())
    hidden = (shown["depth"] == depth) & (shown["seed"] == 0)
    unresolved = shown.assign(resolved=~hidden)
    (axes,) = fig03.draw(unresolved).axes
    measured = line(axes, "measured")
    assert np.isnan(measured.get_ydata()[measured.get_xdata() == depth]).all()
    (opened,) = [drawn for drawn in axes.lines if drawn.get_markerfacecolor() == "white"]
    at = where(unresolved, depth=depth)
    floor = scipy.stats.gmean(np.where(at["resolved"], at["kappa"], at["kappa_low"]))
    np.testing.assert_allclose(opened.get_xydata(), [[depth, floor]], rtol=1e-12)
    arrows = [text for text in axes.texts if text.get_text() == ""]
    assert [arrow.xy for arrow in arrows] == [(depth, pytest.approx(floor))]
    assert arrows[0].xyann[1] > 0  # upwards, in points
    said = fig03.caption(unresolved, {"precision": "float64"})
    assert f"(1 of {len(shown)} cells are unresolved)" in said


def test_a_curve_of_lower_bounds_alone_is_labelled_at_the_last_of_them(
    depth_table: DataFrame,
) -> None:
    resolved = np.zeros(len(depth_table["resolved"]), bool)
    figure = fig03.draw(depth_table.assign(resolved=resolved))
    figure.canvas.draw()
    (axes,) = figure.axes
    at = {line.get_label(): line.get_xydata()[-1] for line in axes.lines if len(line.get_xdata())}
    labels = [text for text in axes.texts if text.get_text() in at]
    assert labels
    for label in labels:
        place = axes.transAxes.inverted().transform(axes.transData.transform(at[label.get_text()]))
        np.testing.assert_allclose(label.xy, place, atol=1e-6)


def test_a_band_is_the_interval_of_the_geometric_mean() -> None:
    table = DataFrame({"x": [1, 1, 1], "y": [1.0, 10.0, 100.0]})
    axes = style.new_figure(2, 2).subplots()
    style.band(axes, over_seeds(table, "x", "y"), style.looks(1)[0])
    half = 4.302652729911275 / 3**0.5  # the 97.5% point of Student's t with 2 degrees of freedom
    _, low, high = band_edges(axes, 0)
    np.testing.assert_allclose(np.log10([low[0], high[0]]), [1 - half, 1 + half], rtol=1e-9)


def test_an_interval_beside_single_starts_is_a_bar() -> None:
    """Class: a band that closes towards a place of one seed, as if that were known better."""
    table = DataFrame({"x": [1, 1, 1, 2, 3], "y": [1.0, 10.0, 100.0, 10.0, 10.0]})
    series = over_seeds(table, "x", "y")
    axes = style.new_figure(2, 2).subplots()
    style.band(axes, series, style.looks(1)[0])
    filled, bars = axes.collections
    assert all((path.vertices[:, 0] == 1).all() for path in filled.get_paths())  # of no width
    (bar,) = bars.get_segments()
    np.testing.assert_allclose(bar, [[1, series.low[0]], [1, series.high[0]]], rtol=1e-12)


def test_two_starts_are_two_lines_and_bars_from_one_to_the_other() -> None:
    """Class: an interval of two numbers, which is 13 times as wide as their distance allows."""
    table = DataFrame({"x": [1, 2, 3, 1, 2], "y": [1.0, 10.0, 7.0, 4.0, 5.0]})
    series = over_seeds(table, "x", "y")
    axes = style.new_figure(2, 2).subplots()
    line = style.band(axes, series, style.looks(1)[0])
    assert not axes.collections
    starts = [found.get_ydata() for found in axes.lines if found is not line]
    np.testing.assert_array_equal(starts, [[1.0, 10.0, 7.0], [4.0, 5.0, 7.0]])
    np.testing.assert_array_equal([series.low, series.high], [[1, 5, 7], [4, 10, 7]])
    assert "thin lines are the two" in captions.seeds(table.assign(seed=[0, 0, 0, 1, 1]))
    assert "bars reach" in captions.seeds(table.assign(seed=[0, 0, 0, 1, 1]), "bars")
    mixed = captions.spread([2, 3])
    assert mixed == "bands are its 95% interval, thin lines the two where there are two"


@pytest.mark.parametrize("has_low", [False, True])
def test_a_kappa_that_is_not_resolved_is_not_drawn_as_one_that_is(has_low: bool) -> None:
    """Class: the recipe of a sweep of one's own, with 2.7e23 at a rank that was assumed."""
    table = DataFrame({"x": [1, 2], "kappa": [10.0, 1e23], "resolved": [True, False]})
    if has_low:
        table["kappa_low"] = [9.0, 5.0]
    series = over_seeds(table, "x", "kappa")
    np.testing.assert_array_equal(series.resolved, [True, False])
    np.testing.assert_allclose(series.mean, [10.0, 5.0 if has_low else 1e23])


def test_a_point_tells_its_place_its_value_and_its_starts() -> None:
    table = DataFrame({"x": [1, 2] * 3, "kappa": np.repeat([1.0, 10.0, 100.0], 2)})
    series = replace(over_seeds(table, "x", "kappa"), resolved=np.array([True, False]))
    figure = style.new_figure(2, 2)
    axes = figure.subplots()
    style.band(axes, series, style.looks(1)[0], r"$\beta = 1/\sqrt{H}$")
    style.logarithmic(axes)
    axes.set_xlabel("layer $\\ell$")
    told = re.findall("<title>(.*)</title>", points.overlay(figure))
    starts = "the starts: 1, 10, 100"
    assert told[0] == f"β = 1/√H, layer ℓ = 1: 10; 95% interval 0.0328 to 3049; {starts}"
    assert told[1].startswith("β = 1/√H, layer ℓ = 2: at least 10; ")


def test_bars_are_the_interval_and_leave_out_what_is_unresolved() -> None:
    resolved = np.array([True, False])
    table = DataFrame({"x": [0, 1] * 3, "kappa": np.repeat([1.0, 10.0, 100.0], 2)})
    series = replace(over_seeds(table, "x", "kappa"), resolved=resolved)
    axes = style.new_figure(2, 2).subplots()
    style.bars(axes, series, style.looks(1)[0])
    (bar,) = [found for found in axes.collections if isinstance(found, LineCollection)]
    known, unknown = bar.get_segments()
    np.testing.assert_allclose(known[:, 1], [series.low[0], series.high[0]])
    assert unknown.size == 0
    marks = axes.lines[0].get_ydata()
    np.testing.assert_array_equal(np.isnan(marks), ~resolved)
    np.testing.assert_allclose(axes.lines[1].get_ydata(), series.mean[1:])  # the lower bound


def test_the_quadratic_fit_finds_a_quadratic_and_needs_four_depths() -> None:
    depth = np.arange(2, 8)
    rows = DataFrame({"depth": depth, "kappa": 3 + 0.9 * depth**2, "resolved": True})
    x, y = fig02.quadratic(kappa_over_seeds(rows.assign(kappa_low=rows["kappa"]), "depth"))
    np.testing.assert_allclose(y, 3 + 0.9 * x**2, rtol=1e-10)
    few = where(rows.assign(kappa_low=rows["kappa"]), depth=[2, 3, 4])
    assert fig02.quadratic(kappa_over_seeds(few, "depth")) is None


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_the_schematic_computes_the_residual_network(depth: int) -> None:
    """Evaluating the drawn graph gives (W_L + beta I) ... (W_1 + beta I) x."""
    rng = np.random.default_rng(depth)
    sizes = dict(zip("dmk", (4, 6, 3), strict=True))
    graph = fig04.edges(fig04.widths(depth))
    states = {0: rng.standard_normal(sizes["d"])}
    product = np.eye(sizes["d"])
    for edge in graph:
        rows, columns = (sizes[name] for name in edge.shape.split(r" \times "))
        if not edge.skip:
            weight = rng.standard_normal((rows, columns))
            product = (weight + 0.5 * np.eye(rows, columns)) @ product
        factor = 0.5 * np.eye(rows, columns) if edge.skip else weight
        states[edge.target] = states.get(edge.target, 0) + factor @ states[edge.source]
    np.testing.assert_allclose(states[depth], product @ states[0], rtol=1e-12)


def test_the_schematic_labels_every_weight_and_skip() -> None:
    (axes,) = fig04.draw(3).axes
    texts = [text.get_text() for text in axes.texts]
    assert [rf"$\mathbf{{W}}^{{{layer}}}$" in texts for layer in (1, 2, 3)] == [True] * 3
    assert texts.count(r"$\beta\,\mathbf{I}$") == 3
    assert [texts.count(rf"${shape}$") for shape in (r"m \times d", r"k \times m")] == [1, 1]
    with pytest.raises(ValueError, match="depth = 0"):
        fig04.draw(0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 0.3))
def test_labels_are_moved_apart_in_order_around_their_mean(heights: list, gap: float) -> None:
    moved = np.array(style.spread(heights, gap))
    order = np.argsort(heights, kind="stable")
    assert np.all(np.diff(moved[order]) >= gap - 1e-12)
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-12)
    if np.all(np.diff(np.sort(heights)) >= gap):
        np.testing.assert_allclose(moved, heights, atol=1e-12)


def test_drawing_leaves_matplotlib_as_it_was(depth_table: DataFrame, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    style.save(fig03.draw(depth_table), tmp_path / "figure.png")
    assert dict(mpl.rcParams) == before


# Tables and the command line -------------------------------------------------------------------


def save(table: DataFrame, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        DataFrame(dict(table)).to_csv(file, index=False)
    (folder / "provenance.json").write_text(json.dumps({"precision": "float64"}))


def test_a_caption_counts_the_initialisations_of_each_panel(depth_table: DataFrame) -> None:
    """Class: a number for the whole table stands for panels that have fewer."""
    first, few = (where(depth_table, seed=list(range(count))) for count in (3, 2))
    fewer = concat([where(first, figure="2a"), few[few["figure"] != "2a"]])
    text = fig02.caption(fewer, {"precision": "float64"})
    assert "(3 in (a), 2 in (b, left), 2 in (b, right))" in text
    assert "over 3 initialisations" in fig02.caption(first, {"precision": "float64"})
    assert captions.seeds(where(first, seed=0)) == "One initialisation."


def test_captions_name_the_data_in_the_order_of_the_panels() -> None:
    rows = {"samples": [5], "inputs": [4], "outputs": [2]}
    left, right = (DataFrame({**rows, "data": [f"{name}, raw"]}) for name in ("mnist", "digits"))
    sizes = "raw, n = 5, d = 4, k = 2"
    found = captions.data_of_panels([left, right, left])
    assert found == f"MNIST, {sizes}; handwritten digits, {sizes}"
    panels = {"(a)": left, "(b)": right, "(c)": left, "(d)": left[:0]}
    sizes = sizes.removeprefix("raw, ")
    assert (
        labels.data_of_panels(panels) == f"(a), (c) MNIST, {sizes}; (b) handwritten digits, {sizes}"
    )


def test_a_table_survives_the_file(depth_table: DataFrame, tmp_path: Path) -> None:
    save(depth_table, tmp_path / "smoke")
    again = read(tmp_path / "smoke" / "table.csv")
    assert list(again) == list(depth_table)
    for name, column in depth_table.items():
        assert again[name].dtype.kind == column.dtype.kind
        np.testing.assert_array_equal(again[name], column)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2"], np.array([1, 2])),
        (["1", "", "inf"], np.array([1.0, np.nan, np.inf])),
        (["True", "False"], np.array([True, False])),
        (["2a", "3"], np.array(["2a", "3"])),
    ],
)
def test_cells_get_the_narrowest_type(cells: list[str], expected: np.ndarray) -> None:
    assert typed(cells).dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(typed(cells), expected)


def test_a_figures_name_is_text_also_where_it_looks_like_a_number(tmp_path: Path) -> None:
    """Class: of a table of Figure 7 alone no row was found, and its claims were not testable."""
    path = tmp_path / "table.csv"
    path.write_text("figure,beta,width\n7,1,10\n7,2,20\n")
    assert len(where(read(path), figure="7", beta="2", width=20)) == 1


OF_THESE_TABLES = ("fig02", "fig03", "fig11", "fig12")


@pytest.mark.slow
def test_figures_write_pictures_and_captions(
    depth_table: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    save(depth_table, tmp_path / "depth_sweep" / "smoke")
    save(published("fig11"), tmp_path / "layer_sweep" / "smoke")
    names = [*OF_THESE_TABLES, "fig04"]  # which needs no table
    assert cli.main([*names, "--profile=smoke", f"--results={tmp_path}"]) == 0
    printed = [Path(name) for name in capsys.readouterr().out.split()]
    folder = tmp_path / "figures" / "smoke"
    assert sorted(printed) == sorted(folder.iterdir())  # and so no partial file stays behind
    assert {path.suffix for path in printed} == {".png", ".pdf", ".svg", ".txt"}
    assert len(printed) == 4 * len(names)
    before = {path: path.read_bytes() for path in printed}
    assert cli.main(["fig03", "--profile=smoke", f"--results={tmp_path}"]) == 0
    assert {path: path.read_bytes() for path in printed} == before  # the same table, the same bytes


def test_a_figure_is_drawn_again_only_where_its_table_changed(
    depth_table: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings = []
    render = cli.render
    monkeypatch.setattr(cli, "render", lambda *a: drawings.append(a[0]) or render(*a))
    folder = tmp_path / "depth_sweep" / "smoke"
    save(depth_table, folder)
    files = cli.saved("fig03", "smoke", tmp_path)
    given_to = ("fig03", files, tmp_path / "out")
    first = cli.drawn(*given_to)
    assert cli.drawn(*given_to) == first
    (folder / "provenance.json").write_text(json.dumps({"precision": "float64", "dates": ["now"]}))
    cli.drawn(*given_to)
    assert drawings == ["fig03"]
    save(depth_table.assign(kappa=depth_table["kappa"] * 1.5), folder)
    before = first[0].read_bytes()
    assert cli.drawn(*given_to)[0].read_bytes() != before
    first[-1].unlink()
    cli.drawn(*given_to)
    assert drawings == ["fig03"] * 3


def test_a_missing_table_names_the_command_that_makes_it(
    depth_table: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    save(depth_table, tmp_path / "depth_sweep" / "smoke")
    assert cli.main(["fig02", "--profile=paper", f"--results={tmp_path}"]) == 1
    message = capsys.readouterr().err
    assert "python -m experiments.depth_sweep --config=configs/depth_sweep.py:paper" in message
    assert "smoke" in message


def test_every_figure_is_found_and_is_one(capsys: pytest.CaptureFixture) -> None:
    names = catalogue.names()
    assert names.index("fig02") < names.index("fig12")
    assert set(catalogue.from_tables()) == set(names) - {"fig04"}
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in names)


def test_an_unknown_figure_is_answered_with_the_nearest(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["fig2"])
    assert stopped.value.code == 2
    assert "did you mean 'fig02'" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "figure.txt"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert [found.read_text() for found in tmp_path.iterdir()] == ["old"]


def test_drawing_needs_neither_jax_nor_the_library() -> None:
    check = "import sys, figures.__main__; print({'jax', 'flax', 'gnjax'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", check],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"
