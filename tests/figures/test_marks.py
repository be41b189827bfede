"""What figures draw beside their curves, and what they draw of tables that lack something."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from pandas import DataFrame, concat

from figures import (
    b1,
    b2,
    b3,
    b4,
    c2,
    c3,
    catalogue,
    fig06,
    fig07,
    fig09,
    fig10,
    fig16,
    fig17,
    fig18,
    fig20,
    fig21,
    fig22,
    fig23,
    t5,
)
from figures.shared import captions, depths, paths, style
from reproduction.published import GALLERY, table_of
from sweeps import table
from sweeps.rows import where
from sweeps.table import TableError
from tests.drawn import line
from tests.figures.drawing import drawn, published

FLOAT64 = {"precision": "float64"}


def _opened(axes: Axes) -> list:
    """The open markers."""
    return [one for one in axes.lines if one.get_markerfacecolor() == "white"]


def _same_curves(frame: DataFrame, other: DataFrame, draw: Callable) -> None:
    for axes, expected in zip(draw(frame).axes, draw(other).axes, strict=True):
        for one, curve in zip(axes.lines, expected.lines, strict=True):
            np.testing.assert_array_equal(one.get_ydata(), curve.get_ydata())


WITH_INTERVALS = [
    name
    for name, module in catalogue.from_tables().items()
    if "resolved" in module.COLUMNS and name not in ("c2", "fig18")  # which draw other numbers
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_INTERVALS)
def test_a_kappa_without_an_upper_end_is_an_open_marker(name: str) -> None:
    """Of a table of lower bounds alone no curve is left, and no figure ends in a traceback."""
    hidden = published(name).assign(resolved=False, kappa_high=np.inf)
    panels = catalogue.load(name).draw(hidden).axes
    assert any(map(_opened, panels)) or name == "fig09"  # which leaves out what is below its error


# Figures 6, 7 and 23 ----------------------------------------------------------------------------


def test_figure_6_marks_the_width_of_n_units() -> None:
    (marked,) = [one for one in drawn("fig06").axes[0].lines if one.get_linestyle() == ":"]
    assert set(marked.get_xdata()) == set(where(published("fig06"), panel="one")["samples"])


@pytest.mark.parametrize(
    ("module", "column", "missing", "words"),
    [(fig06, "panel", "two", "two hidden layers"), (fig07, "norm", "layer", "of LayerNorm")],
)
def test_of_networks_that_are_not_in_the_table_nothing_is_said(
    module: object, column: str, missing: str, words: str
) -> None:
    whole = published(module.__name__.rpartition(".")[2])
    said = [module.caption(t, FLOAT64) for t in (whole, whole[whole[column] != missing])]
    assert [words in text for text in said] == [True, False]


def test_figure_6_is_titled_two_hidden_layers_where_it_draws_them() -> None:
    frame = published("fig06")
    panels = [fig06.draw(t).axes[1] for t in (frame, frame[frame["panel"] != "two"])]
    assert ["two hidden layers" in panel.get_title("left") for panel in panels] == [True, False]


def test_figure_23_marks_the_crossover_where_there_is_one() -> None:
    """At the mean over seeds of the log-log interpolation, which is exact for powers of m."""
    frame = published("fig23")
    meets = 300.0 + 30 * frame["seed"]  # where ReLU, which grows as m, is the linear network
    kappa = 1000 * (frame["slope"] + (1 - frame["slope"]) * frame["width"] / meets)
    above = np.where(frame["sign"] == "-alpha", 1 + 90 * frame["slope"], 1.0)
    made = frame.assign(kappa=kappa * above)
    left, right = fig23.draw(made).axes
    place = np.exp(np.mean(np.log(sorted(set(meets)))))
    (marked,) = [one for one in left.lines if one.get_linestyle() == ":"]
    np.testing.assert_allclose(marked.get_xdata(), place, rtol=1e-9)
    assert f"$m = {place:.0f}$" in [text.get_text() for text in left.texts]
    assert not [one for one in right.lines if one.get_linestyle() == ":"]


# Figures 9, 10 and 18 ---------------------------------------------------------------------------


def test_figure_9_marks_the_rank_of_each_rule() -> None:
    shown = where(published("fig09"), figure="9", reading="published", seed=0, resolved=True)
    panels = ("eigenvalue", (fig09.STAR,)), ("kappa", tuple(fig09.MARKERS))
    for axes, (column, rules_of) in zip(drawn("fig09").axes, panels, strict=True):
        for index, (_, rows) in enumerate(shown.groupby("epoch")):
            of_one = 1 + len(rules_of)
            curve, *marks = axes.lines[of_one * index : of_one * (index + 1)]
            ordered = rows.sort_values("assumed_rank")
            np.testing.assert_array_equal(curve.get_xdata(), ordered["assumed_rank"])
            np.testing.assert_array_equal(curve.get_ydata(), ordered[column])
            for rule, mark in zip(rules_of, marks, strict=True):
                named = ordered["rule"].fillna("").str.split(", ")
                at = ordered[[rule in rules for rules in named]]
                assert mark.get_marker() == fig09.MARKERS[rule][0]
                places = at[["assumed_rank", column]].to_numpy()
                assert mark.get_xydata().tolist() == places.tolist()
                assert mark.get_color() == curve.get_color() == style.looks(2)[index].colour


def test_a_rule_without_a_rank_in_the_table_has_no_marker() -> None:
    """Where only the spectrum above one tolerance is kept."""
    frame = published("fig09")
    fewer = frame.assign(rule=frame["rule"].mask(frame["rule"] != "float32"))
    marks = [one for one in fig09.draw(fewer).axes[1].lines if len(one.get_xdata()) == 1]
    assert {mark.get_marker() for mark in marks} == {fig09.MARKERS["float32"][0]}
    assert "ranks: matrix_rank in single precision, " in fig09.caption(fewer, FLOAT64)


def test_figure_9_has_one_star_for_each_curve_as_the_paper_has() -> None:
    stars = [
        [one for one in axes.lines if one.get_marker() == "*" and one.get_markersize() > 8]
        for axes in drawn("fig09").axes
    ]
    assert [len(of_panel) for of_panel in stars] == [2, 2]


def test_figure_10_has_its_bounds_and_the_papers_range() -> None:
    *above, losses, kappas = drawn("fig10").axes
    there = {r: name for r, name in fig10.NAMES.items() if r in set(published("fig10")["reading"])}
    for index, (reading, name) in enumerate(there.items()):
        curve, bound = kappas.lines[2 * index : 2 * index + 2]
        rows = where(published("fig10"), reading=reading, measured=True)
        assert curve.get_xdata().tolist() == sorted(set(rows["epoch"]))
        means = np.exp(np.log(rows["bound_convex"]).groupby(rows["epoch"]).mean())
        np.testing.assert_allclose(bound.get_ydata(), means)
        assert bound.get_color() == curve.get_color() == line(losses, name).get_color()
    (band,) = kappas.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == fig10.PAPER_RANGE
    if above:  # the paper's setting alone, on linear epochs and kappa
        assert above[1].get_xscale() == above[1].get_yscale() == above[0].get_xscale() == "linear"
    (legend,) = drawn("fig10").legends
    assert [text.get_text() for text in legend.get_texts()] == list(there.values())


def _hidden(after: int, **numerical: float) -> tuple[DataFrame, int]:
    """The narrowest network's kappa after an epoch is known by a lower bound alone; its width."""
    frame = published("fig18")
    width = int(where(frame, figure="18", reading="published")["width"].min())
    at = (frame["width"] == width) & (frame["epoch"] > after)
    changed = {"resolved": False, "kappa_high": np.inf} | numerical
    return frame.assign(**{n: frame[n].mask(at, value) for n, value in changed.items()}), width


