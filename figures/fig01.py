"""Figure 1: training loss and condition number of pruned ResNet20s."""

from functools import partial

from figures.shared import pruning

EXPERIMENT, COLUMNS = pruning.EXPERIMENT, pruning.COLUMNS
PART = {"figure": "14"}
draw = partial(pruning.draw, network="resnet20")
caption = partial(pruning.caption, number=1, network="resnet20")
