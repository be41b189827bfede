"""Figure T8: the limits beside the powers of L, and what an empty table looks like."""

import numpy as np
import pytest

from experiments.claims.depth_law import local_powers, passing
from experiments.shared.depth_law import rate
from figures import t8
from sweeps.rows import where
from tests.drawn import line
from tests.figures.drawing import drawn, published


def test_the_dashed_lines_of_t8_are_the_depth_times_the_limit():
    frame = published("t8")
    for axes, (inputs, outputs) in ((drawn("t8").axes[1], (12, 3)), (drawn("t8").axes[2], (4, 4))):
        widths = sorted(set(frame["width"][frame["inputs"] == inputs]))
        dashed = [one for one in axes.lines if one.get_linestyle() == "--"]
        assert len(dashed) == len(widths)
        for one, width in zip(dashed, widths, strict=True):
            x, y = one.get_data()
            np.testing.assert_allclose(y, rate(width, inputs, outputs) * x, rtol=1e-12)
            label = f"$m/d = {width / inputs:g}$"
            assert one.get_color() == line(axes, label).get_color()
    assert t8.QUADRATIC in {one.get_ydata()[0] for one in axes.lines if one.get_linestyle() == ":"}


def test_an_empty_table_is_drawn():
    t8.draw(published("t8")[:0])


@pytest.mark.parametrize(
    ("width", "first", "last", "passes"),
    [(12, 3.51, 19.5, 3.16), (120, 0.91, 3.05, 15.0), (1200, 0.285, 0.846, np.nan)],
)
def test_the_powers_that_findings_quote(width, first, last, passes):
    rows = where(published("t8"), inputs=12, outputs=3, width=width, resolved=True)
    powers = local_powers(rows).groupby("depth")["power"].mean().to_numpy()
    assert powers[[0, -1]] == pytest.approx((first, last), rel=0.01)
    assert passing(rows) == pytest.approx(passes, rel=0.01, nan_ok=True)


def test_the_curves_of_powers_are_their_means():
    """By slopes between columns of a table, of a width at which every kappa is resolved."""
    rows = where(published("t8"), inputs=12, outputs=3, width=1200)
    assert rows["resolved"].all()
    table = np.log(rows.pivot(index="depth", columns="seed", values="kappa"))
    depths = np.log(table.index.to_numpy(float))
    slopes = table.diff(2).to_numpy()[2:] / (depths[2:] - depths[:-2])[:, None]
    curve = line(drawn("t8").axes[1], "$m/d = 100$")
    np.testing.assert_allclose(curve.get_ydata(), slopes.mean(axis=1), rtol=1e-9)
    middles = np.sqrt(np.exp(depths[2:]) * np.exp(depths[:-2]))
    np.testing.assert_allclose(curve.get_xdata(), middles, rtol=1e-12)