def test_the_numerical_kappa_stands_where_the_certified_one_is_open() -> None:
    frame, width = _hidden(0, kappa=1.0)
    kappas = fig18.draw(frame).axes[1]
    rows = where(frame, figure="18", reading="published", width=width, measured=True)
    last = where(rows, epoch=rows["epoch"].max())
    mean = np.exp(np.log(last["kappa_numerical"]).mean())
    np.testing.assert_allclose(line(kappas, f"$m = {width}$").get_ydata()[-1], mean)


def test_a_label_points_to_the_end_of_its_curve_also_where_that_is_a_lower_bound() -> None:
    """Class: a label's line from an early point crosses the panel and reads as a curve."""
    frame, width = _hidden(0, kappa_numerical_high=np.inf)
    few = sorted(set(where(frame, figure="18")["width"]))[: paths.MOST_LABELS]  # more have a key
    figure = fig18.draw(frame[frame["width"].isin(few) | (frame["figure"] != "18")])
    figure.canvas.draw()
    kappas = figure.axes[1]
    (label,) = [text for text in kappas.texts if text.get_text() == f"$m = {width}$"]
    place = kappas.transData.transform(_opened(kappas)[0].get_xydata()[-1])
    np.testing.assert_allclose(label.xy, kappas.transAxes.inverted().transform(place), atol=1e-6)


