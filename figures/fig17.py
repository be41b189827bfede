"""Figure 17: training loss and condition number of pruned feed-forward networks."""

from functools import partial

from figures.shared import pruning

EXPERIMENT, COLUMNS = pruning.EXPERIMENT, pruning.COLUMNS
PART = {"figure": "17"}
draw = partial(pruning.draw, network="feed_forward")
caption = partial(pruning.caption, number=17, network="feed_forward")
