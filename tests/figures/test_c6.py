"""Figure C6: bars of shares, tensors by name, and losses over the weights that can act."""

import numpy as np
from pandas import DataFrame, concat

from figures import c6
from tests.drawn import line

SHORTCUT, FIRST = "stage2_block1/shortcut/conv/kernel", "stage1_block1/first/conv/kernel"


def _cell(tensors, pruned, empty, *shares, seed=0, epsilon=1e-5, epoch=0):
    """A lambda_max with what its vector has in pruned and in idle columns, and in two tensors."""
    common = {
        "what": "largest", "width": 16, "tensors": tensors, "pruned": pruned, "shrunk": False,
        "epsilon": epsilon, "seed": seed, "epoch": epoch, "columns": "all", "loss": np.nan,
        "parameters": 10, "live": 5, "idle": empty, "empty": empty, "samples": 64, "measured": 64,
        "inputs": 3072, "outputs": 10, "data": "cifar10_part", "batch": 64, "depth": 20,
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
        "80% every tensor",
        "unpruned",
        "80% kernels, idle",
        "80% kernels, none idle",
        "80% every tensor, trained",
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
    marks = line(losses, "80% every tensor pruned")
    assert marks.get_linestyle() == "None"
    assert (marks.get_xdata().tolist(), marks.get_ydata().tolist()) == ([200, 210], [1.5, 1.6])


def test_an_empty_table_is_drawn():
    c6.draw(FRAME[:0])
