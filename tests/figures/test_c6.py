"""Figure C6: bars of shares, tensors by name, and losses over the weights that can act."""

import numpy as np
import pytest
from pandas import DataFrame, concat

from experiments.claims.dead_channels import dense, ended, largest
from figures import c6
from reproduction import texts
from reproduction.published import GALLERY, table_of
from sweeps import table
from sweeps.rows import where
from tests.drawn import line

SHORTCUT, FIRST = "stage2_block1/shortcut/conv/kernel", "stage1_block1/first/conv/kernel"


def _cell(tensors, pruned, empty, *shares, seed=0, epsilon=1e-5, epoch=0):
    """A lambda_max with what its vector has in pruned and in idle columns, and in two tensors."""
    common = {
        "what": "largest", "width": 16, "tensors": tensors, "pruned": pruned, "shrunk": False,
        "epsilon": epsilon, "seed": seed, "epoch": epoch, "columns": "all", "loss": np.nan,
        "parameters": 10, "live": 5, "idle": empty, "empty": empty, "samples": 64, "measured": 64,
        "inputs": 3072, "outputs": 10, "data": "cifar10_part", "batch": 64, "depth": 20,
        "residual": 0.1,
    }  # fmt: skip
    in_pruned, in_idle, in_shortcut = shares
    rows = (("all", 1.0, in_pruned, in_idle, 2.0 + seed),)
    rows += ((SHORTCUT, in_shortcut, 0.0, 0.0, np.nan), (FIRST, 1 - in_shortcut, 0.0, 0.0, np.nan))
    names = ("tensor", "share", "share_pruned", "share_idle", "lambda_max")
    return [common | dict(zip(names, row, strict=True)) for row in rows]


FRAME = DataFrame(
    [
        *_cell(c6.EVERY, 0.8, 0, 0.9, 0.8, 0.7),
        *_cell(c6.EVERY, 0.8, 0, 0.7, 0.4, 0.5, seed=1),
        *_cell(c6.EVERY, 0.8, 0, 0.7, 0.4, 0.1, seed=1, epsilon=0.1),
        *_cell(c6.EVERY, 0.8, 0, 0.2, 0.1, 0.1, epoch=100),
        *_cell(c6.EVERY, 0.0, 0, 0.0, 0.0, 0.3),
        *_cell(c6.KERNELS, 0.8, 0, 0.5, 0.0, 0.2),
        *_cell(c6.KERNELS, 0.8, 1, 0.9, 0.9, 0.9, seed=1),
    ]
)


def test_the_bars_of_c6_are_mean_shares_and_name_the_largest_tensor():
    """Starts with an idle channel stand apart, and so do networks after training."""
    axes = c6.draw(FRAME).axes[-1]
    widths = {}
    for bar in axes.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        widths.setdefault(place, []).append(bar.get_width())
    shares = [widths[place][:3] for place in range(5)]
    wanted = [
        [0.6, 0.2, 0.2], [0.0, 0.0, 1.0], [0.9, 0.0, 0.1], [0.0, 0.5, 0.5], [0.1, 0.1, 0.8],
    ]  # fmt: skip
    np.testing.assert_allclose(shares, wanted, atol=1e-12)
    told = [text.get_text() for text in axes.texts]
    assert told[::2] == [
        "80% every tensor (2)",
        "unpruned (1)",
        "80% kernels, idle (1)",
        "80% kernels, none idle (1)",
        "80% every tensor, trained (1)",
    ]
    homes = ("2_block1/shortcut: 60%", "1_block1/first: 70%", "2_block1/shortcut: 90%")
    homes += ("1_block1/first: 80%", "1_block1/first: 90%")
    assert told[1::2] == [f"stage{home}" for home in homes]


def test_without_a_trained_network_c6_says_so():
    (losses, *_) = c6.draw(FRAME).axes
    assert [text.get_text() for text in losses.texts] == ["no network of this table is trained"]
    assert "The loss after" not in c6.caption(FRAME, {"precision": "float64"})


def test_a_pruned_start_is_a_marker_at_its_live_weights():
    """The sizes of the starts differ, so that they have no mean in one place."""
    base = FRAME.iloc[0].to_dict() | {"what": "losses", "epoch": 100}
    dense = [
        base | {"pruned": 0.0, "width": width, "live": live, "loss": loss, "seed": seed}
        for width, live, loss in ((1, 100, 2.0), (2, 400, 1.0))
        for seed in (0, 1)
    ]
    pruned = [
        base | {"shrunk": True, "live": live, "loss": loss, "seed": seed}
        for seed, (live, loss) in enumerate(((200, 1.5), (210, 1.6)))
    ]
    (losses, *_) = c6.draw(concat([FRAME, DataFrame(dense + pruned)], ignore_index=True)).axes
    curve = line(losses, "dense, 1, 2 filters")
    assert curve.get_xdata().tolist() == [100, 400]
    np.testing.assert_allclose(curve.get_ydata(), [2.0, 1.0])
    marks = line(losses, "80% every tensor")
    assert marks.get_linestyle() == "None"
    assert (marks.get_xdata().tolist(), marks.get_ydata().tolist()) == ([200, 210], [1.5, 1.6])


def test_an_empty_table_is_drawn():
    c6.draw(FRAME[:0])


