"""Figure 15: training loss and condition number of pruned ResNet32s."""

from functools import partial

from figures.shared import pruning

EXPERIMENT, COLUMNS = pruning.EXPERIMENT, pruning.COLUMNS
PART = {"figure": "15"}
draw = partial(pruning.draw, network="resnet32")
caption = partial(pruning.caption, number=15, network="resnet32")
