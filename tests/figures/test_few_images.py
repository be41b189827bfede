"""The row of networks that train on fewer images, in figures 1, 13 and 15."""

import numpy as np
import pandas
import pytest

from experiments.claims.pruning_arms import OF_FEW
from figures import catalogue
from tests.drawn import line, mean_and_interval
from tests.figures.drawing import published

_PROVENANCE = {"precision": "float64"}


def _with_few(name, network):
    """The published table, and its rows of a network again, as of 16 images and twice as large."""
    frame = published(name)
    rows = frame[(frame["network"] == network) & (frame["tensors"] == "every tensor")]
    doubled = {of: 2 * rows[of] for of in ("loss", "kappa", "kappa_low", "kappa_high")}
    few = rows.assign(what=rows["what"] + OF_FEW, samples=16, **doubled)
    return frame, few, pandas.concat([frame, few], ignore_index=True)


@pytest.mark.parametrize(("name", "network"), [("fig15", "resnet32"), ("fig13", "vit")])
def test_the_last_row_is_of_few_images_and_the_others_stay(name, network):
    module = catalogue.load(name)
    frame, few, both = _with_few(name, network)
    before, after = module.draw(frame), module.draw(both)
    columns = 3
    assert len(after.axes) == len(before.axes) + columns
    for one, other in zip(before.axes, after.axes, strict=False):
        for theirs, ours in zip(one.lines, other.lines, strict=True):
            np.testing.assert_array_equal(theirs.get_xydata(), ours.get_xydata())
    losses, kappa, _ = after.axes[-columns:]
    assert "16 images" in losses.get_ylabel()
    known = few[few["augment"] & np.isfinite(few["loss"])]
    for rate, rows in known[known["what"].str.startswith("losses")].groupby("pruned"):
        _, mean, *_ = mean_and_interval(rows, "epoch", rows["loss"])
        np.testing.assert_allclose(line(losses, f"{rate:.0%} pruned").get_ydata(), mean)
    assert len(kappa.lines)


def test_what_makes_figure_1_has_no_rows_of_few_images():
    module = catalogue.load("c4")
    frame, _, both = _with_few("c4", "resnet20")
    assert module.caption(both, _PROVENANCE) == module.caption(frame, _PROVENANCE)
    before, after = module.draw(frame), module.draw(both)
    texts = [[text.get_text() for text in one.texts] for one in (before, after)]
    assert texts[0] == texts[1]


def test_the_caption_says_how_many_images_and_when_kappa_is_known():
    module = catalogue.load("fig15")
    frame, few, both = _with_few("fig15", "resnet32")
    before, after = module.caption(frame, _PROVENANCE), module.caption(both, _PROVENANCE)
    start, _, rest = after.partition("Last row: ")
    row, _, end = rest.partition("Logarithmic")
    assert f"{start}Logarithmic{end}" == before
    assert "trained on 16 of the images" in row
    stops = sorted(few[few["what"].str.startswith("kappa")]["epoch"].unique())
    assert f"after {stops[0]}, {stops[-1]} epochs" in row