def test_another_reading_is_drawn_where_the_published_one_is_missing() -> None:
    frame = where(published("fig18"), figure="18", reading="published")
    other = frame.assign(
        reading="shuffled", shuffled=True, biases="zero", training_loss="cross_entropy"
    )
    _same_curves(other, frame, fig18.draw)
    assert "SGD on the cross-entropy, batches of " in fig18.caption(other, FLOAT64)
    assert "samples drawn at random, biases in" in fig18.caption(other, FLOAT64)


# Figures 5 and 20 to 22 -------------------------------------------------------------------------


def test_a_gain_against_an_unresolved_network_is_left_out() -> None:
    frame = where(published("fig20"), figure="20")
    network = (frame["depth"] == frame["depth"].max()) & (frame["seed"] == 1)
    frame["resolved"] = ~(network & (frame["beta"] == "0"))
    np.testing.assert_array_equal(np.isnan(depths.against_linear(frame)["ratio"]), network)
    own = frame.assign(resolved=~(network & (frame["beta"] == "2")))
    np.testing.assert_array_equal(np.isnan(depths.against_linear(own)["ratio"]), ~own["resolved"])


@pytest.mark.parametrize("column", ["width", "data"])
@pytest.mark.parametrize("module", [fig20, fig21, fig22])
def test_a_figure_refuses_to_average_over_widths_or_data(module: object, column: str) -> None:
    frame = published("fig20")
    with pytest.raises(TableError, match="one width on one data set"):
        module.draw(frame.assign(**{column: frame["seed"]}))


# Figures 13 to 17 -------------------------------------------------------------------------------


def test_both_panels_name_their_curves_in_one_style_of_ticks() -> None:
    """Powers of ten over many decades, else plain numbers."""
    frame = where(published("fig16"), network="vgg5", steps="printed")
    loss, kappa = 1 + 0.1 * frame["pruned"] / frame["epoch"], 10.0 ** (frame["epoch"] / 10)
    figure = fig16.draw(frame.assign(loss=loss, kappa=kappa.where(frame["measured"])))
    figure.draw_without_rendering()
    rates = sorted(set(frame["pruned"]))
    (legend,) = figure.legends  # in the order of the rates, as labels at the ends would cross
    assert [one.get_text() for one in legend.get_texts()] == [f"{r:.0%} pruned" for r in rates]
    assert {one.get_text() for one in figure.axes[1].yaxis.get_minorticklabels()} <= {""}
    losses = [label.get_text() for label in figure.axes[0].get_yticklabels(which="both")]
    assert all(text == f"{float(text):g}" for text in losses if text)


