"""The configuration of an experiment at one of its profiles."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict
from pandas import DataFrame

from sweeps import config
from sweeps.experiment import Experiment


def changed(experiment: Experiment, profile: str, **changes: Any) -> ConfigDict:
    """The config of a profile with other values; those of a group are merged into it."""
    found, _ = config.load(f"configs/{experiment.name}.py:{profile}")
    found.update(changes)
    return found


def computed(experiment: Experiment, found: ConfigDict, **wanted: Any) -> DataFrame:
    """The rows of the cells whose keywords have the wanted values."""
    cells = [cell for cell in experiment.cells(found) if wanted.items() <= cell.keywords.items()]
    measured = {cell: experiment.measure_cell(cell) for cell in cells}
    return DataFrame(experiment.rows(found, measured))


def records(experiment: Experiment, profile: str, **changes: Any) -> list[Any]:
    """What ``measure`` is given in each cell of a profile, of experiments that take a record."""
    cells = experiment.cells(changed(experiment, profile, **changes))
    return [experiment.record(**cell.keywords) for cell in cells]
