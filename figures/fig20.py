"""Figure 20: condition number over depth of residual networks for several skip strengths."""

from functools import partial

from figures.shared import depths

EXPERIMENT = "beta_sweep"
COLUMNS = (*depths.COLUMNS, "figure", "beta", "bound_convex")
draw = partial(depths.draw_betas, number="20")
caption = partial(depths.betas_caption, number="20")
