"""The configuration of an experiment at one of its profiles."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from sweeps import config


def frozen(experiment: ModuleType, profile: str) -> Any:
    """As the experiment's own ``Config``."""
    name = experiment.__name__.rpartition(".")[2]
    edge, found = config.load(f"configs/{name}.py:{profile}")
    assert found == profile
    return config.freeze(experiment.Config, edge)
