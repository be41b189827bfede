"""Figure C4 shows the valley of every variant, and kappa at every pruning rate."""

import numpy as np

from experiments.claims.pruning_causes import TITLES
from figures import c4
from tests.drawn import as_columns, assert_texts_fit, line

RATES = (0.0, 0.4, 0.8)


def _row(variant, pruned, seed, epoch):
    kappa = 1e5 * (1 + seed) * (0.1 if pruned == 0.4 else 1.0)
    return {
        "variant": variant, "pruned": pruned, "seed": seed, "epoch": epoch, "depth": 5, "width": 8,
        "samples": 64, "inputs": 256, "outputs": 10, "data": "fashion_mnist_5000", "rate": 0.1,
        "momentum": 0.9, "decay": 1e-4, "drop_after": 100, "batch": 16, "instability": 0.7 - pruned,
        "loss": 1e-3, "kappa": kappa, "kappa_low": kappa, "kappa_high": kappa, "resolved": True,
        "evidence": "measured", "failure": 0.0, "kappa_numerical": kappa,
        "kappa_numerical_low": kappa, "kappa_numerical_high": kappa, "tolerance": 1e-13,
        "rank_numerical": 640 - (pruned == 0.8),
    }  # fmt: skip


def _table():
    return as_columns(
        _row(variant, pruned, seed, epoch)
        for variant in TITLES
        for pruned in RATES
        for seed in (0, 1, 2)
        for epoch in ((0, 120) if variant == "printed" else (120,))
    )


def test_figure_c4_draws_each_variant_once_on_each_side():
    table = _table()
    assert set(c4.COLUMNS) <= set(table)
    figure = c4.draw(table)
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == list(TITLES.values())
    points = [bars.lines[0].get_xydata()[0] for bars in left.containers]
    np.testing.assert_allclose(points, [(0.1, place) for place in range(len(TITLES))])
    expected = 1e5 * 6 ** (1 / 3)
    for rate, factor in zip(RATES, (1.0, 0.1, 1.0), strict=True):
        drawn = line(right, f"{rate:.0%} pruned")
        np.testing.assert_allclose(drawn.get_xdata(), factor * expected)
    opened = [len(one.get_xdata()) for one in right.lines if one.get_markerfacecolor() == "white"]
    assert opened == [0, 0, len(TITLES)]
    assert_texts_fit(figure)


def test_the_caption_has_the_recipe_and_how_stable_it_is():
    found = c4.caption(_table(), {"precision": "float64"})
    assert "learning rate 0.1, a tenth of it after epoch 100, momentum 0.9" in found
    assert "Its rate is -0.1 to 0.7 of the largest one that is stable" in found
    assert "30 of 90 cells" in found