def test_a_line_over_epsilon_follows_the_same_starts():
    """Class: a mean that falls because another start stands at its end."""
    more = DataFrame(_cell(c6.EVERY, 0.8, 0, 0.7, 0.4, 0.1, seed=3))
    (_, over_epsilon, _) = c6.draw(concat([FRAME, more], ignore_index=True)).axes
    curve = line(over_epsilon, "80% every tensor")
    assert curve.get_xdata().tolist() == [1e-5, 0.1]
    np.testing.assert_allclose(curve.get_ydata(), [3.0, 3.0])  # start 1, which has both


def test_the_caption_of_c6_counts_what_is_not_computed_and_how_many_starts_there_are():
    arm = {"what": "largest", "widths": [16], "tensors": c6.EVERY, "epsilons": [1e-5, 0.1]}
    arm |= {"rates": [0.8], "shrunk": False, "epoch": 0, "seeds": 2}
    losses = arm | {"what": "losses", "epsilons": [1e-5], "epoch": 100}
    config = {"first_seed": 0, "arms": {"every": arm, "again": arm, "live": losses}}
    told = {"precision": "float64", "missing": 3, "config": config}
    trained = FRAME.iloc[:1].assign(what="losses", epoch=100, loss=1.0, tensor=None)
    caption = c6.caption(concat([FRAME, trained], ignore_index=True), told)
    counts = "3 of 4 lambda_max before training, 1 of 2 losses of dense networks are here."
    assert f"Not all is computed yet: {counts}" in caption
    assert "One start (0)." in caption
    assert "a residual of at most 0.05 of it" in caption
    assert "computed yet" not in c6.caption(FRAME, {"precision": "float64"})


def _listed(losses):
    *first, last = (f"{loss:.3g}" for loss in losses)
    return f"{', '.join(first)} and {last}"


def test_the_numbers_of_c6_that_findings_quote():
    """Losses and lambda_max in the paper's sizes, and the sentences they stand in."""
    (row,) = (row for row in texts.explained() if "Figure 1" in row.title)
    told = " ".join(row.found)
    whole = table.read(table_of("c6", GALLERY / "paper"))
    frame, starts = where(whole, seed=0), ended(whole).sort_values("seed")
    for width, quoted in (
        (1, "1.61, 1.55 and 1.63"),
        (2, "1.22, 1.27 and 1.2"),
        (4, "0.549, 0.679 and 0.716"),
    ):
        losses = where(dense(whole), width=width).sort_values("seed")
        assert _listed(losses["loss"]) == quoted
        assert f"{losses['live'].iloc[0]:,}" in told
        assert quoted in told
    (largest_one,) = where(dense(frame), width=8)["loss"]
    assert f"{largest_one:.3g}" == "0.205"
    pruned = where(starts, shrunk=True, pruned=0.8, tensors=c6.EVERY)
    assert _listed(pruned["loss"]) == "1.18, 1.3 and 1.22"
    assert (pruned["live"].min(), pruned["live"].max()) == (2662, 2768)
    for number in ("0.205", "68,786", "1.18, 1.3 and 1.22", "2,662 to 2,768 weights"):
        assert number in told
    alone = pruned["loss"].iloc[0]
    larger = dense(frame)[dense(frame)["live"] > 2662]
    assert alone < larger["loss"].max()  # no slower than a dense network of more weights
    quoted = ((0, "1.28e8", 26, 67, 121), (1, "8.12e7", 19, 102, 2849), (2, "3.29e8", 46, 86, 781))
    for seed, value, thousands, by_less, by_most in quoted:
        of_start = where(whole, seed=seed)
        ends = largest(of_start, epoch=100).set_index("epsilon")
        (left,) = where(largest(of_start, "left", epoch=100), epsilon=1e-5)["lambda_max"]
        values, shares = ends["lambda_max"], ends["share_idle"]
        assert f"{values[1e-5]:.2e}".replace("e+0", "e") == value
        assert values[1e-5] / left == pytest.approx(1000 * thousands, abs=500)
        assert values[1e-5] / values[1e-3] == pytest.approx(by_less, abs=0.5)
        assert values[1e-5] / values[0.1] == pytest.approx(by_most, abs=0.5)
        assert (shares[1e-5] > 0.998, shares[0.1] < 0.05) == (True, True)
        assert all(f"{number:,}" in told for number in (1000 * thousands, by_less, by_most))
        assert value in told
    assert "99.8% or more" in told


def test_the_losses_with_ties_at_random_that_findings_quote():
    (row,) = (row for row in texts.explained() if "Figure 1" in row.title)
    laptop = where(ended(table.read(table_of("c6", GALLERY))), shrunk=True, pruned=0.8)
    losses = [where(laptop, tensors=tensors)["loss"].item() for tensors in (c6.SCATTERED, c6.EVERY)]
    assert [f"{loss:.3g}" for loss in losses] == ["1.96", "1.98"]
    told = " ".join(row.refuted.split())
    assert "it ends at 1.96, with ties in order at 1.98" in told
    whole = ended(table.read(table_of("c6", GALLERY / "paper")))
    ties = where(whole, tensors=c6.SCATTERED).sort_values("seed")
    live = [f"{int(count):,}" for count in ties["live"]]
    ends = [f"{loss:.3g}" for loss in ties["loss"]]
    assert (
        f"with {live[0]}, {live[1]} and {live[2]} weights it ends at"
        f" {ends[0]}, {ends[1]} and {ends[2]}, between the dense ones of 4,556 and of 17,534"
    ) in told
    for seed, loss in zip(ties["seed"], ties["loss"], strict=True):
        sizes = where(dense(whole), seed=seed).set_index("live")["loss"]
        assert sizes[17534] < loss < sizes[4556]
