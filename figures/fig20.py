"""Figure 20: condition number over depth of residual networks for several skip strengths."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from figures.shared import depths
from figures.shared.series import Columns

EXPERIMENT = "beta_sweep"
COLUMNS = (*depths.COLUMNS, "figure", "beta", "bound_convex")


def draw(table: Columns) -> Figure:
    """Kappa with the bound of Eq 7 at every beta, and kappa relative to beta = 0."""
    return depths.draw_betas(depths.of_figure(table, "20"))


def caption(table: Columns, provenance: Mapping[str, Any]) -> str:
    """What the figure shows, with the sizes, seeds and certificates of the table behind it."""
    return depths.betas_caption("20", depths.of_figure(table, "20"), provenance)