def test_where_a_seed_has_lost_rank_the_marker_is_open_and_the_caption_says_so() -> None:
    frame = published("fig16")
    known = {"resolved": frame["measured"], "kappa_high": frame["kappa"]}
    full = frame.assign(rank_numerical=frame["samples"] * frame["outputs"], **known)
    rows = where(frame, network="vgg5", steps="printed", measured=True)
    rate, epoch = rows["pruned"].max(), rows["epoch"].max()
    lost = (frame["pruned"] == rate) & (frame["epoch"] == epoch) & (frame["seed"] == 0)
    lost &= (frame["network"] == "vgg5") & (frame["steps"] == "printed")
    found = full.assign(rank_numerical=full["rank_numerical"] - lost)
    kappas = fig16.draw(found).axes[1]
    (opened,) = _opened(kappas)
    curve = line(kappas, f"{rate:.0%} pruned")
    np.testing.assert_allclose(opened.get_xydata(), curve.get_xydata()[-1:])
    (legend,) = kappas.get_legend().get_texts()
    assert legend.get_text() == "numerical rank below $k\\,n$"
    assert f"numerical rank below k n (1 of {len(rows)} cells)" in fig16.caption(found, FLOAT64)
    assert "numerical rank" not in fig16.caption(full, FLOAT64)
    assert fig16.draw(full).axes[1].get_legend() is None


def test_a_network_is_named_in_its_picture_and_so_is_the_drop_of_its_rate() -> None:
    """Class: a reader has to look for the network and the drop in the caption."""
    frame = published("fig16")
    with_drop = fig16.draw(frame.assign(drop_after=3)).axes
    without = fig16.draw(frame.assign(drop_after=0)).axes
    told = with_drop[0].get_title(loc="left")
    assert told == "VGG5, kernels alone pruned, Fashion-MNIST for CIFAR-10"
    for images, said in ((1000, ""), (256, ", 256 images")):
        of_the_paper = frame.assign(data="cifar10_part", samples=images)
        title = fig16.draw(of_the_paper).axes[0].get_title(loc="left")
        assert title == f"VGG5, kernels alone pruned{said}"
        assert ("The paper has 1,000 images" in fig16.caption(of_the_paper, FLOAT64)) == bool(said)
        assert "not evidence" not in fig16.caption(of_the_paper, FLOAT64)
    for panels, said in ((with_drop, True), (without, False)):
        for axes in panels:
            assert ("the rate drops" in [text.get_text() for text in axes.texts]) == said


def test_networks_with_images_of_their_own_are_told() -> None:
    frame = published("c2")
    assert "Trained on" not in c2.caption(frame, FLOAT64)
    vgg5 = frame["network"] == "vgg5"
    found = c2.caption(frame.assign(data=frame["data"].where(~vgg5, "cifar10_part")), FLOAT64)
    assert "; CIFAR-10: VGG5." in found


@pytest.mark.parametrize(
    ("count", "places"), [(1, {0}), (2, {0, 1}), (4, {0, 2, 3}), (6, {0, 2, 5})]
)
def test_three_curves_at_most_have_a_band(count: int, places: set[int]) -> None:
    """The first, one between, the last."""
    assert paths.spaced(count, 3) == places


def test_smaller_steps_and_seeds_that_were_not_trained_are_not_in_the_curves() -> None:
    frame = where(published("fig16"), network="vgg5", steps="printed")
    start = where(frame, epoch=0)
    more = start.assign(seed=start["seed"] + 100, kappa=1e9 * start["kappa"])
    smaller = frame.assign(steps="small", loss=3 * frame["loss"])
    both = concat([frame, more, smaller], ignore_index=True)
    _same_curves(both, frame, fig16.draw)


