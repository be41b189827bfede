"""Figure 13: training loss and condition number of pruned vision transformers."""

from functools import partial

from figures.shared import pruning

EXPERIMENT, COLUMNS = pruning.EXPERIMENT, pruning.COLUMNS
PART = {"figure": "13"}
draw = partial(pruning.draw, network="vit")
caption = partial(pruning.caption, number=13, network="vit")
