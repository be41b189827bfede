"""Figure 16: training loss and condition number of pruned VGG5s."""

from functools import partial

from figures.shared import pruning

EXPERIMENT, COLUMNS = pruning.EXPERIMENT, pruning.COLUMNS
PART = {"figure": "16"}
draw = partial(pruning.draw, network="vgg5")
caption = partial(pruning.caption, number=16, network="vgg5")