def test_captions_say_how_much_is_not_computed_yet() -> None:
    """Class: a part of a sweep is shown as if it were the whole."""
    frame = where(published("fig16"), network="vgg5", steps="printed", seed=[0, 1])
    trained = frame[frame["epoch"].groupby([frame["seed"], frame["pruned"]]).transform("max") > 0]
    rates = sorted(set(trained["pruned"]))
    planned = {"rates": [*rates, 0.99], "seeds": 2}
    told = {**FLOAT64, "missing": 5, "config": {"vgg5": planned}}
    count = 2 * len(rates)
    text = f"Not all is computed yet: {count} of {count + 2} trainings are shown, none at 99%."
    assert text in fig16.caption(trained, told)
    planned["rates"] = rates
    one = trained[trained["seed"] == 0]
    assert f"{count // 2} of {count} trainings are shown. " in fig16.caption(one, told)
    assert "computed yet" not in fig16.caption(trained, told)
    assert "computed yet" not in fig16.caption(trained, FLOAT64)


def test_a_network_without_a_cell_is_told() -> None:
    frame = published("fig16")
    with pytest.raises(TableError, match="no VGG5 is in the table"):
        fig16.draw(frame[frame["network"] != "vgg5"])


def test_figure_17_without_kappas_of_what_is_left_says_so() -> None:
    """Class: a colour by its place among the curves of a panel is that of another rate."""
    frame = published("fig17")
    *_, empty = fig17.draw(frame[frame["of"] != "left"]).axes
    assert "not computed yet" in [text.get_text() for text in empty.texts]
    rates = sorted(set(where(frame, run="plotted")["pruned"]))
    rate = rates[1]
    fewer = frame[(frame["of"] != "left") | (frame["pruned"] != rate)]
    losses, _, left = fig17.draw(fewer).axes
    second, third = (line(losses, f"{r:.0%} pruned").get_color() for r in (rate, rates[2]))
    assert line(left, f"{rates[2]:.0%} pruned").get_color() == third != second
    provenance = table.read_provenance(table.provenance_beside(table_of("fig17", GALLERY)))
    assert "so far" not in fig17.caption(frame, provenance)
    assert "Kappas that are computed so far: " in fig17.caption(fewer, provenance)


def test_figure_17_has_the_losses_of_more_starts_than_kappa() -> None:
    """Class: a mean over all starts before training and over one after it, which jumps."""
    frame = published("fig17")
    later = frame["measured"] & (frame["epoch"] > 0) & (frame["seed"] > 0)
    losses, every, _ = fig17.draw(frame[~later]).axes
    of_one = fig17.draw(where(frame, seed=0)).axes
    label = f"{frame['pruned'].max():.0%} pruned"
    curves = [line(axes, label).get_ydata() for axes in (losses, every)]
    same = [
        np.array_equal(curve, line(axes, label).get_ydata())
        for curve, axes in zip(curves, of_one, strict=False)
    ]
    assert same == [False, True]
    provenance = table.read_provenance(table.provenance_beside(table_of("fig17", GALLERY)))
    caption = fig17.caption(frame[~later], provenance)
    assert "Losses: geometric mean over 3 initialisations; bands" in caption
    assert "Kappa: one initialisation." in caption
    assert "kappa of 2 more starts before training" in caption
    assert "Losses: " not in fig17.caption(frame, provenance)


def test_a_wide_interval_is_told_as_the_factor_between_its_ends() -> None:
    """Class: "a relative interval of 4" for a kappa that may be a seventh of its upper end."""
    narrow = {"kappa": 2.0, "kappa_low": 1.9, "kappa_high": 2.1, "resolved": True}
    wide = {"kappa": 4.0, "kappa_low": 2.0, "kappa_high": 14.0, "resolved": True}
    shared = {"evidence": "proved", "failure": 0.0}
    told = captions.certificates(DataFrame([narrow | shared, wide | shared]))
    assert "known to a factor of 7 or less between its lower and upper end (proved)" in told
    told = captions.certificates(DataFrame([narrow | shared]))
    assert "known to a relative interval of 0.1 or less (proved)" in told


# B1 to B4 ---------------------------------------------------------------------------------------


