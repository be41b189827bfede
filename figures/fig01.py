"""Figure 1: training loss, lambda_max and condition number of pruned ResNet20s."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from pandas import DataFrame

from figures.shared import arms

EXPERIMENT, COLUMNS = arms.EXPERIMENT, arms.COLUMNS


def draw(frame: DataFrame) -> Figure:
    return arms.draw(frame, "resnet20")


def caption(frame: DataFrame, provenance: Mapping[str, Any]) -> str:
    return arms.caption(frame, provenance, 1, "resnet20")