def test_b1_is_drawn_for_other_seeds() -> None:
    """As `reproduce --first_seed=100` has them; it ended in a traceback after an hour."""
    frame = published("b1")
    moved = frame.assign(seed=frame["seed"] + 100)
    _same_curves(moved, frame, b1.draw)
    assert "for a network of" in b1.caption(moved, FLOAT64)


def test_b1_contours_are_of_the_measured_values_in_their_places() -> None:
    rows = where(published("b1"), figure="1b")
    depth, norm, values = b1.grid(rows)
    for at in rows.sample(20, random_state=0).itertuples():
        assert values[norm.tolist().index(at.norm), depth.tolist().index(at.depth)] == at.measured


def test_b2_draws_the_edges_that_are_near_their_runs() -> None:
    edge = drawn("b2").axes[-1]
    runs = where(published("b2"), figure="2d")
    dotted = [one for one in edge.lines if one.get_linestyle() == ":"]  # dashed is lambda_*
    limits = {one.get_color(): one.get_ydata()[0] for one in dotted}
    near = sorted(rate for rate in set(runs["rate"]) if 2 / rate < 2 * runs["measured"].max())
    colors = [line(edge, f"$\\eta = {rate:.3g}$").get_color() for rate in near]
    assert limits == {color: 2 / rate for color, rate in zip(colors, near, strict=True)}
    assert line(edge, r"$\lambda_\star$").get_ydata()[0] == runs["least"][0]


@pytest.mark.parametrize("module", [b1, b2])
def test_a_profile_without_the_extra_panels_says_so(module: object) -> None:
    figure = module.draw(where(published("b1"), figure=["1a", "1c", "2a", "2b", "2c"]))
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said == ["not part of this profile"]


def test_b3_draws_estimates_with_their_errors_and_their_distances_from_eq_7() -> None:
    panels = drawn("b3").axes
    for above, below, panel in zip(panels[:3], panels[3:], "abc", strict=True):
        marked = [one for one in below.lines if one.get_marker() not in ("None", "")]
        widths = where(published("b3"), panel=panel).groupby("width")
        for dots, (width, rows) in zip(marked, reversed(list(widths)), strict=True):
            (bars,) = [c for c in above.containers if c.get_label() == f"Hutchinson, $m = {width}$"]
            points, _, (segments,) = bars
            means = rows.groupby("epoch")["estimate"].mean()
            np.testing.assert_allclose(points.get_ydata(), means)
            ends = np.array([segment[:, 1] for segment in segments.get_segments()])
            squares = (rows["standard_error"] ** 2).groupby(rows["epoch"])
            half = np.sqrt(squares.sum()) / squares.count()
            np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, half)
            away = (rows["estimate"] - rows["predicted"]) / rows["standard_error"]
            np.testing.assert_allclose(dots.get_ydata(), away)
        assert {one.get_ydata()[0] for one in below.lines if one.is_dashed()} == {-4.0, 4.0}
    without = published("b3").assign(exact=np.nan)
    assert "crosses" not in b3.caption(without, FLOAT64)


def test_the_axis_of_epochs_of_b4_shows_the_start_and_decades() -> None:
    (axes, *_) = drawn("b4").axes
    last = published("b4")["epoch"].max()
    assert axes.get_xscale() == "symlog"
    assert axes.get_xticks()[[0, -1]].tolist() == [0, last]
    low, high = axes.get_xlim()
    assert low < 0 < last < high
    (alone, *_) = b4.draw(where(published("b4"), epoch=0)).axes
    assert alone.get_xticks().tolist() == [0]


# C3 ---------------------------------------------------------------------------------------------


def _map(frame: DataFrame, name: str = "8-convolutions") -> Axes:
    return c3.draw(frame).subfigs[list(c3.READINGS).index(name)].axes[2]


def _kappas(of: Callable) -> DataFrame:
    """The published table with other kappas, which scatter by a percent over the seeds."""
    frame = published("c3")
    noise = 1 + 0.01 * np.random.default_rng(0).random(len(frame))
    kappa = of(frame["kernel"].astype(float), frame["filters"].astype(float)) * noise
    return frame.assign(kappa=kappa, kappa_low=0.999 * kappa, kappa_high=1.001 * kappa)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kappa", "filters", "kernels"),
    [
        (lambda k, f: f**2 / k, c3.AGREES, c3.AGREES),
        (lambda k, f: k / f**2, c3.OPPOSES, c3.OPPOSES),
        (lambda k, f: f**2 * k, c3.AGREES, c3.OPPOSES),
        (lambda k, f: 10.0 + 0 * k, c3.OPEN, c3.OPEN),
    ],
)
def test_a_map_shows_the_sign_of_every_step(kappa: Callable, filters: str, kernels: str) -> None:
    frame = _kappas(kappa)
    steps = list(c3.steps(where(frame, figure="8-convolutions")))
    across = [sign for start, end, sign in steps if start[1] == end[1]]
    up = [sign for start, end, sign in steps if start[0] == end[0]]
    if filters != c3.OPEN:
        assert (set(across), set(up)) == ({filters}, {kernels})
    else:  # 95% intervals leave some of so many steps out by chance
        assert (across + up).count(c3.OPEN) > 0.8 * len(steps)
    lines = [one for one in _map(frame).lines if len(one.get_xdata()) == 2]
    assert [one.get_color() for one in lines] == [c3.SIGNS[sign]["color"] for *_, sign in steps]


def test_a_line_parts_the_networks_without_full_rank_from_the_others() -> None:
    frame = published("c3")
    full = frame.assign(rank=frame["size"])
    filters = sorted(set(where(frame, figure="8-shared")["filters"]))
    lost = (frame["figure"] == "8-shared") & (frame["filters"] == filters[0])
    parted = _map(full.assign(rank=full["rank"] - lost), "8-shared")
    (black,) = [one for one in parted.lines if one.get_drawstyle() == "steps-mid"]
    np.testing.assert_allclose(black.get_xdata(), (filters[0] * filters[1]) ** 0.5)
    assert not [one for one in _map(full, "8-shared").lines if one.get_drawstyle() == "steps-mid"]


def test_an_unresolved_kappa_opens_the_steps_beside_it() -> None:
    """A lower bound says that kappa rises to it and falls from it, and nothing else."""
    frame = _kappas(lambda k, f: f**2 / k)
    shown = where(frame, figure="8-convolutions")
    kernel, filters = (sorted(set(shown[name]))[1] for name in ("kernel", "filters"))
    odd = (frame["figure"] == "8-convolutions") & (frame["kernel"] == kernel)
    odd &= frame["filters"] == filters
    hidden = frame.assign(resolved=~odd, kappa_high=frame["kappa_high"].mask(odd, np.inf))
    steps = c3.steps(where(hidden, figure="8-convolutions"))
    signs = [sign for start, end, sign in steps if (filters, kernel) in (start, end)]
    assert signs == [c3.AGREES, c3.OPEN, c3.OPEN, c3.AGREES]


# T5 ---------------------------------------------------------------------------------------------


def test_t5_draws_the_threshold_of_every_rate_and_counts_what_is_left_out() -> None:
    frame = published("t5")
    mlp = where(frame, network="mlp")
    for axes, optimizer in zip(drawn("t5").axes, ("gradient descent", "Adam"), strict=False):
        flat = [one.get_ydata()[0] for one in axes.lines if one.is_dashed()]
        assert set(flat) == set(where(mlp, optimizer=optimizer)["final_threshold"])
    count = int(frame["preconditioned"].isna().sum())
    fewer = frame.assign(preconditioned=frame["preconditioned"].mask(frame.index == 0))
    more = count + int(frame["preconditioned"].notna()[0])
    assert f"{more} of {len(frame)} values have larger errors" in t5.caption(fewer, FLOAT64)
